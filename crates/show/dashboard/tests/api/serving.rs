//! A server of sessions for the tests, and what asks it.

use apex_counts::{Counted, Line, LineCounts};
use apex_dashboard::Dashboard;
use apex_http::{Options, Server, Stop};
use apex_trace::counts::{CountsFile, LaunchCounts};
use cuda_launch::LaunchConfig;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;
use test_session::{LEGACY, Recording};

/// The longest time that a test waits: a server that hangs fails it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The kernel of the sessions.
const KERNEL: &str = "ncclDevKernel_AllReduce";

/// A server of sessions with these names, in a folder that is removed with it.
pub struct Serving {
    pub folder: tempfile::TempDir,
    address: String,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// As [`Self::new`], with a program recorded in each session.
    pub fn recorded(names: &[&str]) -> Self {
        let serving = Self::new(names);
        names.iter().for_each(|name| serving.record(name));
        serving
    }

    pub fn new(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dirs: Vec<PathBuf> = names.iter().map(|name| folder.path().join(name)).collect();
        for dir in &dirs {
            std::fs::create_dir(dir).unwrap();
        }
        let dashboard = Dashboard::new(move || dirs.clone());
        let server = Server::bind(Options::default()).unwrap();
        let (address, stop) = (server.address().to_string(), Stop::default());
        let stopper = stop.clone();
        let thread = std::thread::spawn(move || {
            server.run_until(&stopper, move |request| dashboard.answer(request)).unwrap();
        });
        Self { folder, address, stop, thread: Some(thread) }
    }

    fn request(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        stream
    }

    /// Status, head, and body of an answer.
    pub fn get(&self, path: &str) -> (u16, String, String) {
        let mut answer = String::new();
        self.request(path).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_owned(), body.to_owned())
    }

    pub fn json(&self, path: &str) -> Value {
        let (status, head, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        assert!(head.contains("content-type: application/json\r\n"), "{head}");
        serde_json::from_str(&body).unwrap()
    }

    /// Identifiers of the sessions.
    pub fn ids(&self) -> Vec<String> {
        let list = self.json("/api/v1/sessions");
        let sessions = list["sessions"].as_array().unwrap();
        sessions.iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
    }

    /// The folder of a session.
    pub fn dir(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Records a program in a session, with the lines of its kernel.
    pub fn record(&self, name: &str) {
        let dir = self.dir(name);
        let mut recording = Recording::new(&dir);
        launch(&mut recording, 10);
        recording.exit();
        let counts = LineCounts { warp_instructions: 6, ..LineCounts::default() };
        let line = Line { file: "a.cu".into(), line: 7, counts };
        let launch = LaunchCounts {
            kernel: KERNEL.to_owned(),
            launch: LaunchConfig::new(264, 256),
            counted: Counted { lines: vec![line], watched: 6, executed: 6, ..Counted::default() },
        };
        CountsFile::create(&dir).unwrap().launch(&launch).unwrap();
        test_session::open(dir);
    }

    /// The identifier of the kernel of a session.
    pub fn kernel(&self, id: &str) -> String {
        let document = self.json(&format!("/api/v1/sessions/{id}/document"));
        document["kernels"]["list"][0]["id"].as_str().unwrap().to_owned()
    }

    /// The timeline, when it is ready.
    pub fn timeline(&self, id: &str, query: &str) -> Value {
        loop {
            let timeline = self.json(&format!("/api/v1/sessions/{id}/timeline{query}"));
            if timeline["state"] == "ready" {
                return timeline;
            }
            std::thread::yield_now();
        }
    }

    pub fn events(&self, id: &str, query: &str) -> Events {
        let mut lines = BufReader::new(self.request(&format!("/api/v1/sessions/{id}/events{query}")));
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the head has no end");
        }
        Events(lines)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Launches the kernel.
pub fn launch(recording: &mut Recording, times: usize) {
    let kernel = recording.function(KERNEL);
    let kernel = recording.config(kernel, 264, 256);
    for _ in 0..times {
        recording.timed(kernel, LEGACY, 20_000);
        recording.synchronise(LEGACY, 30_000);
    }
}

/// A stream of events, in chunks.
pub struct Events(BufReader<TcpStream>);

impl Events {
    /// The next event of this name.
    pub fn next_named(&mut self, name: &str) -> Value {
        loop {
            let (found, data) = self.next();
            if found == name {
                return data;
            }
        }
    }

    /// The next event: its name and data.
    pub fn next(&mut self) -> (String, Value) {
        let (mut name, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim_end().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).unwrap());
            }
        }
    }
}
