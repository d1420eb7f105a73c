//! A user's own preloaded library stays where the user put it: in front of the driver, for each way
//! to find a function.

mod support;

use std::path::{Path, PathBuf};
use support::{Recording, compiled, fake_driver, finished, launches, library};
use test_process::Command;

/// The program, linked with a `libcuda.so.1`, and a folder in which that is the fake driver.
struct Linked {
    folder: tempfile::TempDir,
}

impl Linked {
    fn new() -> Option<Linked> {
        let folder = tempfile::tempdir().unwrap();
        let driver = folder.path().join("libcuda.so.1");
        std::os::unix::fs::symlink(fake_driver(), &driver).unwrap();
        let search = format!("-L{}", folder.path().display());
        let libraries = [search.as_str(), "-l:libcuda.so.1", "-ldl"];
        compiled("program.c", &folder.path().join("program"), &libraries)?;
        Some(Linked { folder })
    }

    fn program(&self) -> Command {
        let mut command = Command::new(self.folder.path().join("program"));
        command.env("LD_LIBRARY_PATH", self.folder.path()).env_remove("LD_PRELOAD");
        for variable in ["APEX_SESSION", "APEX_DRIVER", "APEX_DISABLE"] {
            command.env_remove(variable);
        }
        command
    }

    /// A shim, compiled with this definition.
    fn shim(&self, name: &str, definition: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        compiled("quota.c", &path, &[definition, "-shared", "-fPIC", "-ldl"])
            .expect("it compiled a program before")
    }
}

fn joined(paths: &[&Path]) -> String {
    paths.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>().join(":")
}

#[test]
fn a_users_shim_sees_what_it_sees_without_apex() {
    let Some(linked) = Linked::new() else { return };
    for (definition, seen) in [("-DPLAIN", 3), ("-DHOOKS_DLSYM", 7)] {
        let shim = linked.shim("libshim.so", definition);
        let alone = finished(linked.program().env("LD_PRELOAD", &shim));
        assert_eq!(
            alone,
            format!("shim: {seen} launches, 1 allocations\n"),
            "what the shim sees without APEX"
        );

        let recording = Recording::untimed();
        let mut command = linked.program();
        command.env("LD_PRELOAD", joined(&[&shim, &library()]));
        command.env("APEX_DRIVER", fake_driver()).env("APEX_SESSION", recording.path());
        assert_eq!(finished(&mut command), alone, "{definition}");
        assert_eq!(launches(&recording.process()).len(), 15, "and every launch is recorded");
    }
}

#[test]
fn shims_stay_in_the_users_order() {
    let Some(linked) = Linked::new() else { return };
    let shim = |name: &str| linked.shim(&format!("lib{name}.so"), &format!("-DNAME=\"{name}\""));
    let (one, other) = (shim("one"), shim("other"));
    for pair in [[&*one, &*other], [&*other, &*one]] {
        let alone = finished(linked.program().env("LD_PRELOAD", joined(&pair)));
        assert_eq!(alone.lines().count(), 2, "both are called: {alone}");
        let recording = Recording::untimed();
        let mut command = linked.program();
        command.env("LD_PRELOAD", joined(&[pair[0], pair[1], &library()]));
        command.env("APEX_DRIVER", fake_driver()).env("APEX_SESSION", recording.path());
        assert_eq!(finished(&mut command), alone);
        assert_eq!(launches(&recording.process()).len(), 15);
    }
}
