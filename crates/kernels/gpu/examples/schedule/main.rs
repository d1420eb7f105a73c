//! Six programs with independent work, each stated once and run in four ways:
//! `cargo run --release -p apex-gpu --example schedule`.
//!
//! The programs are those that GrCUDA was measured with, written anew (`programs`): one launch
//! after the other on a stream, the same as a graph, launches that are put on several streams by
//! hand, and a schedule, which finds out by itself what is independent. Results must be the same
//! bit by bit in all ways, and those of the host in f64.
//!
//! `schedule rows serial` measures runs in rows without a wait between them, of one way alone, as a
//! program does that `apex run --fast=schedule` runs (`rows-try` in the small size, `rows-few` few
//! of them, for a recording).
//!
//! `schedule bench ROUNDS` prints a line of JSON for each program, size and round, in which the
//! four ways take turns; `schedule try ROUNDS` does so in a size for machines without a GPU.
//! Without arguments, these small programs run once in each way.

mod programs;

use std::time::Instant;

use apex_gpu::{Buffer, Device, Graph, Launch, Result, Schedule, Scheduler, Stream};
use programs::{Kernels, Program};

/// Streams of the third way.
const STREAMS: usize = 10;
/// Most runs that a figure is the median of, and the time after which no more are made.
const RUNS: usize = 200;
const MOST_SECONDS: f64 = 0.15;

/// The way in which a program's work is given to the device.
pub struct Way<'s> {
    streams: &'s [Stream],
    scheduler: Option<&'s mut Scheduler>,
}

impl<'s> Way<'s> {
    /// The stream that work of a lane belongs to.
    pub fn stream(&self, lane: usize) -> &'s Stream {
        &self.streams[lane % self.streams.len()]
    }

    /// # Safety
    /// As [`Launch::launch`] and [`Scheduler::launch`].
    pub unsafe fn launch(&mut self, launch: Launch<'_>) -> Result<()> {
        // SAFETY: the caller says so.
        unsafe {
            match &mut self.scheduler {
                Some(scheduler) => scheduler.launch(launch),
                None => launch.launch(),
            }
        }
    }

    /// Sets a buffer to zero.
    pub fn clear<T: bytemuck::Pod>(&mut self, lane: usize, buffer: &mut Buffer<T>) -> Result<()> {
        match &mut self.scheduler {
            Some(scheduler) => scheduler.clear(buffer),
            None => buffer.clear_on(self.stream(lane)),
        }
    }

    /// Copies a buffer.
    pub fn copy<T: bytemuck::Pod>(
        &mut self,
        lane: usize,
        to: &mut Buffer<T>,
        from: &Buffer<T>,
    ) -> Result<()> {
        match &mut self.scheduler {
            Some(scheduler) => scheduler.copy(to, from),
            None => to.view_mut().copy_from_on(from.view(), self.stream(lane)),
        }
    }
}

/// A program in the four ways.
struct Ways {
    one: [Stream; 1],
    several: Vec<Stream>,
    graph: Graph,
    schedule: Schedule,
}

const NAMES: [&str; 4] = ["serial", "graph", "streams", "schedule"];

impl Ways {
    fn new(device: &Device, program: &mut dyn Program) -> Result<Ways> {
        let one = [device.stream().clone()];
        let several = (0..STREAMS).map(|_| device.new_stream()).collect::<Result<Vec<_>>>()?;
        let state = |program: &mut dyn Program| program.state(&mut Way { streams: &one, scheduler: None });
        state(program)?; // (Kernels are loaded before a capture.)
        let (graph, ()) = one[0].capture(|| state(program))?;
        let (schedule, ()) = device
            .schedule(|scheduler| program.state(&mut Way { streams: &one, scheduler: Some(scheduler) }))?;
        Ok(Ways { one, several, graph, schedule })
    }

    fn run(&mut self, way: usize, program: &mut dyn Program) -> Result<()> {
        match way {
            0 => program.state(&mut Way { streams: &self.one, scheduler: None }),
            1 => self.graph.launch(),
            2 => program.state(&mut Way { streams: &self.several, scheduler: None }),
            _ => self.schedule.launch(),
        }
    }
}

fn main() -> Result<()> {
    let device = Device::open(0)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = |text: &str| text.parse().expect("a number of rounds");
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (scales, pairs): (&[usize], usize) = match words.as_slice() {
        [] => (&[0], 0),
        ["try", pairs] => (&[0], rounds(pairs)),
        ["bench", pairs] => (&[1, 2], rounds(pairs)),
        ["rows", way] => return rows(&device, way, &[1, 2], RUNS),
        ["rows-few", way] => return rows(&device, way, &[1, 2], 0),
        ["rows-try", way] => return rows(&device, way, &[0], RUNS),
        _ => panic!("usage: schedule [try|bench ROUNDS] or schedule rows|rows-few|rows-try WAY"),
    };
    eprintln!("{}: {}", device.name(), device.kind());
    let kernels = Kernels::new(&device)?;
    for &scale in scales {
        for make in programs::ALL {
            let mut program = make(&device, &kernels, scale)?;
            examine(&device, program.as_mut(), scale, pairs)?;
        }
    }
    Ok(())
}

/// Runs of a row.
const ROW: usize = 20;

/// Prints a line for each program and size: the median time of a run in a row of runs of one way,
/// and the error of the result.
fn rows(device: &Device, way: &str, scales: &[usize], most: usize) -> Result<()> {
    let way = NAMES.iter().position(|name| *name == way).expect("serial, graph, streams or schedule");
    let kernels = Kernels::new(device)?;
    for (&scale, make) in scales.iter().flat_map(|scale| programs::ALL.iter().map(move |make| (scale, make)))
    {
        let mut program = make(device, &kernels, scale)?;
        let mut ways = Ways::new(device, program.as_mut())?;
        program.poison()?;
        let (begin, mut times) = (Instant::now(), Vec::new());
        while times.len() < 5 || times.len() < most && begin.elapsed().as_secs_f64() < MOST_SECONDS {
            let start = Instant::now();
            (0..ROW).try_for_each(|_| ways.run(way, program.as_mut()))?;
            device.synchronize()?;
            times.push(start.elapsed().as_secs_f64() * 1e6 / ROW as f64);
        }
        // The first ones load kernels and find out what is faster.
        let mut late = times.split_off(times.len() / 2);
        late.sort_by(f64::total_cmp);
        let error = error(&program.result()?, &program.expected());
        let (name, us) = (program.name(), late[late.len() / 2]);
        assert!(error < 1e-3, "{name}: the relative error is {error:.1e}");
        println!(
            "{{\"program\":\"{name}\",\"scale\":{scale},\"way\":\"{}\",\"us\":{us:.2},\"error\":{error:e}}}",
            NAMES[way]
        );
    }
    Ok(())
}

/// Checks a program in all ways, and measures it.
fn examine(device: &Device, program: &mut dyn Program, scale: usize, pairs: usize) -> Result<()> {
    let mut ways = Ways::new(device, program)?;
    let (name, expected) = (program.name(), program.expected());
    let mut first: Option<Vec<f32>> = None;
    let mut worst: f64 = 0.0;
    for (way, called) in NAMES.iter().enumerate() {
        program.poison()?;
        ways.run(way, program)?;
        device.synchronize()?;
        let found = program.result()?;
        worst = worst.max(error(&found, &expected));
        assert!(worst < 1e-3, "{name}, {called}: the relative error is {worst:.1e}");
        let first = first.get_or_insert_with(|| found.clone());
        let same = first.iter().zip(&found).all(|(one, other)| one.to_bits() == other.to_bits());
        assert!(same, "{name}, {called}: the result differs from that of serial launches");
    }
    let (nodes, longest) = (ways.schedule.nodes(), ways.schedule.longest_chain());
    println!(
        "{{\"program\":\"{name}\",\"scale\":{scale},\"nodes\":{nodes},\"longest_chain\":{longest},\"error\":{worst:e}}}"
    );
    for round in 0..pairs {
        let mut medians = [0.0; NAMES.len()];
        // (Each way is the first one as often as the others.)
        for turn in 0..NAMES.len() {
            let way = (turn + round) % NAMES.len();
            medians[way] = median(device, &mut ways, way, program)?;
        }
        let times: Vec<String> =
            NAMES.iter().zip(medians).map(|(name, us)| format!("\"{name}\":{us:.2}")).collect();
        println!(
            "{{\"program\":\"{name}\",\"scale\":{scale},\"round\":{round},\"us\":{{{}}}}}",
            times.join(",")
        );
    }
    Ok(())
}

/// The median time of a run and the wait for it, in microseconds.
fn median(device: &Device, ways: &mut Ways, way: usize, program: &mut dyn Program) -> Result<f64> {
    let begin = Instant::now();
    let mut times = Vec::new();
    let mut warm = 3;
    while times.len() < 5 || times.len() < RUNS && begin.elapsed().as_secs_f64() < MOST_SECONDS {
        let start = Instant::now();
        ways.run(way, program)?;
        device.synchronize()?;
        let time = start.elapsed().as_secs_f64() * 1e6;
        match warm {
            0 => times.push(time),
            _ => warm -= 1,
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// ‖found − expected‖ / ‖expected‖; infinite for what is not a number.
fn error(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference =
        square(&mut found.iter().zip(expected).map(|(found, expected)| f64::from(*found) - expected));
    let relative = (difference / square(&mut expected.iter().copied())).sqrt();
    if relative.is_nan() { f64::INFINITY } else { relative }
}
