//! Approximate functions: how far they are from the exact values, which the documentation states
//! beside the bounds of the ISA. `BLESS=1` writes its table anew.

use crate::floats::{f, half};
use crate::instruction::Width::{W16, W32, W64};
use crate::instruction::{Check, Width};

/// The measure of an error.
#[derive(Clone, Copy, PartialEq)]
enum Measure {
    /// In units of the last place of the exact value, as an `.f32`.
    Ulp,
    Relative,
    Absolute,
}

/// A function with the bound that the ISA states for it over some arguments.
struct Function {
    text: &'static str,
    width: Width,
    /// A register as a number.
    number: fn(u64) -> f64,
    exact: fn(&[f64]) -> f64,
    /// The arguments for which the bound holds, in words and as a test.
    domain: (&'static str, fn(&[f64]) -> bool),
    measure: Measure,
    /// Ulps, or the exponent of 2; none where the ISA states none.
    bound: Option<f64>,
}

const ALL: (&str, fn(&[f64]) -> bool) = ("all", |_| true);

fn single(raw: u64) -> f64 {
    f(raw).into()
}

fn brain(raw: u64) -> f64 {
    f64::from(f32::from_bits((raw as u32) << 16))
}

const fn of_singles(
    text: &'static str,
    exact: fn(&[f64]) -> f64,
    domain: (&'static str, fn(&[f64]) -> bool),
    measure: Measure,
    bound: f64,
) -> Function {
    Function { text, width: W32, number: single, exact, domain, measure, bound: Some(bound) }
}

const TURN: f64 = std::f64::consts::TAU;

const FUNCTIONS: [Function; 18] = [
    of_singles("rcp.approx.f32 $d, $a;", |x| 1.0 / x[0], ALL, Measure::Ulp, 1.0),
    of_singles(
        "div.approx.f32 $d, $a, $b;",
        |x| x[0] / x[1],
        ("divisor from 2^-126 to 2^126", |x| (-126.0..=126.0).contains(&x[1].abs().log2())),
        Measure::Ulp,
        2.0,
    ),
    of_singles("div.full.f32 $d, $a, $b;", |x| x[0] / x[1], ALL, Measure::Ulp, 2.0),
    of_singles("sqrt.approx.f32 $d, $a;", |x| x[0].sqrt(), ALL, Measure::Relative, -23.0),
    of_singles("rsqrt.approx.f32 $d, $a;", |x| 1.0 / x[0].sqrt(), ALL, Measure::Relative, -22.9),
    of_singles(
        "sin.approx.f32 $d, $a;",
        |x| x[0].sin(),
        ("-2π to 2π", within_turn),
        Measure::Absolute,
        -20.5,
    ),
    of_singles(
        "sin.approx.f32 $d,  $a;",
        |x| x[0].sin(),
        ("-100π to 100π", within_turns),
        Measure::Absolute,
        -14.7,
    ),
    of_singles(
        "cos.approx.f32 $d, $a;",
        |x| x[0].cos(),
        ("-2π to 2π", within_turn),
        Measure::Absolute,
        -20.5,
    ),
    of_singles(
        "cos.approx.f32 $d,  $a;",
        |x| x[0].cos(),
        ("-100π to 100π", within_turns),
        Measure::Absolute,
        -14.7,
    ),
    of_singles("lg2.approx.f32 $d, $a;", |x| x[0].log2(), ("0.5 to 2", near_one), Measure::Absolute, -22.0),
    of_singles(
        "lg2.approx.f32 $d,  $a;",
        |x| x[0].log2(),
        ("others", |x| !near_one(x)),
        Measure::Relative,
        -22.0,
    ),
    of_singles("ex2.approx.f32 $d, $a;", |x| x[0].exp2(), ALL, Measure::Ulp, 2.0),
    of_singles("tanh.approx.f32 $d, $a;", |x| x[0].tanh(), ALL, Measure::Relative, -11.0),
    Function {
        text: "rcp.approx.ftz.f64 $d, $a;",
        width: W64,
        number: f64::from_bits,
        exact: |x| 1.0 / x[0],
        domain: ("normal numbers", |x| x[0].is_normal() && (1.0 / x[0]).is_normal()),
        measure: Measure::Relative,
        bound: None,
    },
    Function {
        text: "tanh.approx.f16 $d, $a;",
        width: W16,
        number: half,
        exact: |x| x[0].tanh(),
        domain: ALL,
        measure: Measure::Absolute,
        bound: Some(-10.987),
    },
    Function {
        text: "tanh.approx.bf16 $d, $a;",
        width: W16,
        number: brain,
        exact: |x| x[0].tanh(),
        domain: ALL,
        measure: Measure::Absolute,
        bound: Some(-8.0),
    },
    Function {
        text: "ex2.approx.f16 $d, $a;",
        width: W16,
        number: half,
        exact: |x| x[0].exp2(),
        domain: ("normal results", |x| x[0] >= -14.0),
        measure: Measure::Relative,
        bound: Some(-9.9),
    },
    Function {
        text: "ex2.approx.ftz.bf16 $d, $a;",
        width: W16,
        number: brain,
        exact: |x| x[0].exp2(),
        domain: ("normal results", |x| x[0] >= -126.0),
        measure: Measure::Relative,
        bound: Some(-7.0),
    },
];

fn within_turn(x: &[f64]) -> bool {
    x[0].abs() <= TURN
}

fn within_turns(x: &[f64]) -> bool {
    x[0].abs() <= 50.0 * TURN
}

fn near_one(x: &[f64]) -> bool {
    x[0] > 0.5 && x[0] < 2.0
}

/// Runs of 512 inputs for each function.
const RUNS: usize = 64;

impl Function {
    /// The largest error found.
    fn measure(&self) -> f64 {
        let mut worst = 0.0f64;
        let sources = [self.width; 2];
        for run in 0..RUNS {
            // Inputs depend on the text: spaces make others of it.
            let text = format!("{}{}", self.text, " ".repeat(run));
            let sources = &sources[..self.text.matches('$').count() - 1];
            Check { text: &text, result: self.width, sources }.run(&mut |inputs, found| {
                let x: Vec<f64> = inputs.iter().map(|&raw| (self.number)(raw)).collect();
                if (self.domain.1)(&x) {
                    let (exact, found) = ((self.exact)(&x), (self.number)(found));
                    let error = self.error(exact, found);
                    assert!(!error.is_nan(), "{} on {x:?}: {found:e} instead of {exact:e}", self.text);
                    worst = worst.max(error);
                }
            });
        }
        worst
    }

    fn error(&self, exact: f64, found: f64) -> f64 {
        let largest = if self.text.contains(".f16") { 65504.0 } else { f64::from(f32::MAX) };
        let overflows = self.width != W64 && exact.abs() > largest && found.is_infinite();
        if exact == found || (exact.is_nan() && found.is_nan()) || overflows {
            return 0.0;
        }
        let error = (found - exact).abs();
        match self.measure {
            Measure::Absolute => error,
            Measure::Relative => error / exact.abs(),
            Measure::Ulp => error / 2f64.powi((exact.abs().log2().floor() as i32).max(-126) - 23),
        }
    }

    /// A bound or an error in words.
    fn show(&self, value: f64) -> String {
        match self.measure {
            Measure::Ulp => format!("{value} ulp"),
            Measure::Relative => format!("2^{value} relative"),
            Measure::Absolute => format!("2^{value} absolute"),
        }
    }

    fn row(&self) -> String {
        let worst = self.measure();
        let limit = self.bound.map(|bound| if self.measure == Measure::Ulp { bound } else { bound.exp2() });
        assert!(limit.is_none_or(|limit| worst <= limit), "{}: {worst:e}", self.text);
        // Rounded up, so coarsely that other mathematical libraries give the same.
        let shown = if self.measure == Measure::Ulp {
            (worst * 50.0).ceil() / 50.0
        } else {
            (worst.log2() * 10.0).ceil() / 10.0
        };
        let name = self.text.split_whitespace().next().unwrap_or("");
        let bound = self.bound.map_or("none stated".to_owned(), |bound| self.show(bound));
        format!("| `{name}` | {} | {bound} | {} |\n", self.domain.0, self.show(shown))
    }
}

#[test]
fn approximations_are_as_near_as_documented() {
    const BEGIN: &str =
        "<!-- numbers: BLESS=1 cargo test -p ptx-exec --test exec numbers writes this table anew -->\n";
    const END: &str = "<!-- end of numbers -->\n";
    let rows: String = FUNCTIONS.iter().map(Function::row).collect();
    let table = format!(
        "{BEGIN}| instruction | arguments | bound of the ISA | largest error measured |\n| --- | --- | --- | --- |\n{rows}{END}"
    );
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/cpu-device.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has the table");
    let (_, after) = rest.split_once(END).expect("the table ends");
    test_golden::assert_file(path, &format!("{before}{table}{after}"));
}
