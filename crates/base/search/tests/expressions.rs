//! Expressions: what they mean, what is refused by name, and that no text makes the parser fail in
//! another way.

use apex_search::Value;
use apex_search::expression::{Expression, list};
use proptest::prelude::*;

fn value(text: &str) -> Result<Value, String> {
    let names = ["x", "y", "zero", "name"];
    let of = |at: usize| [Value::Int(48), Value::Int(-7), Value::Int(0), Value::text("half")][at].clone();
    let expression = Expression::parse(text, names).map_err(|fault| fault.to_string())?;
    expression.value(&of).map_err(|fault| fault.to_string())
}

fn is(text: &str, expected: impl Into<Value>) {
    assert_eq!(value(text), Ok(expected.into()), "{text}");
}

#[test]
fn values_are_those_of_python() {
    is("x % 32 != 0 and x * y <= 1024", true);
    is("32 <= x < 48", false);
    is("y // 2", -4);
    is("y % 4", 1);
    is("-y % -4", -1);
    is("y / 2", -3.5);
    is("-7.5 // 2", -4.0);
    is("-7.5 % 2", 0.5);
    is("2 ** 3 ** 2", 512);
    is("-2 ** 2", -4);
    is("2 ** -1", 0.5);
    is("x & (x - 1) == 0", 0);
    is("(x & (x - 1)) == 0", false);
    is("1 << 4 | 3 ^ 1", 18);
    is("~x", -49);
    is("zero or x", 48);
    is("zero and x", 0);
    is("not zero", true);
    is("x in [16, 32, 48]", true);
    is("x not in (16, 48)", false);
    is("name == 'half' or name in ('float',)", true);
    is("1 if x > 3 else 2", 1);
    is("True + True", 2);
    is("min(x, 5, y)", -7);
    is("max([1, 2.5])", 2.5);
    is("math.ceil(x / 5)", 10);
    is("round(2.5)", 2);
    is("int(-2.7)", -2);
    is("len([1, 2]) == 2", true);
    is("1 == 1.0 == True", true);
    is("'1' == 1", false);
    is(".5 + 1e-1", 0.6);
}

#[test]
fn lists_are_those_of_python() {
    let ints =
        |text: &str| list(text).unwrap().iter().map(|value| value.number().unwrap()).collect::<Vec<_>>();
    assert_eq!(ints("[1, 2, 4]"), [1.0, 2.0, 4.0]);
    assert_eq!(ints("range(2, 7, 2)"), [2.0, 4.0, 6.0]);
    assert_eq!(ints("list(range(3, 0, -1))"), [3.0, 2.0, 1.0]);
    assert_eq!(ints("[1] + [2 * i for i in range(1, 4)]"), [1.0, 2.0, 4.0, 6.0]);
    assert_eq!(ints("[2 ** i for i in range(8) if i % 2 == 0]"), [1.0, 4.0, 16.0, 64.0]);
    assert_eq!(list("['a', 'b']").unwrap(), [Value::text("a"), Value::text("b")]);
}

#[test]
fn what_is_refused_is_named_with_its_place() {
    for (text, said) in [
        ("__import__('os')", "calls of `__import__` are not supported (these are: abs"),
        ("x.real", "`x.real` is no parameter at character 1"),
        ("x[0]", "elements of lists (`x[…]`) are not supported at character 2"),
        ("lambda: 1", "`lambda` is not supported here at character 1"),
        ("{1: 2}", "sets and dictionaries are not supported at character 1"),
        ("(x)(1)", "only functions by name can be called at character 4"),
        ("x = 3", "`=` assigns; `==` compares at character 3"),
        ("x 3", "an operator is missing before this value at character 3"),
        ("x +", "the expression ends too early at character 4"),
        ("min(x, key=y)", "arguments by name are not supported at character 8"),
        ("unknown > 1", "`unknown` is no parameter at character 1"),
        ("x is 3", "unexpected `is` at character 3"),
        ("'a\\n'", "a text has a backslash, which is not supported at character 1"),
        ("'a", "a text does not end at character 1"),
        ("0x10", "0x10 is no decimal number at character 1"),
        ("x if y", "`else` is missing at character 7"),
        ("9223372036854775808", "the integer 9223372036854775808 is beyond 63 bits at character 1"),
        ("x / zero", "division by zero"),
        ("x % zero", "division by zero"),
        ("10 ** 30", "an integer goes beyond 63 bits"),
        ("name < 3", "`half` and `3` have no order"),
        ("name * 2", "`half` stands where a number should"),
        ("sum([1])", "calls of `sum` are not supported"),
        ("[1, 2]", "a list stands where a value should"),
        ("math.sqrt(-1)", "a number is beyond what a float can hold, or undefined"),
    ] {
        let found = value(text).unwrap_err();
        assert!(found.starts_with(said), "{text}: {found}");
    }
    assert!(list("range(1000000)").unwrap_err().to_string().contains("more than 65536 elements"));
    assert!(list("[j for i in range(60000) for j in range(9)]").is_err());
}

#[test]
fn depth_and_length_are_bounded() {
    for text in [
        "(".repeat(5000),
        "-".repeat(5000),
        "not ".repeat(4000),
        format!("1{}", "+1".repeat(5000)),
        "1 ".repeat(9000),
    ] {
        value(&text).unwrap_err();
    }
    // Each level of a loop multiplies the steps.
    let loops = (0..8).fold("[1]".to_owned(), |list, _| format!("[len({list}) for i in range(60)]"));
    list(&loops).unwrap_err();
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_fail_otherwise(text in "[-+*/%()\\[\\]<>=!&|^~,.:'\" 0-9a-z]{0,60}") {
        let _ = value(&text);
        let _ = list(&text);
    }

    #[test]
    fn words_in_any_order_are_parsed_or_refused(words in prop::collection::vec(prop::sample::select(vec![
        "x", "y", "zero", "name", "1", "2.5", "'a'", "(", ")", "[", "]", "+", "-", "**", "//", "%", "<", "<=", "==", "in",
        "not", "and", "or", "if", "else", "for", "i", "range", "min", "len", ",", "~", "<<", ">>",
    ]), 0..24)) {
        let text = words.join(" ");
        if let Ok(found) = value(&text) {
            // What is evaluated once is evaluated again.
            prop_assert_eq!(value(&text), Ok(found));
        }
    }

    #[test]
    fn integer_arithmetic_is_exact(a in -1000i64..1000, b in -1000i64..1000) {
        prop_assume!(b != 0);
        let ask = |text: &str| {
            let expression = Expression::parse(text, ["a", "b"]).unwrap();
            expression.value(&|at| Value::Int([a, b][at])).unwrap()
        };
        prop_assert_eq!(ask("a // b * b + a % b"), Value::Int(a));
        prop_assert_eq!(ask("(a % b == 0) or ((a % b < 0) == (b < 0))"), Value::Bool(true));
        prop_assert_eq!(ask("a // b == math.floor(a / b)"), Value::Bool(true));
    }
}
