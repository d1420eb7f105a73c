//! Constant expressions: what ptxas makes of them.

mod common;

use apex_random::Random;
use ptx::{Constant, Initializer};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// The value of an expression, modulo 2^64; none where there is none.
fn value(expression: &str) -> Option<u64> {
    let module = ptx::parse(&format!("{HEAD}.global .b64 a = {expression};\n")).ok()?;
    match module.variables().next()?.initializer.as_ref()? {
        Initializer::Constant(Constant::Integer(value)) => Some(*value as u64),
        other => panic!("{expression}: {other:?}"),
    }
}

/// Values that ptxas 13.0.88 and 13.5.37 write into a variable.
const KNOWN: &[(&str, i64)] = &[
    ("7 % 4", 3),
    ("-7 % 3", 0),
    ("-7 / 3", -2),
    ("-1 % 10U", 5),
    ("(-1 % 10) - 20 < 0", 0),
    ("(10 % 7) - 20 < 0", 0),
    ("(10 / 7) - 20 < 0", 1),
    ("-7 / 3U", 6148914691236517203),
    ("1 << 65", 2),
    ("1 << 64", 1),
    ("1 << -1", i64::MIN),
    ("0x4000000000000000 >> 65", 0x2000000000000000),
    ("-8 >> 65", -4),
    ("-8U >> 1", 9223372036854775804),
    ("-8 >> 1U", -4),
    ("(1U << 1) - 3 < 0", 0),
    ("(1 << 1U) - 3 < 0", 1),
    ("~0 < 0", 0),
    ("-~1", 2),
    ("~0 / 2", i64::MAX),
    ("-1 < 0U", 0),
    ("-1 > 0x8000000000000000", 1),
    ("(1 ? -1 : 3U) < 0", 1),
    ("(0 ? 3U : -1) / 2", 0),
    ("1 ? 0 ? 3 : 4 : 5", 4),
    ("(.u64)-1 / 2", i64::MAX),
    ("(.s64)0xfffffffffffffff8U >> 1", -4),
    ("(!0U) - 2 < 0", 1),
    ("(1U && 1U) - 2 < 0", 1),
    ("1 | 2 ^ 3 & 4", 3),
    ("7 & 3 == 3", 1),
    ("1 > 2 > -1", 1),
    ("1 << 2 + 1", 8),
    ("WARP_SZ - 33 < 0", 1),
    ("-9223372036854775808 < 0", 0),
    ("(-9223372036854775807 - 1) % -1", i64::MIN),
];

#[test]
fn expressions_have_the_values_of_ptxas() {
    for (expression, expected) in KNOWN {
        assert_eq!(value(expression), Some(*expected as u64), "{expression}");
    }
    for nothing in ["1 / 0", "1 % 0", "0 && 1 / 0", "1.5 + 1", "(.u32)1", "99999999999999999999"] {
        assert_eq!(value(nothing), None, "{nothing}");
    }
    let values: Vec<_> =
        KNOWN.iter().map(|(expression, expected)| ((*expression).to_owned(), *expected as u64)).collect();
    agree(&values);
}

/// Asks ptxas: a comparison that fails divides by zero.
fn agree(values: &[(String, u64)]) {
    let Some(ptxas) = common::Ptxas::find() else { return };
    let mut source = HEAD.to_owned();
    for (number, (expression, value)) in values.iter().enumerate() {
        source += &format!(".global .b32 a{number} = 1 / (({expression}) == {value:#x});\n");
    }
    let errors = ptxas.errors(&source, "compute_80");
    let wrong: Vec<_> = errors
        .iter()
        .map(|(line, message)| format!("{:?}: {message}", line.checked_sub(4).and_then(|at| values.get(at))))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const OPERATORS: [&str; 18] =
    ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "<", ">", "<=", ">=", "==", "!=", "&&", "||"];

/// A random expression whose operators and operands lie close to where signs and widths matter.
fn expression(random: &mut Random, depth: u32) -> String {
    const NUMBERS: [&str; 14] = [
        "0",
        "1",
        "2U",
        "7",
        "63",
        "64",
        "0x40U",
        "WARP_SZ",
        "0x7fffffffffffffff",
        "0x8000000000000000",
        "0xffffffffffffffff",
        "0xfffffffffffffff8U",
        "017",
        "0b1011",
    ];
    let below = |random: &mut Random| expression(random, depth - 1);
    match random.below(if depth == 0 { 1 } else { 16 }) {
        0 => random.choose(&NUMBERS).to_owned(),
        1 => format!("-{}", below(random)),
        2 => format!("~{}", below(random)),
        3 => format!("!{}", below(random)),
        4 => format!("({})", below(random)),
        5 => format!("(.s64){}", below(random)),
        6 => format!("(.u64){}", below(random)),
        7 => format!("({} ? {} : {})", below(random), below(random), below(random)),
        _ => {
            let operator = random.choose(&OPERATORS);
            format!("{} {operator} {}", below(random), below(random))
        }
    }
}

#[test]
fn random_expressions_have_the_values_of_ptxas() {
    let mut random = Random::new(20);
    let mut values = Vec::new();
    while values.len() < 2000 {
        let expression = expression(&mut random, 4);
        // What divides by zero has no value.
        if let Some(value) = value(&expression) {
            values.push((expression, value));
        }
    }
    for operator in OPERATORS {
        let operator = format!(" {operator} ");
        let uses = values.iter().filter(|(expression, _)| expression.contains(&operator)).count();
        assert!(uses > 50, "{uses} expressions with {operator}");
    }
    agree(&values);
}
