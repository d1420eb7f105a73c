//! The reader on declarations that are hard on readers, all of our own making.

use super::expr::Constant;
use super::lex::lex;
use super::parse::{constant_of, parse};
use super::{Prototype, Type, Unit};
use proptest::prelude::*;

fn unit(text: &str) -> Unit {
    parse(&lex(text).expect("tokens")).expect("declarations")
}

fn error(text: &str) -> String {
    lex(text).and_then(|source| parse(&source)).expect_err("an error").to_string()
}

fn int(signed: bool) -> Type {
    Type::Int { bits: 32, signed }
}

fn pointer(to: Type) -> Type {
    Type::Pointer { to: Box::new(to), constant: false }
}

fn array(of: Type, len: u64) -> Type {
    Type::Array { of: Box::new(of), len: Some(len) }
}

fn typedef(text: &str, name: &str) -> Type {
    unit(text).typedef(name).expect("the typedef").ty.clone()
}

fn prototype(text: &str) -> Prototype {
    unit(text).functions.first().expect("a function").prototype.clone()
}

fn layout(text: &str, tag: &str) -> (u64, u64, Vec<u64>) {
    let layout = unit(text).records[tag].layout.clone().expect("complete");
    (layout.whole.size, layout.whole.align, layout.offsets)
}

#[test]
fn arithmetic_types_in_any_order() {
    let cases = [
        ("unsigned", int(false)),
        ("int unsigned", int(false)),
        ("signed", int(true)),
        ("long unsigned int long", Type::Int { bits: 64, signed: false }),
        ("short int", Type::Int { bits: 16, signed: true }),
        ("char", Type::Char),
        ("signed char", Type::Int { bits: 8, signed: true }),
        ("_Bool", Type::Int { bits: 8, signed: false }),
        ("double", Type::Float { bits: 64 }),
        ("int const", int(true)),
    ];
    for (words, ty) in cases {
        assert_eq!(typedef(&format!("typedef {words} t;"), "t"), ty, "{words}");
    }
    for nonsense in
        ["unsigned signed", "long float", "char int int", "short long", "void int", "float unsigned"]
    {
        assert!(error(&format!("typedef {nonsense} t;")).contains("no type"), "{nonsense}");
    }
}

#[test]
fn declarators_read_inside_out() {
    assert_eq!(typedef("typedef int *t[3];", "t"), array(pointer(int(true)), 3));
    assert_eq!(typedef("typedef int (*t)[3];", "t"), pointer(array(int(true), 3)));
    assert_eq!(typedef("typedef int t[2][3];", "t"), array(array(int(true), 3), 2));
    let function = |result, params: Vec<Type>| {
        let params = params.into_iter().map(|ty| super::Param { name: String::new(), ty }).collect();
        Type::Function(Box::new(Prototype { result, params }))
    };
    assert_eq!(typedef("typedef void (*t)(int);", "t"), pointer(function(Type::Void, vec![int(true)])));
    // A function that returns a pointer to a function.
    let inner = pointer(function(int(false), vec![]));
    assert_eq!(typedef("typedef unsigned (*t(void))(void);", "t"), function(inner, vec![]));
    assert_eq!(typedef("typedef int ((((t))));", "t"), int(true));
}

#[test]
fn const_counts_where_something_points() {
    let constant = |to| Type::Pointer { to: Box::new(to), constant: true };
    assert_eq!(typedef("typedef const char *t;", "t"), constant(Type::Char));
    assert_eq!(typedef("typedef char const *t;", "t"), constant(Type::Char));
    assert_eq!(typedef("typedef char *const t;", "t"), pointer(Type::Char));
    assert_eq!(typedef("typedef char *const *t;", "t"), constant(pointer(Type::Char)));
    assert_eq!(typedef("typedef const char *const *t;", "t"), constant(constant(Type::Char)));
}

#[test]
fn parameters_decay_and_may_be_nameless() {
    let text = "typedef int T; void f(T, const T a[4], void g(T), T *restrict p, int (T));";
    let params = prototype(text).params;
    let names: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
    assert_eq!(names, ["", "a", "g", "p", ""]);
    assert_eq!(params[1].ty, Type::Pointer { to: Box::new(Type::Named("T".into())), constant: true });
    // `int (T)` is a function that takes a T, as the standard has it, and decays.
    for decayed in [&params[2].ty, &params[4].ty] {
        assert!(
            matches!(decayed, Type::Pointer { to, .. } if matches!(**to, Type::Function(_))),
            "{decayed:?}"
        );
    }
    assert!(prototype("void f(void);").params.is_empty());
    assert!(prototype("void f();").params.is_empty());
    assert!(error("void f(int, void);").contains("void"));
    assert!(error("void f(int, ...);").contains("variable arguments"));
}

#[test]
fn functions_count_once_and_bodies_are_skipped() {
    let text = "static inline int f(int a) { return \"}\"[a] == '}' ? 1 : 2; }\n\
                extern int g(void) __attribute__((deprecated(\"x)\"))), h(void);\nint g(void);";
    let names: Vec<String> = unit(text).functions.into_iter().map(|function| function.name).collect();
    assert_eq!(names, ["f", "g", "h"]);
}

#[test]
fn enumerators_count_on_and_compute() {
    let text = "enum e { A, B = 1 << 4, C, D = ~0, E = (int)sizeof(short) * 3, F = B | 1, G = -(3 - 5), \
                H = 0x7FFFFFFF, I = 010, J = 5 % 3 == 2, };";
    let unit = unit(text);
    let values: Vec<i128> = unit.enums["e"].values.iter().map(|(_, value)| *value).collect();
    assert_eq!(values, [0, 16, 17, -1, 6, 17, 2, 0x7FFF_FFFF, 8, 1]);
    assert!(error("enum { A = 1 / 0 };").contains("divides by zero"));
    assert!(error("enum { A = 1 << 64 };").contains("overflows"));
    assert!(error("enum { A = NOWHERE };").contains("`NOWHERE` is no constant"));
}

#[test]
fn macros_are_constants_with_the_type_of_their_cast() {
    let text = "#define N 16\n#define M (N * 2u)\n#define ALL (~0u)\n#define GONE 1\n#undef GONE\n\
                #define call(x) x\n#define LOOP LOOP\n#define TEXT \"a # b\"\n\
                typedef struct s *handle;\n#define FIRST ((handle)0x1)\ntypedef int size[M];\n";
    let mut unit = unit(text);
    assert_eq!(unit.typedef("size").expect("size").ty, array(int(true), 32));
    let names: Vec<String> = unit.macros.iter().map(|found| found.name.clone()).collect();
    assert_eq!(names, ["N", "M", "ALL", "LOOP", "TEXT", "FIRST"]);
    let mut value = |name: &str| {
        let body = unit.macros.iter().find(|found| found.name == name).expect("the macro").body.clone();
        constant_of(&mut unit, &body)
    };
    assert_eq!(value("ALL").expect("a number").value, i128::from(u32::MAX));
    let first = Constant { value: 1, ty: Some(Type::Named("handle".into())), unsigned: false };
    assert_eq!(value("FIRST").expect("a handle"), first);
    assert!(value("LOOP").is_err());
    assert!(value("TEXT").is_err());
}

#[test]
fn records_are_laid_out_as_in_c() {
    assert_eq!(layout("struct s { char a; double b; char c; };", "s"), (24, 8, vec![0, 8, 16]));
    assert_eq!(layout("union u { char a[5]; short b; };", "u"), (6, 2, vec![0, 0]));
    assert_eq!(layout("struct s { _Alignas(128) long long a[2]; };", "s"), (128, 128, vec![0]));
    let nested =
        "struct s { int n; union { void *p; struct { char x, y[3]; } c; }; char pad[8 - sizeof(int)]; };";
    assert_eq!(layout(nested, "s"), (24, 8, vec![0, 8, 16]));
    let unit = unit(nested);
    let anonymous = unit.records.values().find(|record| record.union).expect("the union");
    assert_eq!(anonymous.inside, Some(("s".to_owned(), String::new())));
}

#[test]
fn a_record_may_point_to_itself_but_not_hold_itself() {
    let text = "typedef struct node_st { struct node_st *next; } node;";
    assert_eq!(layout(text, "node_st"), (8, 8, vec![0]));
    assert!(error("struct s { struct s inner; };").contains("incomplete"));
    assert!(error("struct s { int a; }; struct s { int b; };").contains("defined twice"));
    assert!(error("struct s { int a : 3; };").contains("bit-fields"));
    assert!(error("struct s { int a; _Alignas(16) int b; };").contains("alignment"));
}

#[test]
fn a_repeated_typedef_makes_no_cycle() {
    let unit = unit("typedef int a; typedef a a; typedef a b;");
    assert_eq!(unit.canonical(&Type::Named("b".into())), int(true));
}

#[test]
fn errors_name_file_and_line() {
    let text = "# 41 \"cuda.h\" 2\ntypedef int a;\n\nunknown f(void);\n";
    assert_eq!(error(text), "cuda.h:43: expected a type, found `unknown`");
    assert_eq!(error("int f(;"), "<input>:1: expected a type, found `;`");
    assert!(error("typedef int a[99999999999999999999];").starts_with("<input>:1: `99999999999999999999`"));
}

#[test]
fn depth_is_bounded() {
    let deep = 100_000;
    let cases = [
        format!("enum {{ A = {}1{} }};", "(".repeat(deep), ")".repeat(deep)),
        format!("enum {{ A = {}1 }};", "-".repeat(deep)),
        format!("typedef int {}t;", "*".repeat(deep)),
        format!("typedef int {}t{};", "(".repeat(deep), ")".repeat(deep)),
        format!("typedef int t{};", "[1]".repeat(deep)),
        "struct { ".repeat(deep),
        format!("typedef int {}x{};", "(*".repeat(deep), ")(void)".repeat(deep)),
        (0..deep).fold("typedef int t0;".to_owned(), |text, n| text + &format!("typedef t{n} *t{};", n + 1)),
        (0..deep).fold(String::new(), |text, n| text + &format!("\n#define M{} M{n}", n + 1))
            + &format!("\n#define M0 1\nenum {{ A = M{deep} }};"),
    ];
    for text in cases {
        assert!(lex(&text).and_then(|source| parse(&source)).is_err(), "{}", &text[..60]);
    }
}

/// Pieces of C, so that random sequences get beyond the first token.
fn pieces() -> impl Strategy<Value = String> {
    const PIECES: [&str; 48] = [
        "typedef",
        "struct",
        "union",
        "enum",
        "int",
        "unsigned",
        "char",
        "long",
        "const",
        "void",
        "a",
        "b",
        "T",
        "*",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ";",
        ",",
        ":",
        "=",
        "1",
        "0x7f",
        "3u",
        "<<",
        "-",
        "~",
        "sizeof",
        "_Alignas",
        "__attribute__",
        "((x))",
        "...",
        "\n#define a",
        "\n#define b 1\n",
        "\n#undef a\n",
        "\n# 7 \"f.h\"\n",
        "/",
        "%",
        "f(void)",
        "struct s",
        "typedef int T;",
        "struct s { int a; };",
        "enum e { A, B };",
        "\"text\"",
        "'c'",
    ];
    prop::collection::vec(prop::sample::select(&PIECES[..]), 0..60).prop_map(|chosen| chosen.join(" "))
}

proptest! {
    #[test]
    fn no_sequence_of_pieces_panics(text in pieces()) {
        let _ = lex(&text).and_then(|source| parse(&source));
    }

    #[test]
    fn no_text_panics(text in "\\PC*|[\\x00-\\x7f]*") {
        let _ = lex(&text).and_then(|source| parse(&source));
    }

    /// A declaration is read back: any nesting of pointers, arrays and names.
    #[test]
    fn declared_types_come_back(levels in prop::collection::vec(0_u64..5, 0..12)) {
        let (mut declarator, mut ty) = ("t".to_owned(), int(false));
        for &level in &levels {
            declarator = if level == 0 { format!("(*{declarator})") } else { format!("{declarator}[{level}]") };
        }
        // The innermost part of the declarator is the outermost of the type.
        for &level in levels.iter().rev() {
            ty = if level == 0 { pointer(ty) } else { array(ty, level) };
        }
        prop_assert_eq!(typedef(&format!("typedef unsigned {declarator};"), "t"), ty);
    }
}
