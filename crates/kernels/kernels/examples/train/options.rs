//! The command line's options.

use std::path::PathBuf;

use apex_gpu::Choice;
use apex_kernels::moe::Auxiliary;

use crate::model::{Balancing, Config};

pub const USAGE: &str = "\
usage: train [OPTION]...

  --device auto|cpu|gpu    where to train (auto: on a GPU if there is one)
  --steps N                steps of learning
  --text PATH              a file, or a folder of Markdown files (the documentation of this repository)
  --curve FILE             write the loss of each step there, as CSV
  --rate R                 learning rate (0.003)
  --seed N                 selects the first weights, and the order of the text (1)
  --layers N --dim N --heads N --key-heads N --hidden N --batch N --length N
                           sizes; small ones for the CPU device, larger ones for a GPU
  --experts N --top-k K    experts of each layer, and of each token (1 and 1: a dense layer)
  --balance free|auxiliary|none
                           what keeps experts evenly loaded (free: a bias, without a loss)
";

#[derive(Debug)]
pub struct Options {
    pub device: Choice,
    pub text: PathBuf,
    pub curve: Option<PathBuf>,
    pub rate: f64,
    pub seed: u64,
    steps: Option<usize>,
    sizes: [Option<usize>; 7],
    experts: usize,
    top_k: usize,
    balancing: Balancing,
}

const SIZES: [&str; 7] = ["--layers", "--dim", "--heads", "--key-heads", "--hidden", "--batch", "--length"];
/// A step takes about a second on the CPU device.
const SMALL: [usize; 7] = [2, 64, 2, 1, 128, 2, 32];
const LARGE: [usize; 7] = [8, 512, 8, 2, 1408, 16, 512];

impl Options {
    /// # Errors
    /// What is wrong with the arguments.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let docs = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs"));
        let mut options = Options {
            device: Choice::Auto,
            text: docs,
            curve: None,
            rate: 3e-3,
            seed: 1,
            steps: None,
            sizes: [None; 7],
            experts: 1,
            top_k: 1,
            balancing: Balancing::LossFree { rate: 0.02 },
        };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value, or is unknown"))?;
            options.set(&name, &value)?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wrong = |expected: &str| format!("{name} {value}: expected {expected}");
        let count = || value.parse().ok().filter(|&n| n > 0).ok_or_else(|| wrong("a number from 1 on"));
        match name {
            "--device" => {
                self.device = match value {
                    "auto" => Choice::Auto,
                    "cpu" => Choice::Cpu,
                    "gpu" => Choice::Gpu,
                    _ => return Err(wrong("auto, cpu or gpu")),
                }
            }
            "--balance" => {
                self.balancing = match value {
                    "free" => Balancing::LossFree { rate: 0.02 },
                    "auxiliary" => Balancing::Auxiliary(Auxiliary { balance: 0.01, z: 0.001 }),
                    "none" => Balancing::None,
                    _ => return Err(wrong("free, auxiliary or none")),
                }
            }
            "--text" => self.text = value.into(),
            "--curve" => self.curve = Some(value.into()),
            "--rate" => self.rate = value.parse().map_err(|_| wrong("a number"))?,
            "--seed" => self.seed = value.parse().map_err(|_| wrong("a whole number"))?,
            "--steps" => self.steps = Some(count()?),
            "--experts" => self.experts = count()?,
            "--top-k" => self.top_k = count()?,
            _ => {
                let place = SIZES.iter().position(|&size| size == name);
                self.sizes[place.ok_or_else(|| format!("unknown option {name}"))?] = Some(count()?);
            }
        }
        Ok(())
    }

    /// The steps, by default few on the CPU device.
    pub fn steps(&self, on_gpu: bool) -> usize {
        self.steps.unwrap_or(if on_gpu { 1000 } else { 20 })
    }

    pub fn config(&self, on_gpu: bool) -> Config {
        let usual = if on_gpu { LARGE } else { SMALL };
        let mut sizes = self.sizes.iter().zip(usual).map(|(size, usual)| size.unwrap_or(usual));
        let mut next = || sizes.next().expect("there are seven sizes");
        Config {
            layers: next(),
            dim: next(),
            heads: next(),
            key_heads: next(),
            hidden: next(),
            batch: next(),
            length: next(),
            experts: self.experts,
            top_k: self.top_k,
            balancing: self.balancing,
        }
    }
}
