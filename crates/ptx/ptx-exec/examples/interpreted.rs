//! Counts the steps of kernels that cannot become machine code, by reason.
//!
//! ```text
//! cargo run -p ptx-exec --example interpreted -- FILE.ptx...
//! ```

use std::collections::BTreeMap;

use ptx_exec::{Outside, Program};

/// Steps in no region: all, and those in loops.
#[derive(Default)]
struct Count {
    steps: usize,
    repeated: usize,
}

#[derive(Default)]
struct Survey {
    kernels: usize,
    /// Steps in regions, and all steps.
    steps: [usize; 2],
    counts: BTreeMap<(Outside, String), Count>,
}

impl Survey {
    fn add(&mut self, program: &Program) {
        for (_, [_, possible, steps]) in program.machine_code() {
            self.kernels += 1;
            self.steps = [self.steps[0] + possible, self.steps[1] + steps];
        }
        for (_, mnemonic, outside, repeated) in program.interpreted() {
            let count = self.counts.entry((outside, mnemonic.to_string())).or_default();
            count.steps += 1;
            count.repeated += usize::from(repeated);
        }
    }

    fn print(self) {
        let [possible, steps] = self.steps;
        println!("{} kernels: {possible} of {steps} steps can become machine code", self.kernels);
        let mut counts: Vec<_> = self.counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse((count.repeated, count.steps)));
        println!("{:>8} {:>8}  reason   instruction", "in loops", "steps");
        for ((outside, mnemonic), Count { steps, repeated }) in counts {
            println!("{repeated:>8} {steps:>8}  {:<8} {mnemonic}", format!("{outside:?}"));
        }
    }
}

fn main() {
    let mut survey = Survey::default();
    for path in std::env::args().skip(1) {
        let program = std::fs::read_to_string(&path).map_err(|error| error.to_string()).and_then(|source| {
            let module = ptx::parse(&source).map_err(|error| error.render(&path, &source))?;
            Program::compile(&module).map_err(|error| error.render(&path, &source))
        });
        match program {
            Ok(program) => survey.add(&program),
            Err(error) => eprintln!("{path}: {error}"),
        }
    }
    survey.print();
}
