//! A project outside of APEX's workspace that uses `apex-gpu`: the test `outside` builds and runs
//! it. Each part is a feature; the last ends with an error, as a `main` that fails does.

use apex_gpu::{Device, Error, Kind, Tensor};

const PTX: &str = include_str!("kernels.ptx");

fn main() -> apex_gpu::Result<()> {
    let device = Device::open(0)?;
    println!("device: {}", matches!(device.kind(), Kind::Cpu { .. }));
    let module = device.load_ptx(PTX)?;

    let buffer = device.upload(&[1.0f32; 1_000_000])?;
    println!("debug: {buffer:?}");

    let (width, height) = (70, 30);
    let mut grid = device.zeros::<u32>(width * height)?;
    let positions = module.kernel("positions")?;
    let launch = positions.over((width, height)).block((16, 4));
    // SAFETY: the kernel writes `width * height` words.
    unsafe { launch.arg(&mut grid).arg(width as u32).arg(height as u32).launch()? };
    println!("two dimensions: {:?}", grid.slice(width * 3 + 5..width * 3 + 7).to_vec()?);

    let (table, counter) = (module.global::<f32>("table")?, module.global::<u32>("counter")?);
    table.write(&[0.5, 1.0, 1.5, 2.0])?;
    let weigh = module.kernel("weigh")?;
    let mut x = device.upload(&[2.0f32; 4])?;
    // SAFETY: a thread for each of four elements.
    unsafe { weigh.launch(1, 4).arg(&mut x).launch()? };
    println!("constants: {:?}, {:?}", x.to_vec()?, counter.to_vec()?);

    let saxpy = module.kernel("saxpy")?;
    let mut y = device.zeros::<f32>(4)?;
    // SAFETY: refused before anything runs.
    let refused = unsafe { saxpy.over(4).arg(1.0f32).arg(4.0f32).arg(&x).arg(&mut y).launch() };
    println!("types: {}", refused.unwrap_err());

    let other = device.new_stream()?;
    // SAFETY: both buffers have four elements.
    unsafe { saxpy.over(4).on(&other).arg(10.0f32).arg(4u32).arg(&x).arg(&mut y).launch()? };
    let done = other.record()?;
    done.synchronize()?;
    println!("streams: {:?}", y.to_vec()?);

    let mut host = device.pinned::<f32>(4)?;
    y.view().read_pinned(&mut host, &other)?;
    println!("pinned: {:?}", host.as_slice()?);

    let a = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], (2, 2))?;
    let b = Tensor::full(&device, 0.5f32, 2)?;
    let sum = ((2.0 * (&a + &b)?.matmul(&a)?)? - 1.0)?;
    println!("tensors: {:?}", sum.to_vec()?);
    println!("shapes: {}", (&a + &Tensor::<f32>::zeros(&device, 3)?).unwrap_err());

    let mut w = Tensor::full(&device, 1.0f32, ())?;
    let (mut graph, ()) = device.stream().capture(|| w.copy_from(&(&w * 2.0)?))?;
    (0..3).try_for_each(|_| graph.launch())?;
    graph.update(|| w.copy_from(&(&w * 10.0)?))?;
    graph.launch()?;
    println!("graphs: {}", w.item()?);

    match device.compile(&apex_gpu::Source::new("extern \"C\" __global__ void k(int n) {}")) {
        Ok(module) => println!("compiler: {:?}", module.kernel("k")?.parameters()),
        Err(Error::NoCompiler { .. }) => println!("compiler: [4]"),
        Err(error) => return Err(error),
    }

    // SAFETY: it is not, which is what is shown: the kernel writes to address 8.
    unsafe { module.kernel("oops")?.launch(1, 1).launch()? };
    device.synchronize()
}
