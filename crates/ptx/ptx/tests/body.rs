//! The rules of names in `ptx::body`, each asked of ptxas: what it takes the verifier takes, what
//! it refuses is refused.

mod common;

/// Declarations and instructions of a kernel, and whether they are PTX.
const CASES: &[(&str, bool)] = &[
    // A declaration holds from where it stands.
    ("mov.b32 %r, 1; .reg .b32 %r;", false),
    (".reg .b32 %r; { mov.b32 %r, 1; .reg .b64 %r; mov.b64 %r, 1; }", true),
    (".reg .b32 %r; { mov.b64 %r, 1; .reg .b64 %r; mov.b64 %r, 1; }", false),
    ("{ .reg .b64 %q; } mov.b64 %q, 1;", false),
    // An inner declaration hides an outer one.
    (".reg .b32 %r; { .reg .b64 %r; mov.b64 %r, 1; } mov.b32 %r, 1;", true),
    (".reg .b32 %r<5>; { .reg .b64 %r3; mov.b64 %r3, 1; mov.b32 %r2, 1; } mov.b32 %r3, 1;", true),
    (".reg .b32 %r<9>; { .reg .b64 %r<3>; mov.b64 %r2, 1; mov.b32 %r7, 1; }", true),
    ("{ .reg .b64 out; mov.b64 out, 1; }", true),
    (".reg .b64 out;", false),
    (".reg .b64 elsewhere; mov.b64 elsewhere, 1;", true),
    (".reg .b64 other; mov.b64 other, 1;", true),
    ("{ .shared .b32 s; } { .shared .b64 s; }", true),
    // The digits at the end are a number.
    (".reg .b32 %r<20>; mov.b32 %r012, 1;", true),
    (".reg .b32 %r<20>; mov.b32 %r00, 1;", true),
    (".reg .b32 %r<20>; mov.b32 %r20, 1;", false),
    (".reg .b32 %r1<5>; mov.b32 %r12, 1;", false),
    (".reg .b32 %r0<5>; mov.b32 %r03, 1;", false),
    (".reg .b32 %r<20>; .reg .b64 %r1<5>; mov.b32 %r12, 1;", true),
    (".reg .b32 %r<20>; .reg .b64 %r1<5>; mov.b64 %r12, 1;", false),
    (".reg .b32 %r<5>; .reg .b32 %r3;", false),
    (".reg .b32 %r3; .reg .b32 %r<5>;", false),
    (".reg .b32 %r<5>; .reg .b64 %r<9>;", false),
    // Vectors.
    (".reg .v2 .b32 %v<3>; mov.b32 %v2.x, 1; mov.b32 %v1.g, 1;", true),
    (".reg .v2 .b32 %v; mov.b32 %v, 1;", false),
    // Special registers come last.
    (".reg .b32 %laneid; mov.b32 %laneid, 1;", true),
    ("mov.b32 %laneid, 1;", false),
    // Labels.
    (".reg .pred %p; @%p bra L; { L: }", false),
    (".reg .pred %p; { @%p bra L; L: }", true),
    (".reg .pred %p; { @%p bra L; } L:", true),
    (".reg .pred %p; { @%p bra L; } { L: }", false),
    (".reg .pred %p; { @%p bra L; L: } { @%p bra L; L: }", true),
    (".reg .pred %p; L: @%p bra L; L:", false),
    (".reg .b32 %i; { T: .branchtargets L; brx.idx %i, T; } L:", true),
    (".reg .b32 %i; T: .branchtargets L; brx.idx %i, T; { L: }", false),
    // Lists hold from where they stand, and have names of their own.
    (".reg .b32 %i; brx.idx %i, T; T: .branchtargets L; L:", false),
    (".reg .b32 %i; { T: .branchtargets L; } brx.idx %i, T; L:", false),
    (".reg .b32 %i; T: .branchtargets L; T: .branchtargets L; brx.idx %i, T; L:", false),
    (".reg .b32 %i; { T: .branchtargets L; brx.idx %i, T; } T: .branchtargets L; brx.idx %i, T; L:", true),
    (".reg .b32 %i; T: .branchtargets L; brx.idx %i, T; L: T:", false),
    (".reg .b32 %i, T; T: .branchtargets L; brx.idx %i, T; L:", false),
    (".reg .b64 %a; mov.b64 %a, other; call %a, P; P: .callprototype _;", false),
    (".reg .b64 %a; mov.b64 %a, other; P: .callprototype _ (); call %a, P;", true),
    // The module's symbols.
    (".reg .b64 %a; mov.b64 %a, elsewhere;", true),
    (".reg .b64 %a; mov.b64 %a, later;", false),
    ("call other;", true),
];

#[test]
fn names_are_resolved_as_ptxas_does() {
    let ptxas = common::Ptxas::find();
    for (body, is_ptx) in CASES {
        let source = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.global .b32 elsewhere;\n.func other() {{ ret; }}\n\
             .entry k(.param .u64 out)\n{{\n\t{body}\n\tret;\n}}\n.global .b32 later;\n"
        );
        let module = ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("k", &source)));
        let problems = ptx::verify(&module);
        assert_eq!(problems.is_empty(), *is_ptx, "{body}: {problems:?}");
        if let Some(ptxas) = &ptxas {
            let errors = ptxas.errors(&source, "compute_80");
            assert_eq!(errors.is_empty(), *is_ptx, "{body}: ptxas says {errors:?}");
        }
    }
}

/// `%r012` and `%r12` are the same register.
#[test]
fn leading_zeros_name_the_same_register() {
    let source = ".version 8.0\n.target sm_80\n.address_size 64\n\
        .entry k() { .reg .b32 %r<20>; mov.b32 %r012, 1; add.u32 %r1, %r12, %r0012; ret; }\n";
    let module = ptx::parse(source).unwrap();
    let body = ptx::body::Names::new(&module).body(module.functions().next().unwrap());
    let registers: Vec<_> = body.lines.iter().flat_map(|line| &line.operands).map(|o| o.register()).collect();
    let (twelve, one) = (registers[0], registers[2]);
    assert_eq!(registers[1], None);
    assert_eq!(registers[2..], [one, twelve, twelve]);
    assert_ne!(one, twelve);
    assert_eq!(body.registers.len(), 2);
}
