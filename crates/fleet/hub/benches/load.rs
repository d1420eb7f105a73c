//! The load that a hub bears: `cargo bench -p apex-hub --bench load -- [JOBS] [ROWS]`.
//!
//! Sixteen clients post two messages of each of eight ranks of `JOBS` jobs (the run, and its end)
//! to a hub in this process, and the pages are timed. Then the hub stops, SQL fills its tables with
//! a year of `ROWS` jobs, days and kernels, and the pages are timed again with a new hub, whose
//! memory is told by itself. Messages of that year are not simulated. docs/results/hub.md has its
//! output. Processor time is that of this process, clients included.

use apex_aggregate::{
    Aggregate, Device, End, Finding, Job, Kernel, Kernels, Kind, Metered, Reading, Step, Times, Use,
};
use apex_http::{Server, Stop};
use apex_hub::alerts::Conditions;
use apex_hub::{Hub, LOCAL, Settings, Store};
use apex_random::Random;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const RANKS: u64 = 8;
const CLIENTS: u64 = 16;
const PAGES: [&str; 13] = [
    "/",
    "/api/v1/jobs?limit=500",
    "/?owner=owner7",
    "/jobs/1",
    "/owners",
    "/owners?days=365",
    "/kernels",
    "/kernels?weeks=52",
    "/changes",
    "/report",
    "/report?days=365",
    "/health",
    "/metrics",
];
/// Rows that are written in one transaction.
const ROWS_AT_ONCE: u64 = 100_000;
/// Users, each of whom has runs on every day of the year.
const OWNERS: u64 = 1000;
const DAY_NS: u64 = 86_400_000_000_000;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let (jobs, rows) = (numbers.next().unwrap_or(2_000), numbers.next().unwrap_or(1_000_000));
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    let hub = Serving::start(&database);
    let address = hub.address;
    let bytes = message(1, 0, true).to_bytes().len();
    println!("message_bytes {bytes}");
    let (begun, cpu) = (Instant::now(), cpu_s());
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || post_all(address, client, jobs));
        }
    });
    let messages = 2 * jobs * RANKS;
    let seconds = begun.elapsed().as_secs_f64();
    println!("messages {messages}");
    println!("messages_per_s {:.0}", messages as f64 / seconds);
    println!("cpu_ms_per_message {:.3}", (cpu_s() - cpu) * 1e3 / messages as f64);
    println!("database_bytes_per_job {}", size(&database) / jobs);
    time_pages(address, jobs);
    println!("peak_memory_mb {}", peak_mb());
    drop(hub);
    let begun = Instant::now();
    let rows = fill(&database, rows);
    println!("rows {rows}");
    println!("fill_s {:.0}", begun.elapsed().as_secs_f64());
    println!("database_bytes_per_job_without_messages {}", size(&database) / rows);
    println!("database_bytes {}", size(&database));
    forget_peak();
    let hub = Serving::start(&database);
    time_pages(hub.address, rows);
    let (begun, cpu) = (Instant::now(), cpu_s());
    // Jobs that are there already: each message replaces one, amid the year.
    post_all(hub.address, 0, OWNERS.min(jobs));
    let messages = 2.0 * RANKS as f64 * (OWNERS.min(jobs) as f64 / CLIENTS as f64).ceil();
    println!("messages_per_s rows={rows} {:.0}", messages / begun.elapsed().as_secs_f64());
    println!("cpu_ms_per_message rows={rows} {:.3}", (cpu_s() - cpu) * 1e3 / messages);
    println!("peak_memory_mb rows={rows} {}", peak_mb());
    let store = Store::open(&database).unwrap();
    let begun = Instant::now();
    store.alerts(LOCAL, &Conditions::default(), now_ns()).unwrap();
    println!("alerts_ms rows={rows} {:.1}", begun.elapsed().as_secs_f64() * 1e3);
}

/// A hub that answers in this process until it is dropped.
struct Serving {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn start(database: &Path) -> Self {
        let hub = Hub::open(database, Settings::default()).unwrap();
        let server = Server::bind(hub.options("127.0.0.1:0".parse().unwrap(), None)).unwrap();
        let (address, stop) = (server.address(), Stop::default());
        let stopping = stop.clone();
        let serve = move || server.run_until(&stopping, move |request| hub.answer(request)).unwrap();
        Self { address, stop, thread: Some(std::thread::spawn(serve)) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Posts the client's part of all messages over one connection.
fn post_all(address: SocketAddr, client: u64, jobs: u64) {
    let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
    for has_ended in [false, true] {
        for job in (client..jobs).step_by(CLIENTS as usize) {
            for rank in 0..RANKS {
                let body = message(job, rank, has_ended).to_bytes();
                let head = format!(
                    "POST /api/v1/aggregates HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                stream.get_mut().write_all(&[head.as_bytes(), &body].concat()).unwrap();
                assert_eq!(answer(&mut stream).0, 200);
            }
        }
    }
}

/// Status and length of an answer, which is read to its end.
fn answer(stream: &mut BufReader<TcpStream>) -> (u16, usize) {
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest[..3].parse().unwrap();
        }
        if let Some(rest) = line.strip_prefix("content-length: ") {
            length = rest.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (status, length)
}

fn time_pages(address: SocketAddr, rows: u64) {
    for page in PAGES {
        let cpu = cpu_s();
        let mut times: Vec<f64> = (0..9)
            .map(|_| {
                let begun = Instant::now();
                let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
                write!(stream.get_mut(), "GET {page} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
                assert_eq!(answer(&mut stream).0, 200);
                begun.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let cpu_ms = (cpu_s() - cpu) * 1e3 / times.len() as f64;
        let (median, most) = (times[4], times[8]);
        println!("page_ms rows={rows} page={page} median={median:.1} most={most:.1} cpu={cpu_ms:.1}");
    }
}

/// Fills the tables with a year that ends now: jobs are copies of those that are there, in the
/// order of their starts. Returns how many there are.
fn fill(database: &Path, rows: u64) -> u64 {
    let connection = rusqlite::Connection::open(database).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    // The thread of the hub that wrote may not have ended yet.
    while connection.pragma_update(None, "journal_mode", "OFF").is_err() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    for (name, value) in [("synchronous", "OFF"), ("cache_size", "-64000")] {
        connection.pragma_update(None, name, value).unwrap();
    }
    let columns: Vec<String> = connection
        .prepare("SELECT name FROM pragma_table_info('jobs') WHERE name NOT IN ('id', 'name', 'started_ns', 'step_ns')")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let columns = columns.join(", ");
    let kept = number(&connection, "SELECT max(id) FROM jobs");
    let year = now_ns() - 365 * DAY_NS;
    let between = (365 * DAY_NS / rows).max(1);
    let mut made = 0;
    while made + kept < rows {
        let more = ROWS_AT_ONCE.min(rows - kept - made);
        connection
            .execute_batch(&format!(
                "WITH RECURSIVE n(i) AS (SELECT {made} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {made} + {more})
                 INSERT INTO jobs (name, started_ns, step_ns, {columns})
                 SELECT (1000000000 + i) || '.0', {year} + i * {between}, step_ns * (1 + abs(random() % 1000) * 5e-5), {columns}
                 FROM n JOIN jobs ON id = 1 + i % {kept};"
            ))
            .unwrap();
        made += more;
    }
    fill_days(&connection, year / DAY_NS);
    made + kept
}

/// A row of each owner and day, and of each kernel and week.
fn fill_days(connection: &rusqlite::Connection, first: u64) {
    let with = |table: &str, by: &str, moments: u64, first: u64| {
        let columns: Vec<String> = connection
            .prepare(&format!("SELECT name FROM pragma_table_info('{table}') WHERE name != '{by}'"))
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        let columns = columns.join(", ");
        let copy = format!(
            "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {first} + {moments})
             INSERT OR IGNORE INTO {table} ({by}, {columns})
             SELECT i, {columns} FROM n JOIN (SELECT * FROM {table} WHERE {by} = (SELECT max({by}) FROM {table}))"
        );
        connection.execute_batch(&copy).unwrap();
    };
    with("days", "day", 365, first);
    with("kernels", "week", 52, first / 7);
}

fn number(connection: &rusqlite::Connection, sql: &str) -> u64 {
    connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as u64
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn size(database: &Path) -> u64 {
    let of = |ending: &str| {
        std::fs::metadata(format!("{}{ending}", database.display())).map_or(0, |file| file.len())
    };
    of("") + of("-wal")
}

/// Processor time of this process.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

/// The peak of the memory that is told from now on begins with what is used now.
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// A message as a training run sends it.
fn message(job: u64, rank: u64, has_ended: bool) -> Aggregate {
    let mut random = Random::for_purpose(job, rank);
    let now = now_ns();
    let times = Times::of_parts(std::array::from_fn(|_| random.below(600_000_000)));
    let kernel = |n: u64| Kernel {
        name: format!("kernel_with_a_usual_name_{}", (job + n) % 400),
        launches: 100 * n,
        gpu_us: 9 * n,
    };
    let finding = |n: u64| Finding {
        rule: format!("APEX-H0{n}"),
        title: "The device waits while the host prepares the next batch".to_owned(),
        remedy: "Load batches in more workers, and copy them from pinned memory".to_owned(),
        severity: "high".to_owned(),
        saving: Some([0.2, 0.1, 0.3]),
    };
    Aggregate {
        schema: apex_conventions::documents::AGGREGATE.to_string(),
        apex_version: "0.1.0".to_owned(),
        recording: format!("{:032x}", job * RANKS + rank),
        sequence: 1 + u64::from(has_ended),
        job: Job { id: format!("{job}.0"), launcher: "slurm".to_owned(), rank: Some(rank as u32), ranks: 8 },
        owner: format!("owner{}", job % OWNERS),
        host: format!("node{}", job % 500),
        command: ["python", "train.py", "--config", "configs/large.yaml"].map(str::to_owned).to_vec(),
        code_version: "0123456789abcdef0123456789abcdef01234567".to_owned(),
        session: format!("/shared/runs/job-{job}-{rank}"),
        started_ns: now - 3_600_000_000_000 - job * 1_000_000_000,
        as_of_ns: now,
        ended: has_ended.then_some(End { at_ns: now, status: Some(0), signal: None }),
        devices: vec![Device {
            name: "NVIDIA H200".to_owned(),
            uuid: format!("GPU-{rank}-{job:032x}"),
            kind: Kind::Gpu,
            energy: Some(Metered { mj: 1_500_000_000, us: 3_600_000_000, idle_mw: Some(75_000) }),
        }],
        uses: vec![Use { rank: Some(rank as u32), pid: 4711, device: Some(0), launches: 1_000_000, times }],
        kernels: Kernels { listed: (0..32).map(kernel).collect(), others: kernel(0), timed: true },
        findings: (0..8).map(finding).collect(),
        step: Some(Step { ns: 1e8 + random.below(1000) as f64, low_ns: 9e7, high_ns: 1.1e8, count: 9000 }),
        machine: (0..20)
            .map(|n| Reading {
                device: Some(0),
                uuid: String::new(),
                name: format!("reading_{n}"),
                mean: 1.5,
                most: 3.0,
            })
            .collect(),
        ..Aggregate::default()
    }
}
