//! A real S3-compatible server, SeaweedFS, which checks signatures.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use test_process::{Child, Command};

/// What the server knows its user by.
pub const KEYS: (&str, &str) = ("apex-test", "a secret that nobody guesses");
/// The bucket that is there from the beginning.
pub const BUCKET: &str = "fleet";

/// A server with a bucket; it ends with this value.
pub struct Seaweed {
    /// Port of S3 over HTTP.
    pub port: u16,
    process: Child,
}

/// The program; `None` where it is not installed.
fn program() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("xtask").is_dir());
    let found = root.expect("the workspace").join("target/test-deps/seaweedfs/bin/weed");
    if found.exists() {
        return Some(found);
    }
    test_skip::missing_dependency(format!("needs {}", found.display()));
    None
}

impl Seaweed {
    /// Starts a server in a folder, with TLS where a certificate and its key are given; `None`
    /// where it is not installed.
    pub fn start(folder: &Path, tls: Option<[&Path; 2]>) -> Option<Self> {
        let program = program()?;
        let identity = format!(
            r#"{{"identities": [{{"name": "apex", "credentials": [{{"accessKey": "{}", "secretKey": "{}"}}],
                "actions": ["Admin", "Read", "Write", "List"]}}]}}"#,
            KEYS.0, KEYS.1
        );
        std::fs::write(folder.join("s3.json"), identity).unwrap();
        std::fs::create_dir_all(folder.join("data")).unwrap();
        // All at once, so that they differ.
        const PORTS: [&str; 10] = [
            "s3.port",
            "s3.port.grpc",
            "master.port",
            "master.port.grpc",
            "volume.port",
            "volume.port.grpc",
            "filer.port",
            "filer.port.grpc",
            "admin.port",
            "admin.port.grpc",
        ];
        let free = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = free.map(|listener| listener.local_addr().unwrap().port());
        let mut command = Command::new(program);
        command.arg("mini").args(PORTS.iter().zip(ports).map(|(name, port)| format!("-{name}={port}")));
        // (What else it would listen with has a port of its own choice, also where that is taken.)
        command.args(["-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.args(["-dir=data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]);
        command.args([&format!("-bucket={BUCKET}"), "-s3.config=s3.json"]);
        if let Some([certificate, key]) = tls {
            command.arg(format!("-s3.cert.file={}", certificate.display()));
            command.arg(format!("-s3.key.file={}", key.display()));
        }
        command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
        let mut started = Self { port: ports[0], process: command.spawn().unwrap() };
        // (The limit is far longer than it takes, also on a busy machine.)
        for _ in 0..1200 {
            if TcpStream::connect(("127.0.0.1", started.port)).is_ok() {
                return Some(started);
            }
            assert_eq!(started.process.try_wait().unwrap(), None, "SeaweedFS ended");
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("SeaweedFS does not listen");
    }
}
