//! Several streams at once, with events: `cargo run -p apex-gpu --example streams`.
//!
//! Each stream uploads a part from pinned memory, works on it, and downloads it; the host waits
//! once, at the end. No stream is told to wait for another: buffers see to it that what touches the
//! same memory keeps its order.

use apex_gpu::{Device, Source};

const CODE: &str = r#"
extern "C" __global__ void smooth(const float* from, float* to, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = 0.25f * from[i == 0 ? 0 : i - 1] + 0.5f * from[i] + 0.25f * from[i + 1 == n ? i : i + 1];
}
"#;

const PARTS: usize = 4;
const PART: usize = 100_000;

fn main() -> apex_gpu::Result<()> {
    let device = Device::open(0)?;
    println!("{}: {}", device.name(), device.kind());
    let smooth = device.compile(&Source::new(CODE).name("smooth.cu"))?.kernel("smooth")?;

    let mut parts = Vec::new();
    for part in 0..PARTS {
        let stream = device.new_stream()?;
        let mut host = device.pinned::<f32>(PART)?;
        let values = host.as_mut_slice()?;
        values.iter_mut().enumerate().for_each(|(i, value)| *value = ((i * 31 + part * 17) % 1009) as f32);
        let expected = twice_smoothed(values);
        let (mut one, mut two) =
            (device.zeros_on::<f32>(PART, &stream)?, device.zeros_on::<f32>(PART, &stream)?);
        let before = stream.record()?;
        one.view_mut().write_pinned(&mut host, &stream)?;
        // SAFETY: the kernel reads and writes `PART` elements.
        unsafe { smooth.over(PART).on(&stream).arg(&one).arg(&mut two).arg(PART as u32).launch()? };
        // The second time on the device's own stream, which waits for the first by itself, as the
        // copy back does for it. SAFETY: as above.
        unsafe { smooth.over(PART).arg(&two).arg(&mut one).arg(PART as u32).launch()? };
        one.view().read_pinned(&mut host, &stream)?;
        let after = stream.record()?;
        parts.push((host, expected, before, after));
    }
    for (part, (host, expected, before, after)) in parts.iter().enumerate() {
        let worst = host.as_slice()?.iter().zip(expected).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        println!("part {part}: {:?} on the device, largest difference {worst:e}", after.since(before)?);
        assert!(worst < 1e-3);
    }
    Ok(())
}

fn twice_smoothed(values: &[f32]) -> Vec<f32> {
    let once = |from: &[f32]| -> Vec<f32> {
        let at = |i: usize| from[i.min(from.len() - 1)];
        (0..from.len()).map(|i| 0.25 * at(i.saturating_sub(1)) + 0.5 * at(i) + 0.25 * at(i + 1)).collect()
    };
    once(&once(values))
}
