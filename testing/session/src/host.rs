//! The host's samples of a session, written as `apex run` writes them.

use std::path::Path;

use apex_host_stacks::{Counters, Doing, Frame, FrameKind, Head, Process, Span, Thread, Writer};
use apex_trace::Session;
use apex_untrusted::Folder;

/// Most bytes of the file.
const MOST_BYTES: u64 = 64 << 20;

/// A frame: language, function, file, line (0 if unknown).
pub type OnHost<'a> = (FrameKind, &'a str, &'a str, u32);

/// Writes samples. Times are nanoseconds after the start of the session's first process.
pub struct HostSampler {
    writer: Writer,
    origin_ns: u64,
    period_ns: u64,
    /// The thread that made the session's first call.
    pub main: u32,
}

impl HostSampler {
    /// For the session in `dir`, whose processes have ended and which [`crate::open`] has opened.
    pub fn new(dir: &Path, period_ns: u64) -> Self {
        let session = Session::open(dir).expect("a session");
        let lost = vec!["compiled frames of other users: not permitted".to_owned()];
        let head = Head { period_ns, lost };
        let writer = Writer::new(Folder::open(dir).expect("its folder"), head, MOST_BYTES);
        let first = &session.processes[0];
        let origin_ns = first.clock.monotonic_ns(0);
        let tid = first.records_by_time().next().expect("a record").tid;
        let mut sampler = Self { writer, origin_ns, period_ns, main: 0 };
        let process = sampler.process(first.pid, first.parent_pid, "python");
        sampler.main = sampler.thread(process, tid, "python");
        sampler
    }

    /// A process; its index.
    pub fn process(&mut self, pid: u32, parent: u32, name: &str) -> u32 {
        let process = Process { pid, parent, name: name.into(), ..Process::default() };
        self.writer.process(process).expect("it is written")
    }

    /// A thread of a process; its index.
    pub fn thread(&mut self, process: u32, tid: u32, name: &str) -> u32 {
        self.writer.thread(Thread { process, tid, name: name.into() }).expect("it is written")
    }

    /// Samples of a thread, one in each period from `from` to before `to`: frames from the
    /// outermost to the innermost.
    pub fn samples(&mut self, thread: u32, (from, to): (u64, u64), frames: &[OnHost<'_>], doing: &Doing) {
        let samples = (to - from).div_ceil(self.period_ns).max(1);
        let span = Span {
            thread,
            first_ns: from,
            last_ns: from + (samples - 1) * self.period_ns,
            samples: samples as u32,
            stands_for: 1,
            is_settled: true,
            ..Span::default()
        };
        self.span(span, frames, doing);
    }

    /// A span, whose stack and doing are those given.
    pub fn span(&mut self, span: Span, frames: &[OnHost<'_>], doing: &Doing) {
        let writer = &mut self.writer;
        let frames = frames.iter().map(|&(kind, function, file, line)| {
            let (function, file) = (function.to_owned(), file.to_owned());
            writer.frame(Frame { kind, function, file, line }).expect("it is written")
        });
        let frames: Vec<u32> = frames.collect();
        let stack = writer.stack(frames).expect("it is written");
        let doing = writer.doing(doing).expect("it is written");
        let (first_ns, last_ns) = (span.first_ns + self.origin_ns, span.last_ns + self.origin_ns);
        writer.span(&Span { stack, doing, first_ns, last_ns, ..span }).expect("it is written");
    }

    /// Writes the file.
    pub fn finish(mut self) {
        self.writer.flush(&Counters::default()).expect("it is written");
    }
}
