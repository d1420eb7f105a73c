//! Messages, a hub that answers, and a client.

use apex_aggregate::{Aggregate, Device, End, Job, Kernel, Kernels, Metered, Step, Times, Use};
use apex_http::{Server, Stop};
use apex_hub::{Hub, Settings};
use apex_random::Random;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A message with figures that depend on its recording and sequence.
pub fn message(recording: u64, sequence: u64) -> Aggregate {
    let mut random = Random::for_purpose(recording, sequence);
    let mut parts = [0; 14];
    parts.iter_mut().for_each(|part| *part = random.below(5_000_000));
    let used = Use { rank: None, pid: 7, device: Some(0), launches: 9, times: Times::of_parts(parts) };
    let kernel = |name: &str, n: u64| Kernel { name: name.to_owned(), launches: n, gpu_us: 3 * n };
    let started_ns = now_ns() - 3_600_000_000_000;
    Aggregate {
        schema: apex_conventions::documents::AGGREGATE.to_string(),
        recording: format!("{recording:032x}"),
        sequence,
        job: Job {
            id: format!("job {}", recording / 4),
            rank: Some((recording % 4) as u32),
            ranks: 4,
            ..Job::default()
        },
        owner: format!("owner{}", recording % 3),
        host: format!("host{}", recording % 2),
        command: vec!["python".to_owned(), "train.py".to_owned()],
        session: "/data/a session".to_owned(),
        started_ns,
        as_of_ns: now_ns(),
        ended: (sequence > 3).then_some(End {
            at_ns: now_ns(),
            status: Some((recording % 5 / 4) as i32),
            signal: None,
        }),
        devices: vec![Device {
            name: "H200".to_owned(),
            uuid: format!("GPU-{recording}"),
            // Not every device has a counter.
            energy: (!recording.is_multiple_of(3)).then_some(Metered {
                mj: 1000 * sequence + recording,
                us: 500_000 + sequence,
                idle_mw: (recording % 3 > 1).then_some(900),
            }),
            ..Device::default()
        }],
        uses: vec![used],
        kernels: Kernels {
            listed: vec![kernel("gemm", sequence), kernel(&format!("k{}", recording % 7), 2)],
            others: kernel("", 1),
            timed: true,
        },
        step: Some(Step { ns: 1e6, low_ns: 9e5, high_ns: 1.1e6, count: 100 }),
        lost_records: recording % 2,
        ..Aggregate::default()
    }
}

/// A file of certificates or of a key, for tests.
pub fn pem(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates");
    std::fs::read(folder.join(name)).unwrap()
}

/// A hub that answers in this process.
pub struct Running {
    pub address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(database: &Path) -> Self {
        Self::start_with(database, None)
    }

    /// A hub that has this certificate (its name among those of tests), if any.
    pub fn start_with(database: &Path, certificate: Option<&str>) -> Self {
        let tls = certificate.map(|name| {
            let [certificate, key] = ["crt", "key"].map(|ending| pem(&format!("{name}.{ending}")));
            apex_tls::Server::new(&certificate, &key).unwrap()
        });
        let hub =
            Hub::open(database, Settings { price_per_gpu_hour: Some(2.5), ..Settings::default() }).unwrap();
        let server = Server::bind(hub.options("127.0.0.1:0".parse().unwrap(), tls)).unwrap();
        let (address, stop) = (server.address(), Stop::default());
        let stopping = stop.clone();
        let serve = move || server.run_until(&stopping, move |request| hub.answer(request)).unwrap();
        Self { address, stop, thread: Some(std::thread::spawn(serve)) }
    }

    pub fn post(&self, body: &[u8]) -> Answer {
        self.post_as(body, "")
    }

    pub fn post_as(&self, body: &[u8], token: &str) -> Answer {
        let bearer =
            if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\n{bearer}", body.len());
        self.send("POST", "/api/v1/aggregates", &head, body)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", b"")
    }

    pub fn get_as(&self, path: &str, token: &str) -> Answer {
        self.send("GET", path, &format!("Authorization: Bearer {token}\r\n"), b"")
    }

    /// A document.
    pub fn json(&self, path: &str) -> serde_json::Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    /// How often a message or a request had this outcome.
    pub fn count(&self, outcome: &str) -> u64 {
        let health = self.json("/api/v1/health");
        let of = health["messages"].as_array().unwrap().iter().find(|of| of["outcome"] == outcome);
        of.unwrap()["count"].as_u64().unwrap()
    }

    pub fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n",
            self.address
        );
        // A server that refuses may close before all is written.
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Answer::of(&String::from_utf8_lossy(&answer))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// The sequence that is confirmed.
    pub fn confirmed(&self) -> Option<u64> {
        let line = self.head.lines().find_map(|line| line.strip_prefix("apex-committed: "))?;
        line.split_once(' ')?.1.parse().ok()
    }
}
