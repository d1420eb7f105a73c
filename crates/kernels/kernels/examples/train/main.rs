//! Trains a small language model, made of nothing but this workspace's kernels:
//!
//!     cargo run --release -p apex-kernels --example train
//!     cargo run -p apex-kernels --example train -- --device cpu --steps 5
//!     cargo run -p apex-kernels --example train -- --device cpu --steps 5 --experts 4 --top-k 2
//!
//! A decoder-only transformer over bytes: embedding, RMSNorm, rotary positions, causal attention
//! with shared key heads, SwiGLU in a dense layer or a mixture of experts, cross-entropy, AdamW.
//! Read [`model`] first, then [`block`], then [`layers`].

mod block;
mod layers;
mod model;
mod options;
mod text;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use apex_gpu::{Device, Kind};
use apex_kernels::training::Rates;
use apex_random::Random;
use model::{Config, HEAD_DIM, Model};
use options::Options;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--help" || argument == "-h") {
        print!("{}", options::USAGE);
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprint!("train: {why}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match train(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("train: {error}");
            ExitCode::FAILURE
        }
    }
}

fn train(options: &Options) -> Result<()> {
    let device = Device::open_as(0, options.device)?;
    let on_gpu = *device.kind() == Kind::Gpu;
    let (config, steps) = (options.config(on_gpu), options.steps(on_gpu));
    let text = text::read(&options.text)?;
    if text.len() <= config.length {
        let (path, found) = (options.text.display(), text.len());
        let needed = config.length + 1;
        return Err(format!("{path}: {found} bytes are too short a text: a sequence takes {needed}; give a longer text or a smaller --length").into());
    }
    let mut model = Model::new(&device, config, options.seed)?;
    introduce(&model, &text);

    let mut curve = options.curve.as_deref().map(create).transpose()?;
    if let Some(curve) = &mut curve {
        writeln!(curve, "step,loss,seconds")?;
    }
    let mut places = Random::named(options.seed, "text");
    let rates = Rates { betas: [0.9, 0.95], decay: 0.1, ..Rates::default() };
    let start = Instant::now();
    let mut first_done = start;
    for step in 1..=steps {
        let batch = text::batch(&text, &config, &mut places, &device)?;
        // The rate grows at first, because AdamW knows little of gradients then.
        let learning = options.rate * (step as f64 / 10.0).min(1.0);
        let forward = model.forward(&batch)?;
        let gradients = model.backward(&batch, &forward)?;
        model.step(&forward, &gradients, &Rates { learning, ..rates })?;

        let is_shown = step == 1 || step == steps || step % (steps / 20).max(1) == 0;
        if is_shown || curve.is_some() {
            let loss = forward.loss()?;
            if let Some(curve) = &mut curve {
                writeln!(curve, "{step},{loss},{}", start.elapsed().as_secs_f64())?;
            }
            if is_shown {
                println!("step {step:>4}: loss {loss:.3} nats per byte{}", balance(&forward, &config)?);
            }
        }
        if step == 1 {
            device.synchronize()?;
            first_done = Instant::now();
        }
    }
    device.synchronize()?;
    if steps > 1 {
        let speed = ((steps - 1) * config.tokens()) as f64 / first_done.elapsed().as_secs_f64();
        println!("{speed:.0} tokens per second, measured after the first step");
    }
    Ok(())
}

fn create(path: &Path) -> Result<File> {
    Ok(File::create(path).map_err(|error| format!("{}: {error}", path.display()))?)
}

fn introduce(model: &Model, text: &[u8]) {
    let (config, layers) = (&model.config, &model.layers);
    let Config { dim, heads, key_heads, hidden, experts, top_k, batch, length, .. } = *config;
    println!("device: {} ({})", layers.device.name(), layers.device.kind());
    let (attention, form) = (layers.attention_form(), layers.moe.form_for(&config.expert_shape()));
    println!("forms: {attention:?} for attention, {form:?} for experts");
    println!(
        "model: {} parameters; {} layers of {dim}, {heads} heads of {HEAD_DIM} on {key_heads} of keys",
        model.parameters(),
        config.layers
    );
    match experts {
        1 => println!("feed-forward: dense, {hidden} hidden"),
        _ => println!("feed-forward: {experts} experts of {hidden} hidden, {top_k} for each token"),
    }
    println!("text: {} bytes, in batches of {batch} x {length}", text.len());
}

/// Describes the balance of the experts' loads, in the layer with the least even ones.
fn balance(forward: &model::Forward, config: &Config) -> Result<String> {
    if config.experts == 1 {
        return Ok(String::new());
    }
    let layers = forward.balance()?;
    let worst = layers.iter().max_by(|a, b| a.peak.total_cmp(&b.peak));
    Ok(worst.map_or(String::new(), |worst| {
        let (used, entropy, peak) = (100.0 * worst.utilisation, worst.entropy, worst.peak);
        format!("; experts: {used:.0}% used, entropy {entropy:.2}, largest load {peak:.2} x mean")
    }))
}
