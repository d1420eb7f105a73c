//! A signal in chunks: copies and kernels of different chunks overlap in four streams. Then one
//! chunk's work is captured as a graph and replayed.

use super::blocks;
use crate::error::Result;
use crate::outcome::{Outcome, rounding};
use crate::random;
use apex_driver::arguments;
use apex_driver::device::{Buffer, Device, Kernel, Pinned, Stream};
use apex_random::Random;

const CHUNKS: usize = 16;
const CHUNK: u32 = 1 << 16;
const STREAMS: usize = 4;
const REPLAYS: usize = 20;
const THREADS: u32 = 128;
const SCALE: f32 = 1.5;

pub fn run(device: &Device) -> Result<Outcome> {
    let module = device.load(apex_device_code::demo::PIPELINE)?;
    let stages = Stages { smooth: module.kernel("smooth")?, limit: module.kernel("limit")? };
    let mut outcome = Outcome::default();
    stream_chunks(device, &stages, &mut outcome)?;
    replay_graph(device, &stages, &mut outcome)?;
    Ok(outcome)
}

/// The kernels, one behind the other.
struct Stages<'m> {
    smooth: Kernel<'m>,
    limit: Kernel<'m>,
}

/// The buffers of a stream that works on a chunk.
struct Workspace<'d> {
    input: Buffer<'d, f32>,
    output: Buffer<'d, f32>,
}

impl<'d> Workspace<'d> {
    fn new(device: &'d Device) -> Result<Workspace<'d>> {
        Ok(Workspace { input: device.allocate(CHUNK as usize)?, output: device.allocate(CHUNK as usize)? })
    }

    /// Gives a stream one chunk's work: copy, smooth, limit, copy back.
    ///
    /// # Safety
    ///
    /// Source and destination live, and nobody touches them, until the stream has come behind this.
    unsafe fn process(
        &self,
        stages: &Stages<'_>,
        stream: &Stream<'_>,
        source: &[f32],
        destination: &mut [f32],
    ) -> apex_driver::Result {
        let grid = blocks(CHUNK, THREADS);
        // SAFETY: all buffers are one chunk long; the caller keeps the host's alive, and dropping
        // the device's waits.
        unsafe {
            self.input.copy_from(source, stream)?;
            stages.smooth.launch(
                stream,
                grid,
                [THREADS, 1, 1],
                arguments![&self.input, &self.output, &CHUNK],
            )?;
            stages.limit.launch(stream, grid, [THREADS, 1, 1], arguments![&self.output, &SCALE, &CHUNK])?;
            self.output.copy_to(destination, stream)
        }
    }
}

fn stream_chunks(device: &Device, stages: &Stages<'_>, outcome: &mut Outcome) -> Result {
    let signal = random::floats(&mut Random::new(6), CHUNKS * CHUNK as usize);
    let source = device.pin(&signal)?;
    let mut result = device.pin(&vec![0.0; signal.len()])?;
    let streams = (0..STREAMS).map(|_| device.stream()).collect::<apex_driver::Result<Vec<_>>>()?;
    let workspaces = (0..STREAMS).map(|_| Workspace::new(device)).collect::<Result<Vec<_>>>()?;
    let (start, end) = (device.event()?, device.event()?);

    start.record(&streams[0])?;
    streams[1..].iter().try_for_each(|stream| stream.wait(&start))?;
    for (index, destination) in result.chunks_mut(CHUNK as usize).enumerate() {
        let stream = index % STREAMS;
        let source = &source[index * CHUNK as usize..][..CHUNK as usize];
        // SAFETY: both live until the end has been synchronised with, and each chunk is one
        // stream's only.
        unsafe { workspaces[stream].process(stages, &streams[stream], source, destination)? };
    }
    // The first stream ends last: it waits for the others.
    for stream in &streams[1..] {
        let done = device.event()?;
        done.record(stream)?;
        streams[0].wait(&done)?;
    }
    end.record(&streams[0])?;
    end.synchronize()?;
    start.milliseconds_until(&end)?;

    for (source, result) in signal.chunks(CHUNK as usize).zip(result.chunks(CHUNK as usize)) {
        check(outcome, source, result)?;
    }
    Ok(())
}

fn replay_graph(device: &Device, stages: &Stages<'_>, outcome: &mut Outcome) -> Result {
    let signal = random::floats(&mut Random::new(7), CHUNK as usize);
    let source: Pinned<'_, f32> = device.pin(&signal)?;
    let mut result = device.pin(&vec![0.0; signal.len()])?;
    let workspace = Workspace::new(device)?;
    let stream = device.stream()?;
    // SAFETY: what is captured names memory that lives until the synchronisation below.
    let graph = stream.capture(|| unsafe { workspace.process(stages, &stream, &source, &mut result) })?;
    for _ in 0..REPLAYS {
        // SAFETY: as above.
        unsafe { graph.launch(&stream)? };
    }
    stream.synchronize()?;
    check(outcome, &signal, &result)
}

/// Holds one chunk against the same computation in double precision.
fn check(outcome: &mut Outcome, source: &[f32], result: &[f32]) -> Result {
    let at = |index: usize| f64::from(source[index]);
    outcome.check("the signal", result, |i| {
        let (left, right) = (at(i.saturating_sub(1)), at((i + 1).min(source.len() - 1)));
        let mean = (left + at(i) + right) / 3.0;
        let limited = f64::from(SCALE) * mean / (1.0 + mean.abs());
        // Three roundings of the mean, whose terms may cancel, and four behind it.
        let magnitude = (left.abs() + at(i).abs() + right.abs()) / 3.0;
        (limited, f64::from(SCALE) * rounding(7, magnitude))
    })
}
