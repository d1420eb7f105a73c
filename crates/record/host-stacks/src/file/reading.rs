//! Reads the session's file, whole or damaged.
//!
//! Definitions are numbered by their order, so a damaged line must not take its number with it.
//! What it defined is told by how it begins; it keeps its number, and spans that name it are left
//! out. If that is not enough, because a later line names what is not defined, then nothing that
//! was defined from the damage on is trusted: the file is read again, and spans that name such
//! definitions are left out. Each of both is a problem with the first line's number.

use super::{HostStacks, Line, WrittenSpan, flags};
use crate::record::{Doing, Frame, Process, Span, Stack, Thread};
use apex_conventions::documents::HOST_STACKS;
use apex_untrusted::lines::{Unread, kind, pieces};
use std::collections::HashSet;

/// The beginnings of lines, in the order of [`Sort`].
const BEGINNINGS: [&str; 8] = [
    "{\"process\":{",
    "{\"thread\":{",
    "{\"frame\":[",
    "{\"stack\":[",
    "{\"doing\":{",
    "{\"span\":[",
    "{\"counters\":{",
    "{\"schema\":\"",
];

/// Control characters from which on a line is taken for overwritten bytes, which may have been
/// several lines.
const MOST_CONTROLS: usize = 8;

/// A number that is further beyond the last definition than this is a changed number, and no sign
/// of missing definitions.
const MOST_MISSING: usize = 64;

/// Kind of definition on a line, by its place in [`BEGINNINGS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sort {
    Process,
    Thread,
    Frame,
    Stack,
    Doing,
    Other,
}

impl Sort {
    const NUMBERED: [Self; 5] = [Self::Process, Self::Thread, Self::Frame, Self::Stack, Self::Doing];

    fn of(line: &[u8]) -> Option<Self> {
        kind(line, &BEGINNINGS).map(|place| Self::NUMBERED.get(place).copied().unwrap_or(Self::Other))
    }
}

/// Reason for which a line was not taken.
enum Refused {
    /// It is damaged.
    Damaged(String),
    /// It has no member that this version knows.
    Unknown,
    /// It names a definition that was lost, or that cannot be matched.
    Lost,
    /// It names a definition that does not exist.
    Undefined(String),
    /// The file is of another format: nothing of it is read.
    Format(String),
}

/// The file as far as it has been read.
#[derive(Default)]
struct Reading {
    stacks: HostStacks,
    unread: Unread,
    /// Definitions in damaged lines.
    lost: HashSet<(Sort, u32)>,
    /// Number of definitions, by sort, that can be trusted; all where this is `None`.
    trusted: Option<[usize; 5]>,
    /// Spans that name what is lost.
    left_out: u64,
    /// The line of the newest counters.
    counters_at: u64,
    /// The first damaged line.
    damaged: Option<u64>,
    /// The first line that shows that numbers are wrong.
    contradiction: Option<u64>,
    /// Reason for which nothing is read.
    format: Option<String>,
    ends_with_counters: bool,
}

/// Reads the bytes of a file, and says what is wrong with it. `has_ended` tells whether the session
/// is over: then the file is complete.
pub(crate) fn read(bytes: &[u8], has_ended: impl FnOnce() -> bool) -> (HostStacks, Vec<String>) {
    let mut reading = Reading::of(bytes, u64::MAX);
    let mut distrusted = None;
    if let Some(at) = reading.contradiction {
        // Without a damaged line, a line is missing since the counters were written last.
        let damaged = reading.damaged.filter(|&line| line <= at);
        let first = damaged.unwrap_or(reading.counters_at.max(1));
        reading = Reading::of(bytes, first);
        distrusted = Some(first);
    }
    if let Some(what) = reading.format {
        return (
            HostStacks::default(),
            vec![format!("{what}: it was not read, and what the host did is not known")],
        );
    }
    let is_cut = (!reading.ends_with_counters || bytes.last() != Some(&b'\n')) && has_ended();
    let problems = reading.problems(distrusted, is_cut.then_some(bytes.is_empty()));
    (reading.finish(), problems)
}

impl Reading {
    /// Reads what there is. Definitions from line `distrust` on are not trusted.
    fn of(bytes: &[u8], distrust: u64) -> Self {
        let mut reading = Self::default();
        // What is behind the last end of a line is a line that is being written.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        for (number, line) in (1..).zip(bytes[..whole].split(|&byte| byte == b'\n')) {
            if number >= distrust && reading.trusted.is_none() {
                reading.trusted = Some(reading.counts());
            }
            if !line.is_empty() {
                reading.take_line(number, line);
            }
        }
        reading
    }

    fn counts(&self) -> [usize; 5] {
        Sort::NUMBERED.map(|sort| self.count(sort))
    }

    fn count(&self, sort: Sort) -> usize {
        let HostStacks { processes, threads, frames, stacks, doings, .. } = &self.stacks;
        match sort {
            Sort::Process => processes.len(),
            Sort::Thread => threads.len(),
            Sort::Frame => frames.len(),
            Sort::Stack => stacks.len(),
            Sort::Doing => doings.len(),
            Sort::Other => 0,
        }
    }

    fn take_line(&mut self, number: u64, line: &[u8]) {
        if serde_json::from_slice::<Line>(line).is_ok() {
            self.take_piece(number, line);
        } else {
            pieces(line, &BEGINNINGS).into_iter().for_each(|piece| self.take_piece(number, piece));
        }
    }

    fn take_piece(&mut self, number: u64, line: &[u8]) {
        match self.take(line) {
            Ok(()) => {}
            Err(Refused::Lost) => self.left_out += 1,
            Err(Refused::Format(what)) => self.format = Some(what),
            Err(Refused::Undefined(what)) => {
                self.contradiction.get_or_insert(number);
                self.refuse(number, line, &what);
            }
            Err(Refused::Unknown) => {
                self.damaged.get_or_insert(number);
                self.refuse(number, line, "it has no member that is known");
            }
            Err(Refused::Damaged(what)) => {
                self.damaged.get_or_insert(number);
                let sort = Sort::of(line);
                let controls = line.iter().filter(|byte| byte.is_ascii_control()).count();
                if sort.is_none() && line.first() == Some(&b'{') || controls > MOST_CONTROLS {
                    self.contradiction.get_or_insert(number);
                }
                self.refuse(number, line, &format!("damaged: {what}"));
            }
        }
        self.ends_with_counters = kind(line, &BEGINNINGS) == Some(6);
        if self.ends_with_counters && self.contradiction.is_none() {
            self.counters_at = number;
        }
    }

    /// Leaves out a line. What it defined keeps its number.
    fn refuse(&mut self, number: u64, line: &[u8], why: &str) {
        self.unread.add(number, why);
        let Some(sort) = Sort::of(line).filter(|&sort| sort != Sort::Other) else { return };
        self.lost.insert((sort, self.count(sort) as u32));
        let HostStacks { processes, threads, frames, stacks, doings, .. } = &mut self.stacks;
        match sort {
            Sort::Process => processes.push(Process::default()),
            Sort::Thread => threads.push(Thread::default()),
            // A frame without a name, and a stack without frames, say that they are not known.
            Sort::Frame => frames.push(Frame::default()),
            Sort::Stack => stacks.push(Stack { callers: 0, frame: u32::MAX }),
            Sort::Doing => doings.push(Doing::default()),
            Sort::Other => {}
        }
    }

    /// Takes a line, which may be followed by bytes that are none.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        let first = serde_json::Deserializer::from_slice(bytes).into_iter::<Line>().next();
        let damaged = |error: serde_json::Error| Refused::Damaged(error.to_string());
        let line = first.ok_or_else(|| Refused::Damaged("it is empty".into()))?.map_err(damaged)?;
        if line.is_empty() {
            return Err(Refused::Unknown);
        }
        self.stacks.head = line.head.unwrap_or(std::mem::take(&mut self.stacks.head));
        if let Some(Err(what)) = line.schema.as_deref().map(|schema| HOST_STACKS.check(schema)) {
            return Err(if is_newer(line.schema.as_deref()) {
                Refused::Format(what)
            } else {
                Refused::Damaged(what)
            });
        }
        self.stacks.processes.extend(line.process);
        if let Some(thread) = line.thread {
            match self.known(Sort::Process, thread.process) {
                Err(Refused::Lost) => {
                    self.lost.insert((Sort::Thread, self.count(Sort::Thread) as u32));
                }
                found => found?,
            }
            self.stacks.threads.push(thread);
        }
        if let Some((kind, function, file, line)) = line.frame {
            self.stacks.frames.push(Frame { kind, function, file, line });
        }
        if let Some((callers, frame)) = line.stack {
            self.take_stack(callers, frame)?;
        }
        self.stacks.doings.extend(line.doing);
        if let Some(span) = line.span {
            self.take_span(span)?;
        }
        self.stacks.counters = line.counters.unwrap_or(self.stacks.counters);
        Ok(())
    }

    /// Takes a stack. One that rests on lost ones keeps its number and has no frames.
    fn take_stack(&mut self, callers: u32, frame: u32) -> Result<(), Refused> {
        let known = self.known(Sort::Frame, frame).and_then(|()| self.known_stack(callers));
        let stack = match known {
            Ok(()) => Stack { callers, frame },
            Err(Refused::Lost) => {
                self.lost.insert((Sort::Stack, self.count(Sort::Stack) as u32));
                Stack { callers: 0, frame: u32::MAX }
            }
            Err(refused) => return Err(refused),
        };
        self.stacks.stacks.push(stack);
        Ok(())
    }

    fn take_span(&mut self, span: WrittenSpan) -> Result<(), Refused> {
        let (thread, stack, doing, first_ns, lasts, samples, stands_for, flags) = span;
        self.known(Sort::Thread, thread)?;
        self.known(Sort::Doing, doing)?;
        self.known_stack(stack)?;
        let is = |flag: u32| flags & flag != 0;
        self.stacks.spans.push(Span {
            thread,
            stack,
            doing,
            first_ns,
            last_ns: first_ns.saturating_add(lasts),
            samples: samples.max(1),
            stands_for: stands_for.max(1),
            is_settled: is(flags::SETTLED),
            is_asleep: is(flags::ASLEEP),
            holds_gil: is(flags::HOLDS_GIL),
        });
        Ok(())
    }

    /// Stacks are numbered from 1.
    fn known_stack(&self, number: u32) -> Result<(), Refused> {
        number.checked_sub(1).map_or(Ok(()), |index| self.known(Sort::Stack, index))
    }

    fn known(&self, sort: Sort, index: u32) -> Result<(), Refused> {
        let trusted = self.trusted.and_then(|trusted| trusted.get(sort as usize).copied());
        if self.lost.contains(&(sort, index)) || trusted.is_some_and(|trusted| index as usize >= trusted) {
            return Err(Refused::Lost);
        }
        let beyond = (index as usize).checked_sub(self.count(sort));
        beyond.map_or(Ok(()), |beyond| {
            let what = format!("{sort:?}").to_lowercase();
            let number = index.saturating_add(u32::from(sort == Sort::Stack));
            let what = format!("it names the {what} {number}, which is not defined");
            Err(if beyond < MOST_MISSING { Refused::Undefined(what) } else { Refused::Damaged(what) })
        })
    }

    /// The problems, a sentence each. `is_cut` says that the end is missing, and whether all is.
    fn problems(&self, distrusted: Option<u64>, is_cut: Option<bool>) -> Vec<String> {
        let spans = self.stacks.spans.len() as u64 + self.left_out;
        let lost = match self.left_out {
            0 => String::new(),
            left_out => format!(
                ", and {left_out} of {spans} stretches of samples that name what is lost are left out"
            ),
        };
        let effect = "idle time may have no host code as its cause, or another one";
        let unread = self.unread.said().map(|said| format!("{said}{lost}; {effect}"));
        let moved = distrusted.map(|line| {
            let lost = if unread.is_none() { lost.as_str() } else { "" };
            format!("what it defines from line {line} on cannot be matched{lost}; {effect}")
        });
        let cut = is_cut.map(|is_empty| match is_empty {
            true => "is empty: what the host did is not known, and idle time has no host code as its cause"
                .to_owned(),
            false => format!("is cut: its end is missing, and what the host did then is not known; {effect}"),
        });
        let head = (self.stacks.head.period_ns == 0 && !self.stacks.spans.is_empty()).then(|| {
            "the line with its settings is missing: the period of its samples is estimated".to_owned()
        });
        [unread, moved, cut, head].into_iter().flatten().collect()
    }

    fn finish(self) -> HostStacks {
        let mut stacks = self.stacks;
        let counters = &stacks.counters;
        if stacks.head.period_ns == 0 {
            stacks.head.period_ns = counters.wall_ns / (counters.rounds + counters.missed).max(1);
        }
        stacks
    }
}

/// Whether a schema is that of a later version of this file.
fn is_newer(schema: Option<&str>) -> bool {
    let own = HOST_STACKS.to_string();
    let [found, own] = [schema, Some(&own)].map(|schema| schema.and_then(|schema| schema.split_once('/')));
    let number = |(_, version): (&str, &str)| version.parse::<u32>().ok();
    found.zip(own).is_some_and(|(found, own)| found.0 == own.0 && number(found) > number(own))
}
