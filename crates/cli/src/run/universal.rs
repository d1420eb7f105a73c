//! `apex run --universal`: what the injected library loads in place of modules that the driver
//! refuses.
//!
//! Machine code from a newer ptxas is offered first, because the module stays unchanged; then the
//! module's PTX, lowered.
//!
//! It listens on a socket in the session (`apex_conventions::universal`, [`answering`]). What its
//! threads did is written into session.json at the end. The program never
//! depends on it: without an answer it gets the driver's error.

use super::answering::{self, Answering};
use super::assembler;
use apex_conventions::universal::{PATIENCE, Request, SOCKET};
use apex_trace::meta::{Lacking, LoweredCost, Refused, Replaced};
use apex_untrusted::Folder;
use fatbin::embedded;
use ptx_retarget::{Gpu, Header, costs, lower, newest_of_driver};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Modules, and changes of each, that a session keeps at most.
const MOST: usize = 1000;
/// Kernels of a module that a session names.
const MOST_KERNELS: usize = 8;

/// Which changes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Universal {
    /// Those that change no result
    Exact,
    /// Also those whose results may differ within the bounds of the PTX ISA
    Approximate,
}

/// What answers.
pub struct Server {
    answering: Answering,
    refused: Arc<Mutex<Vec<Refused>>>,
}

/// Starts to listen in a session, if the user wants it.
///
/// # Errors
/// Those of the system: the socket cannot be made.
pub fn start(session: &Folder, universal: Option<Universal>) -> io::Result<Option<Server>> {
    let Some(universal) = universal else { return Ok(None) };
    let refused: Arc<Mutex<Vec<Refused>>> = Arc::default();
    let (log, path) = (Arc::clone(&refused), session.path().to_owned());
    let answering = answering::start(session, SOCKET, move |stream| answer(stream, &path, universal, &log))?;
    Ok(Some(Server { answering, refused }))
}

impl Server {
    /// Ends it and gives what it did.
    pub fn finish(self) -> Vec<Refused> {
        self.answering.finish();
        std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn answer(
    mut stream: UnixStream,
    session: &Path,
    universal: Universal,
    log: &Mutex<Vec<Refused>>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = [0; Request::BYTES];
    stream.read_exact(&mut head)?;
    let Some(request) = Request::from_bytes(&head) else { return Ok(()) };
    let mut image = Vec::new();
    (&mut stream).take(request.bytes).read_to_end(&mut image)?;
    let note = offered(&mut stream, session, &image, request, universal);
    // The end of the offers. The library reads it only if it has loaded none of them.
    let _ = stream.write_all(&0_u64.to_le_bytes());
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    if log.len() < MOST {
        log.extend(note);
    }
    Ok(())
}

/// Offers replacements of an image until one is loaded, and returns the result; `None` if the
/// header is not the reason for the refusal.
fn offered(
    stream: &mut UnixStream,
    session: &Path,
    image: &[u8],
    request: Request,
    universal: Universal,
) -> Option<Refused> {
    let (source, module, gpu) = refused_by_header(image, request)?;
    let header = Header::of(&module)?;
    let failure = match assembled(stream, session, &source, (gpu, request, header)) {
        Ok(Some((major, minor))) => {
            let after = Some(format!("machine code by ptxas {major}.{minor}"));
            let before = header.to_string();
            return Some(Refused { before, after, assembled: true, ..note(&module, request) });
        }
        Ok(None) => None,
        Err(reason) => Some(reason),
    };
    let (text, lowered) = lowered(&module, gpu, request, universal);
    let is_taken = !text.is_empty() && is_taken(stream, text.as_bytes());
    let after = lowered.after.clone().filter(|_| is_taken);
    Some(Refused { after, ptxas: failure, ..lowered })
}

/// Offers machine code by a newer ptxas; its release if the driver loads it, `None` if there is
/// none to ask.
///
/// # Errors
/// The reason why its code is not loaded.
fn assembled(
    stream: &mut UnixStream,
    session: &Path,
    source: &str,
    (gpu, request, header): (Gpu, Request, Header),
) -> Result<Option<(u32, u32)>, String> {
    let Some(ptxas) = assembler::find(gpu, request.driver_version, header)? else { return Ok(None) };
    let code = ptxas.assemble(session, source, (request.capability, header.target))?;
    match is_taken(stream, &code) {
        true => Ok(Some(ptxas.release)),
        false => Err(format!("the driver refused the machine code of {}", ptxas.path.display())),
    }
}

/// Whether the driver loads an offer. If there is no answer in time, the driver is compiling, and
/// the offer counts as loaded.
fn is_taken(stream: &mut UnixStream, code: &[u8]) -> bool {
    let sent = stream.write_all(&(code.len() as u64).to_le_bytes()).and_then(|()| stream.write_all(code));
    let mut is_loaded = [1];
    sent.is_ok() && !matches!(stream.read(&mut is_loaded), Ok(0)) && is_loaded != [0]
}

/// The PTX of an image, if its header is the reason why the driver refused it.
fn refused_by_header(image: &[u8], request: Request) -> Option<(String, ptx::Module, Gpu)> {
    let gpu = Gpu { capability: request.capability, newest: newest_of_driver(request.driver_version) };
    let images = embedded::images(image).ok()?;
    let [contents] = &images[..] else { return None };
    let source = String::from_utf8_lossy(contents.ptx_for(gpu.capability)?).into_owned();
    let module = ptx::parse(&source).ok()?;
    let is_too_new = Header::of(&module).is_some_and(|header| !gpu.takes(header) && header.is_known());
    is_too_new.then_some((source, module, gpu))
}

/// PTX that replaces a module (empty if there is none), and the note about it.
fn lowered(module: &ptx::Module, gpu: Gpu, request: Request, universal: Universal) -> (String, Refused) {
    let lowered = lower(module, gpu, universal == Universal::Approximate);
    let text = if lowered.blocked.is_empty() { lowered.module.to_string() } else { String::new() };
    let headers = lowered.headers.map(|(before, after)| (before.to_string(), after.to_string()));
    let (before, after) = headers.unwrap_or_default();
    let changes = lowered.changes.iter().map(|change| Replaced {
        function: change.function.to_string(),
        line: change.line,
        form: change.form.clone(),
        row: change.row.name.to_owned(),
        exact: change.row.exact,
    });
    let blocked = lowered.blocked.iter().map(|found| Lacking {
        function: found.function.to_string(),
        line: found.line,
        form: found.form.clone(),
        needs: found.needs.iter().map(ToString::to_string).collect(),
    });
    let is_whole = !text.is_empty();
    let costs = match is_whole && !lowered.changes.is_empty() {
        true => costs(module, &lowered.module, MOST_KERNELS),
        false => Vec::new(),
    };
    let costs = costs.into_iter().map(|cost| LoweredCost {
        kernel: cost.kernel.to_string(),
        before: cost.before,
        after: cost.after,
    });
    let refused = Refused {
        before,
        after: is_whole.then_some(after),
        changes: if is_whole { changes.take(MOST).collect() } else { Vec::new() },
        blocked: blocked.take(MOST).collect(),
        costs: costs.collect(),
        ..note(module, request)
    };
    (text, refused)
}

/// The part of a note that does not depend on the replacement.
fn note(module: &ptx::Module, request: Request) -> Refused {
    let kernels = module.functions().filter(|function| function.kind == ptx::FunctionKind::Entry);
    Refused {
        kernels: kernels.take(MOST_KERNELS).map(|kernel| kernel.name.to_string()).collect(),
        capability: request.capability,
        result: request.result,
        ..Refused::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "\n.address_size 64\n.visible .entry k() {\n.reg .b64 %rd<3>;\n";

    fn request(result: u32) -> Request {
        Request { capability: 80, driver_version: 13000, result, bytes: 0 }
    }

    fn asked(source: &str, universal: Universal) -> Option<(String, Refused)> {
        let (_, module, gpu) = refused_by_header(source.as_bytes(), request(218))?;
        Some(lowered(&module, gpu, request(218), universal))
    }

    #[test]
    fn a_module_is_lowered_only_if_its_header_is_too_new() {
        let pairs = format!(".version 8.6\n.target sm_100{HEAD}add.f32x2 %rd0, %rd1, %rd2; ret; }}\n");
        let (text, refused) = asked(&pairs, Universal::Exact).unwrap();
        assert!(text.starts_with(".version 7.0\n.target sm_75\n"), "{text}");
        assert_eq!((refused.changes[0].row.as_str(), refused.changes[0].line), ("f32x2", 6));
        let cost = &refused.costs[0];
        assert!(cost.kernel == "k" && cost.after > cost.before && cost.before > 0.0, "{cost:?}");
        for other in [".version 7.0\n.target sm_80", ".version 7.0\n.target sm_90", "no PTX", ""] {
            assert_eq!(asked(&format!("{other}{HEAD}nonsense; }}\n"), Universal::Exact), None);
        }
    }

    #[test]
    fn what_has_no_exact_row_stays_refused_unless_asked_for() {
        let body = ".reg .b16 %h; tanh.approx.bf16 %h, %h; ret; }\n";
        let source = format!(".version 7.8\n.target sm_90{HEAD}{body}");
        let (text, refused) = asked(&source, Universal::Exact).unwrap();
        assert_eq!((text.as_str(), refused.blocked[0].form.as_str()), ("", "tanh.approx.bf16"));
        let (text, refused) = asked(&source, Universal::Approximate).unwrap();
        assert!(text.contains("tanh.approx.f32"), "{text}");
        assert!(!refused.changes[0].exact);
    }

    #[test]
    fn a_session_with_a_long_path_has_a_socket_and_strangers_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(100)).join("y".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let session = Folder::open(&deep).unwrap();
        let server = start(&session, Some(Universal::Exact)).unwrap().unwrap();
        let mut stranger = UnixStream::connect(server.answering.socket()).unwrap();
        stranger.write_all(&[7; Request::BYTES]).unwrap();
        drop(stranger);
        assert_eq!(server.finish(), []);
        assert!(!deep.join(SOCKET).exists());
    }
}
