//! A small active-inference classifier: `cargo run --release -p apex-gpu --example classifier`.
//!
//! The world has four hidden classes, each of which causes observations of eight dimensions. The
//! classifier holds a generative model of that, `p(o, s) = p(s) p(o | s)` with a Gaussian for each
//! class, and a belief `q(s)` about what caused an observation. Perception minimises the
//! variational free energy
//!
//! ```text
//! F = sum over s of q(s) (ln q(s) - ln p(o, s))
//! ```
//!
//! by moving the belief; learning minimises the same `F` by moving the model's parameters, with the
//! beliefs that the examples' labels give. The forward pass is one kernel (`classifier.cu`);
//! learning is written with tensors. The same is computed on the host in f64, and the two are
//! compared.

use apex_gpu::{Buffer, Device, Kernel, Tensor};

const CLASSES: usize = 4;
const DIMENSIONS: usize = 8;
const TRAINED_ON: usize = 2000;
const TESTED_ON: usize = 1000;
const EPOCHS: usize = 60;
const LEARNING_RATE: f64 = 0.2;
/// Steps of the belief, and how far each goes towards the minimum.
const STEPS: usize = 12;
const RATE: f32 = 0.5;

fn main() -> apex_gpu::Result<()> {
    let device = Device::open(0)?;
    println!("{}: {}", device.name(), device.kind());
    let infer = device.load_ptx(include_str!("classifier.ptx"))?.kernel("infer")?;

    let mut random = Random(2026);
    let world = World::new(&mut random);
    let (train, test) = (world.observe(TRAINED_ON, &mut random), world.observe(TESTED_ON, &mut random));

    let mut model = Model::ignorant(&device)?;
    println!("before learning: {}", model.evaluate(&infer, &test)?);
    for epoch in 1..=EPOCHS {
        model.learn(&train)?;
        if epoch % (EPOCHS / 4) == 0 {
            println!("epoch {epoch:>3}: {}", model.evaluate(&infer, &train)?);
        }
    }
    let outcome = model.evaluate(&infer, &test)?;
    println!("on observations never seen: {outcome}");

    let (beliefs, _) = model.perceive(&infer, &test)?;
    let worst = model.largest_difference_to_host(&test, &beliefs)?;
    println!("largest difference of a belief to the host's in f64: {worst:.1e}");
    assert!(worst < 1e-3, "device and host disagree");
    assert!(outcome.accuracy > 0.95, "it has not learned");
    assert!(outcome.last_energy < outcome.first_energy, "perception does not minimise free energy");
    Ok(())
}

/// The source of observations.
struct World {
    means: Vec<f32>,
    deviations: Vec<f32>,
}

/// Observations and their causes.
struct Data {
    observations: Vec<f32>,
    classes: Vec<usize>,
}

impl World {
    fn new(random: &mut Random) -> World {
        let cells = CLASSES * DIMENSIONS;
        World {
            means: (0..cells).map(|_| 1.2 * random.normal()).collect(),
            deviations: (0..cells).map(|_| 0.5 + random.fraction()).collect(),
        }
    }

    fn observe(&self, count: usize, random: &mut Random) -> Data {
        let classes: Vec<usize> = (0..count).map(|_| random.next() as usize % CLASSES).collect();
        let cells = classes.iter().flat_map(|class| (0..DIMENSIONS).map(move |d| class * DIMENSIONS + d));
        let observations =
            cells.map(|cell| self.means[cell] + self.deviations[cell] * random.normal()).collect();
        Data { observations, classes }
    }
}

/// The classifier's beliefs about the world. Precisions are inverse variances.
struct Model {
    means: Tensor<f32>,
    log_precisions: Tensor<f32>,
    log_prior: Tensor<f32>,
}

/// The quality of the classifier.
struct Outcome {
    accuracy: f64,
    first_energy: f64,
    last_energy: f64,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { accuracy, first_energy, last_energy } = self;
        write!(out, "{:.1} % right, free energy {first_energy:.3} -> {last_energy:.3}", 100.0 * accuracy)
    }
}

impl Model {
    /// All classes alike, and almost at the same place: the least difference breaks the tie.
    fn ignorant(device: &Device) -> apex_gpu::Result<Model> {
        let shape = [CLASSES, DIMENSIONS];
        Ok(Model {
            means: Tensor::zeros(device, shape)?,
            log_precisions: Tensor::zeros(device, shape)?,
            log_prior: Tensor::full(device, -(CLASSES as f32).ln(), [CLASSES])?,
        })
    }

    fn device(&self) -> &Device {
        self.means.device()
    }

    /// One step down the free energy of labelled observations, averaged over each class.
    fn learn(&mut self, data: &Data) -> apex_gpu::Result<()> {
        let n = data.classes.len();
        let mut labels = vec![0.0f32; n * CLASSES];
        data.classes.iter().enumerate().for_each(|(at, class)| labels[at * CLASSES + class] = 1.0);
        let beliefs = Tensor::new(self.device(), &labels, [n, CLASSES])?;
        let observations = Tensor::new(self.device(), &data.observations, [n, DIMENSIONS])?;

        let counts = beliefs.sum(0)?.reshape([CLASSES, 1])?;
        let share = beliefs.transpose(0, 1)?;
        let average = |of: &Tensor<f32>| share.matmul(of)?.div(&counts);
        let (first, second) = (average(&observations)?, average(&observations.mul(&observations)?)?);
        // For each class and dimension: how far observations lie from the mean, and squared.
        let off = first.sub(&self.means)?;
        let squared =
            second.sub(&self.means.mul(&first.affine(2.0, 0.0)?)?)?.add(&self.means.mul(&self.means)?)?;
        // Natural gradients: of the mean, its error; of the log precision, 1 - precision * squared
        // error.
        self.means = self.means.add(&off.affine(LEARNING_RATE, 0.0)?)?;
        let surprise = self.log_precisions.exp()?.mul(&squared)?.neg()?.affine(1.0, 1.0)?;
        self.log_precisions = self.log_precisions.add(&surprise.affine(LEARNING_RATE, 0.0)?)?;
        self.log_prior = counts.affine(1.0 / n as f64, 0.0)?.ln()?.reshape([CLASSES])?;
        Ok(())
    }

    /// Beliefs `[n, classes]`, and the free energy before each step `[n, steps]`.
    fn perceive(&self, infer: &Kernel, data: &Data) -> apex_gpu::Result<(Buffer<f32>, Tensor<f32>)> {
        let (device, n) = (self.device(), data.classes.len());
        let observations = device.upload(&data.observations)?;
        let precisions = self.log_precisions.exp()?;
        let mut beliefs = device.zeros::<f32>(n * CLASSES)?;
        let mut energies = device.zeros::<f32>(n * STEPS)?;
        let launch = infer.launch([n.div_ceil(8) as u32, 1, 1], [256, 1, 1]);
        let launch =
            launch.arg(n as u32).arg(CLASSES as u32).arg(DIMENSIONS as u32).arg(STEPS as u32).arg(RATE);
        let launch = launch.arg(&observations).arg(self.means.elements()).arg(precisions.elements());
        let launch = launch.arg(self.log_prior.elements()).arg(&mut beliefs).arg(&mut energies);
        // SAFETY: a warp for each observation, and all buffers have the sizes that the kernel is
        // told.
        unsafe { launch.launch()? };
        Ok((beliefs, Tensor::from_buffer(energies, [n, STEPS])?))
    }

    fn evaluate(&self, infer: &Kernel, data: &Data) -> apex_gpu::Result<Outcome> {
        let n = data.classes.len();
        let (beliefs, energies) = self.perceive(infer, data)?;
        let guesses = Tensor::from_buffer(beliefs, [n, CLASSES])?.argmax(1)?.to_vec()?;
        let right =
            guesses.iter().zip(&data.classes).filter(|(guess, class)| **guess as usize == **class).count();
        let energies = energies.mean(0)?.to_vec()?;
        Ok(Outcome {
            accuracy: right as f64 / n as f64,
            first_energy: energies[0].into(),
            last_energy: energies[STEPS - 1].into(),
        })
    }

    /// The same perception on the host, in f64.
    fn largest_difference_to_host(&self, data: &Data, beliefs: &Buffer<f32>) -> apex_gpu::Result<f64> {
        let (means, precisions) = (self.means.to_vec()?, self.log_precisions.exp()?.to_vec()?);
        let (prior, beliefs) = (self.log_prior.to_vec()?, beliefs.to_vec()?);
        let mut worst = 0.0f64;
        for (at, observation) in data.observations.chunks(DIMENSIONS).enumerate() {
            let score = |class: usize| {
                let terms = (0..DIMENSIONS).map(|d| {
                    let precision = f64::from(precisions[class * DIMENSIONS + d]);
                    let off = f64::from(observation[d]) - f64::from(means[class * DIMENSIONS + d]);
                    0.5 * (precision.ln() - precision * off * off)
                });
                f64::from(prior[class]) + terms.sum::<f64>()
            };
            let scores: Vec<f64> = (0..CLASSES).map(score).collect();
            let mut v = vec![0.0; CLASSES];
            for _ in 0..STEPS {
                let log_q = log_softmax(&v);
                v = log_q.iter().zip(&scores).map(|(q, score)| q + f64::from(RATE) * (score - q)).collect();
            }
            for (class, log_q) in log_softmax(&v).iter().enumerate() {
                worst = worst.max((log_q.exp() - f64::from(beliefs[at * CLASSES + class])).abs());
            }
        }
        Ok(worst)
    }
}

fn log_softmax(v: &[f64]) -> Vec<f64> {
    let most = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = v.iter().map(|x| (x - most).exp()).sum();
    v.iter().map(|x| x - most - sum.ln()).collect()
}

/// Numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 ^ self.0 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 16
    }

    /// Returns a number from 0 to 1.
    fn fraction(&mut self) -> f32 {
        (self.next() >> 8 & 0xff_ffff) as f32 / (1 << 24) as f32
    }

    /// Normally distributed: twelve fractions added up.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.fraction()).sum::<f32>() - 6.0
    }
}
