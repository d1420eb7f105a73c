//! Nsight Systems' export to SQLite (`nsys export --type sqlite`).
//!
//! Tables exist only where they have rows, and their columns differ between versions, so each is
//! asked which columns it has, and a missing one is null. Only tables are read, never views, which
//! could compute anything. Correlations are unique within a process; `globalPid` tells processes
//! apart, and a thread's `globalTid` has the process in its upper 40 bits. The tables with the
//! command line and the environment are never read.

use crate::bounds::MOST_TEXT;
use crate::error::Error;
use crate::model::{Call, Config, Device, Kind, Process, Stream, Thread, Trace, Transfer, Work, several};
use apex_ordered::Order;
use apex_trace::layout::MemoryKind;
use cuda_launch::{Dim3, attribute};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// Bytes of a value or a row, at most.
const MOST_VALUE: i32 = 16 << 20;
/// Processes in one file, at most.
const MOST_PROCESSES: usize = 4096;
/// Names whose numbers are kept, at most.
const MOST_NUMBERS: usize = 1 << 20;
/// The part of a `globalTid` that is the thread.
const THREAD_BITS: u64 = (1 << 24) - 1;
/// The `copyKind` of a copy between two devices, CUPTI's `CUPTI_ACTIVITY_MEMCPY_KIND_PTOP`.
const PEER_TO_PEER: i64 = 10;
/// NVTX: push and pop, start and end, a mark.
const PUSH_POP: i64 = 59;

/// Tables that are read.
const READ: [&str; 15] = [
    "StringIds",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "NVTX_EVENTS",
    "TARGET_INFO_GPU",
    "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_SESSION_START_TIME",
    "PROCESSES",
    "ThreadNames",
    "META_DATA_EXPORT",
    "EXPORT_META_DATA",
];
/// Beginnings of the names of tables that have nothing for a session, or must not be read.
const PASSED: [&str; 9] = [
    "ENUM_",
    "META_DATA_",
    "TARGET_INFO_",
    "ANALYSIS_",
    "ProcessStreams",
    "NVTX_PAYLOAD_",
    "DIAGNOSTIC_EVENT",
    "sqlite_",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
];

/// Reads an export.
///
/// # Errors
/// If SQLite refuses the file, or if it is no export of Nsight Systems.
pub fn read(path: &Path) -> Result<Trace, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let database = Connection::open_with_flags(path, flags)?;
        database.set_limit(Limit::SQLITE_LIMIT_LENGTH, MOST_VALUE)?;
        database.execute_batch(
            "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA query_only = ON;",
        )?;
        Ok(database)
    };
    let database = open().map_err(|source| failure(path, "opening it", source))?;
    Reader::new(path, &database)?.read()
}

/// Whether a database looks like an export.
pub fn is_export(path: &Path) -> bool {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let count = Connection::open_with_flags(path, flags).and_then(|database| {
        let query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'StringIds'";
        database.query_row(query, [], |row| row.get::<_, i64>(0))
    });
    count.is_ok_and(|count| count > 0)
}

fn failure(path: &Path, what: &str, source: rusqlite::Error) -> Error {
    Error::Database { path: path.to_owned(), what: what.to_owned(), source }
}

struct Reader<'d> {
    path: &'d Path,
    database: &'d Connection,
    tables: HashSet<String>,
    trace: Trace,
    processes: BTreeMap<u64, Process>,
    strings: HashMap<i64, Box<str>>,
    /// The numbers of strings among the names of a process, so that each is hashed once.
    numbers: HashMap<(u64, i64), u32>,
    epoch_ns: i64,
    /// Rows without a time, or of a process too many.
    damaged: u64,
}

/// The values of a row, in the order of the columns that were asked for.
struct Row<'r>(&'r [Value]);

/// A value: a number, a text, or nothing.
enum Value {
    Number(i64),
    Text(String),
    None,
}

impl Row<'_> {
    fn number(&self, column: usize) -> Option<i64> {
        match &self.0[column] {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn unsigned(&self, column: usize) -> Option<u64> {
        self.number(column).and_then(|number| u64::try_from(number).ok())
    }

    fn small(&self, column: usize) -> Option<u32> {
        self.number(column).and_then(|number| u32::try_from(number).ok())
    }

    fn text(&self, column: usize) -> Option<&str> {
        match &self.0[column] {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl<'d> Reader<'d> {
    fn new(path: &'d Path, database: &'d Connection) -> Result<Self, Error> {
        let query = || -> rusqlite::Result<HashSet<String>> {
            let mut names = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table'")?;
            let names = names.query_map([], |row| row.get::<_, String>(0))?;
            names.take(4096).collect()
        };
        let tables = query().map_err(|source| failure(path, "listing its tables", source))?;
        let trace = Trace { tool: "Nsight Systems".to_owned(), ..Trace::default() };
        Ok(Self {
            path,
            database,
            tables,
            trace,
            processes: BTreeMap::new(),
            strings: HashMap::new(),
            numbers: HashMap::new(),
            epoch_ns: 0,
            damaged: 0,
        })
    }

    fn read(mut self) -> Result<Trace, Error> {
        if !self.tables.contains("StringIds") {
            return Err(Error::refused(
                self.path,
                "it is a database, but no export of Nsight Systems: it has no table StringIds",
            ));
        }
        self.version()?;
        self.rows("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |reader, row| {
            reader.epoch_ns = row.number(0).unwrap_or(0);
        })?;
        self.all_strings()?;
        self.kernels()?;
        self.transfers()?;
        self.graphs()?;
        self.calls()?;
        self.waits()?;
        self.ranges()?;
        self.names()?;
        self.devices()?;
        self.unknown_tables()?;
        self.finish()
    }

    /// Hands each row of a table to `row`, with null for columns that it has not. Nothing where
    /// there is no such table.
    fn rows(
        &mut self,
        table: &str,
        columns: &[&str],
        mut row: impl FnMut(&mut Self, &Row<'_>),
    ) -> Result<(), Error> {
        if !self.tables.contains(table) {
            return Ok(());
        }
        let (database, path) = (self.database, self.path);
        let fail = |source| failure(path, &format!("reading its table {table}"), source);
        let known = columns_of(database, table).map_err(fail)?;
        let listed: Vec<String> = columns
            .iter()
            .map(|column| if known.contains(*column) { format!("\"{column}\"") } else { "NULL".to_owned() })
            .collect();
        let query = format!("SELECT {} FROM \"{table}\"", listed.join(", "));
        let mut statement = database.prepare(&query).map_err(fail)?;
        let mut rows = statement.query([]).map_err(fail)?;
        let mut values = Vec::with_capacity(columns.len());
        while let Some(found) = rows.next().map_err(fail)? {
            values.clear();
            for column in 0..columns.len() {
                values.push(match found.get_ref(column).map_err(fail)? {
                    ValueRef::Integer(number) => Value::Number(number),
                    ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                    _ => Value::None,
                });
            }
            self.trace.events += 1;
            row(self, &Row(&values));
        }
        Ok(())
    }

    fn version(&mut self) -> Result<(), Error> {
        let mut known: BTreeMap<&str, String> = BTreeMap::new();
        // Until 2022 the table had its other name.
        for table in ["META_DATA_EXPORT", "EXPORT_META_DATA"] {
            self.rows(table, &["name", "value"], |_, row| {
                let name = match row.text(0) {
                    Some("EXPORT_SCHEMA_VERSION") => "schema",
                    Some("EXPORT_PRODUCT_VERSION") => "version",
                    _ => return,
                };
                let value =
                    row.text(1).map(str::to_owned).or_else(|| row.number(1).map(|number| number.to_string()));
                known.insert(name, value.unwrap_or_default().chars().take(64).collect());
            })?;
        }
        let told: Vec<String> = known.iter().map(|(name, value)| format!("{name} {value}")).collect();
        self.trace.version = told.join(", ");
        Ok(())
    }

    fn all_strings(&mut self) -> Result<(), Error> {
        let mut bytes = 0;
        self.rows("StringIds", &["id", "value"], |reader, row| {
            if let (Some(id), Some(text)) = (row.number(0), row.text(1)) {
                bytes += text.len() + 16;
                if bytes < MOST_TEXT {
                    reader.strings.insert(id, text.into());
                }
            }
        })
    }

    fn string(&self, id: Option<i64>) -> Option<&str> {
        self.strings.get(&id?).map(|text| &**text)
    }

    /// The process of a `globalPid` or `globalTid`; `None` where there are too many.
    fn process(&mut self, global: Option<i64>) -> Option<&mut Process> {
        // Its highest bit may be set.
        let key = global.unwrap_or(0).cast_unsigned() & !THREAD_BITS;
        if self.processes.len() >= MOST_PROCESSES && !self.processes.contains_key(&key) {
            self.damaged += 1;
            return None;
        }
        let epoch_ns = self.epoch_ns;
        let pid = (key >> 24 & THREAD_BITS) as u32;
        Some(self.processes.entry(key).or_insert_with(|| Process { pid, epoch_ns, ..Process::default() }))
    }

    /// The number of the first known string among the names of a process; `None` where there are
    /// too many processes.
    fn name(&mut self, global: Option<i64>, ids: &[Option<i64>], unknown: &str) -> Option<u32> {
        let id = ids.iter().flatten().copied().find(|id| self.strings.contains_key(id));
        let key = (global.unwrap_or(0).cast_unsigned() & !THREAD_BITS, id.unwrap_or(i64::MIN));
        if let Some(&known) = self.numbers.get(&key) {
            return Some(known);
        }
        let text = self.string(id).unwrap_or(unknown).to_owned();
        let number = self.process(global)?.names.number(&text);
        if self.numbers.len() < MOST_NUMBERS {
            self.numbers.insert(key, number);
        }
        Some(number)
    }

    /// Start and duration; `None`, and counted, where they are none.
    fn time(&mut self, row: &Row<'_>) -> Option<(i64, u64)> {
        let time = row.number(0).zip(row.number(1)).and_then(|(start, end)| {
            let ns = u64::try_from(end.checked_sub(start)?).ok()?;
            Some((start, ns))
        });
        self.damaged += u64::from(time.is_none());
        time
    }

    fn kernels(&mut self) -> Result<(), Error> {
        const COLUMNS: [&str; 26] = [
            "start",
            "end",
            "globalPid",
            "correlationId",
            "deviceId",
            "contextId",
            "streamId",
            "mangledName",
            "demangledName",
            "shortName",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "registersPerThread",
            "staticSharedMemory",
            "dynamicSharedMemory",
            "localMemoryPerThread",
            "clusterX",
            "clusterY",
            "clusterZ",
            "launchType",
            "graphNodeId",
            "graphId",
        ];
        self.rows("CUPTI_ACTIVITY_KIND_KERNEL", &COLUMNS, |reader, row| {
            let Some((start, ns)) = reader.time(row) else { return };
            let ids = [7, 8, 9].map(|column| row.number(column));
            let Some(name) = reader.name(row.number(2), &ids, "unknown kernel") else { return };
            let Some(process) = reader.process(row.number(2)) else { return };
            let dim = |column: usize| {
                let [x, y, z] = [0, 1, 2].map(|more| row.small(column + more));
                x.map(|x| Dim3::new(x, y.unwrap_or(1), z.unwrap_or(1)))
            };
            let config = Config {
                name,
                device: row.small(4).unwrap_or(0),
                context: row.small(5).unwrap_or(0),
                grid: dim(10),
                block: dim(13),
                cluster: [20, 21, 22].map(|column| row.small(column).unwrap_or(0)),
                registers: row.small(16),
                static_shared: row.small(17).unwrap_or(0),
                dynamic_shared: row.small(18).unwrap_or(0),
                local: row.small(19).unwrap_or(0),
            };
            let stream = process.streams.number(stream(row, 4, 5, 6));
            let config = process.configs.number(config);
            let correlation = row.unsigned(3).unwrap_or(0);
            process.work(Work { start, ns, correlation, stream, kind: Kind::Kernel(config) });
        })
    }

    fn transfers(&mut self) -> Result<(), Error> {
        let kinds = self.memory_kinds()?;
        let kind =
            |raw: Option<i64>| raw.and_then(|raw| kinds.get(&raw)).copied().unwrap_or(MemoryKind::Unknown);
        const COPY: [&str; 11] = [
            "start",
            "end",
            "globalPid",
            "correlationId",
            "deviceId",
            "contextId",
            "streamId",
            "bytes",
            "srcKind",
            "dstKind",
            "copyKind",
        ];
        self.rows("CUPTI_ACTIVITY_KIND_MEMCPY", &COPY, |reader, row| {
            let transfer = Transfer {
                bytes: row.unsigned(7).unwrap_or(0),
                from: kind(row.number(8)) as u8,
                to: kind(row.number(9)) as u8,
                is_peer: row.number(10) == Some(PEER_TO_PEER),
            };
            reader.transfer(row, Kind::Copy(transfer));
        })?;
        const SET: [&str; 9] = [
            "start",
            "end",
            "globalPid",
            "correlationId",
            "deviceId",
            "contextId",
            "streamId",
            "bytes",
            "memKind",
        ];
        self.rows("CUPTI_ACTIVITY_KIND_MEMSET", &SET, |reader, row| {
            let (bytes, to) = (row.unsigned(7).unwrap_or(0), kind(row.number(8)) as u8);
            let transfer = Transfer { bytes, to, ..Transfer::default() };
            reader.transfer(row, Kind::Set(transfer));
        })
    }

    fn transfer(&mut self, row: &Row<'_>, kind: Kind) {
        let Some((start, ns)) = self.time(row) else { return };
        let Some(process) = self.process(row.number(2)) else { return };
        let stream = process.streams.number(stream(row, 4, 5, 6));
        process.work(Work { start, ns, correlation: row.unsigned(3).unwrap_or(0), stream, kind });
    }

    /// The kinds of memory by their numbers, which the file tells in newer versions.
    fn memory_kinds(&mut self) -> Result<HashMap<i64, MemoryKind>, Error> {
        let usual = ["Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"];
        let mut kinds: HashMap<i64, MemoryKind> =
            (0..).zip(usual).map(|(number, name)| (number, crate::calls::memory(name))).collect();
        self.rows("ENUM_CUDA_MEM_KIND", &["id", "label"], |_, row| {
            if let (Some(id), Some(label)) = (row.number(0), row.text(1))
                && kinds.len() < 64
            {
                kinds.insert(id, crate::calls::memory(label));
            }
        })?;
        Ok(kinds)
    }

    /// Whole graph launches, recorded without their nodes.
    fn graphs(&mut self) -> Result<(), Error> {
        const COLUMNS: [&str; 8] =
            ["start", "end", "globalPid", "correlationId", "deviceId", "contextId", "streamId", "graphId"];
        let mut count = 0_u64;
        self.rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &COLUMNS, |reader, row| {
            let is_untimed = row.number(0) == Some(0) && row.number(1) == Some(0);
            if is_untimed {
                reader.damaged += 1;
                return;
            }
            count += 1;
            reader.transfer(row, Kind::Graph(row.small(7).unwrap_or(0)));
        })?;
        if count > 0 {
            self.trace.remarks.push(format!(
                "this trace has the times of {}, and not their kernels: record with --cuda-graph-trace=node",
                several(count, "graph launch", "graph launches")
            ));
        }
        Ok(())
    }

    fn calls(&mut self) -> Result<(), Error> {
        const COLUMNS: [&str; 6] = ["start", "end", "globalTid", "correlationId", "nameId", "returnValue"];
        self.rows("CUPTI_ACTIVITY_KIND_RUNTIME", &COLUMNS, |reader, row| {
            let Some((start, ns)) = reader.time(row) else { return };
            let Some(name) = reader.name(row.number(2), &[row.number(4)], "unknown call") else { return };
            let Some(process) = reader.process(row.number(2)) else { return };
            let thread = thread(process, row.number(2));
            let (correlation, result) = (row.unsigned(3).unwrap_or(0), row.small(5).unwrap_or(0));
            process.call(Call { start, ns, correlation, name, thread, result });
        })
    }

    fn waits(&mut self) -> Result<(), Error> {
        const COLUMNS: [&str; 5] = ["globalPid", "correlationId", "deviceId", "contextId", "streamId"];
        self.rows("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", &COLUMNS, |reader, row| {
            let of = stream(row, 2, 3, 4);
            if let Some(process) = reader.process(row.number(0))
                && let Some(correlation) = row.unsigned(1)
                && of.number < u64::from(u32::MAX)
            {
                let stream = process.streams.number(of);
                process.waits.insert(correlation, stream);
            }
        })
    }

    fn ranges(&mut self) -> Result<(), Error> {
        const COLUMNS: [&str; 6] = ["start", "end", "globalTid", "eventType", "text", "textId"];
        self.rows("NVTX_EVENTS", &COLUMNS, |reader, row| {
            let is_range = row.number(3) == Some(PUSH_POP) && row.number(1).is_some();
            if !is_range {
                let kind = match row.number(3) {
                    Some(PUSH_POP) => "NVTX ranges without an end",
                    Some(60 | 70) => "NVTX ranges that may span threads (start and end)",
                    _ => "other NVTX events",
                };
                return reader.trace.leave_out(kind);
            }
            let Some((start, ns)) = reader.time(row) else { return };
            let text = row.text(4).or_else(|| reader.string(row.number(5))).unwrap_or_default().to_owned();
            if let Some(process) = reader.process(row.number(2)) {
                let (name, thread) = (process.names.number(&text), thread(process, row.number(2)));
                process.ranges.add(thread, start, ns, name);
            }
        })
    }

    fn names(&mut self) -> Result<(), Error> {
        self.rows("PROCESSES", &["globalPid", "name"], |reader, row| {
            let key = row.number(0).unwrap_or(0).cast_unsigned() & !THREAD_BITS;
            if let (Some(process), Some(name)) = (reader.processes.get_mut(&key), row.text(1)) {
                process.executable = name.chars().take(256).collect();
            }
        })?;
        self.rows("ThreadNames", &["globalTid", "nameId"], |reader, row| {
            let global = row.number(0).unwrap_or(0).cast_unsigned();
            let name = reader.string(row.number(1)).unwrap_or_default().to_owned();
            if let Some(process) = reader.processes.get_mut(&(global & !THREAD_BITS)) {
                let thread = Thread { process: 0, id: global & THREAD_BITS };
                if process.thread_names.len() < 100_000 {
                    process.thread_names.insert(thread, name);
                }
            }
        })
    }

    fn devices(&mut self) -> Result<(), Error> {
        let mut ordinals: HashMap<i64, u32> = HashMap::new();
        self.rows("TARGET_INFO_CUDA_DEVICE", &["gpuId", "cudaId"], |_, row| {
            if let (Some(gpu), Some(ordinal)) = (row.number(0), row.small(1))
                && ordinals.len() < 1024
            {
                ordinals.insert(gpu, ordinal);
            }
        })?;
        let mut devices: BTreeMap<u32, Device> = BTreeMap::new();
        const FACTS: [(&str, u32); 11] = [
            ("smCount", attribute::MULTIPROCESSOR_COUNT),
            ("computeMajor", attribute::COMPUTE_CAPABILITY_MAJOR),
            ("computeMinor", attribute::COMPUTE_CAPABILITY_MINOR),
            ("l2CacheSize", attribute::L2_CACHE_SIZE),
            ("maxBlocksPerSm", attribute::MAX_BLOCKS_PER_MULTIPROCESSOR),
            ("maxRegistersPerSm", attribute::MAX_REGISTERS_PER_MULTIPROCESSOR),
            ("maxRegistersPerBlock", attribute::MAX_REGISTERS_PER_BLOCK),
            ("maxShmemPerBlock", attribute::MAX_SHARED_MEMORY_PER_BLOCK),
            ("maxShmemPerBlockOptin", attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            ("maxShmemPerSm", attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
            ("maxThreadsPerBlock", attribute::MAX_THREADS_PER_BLOCK),
        ];
        let mut columns = vec!["id", "name", "totalMemory", "uuid"];
        columns.extend(FACTS.map(|(column, _)| column));
        self.rows("TARGET_INFO_GPU", &columns, |_, row| {
            let Some(id) = row.number(0) else { return };
            let ordinal = ordinals.get(&id).copied().or_else(|| u32::try_from(id).ok()).unwrap_or(0);
            let facts = (4..).zip(FACTS);
            let attributes = facts.filter_map(|(column, (_, attribute))| {
                Some((attribute, row.number(column).and_then(|value| i32::try_from(value).ok())?))
            });
            let device = Device {
                name: row.text(1).unwrap_or_default().chars().take(256).collect(),
                memory_bytes: row.unsigned(2).unwrap_or(0),
                attributes: attributes.collect(),
                uuid: row.text(3).map_or([0; 16], uuid),
            };
            if devices.len() < 1024 {
                devices.insert(ordinal, device);
            }
        })?;
        if devices.is_empty() {
            self.trace
                .remarks
                .push("this trace does not name its GPU: occupancy and waves cannot be computed".to_owned());
        }
        for process in self.processes.values_mut() {
            process.devices = devices.clone();
        }
        Ok(())
    }

    fn unknown_tables(&mut self) -> Result<(), Error> {
        let mut unknown: Vec<String> = self
            .tables
            .iter()
            .filter(|table| {
                !READ.contains(&table.as_str()) && !PASSED.iter().any(|head| table.starts_with(head))
            })
            .cloned()
            .collect();
        unknown.order_by(Ord::cmp);
        for table in unknown.into_iter().take(256) {
            let query = format!("SELECT count(*) FROM \"{}\"", table.replace('"', "\"\""));
            let count = self.database.query_row(&query, [], |row| row.get::<_, i64>(0));
            let count =
                count.map_err(|source| failure(self.path, &format!("reading its table {table}"), source))?;
            if let Ok(count @ 1..) = u64::try_from(count) {
                self.trace.left_out.insert(format!("rows of {table}"), count);
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Trace, Error> {
        let has_calls = self.tables.contains("CUPTI_ACTIVITY_KIND_RUNTIME");
        let remarks = &mut self.trace.remarks;
        if self.damaged > 0 {
            let rows = several(self.damaged, "row has", "rows have");
            remarks.push(format!("{rows} no time: left out"));
        }
        if has_calls {
            remarks.push("this trace has no stacks of Python and no sizes of allocations".to_owned());
        }
        self.trace.processes.extend(self.processes.into_values());
        Ok(self.trace)
    }
}

/// The names of a table's columns.
fn columns_of(database: &Connection, table: &str) -> rusqlite::Result<HashSet<String>> {
    let mut names = database.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let names = names.query_map([table], |row| row.get::<_, String>(0))?;
    names.collect()
}

fn stream(row: &Row<'_>, device: usize, context: usize, stream: usize) -> Stream {
    Stream {
        device: row.small(device).unwrap_or(0),
        context: row.small(context).unwrap_or(0),
        number: row.unsigned(stream).unwrap_or(0),
    }
}

fn thread(process: &mut Process, global: Option<i64>) -> u32 {
    let tid = global.unwrap_or(0).cast_unsigned() & THREAD_BITS;
    process.threads.number(Thread { process: 0, id: tid })
}

/// The bytes of a UUID's digits; zero if they are none.
fn uuid(text: &str) -> [u8; 16] {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let mut bytes = [0; 16];
    if digits.len() == 32 {
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).unwrap_or(0);
        }
    }
    bytes
}
