//! Blurs an image with a kernel in two dimensions: `cargo run -p apex-gpu --example blur`.

use apex_gpu::{Device, Source};

const CODE: &str = r#"
// The mean of the pixels in a square around each pixel, as far as it lies within the image.
extern "C" __global__ void blur(const unsigned char* from, unsigned char* to, int width, int height, int radius) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int sum = 0, count = 0;
    for (int v = max(y - radius, 0); v <= min(y + radius, height - 1); v++)
        for (int u = max(x - radius, 0); u <= min(x + radius, width - 1); u++) {
            sum += from[v * width + u];
            count++;
        }
    to[y * width + x] = sum / count;
}
"#;

fn main() -> apex_gpu::Result<()> {
    let device = Device::open(0)?;
    println!("{}: {}", device.name(), device.kind());
    let blur = device.compile(&Source::new(CODE).name("blur.cu"))?.kernel("blur")?;

    let (width, height, radius) = (64usize, 24usize, 3i32);
    // A white disc on black.
    let inside = |x: f32, y: f32| (x - 32.0).powi(2) + (2.0 * (y - 12.0)).powi(2) < 400.0;
    let image: Vec<u8> = (0..width * height)
        .map(|at| if inside((at % width) as f32, (at / width) as f32) { 255 } else { 0 })
        .collect();

    let (from, mut to) = (device.upload(&image)?, device.zeros::<u8>(image.len())?);
    let launch = blur.over((width, height)).arg(&from).arg(&mut to);
    // SAFETY: both buffers have a byte for each pixel of an image of this size.
    unsafe { launch.arg(width as i32).arg(height as i32).arg(radius).launch()? };
    let blurred = to.to_vec()?;

    for row in blurred.chunks(width) {
        println!(
            "{}",
            row.iter().map(|&pixel| b" .:-=+*#%@"[pixel as usize / 26] as char).collect::<String>()
        );
    }
    let (middle, corner) = (blurred[12 * width + 32], blurred[0]);
    assert_eq!((middle, corner), (255, 0));
    assert!(blurred.iter().any(|&pixel| pixel != 0 && pixel != 255), "the edge is soft");
    Ok(())
}
