//! The verifier: what real compilers write is fine, what is wrong is told, and ptxas agrees.

mod common;

use apex_random::Random;
use std::collections::BTreeMap;

use common::{by_hand, corpus};

fn problems(name: &str, source: &str) -> Vec<String> {
    let module = ptx::parse(source).unwrap_or_else(|error| panic!("{}", error.render(name, source)));
    ptx::verify(&module).iter().map(|problem| problem.render(name, source)).collect()
}

#[test]
fn the_corpus_is_fine() {
    let mut all = Vec::new();
    for (path, source) in corpus() {
        all.extend(problems(&path.display().to_string(), &source));
    }
    assert!(all.is_empty(), "{} problems:\n{}", all.len(), all.join("\n"));
}

/// Spellings that ptxas takes are taken here too.
#[test]
fn unusual_spellings_are_fine() {
    let ptxas = common::Ptxas::find();
    let mut seen = 0;
    for (path, source) in by_hand() {
        if !path.ends_with("spellings.ptx") && !path.ends_with("carries.ptx") {
            continue;
        }
        seen += 1;
        assert_eq!(problems(&path.display().to_string(), &source), [] as [String; 0]);
        if let Some(ptxas) = &ptxas {
            assert_eq!(ptxas.errors(&source, "compute_80"), BTreeMap::new(), "{}", path.display());
        }
    }
    assert_eq!(seen, 2);
}

/// Marks a wrong line in the modules of `tests/wrong`; what follows is the message.
const MARK: &str = " // error: ";

/// The modules of `tests/wrong`: every line that is wrong says so, and ptxas refuses it too.
/// `BLESS=1` writes what is said now.
#[test]
fn what_is_wrong_is_told() {
    let ptxas = common::Ptxas::find();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files {
        let expected = std::fs::read_to_string(&path).unwrap();
        let plain: Vec<&str> =
            expected.lines().map(|line| line.split_once(MARK).map_or(line, |(plain, _)| plain)).collect();
        let module =
            ptx::parse(&plain.join("\n")).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let problems = ptx::verify(&module);
        let said = |index: usize| -> Vec<&str> {
            let here = problems.iter().filter(|problem| problem.position.line as usize == index + 1);
            here.map(|problem| problem.message.as_str()).collect()
        };
        let lines: Vec<String> = (0..plain.len())
            .map(|index| match &said(index)[..] {
                [] => plain[index].to_owned(),
                messages => format!("{}{MARK}{}", plain[index], messages.join("; ")),
            })
            .collect();
        let actual = lines.join("\n") + "\n";
        test_golden::assert_file(&path, &actual);
        if let Some(ptxas) = &ptxas {
            for index in (0..plain.len()).filter(|index| !said(*index).is_empty()) {
                let others = |other: &usize| *other == index || said(*other).is_empty();
                let text: Vec<&str> =
                    (0..plain.len()).map(|other| if others(&other) { plain[other] } else { "" }).collect();
                let text = text.join("\n");
                // Addresses of 32 bits are refused where machine code is made.
                let mut errors = ptxas.errors(&text, "compute_100");
                if errors.is_empty() {
                    errors = ptxas.errors(&text, "sm_100");
                }
                assert!(
                    !errors.is_empty(),
                    "{}:{}: ptxas takes `{}`",
                    path.display(),
                    index + 1,
                    plain[index]
                );
            }
        }
    }
}

/// Replacements of modifiers and operands. Without `pred`, which ptxas ignores beside another type.
const MODIFIERS: &[&str] = &[
    "u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64", "f16", "f16x2", "bf16",
    "f32", "f64", "b128", "global", "shared", "local", "const", "param", "rn", "rz", "sat", "ftz", "approx",
    "v2", "v4", "volatile", "relaxed", "gpu", "lo", "hi", "wide", "eq", "lt", "ne", "add", "min", "and",
    "cas", "sync", "aligned",
];
const OPERANDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "4294967296",
    "0f3F800000",
    "0d3FF0000000000000",
    "1.5",
    "_",
    "%tid.x",
    "%laneid",
    "%clock64",
    "%nope",
    "nope",
    "[%nope]",
    "[0]",
    "!%p1",
    "{%r1, %r2}",
    "%f1",
    "%r1",
    "%rd1",
    "%rs1",
    "%p1",
    "%fd1",
];

/// An instruction's line changed in one place.
fn mutated(line: &str, others: &[&str], random: &mut Random) -> Option<String> {
    let body = line.trim_start().strip_suffix(';')?;
    let (guard, rest) = match body.strip_prefix('@') {
        Some(guarded) => guarded.split_once(' ').map(|(guard, rest)| (format!("@{guard} "), rest))?,
        None => (String::new(), body),
    };
    let (mnemonic, operands) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut words: Vec<&str> = mnemonic.split('.').collect();
    let mut pieces: Vec<&str> = top_level(operands);
    let place = random.index(pieces.len());
    match random.index(7) {
        0 if words.len() > 1 => {
            let index = 1 + random.index(words.len() - 1);
            words[index] = random.choose(MODIFIERS);
        }
        1 if words.len() > 1 => {
            words.remove(1 + random.index(words.len() - 1));
        }
        2 => words.insert(1 + random.index(words.len()), random.choose(MODIFIERS)),
        3 if !pieces.is_empty() => {
            pieces.remove(place);
        }
        4 if !pieces.is_empty() => pieces[place] = random.choose(OPERANDS),
        5 if !pieces.is_empty() => {
            let theirs = random.choose(others).trim().trim_end_matches(';');
            let theirs = top_level(theirs.split_once(' ').map_or("", |(_, operands)| operands));
            pieces[place] = *theirs.get(random.index(theirs.len()))?;
        }
        6 if pieces.len() > 1 => pieces.swap(0, 1),
        _ => return None,
    }
    let changed = format!("\t{guard}{} {};", words.join("."), pieces.join(", "));
    (changed.trim() != line.trim()).then_some(changed)
}

/// Operands, split at commas outside brackets.
fn top_level(operands: &str) -> Vec<&str> {
    let (mut pieces, mut depth, mut start) = (Vec::new(), 0, 0);
    for (offset, c) in operands.char_indices() {
        match c {
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => depth -= 1,
            ',' if depth == 0 => {
                pieces.push(operands[start..offset].trim());
                start = offset + 1;
            }
            _ => {}
        }
    }
    pieces.push(operands[start..].trim());
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Takes back every changed line that `judge` complains about until it is content; gives those
/// lines, from 0. `None` if it cannot say which lines are wrong: some changes make ptxas crash.
fn refused(
    original: &[&str],
    changed: &BTreeMap<usize, String>,
    mut judge: impl FnMut(&str) -> Option<Vec<(usize, String)>>,
) -> Option<BTreeMap<usize, String>> {
    let mut refused = BTreeMap::new();
    loop {
        let line = |index| match changed.get(&index) {
            Some(line) if !refused.contains_key(&index) => line.as_str(),
            _ => original[index],
        };
        let text: Vec<&str> = (0..original.len()).map(line).collect();
        let complaints = judge(&text.join("\n"))?;
        if complaints.is_empty() {
            return Some(refused);
        }
        // A wrong line may make others wrong; on its own none of those is.
        let before = refused.len();
        refused.extend(complaints.iter().filter(|(line, _)| changed.contains_key(line)).cloned());
        assert!(refused.len() > before, "lines that were not changed are refused: {complaints:?}");
    }
}

fn ours(text: &str) -> Option<Vec<(usize, String)>> {
    let problems = match ptx::parse(text) {
        Err(problem) => vec![problem],
        Ok(module) => ptx::verify(&module),
    };
    Some(problems.into_iter().map(|problem| (problem.position.line as usize - 1, problem.message)).collect())
}

#[test]
fn ptxas_refuses_what_is_refused() {
    let Some(ptxas) = common::Ptxas::find() else { return };
    let seed = std::env::var("PTX_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    let (mut both, mut neither, mut missed, mut alarms) = (0, 0, Vec::new(), Vec::new());
    for (path, source) in corpus().into_iter().chain(by_hand()) {
        let module = ptx::parse(&source).unwrap();
        if module.version > ptxas.newest
            || !module.items.iter().any(|item| matches!(item, ptx::Item::Function(_)))
        {
            continue;
        }
        let printed = module.to_string();
        let architecture = common::architecture(&module);
        if !ptxas.errors(&printed, &architecture).is_empty() {
            continue;
        }
        let lines: Vec<&str> = printed.lines().collect();
        let is_instruction = |line: &str| {
            let first = line.trim_start().chars().next();
            line.starts_with('\t')
                && line.ends_with(';')
                && !line.contains(": .")
                && first.is_some_and(|c| c == '@' || c.is_ascii_alphabetic())
        };
        let instructions: Vec<usize> =
            (0..lines.len()).filter(|index| is_instruction(lines[*index])).collect();
        let texts: Vec<&str> = instructions.iter().map(|index| lines[*index]).collect();
        let mut changed = BTreeMap::new();
        for index in &instructions {
            if random.index(MUTATED) == 0
                && let Some(line) = mutated(lines[*index], &texts, &mut random)
            {
                changed.insert(*index, line);
            }
        }
        let theirs = refused(&lines, &changed, |text| {
            let errors = ptxas.errors(text, &architecture).into_iter();
            errors.map(|(line, message)| Some((line.checked_sub(1)?, message))).collect()
        });
        let (Some(theirs), Some(ours)) = (theirs, refused(&lines, &changed, ours)) else {
            println!("{}: ptxas crashes", path.display());
            continue;
        };
        for (index, line) in &changed {
            match (ours.get(index), theirs.get(index)) {
                (Some(_), Some(_)) => both += 1,
                (None, None) => neither += 1,
                // ptxas 13 takes a number of 2^32 and more for a vector. Nobody can mean that.
                (Some(message), None) if message.contains("a vector of") => neither += 1,
                // This ptxas makes no machine code; `tests/wrong/widths.ptx` asks one that does.
                (Some(message), None) if message.contains("addresses have 64 bits") => neither += 1,
                // ptxas stores a function's name as a value, and adds a number to a register of
                // another width in `mov` (13.5, sm_90). Nobody can mean either.
                (Some(message), None) if message.contains("is a function, not a register") => neither += 1,
                (Some(message), None) if adds_to_a_narrow_register(line, message) => neither += 1,
                (Some(message), None) => {
                    alarms.push(format!("{} ({}): {message}", line.trim(), lines[*index].trim()))
                }
                (None, Some(message)) => {
                    missed.push(format!("{} ({}): {message}", line.trim(), lines[*index].trim()))
                }
            }
        }
    }
    println!(
        "{both} refused by both, {neither} by neither, {} by ptxas alone, {} by us alone",
        missed.len(),
        alarms.len()
    );
    if std::env::var_os("PTX_SHOW_MISSED").is_some() {
        println!("{}", missed.join("\n"));
    }
    assert!(alarms.is_empty(), "ptxas takes:\n{}", alarms.join("\n"));
    assert!(missed.len() * 100 < both, "more than one in a hundred is not seen");
}

/// Whether a `mov` of a sum like `%r1+6` is refused because its register has another width.
fn adds_to_a_narrow_register(line: &str, message: &str) -> bool {
    let source = line.trim().strip_prefix("mov.").and_then(|rest| rest.split_once(", "));
    let is_sum = source.is_some_and(|(_, source)| source.starts_with('%') && source.contains('+'));
    is_sum && message.contains("which does not fit")
}

/// One in this number of instructions is changed.
const MUTATED: usize = 3;
