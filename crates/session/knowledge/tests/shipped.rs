//! The shipped table: its rules hold for every cause, and a user's file is told what is wrong.

use apex_kernel_names::{Owner, OwnerKind, identify};
use apex_knowledge::{Cause, Claims, Framework, Knowledge, shipped_files};
use std::collections::BTreeSet;
use std::path::Path;

/// Minimum number of shipped causes.
const MANY: usize = 200;

/// Words that only one framework's users know.
const WORDS: [(Framework, &[&str]); 6] = [
    (Framework::PyTorch, &["torch.", "DataLoader", " nn.", "TORCH", "autocast", "memory_format"]),
    (Framework::Jax, &["jax.", "jnp.", "lax."]),
    (Framework::CuPy, &["cupy.", "cupyx."]),
    (Framework::TensorFlow, &["tf.", "tensorflow"]),
    (Framework::Numba, &["@cuda.jit", "numba."]),
    (Framework::CuDf, &["cudf"]),
];

fn all() -> Vec<Cause> {
    Knowledge::shipped().causes().to_vec()
}

#[test]
fn every_shipped_file_is_valid_and_none_is_left_out() {
    let mut count = 0;
    for (name, causes) in shipped_files() {
        count += causes.unwrap_or_else(|error| panic!("{name}: {error}")).len();
    }
    assert_eq!(count, all().len());
    assert!(count >= MANY, "{count} causes");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("entries");
    let files = std::fs::read_dir(folder).expect("the folder of the table").count();
    assert_eq!(files, shipped_files().count(), "a file in entries/ is not in the list of shipped files");
}

#[test]
fn identifiers_and_titles_are_unique() {
    let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
    for cause in all() {
        assert!(ids.insert(cause.id.clone()), "{} occurs twice", cause.id);
        let scope = (cause.title.clone(), cause.remedies.by_framework.keys().copied().collect::<Vec<_>>());
        assert!(titles.insert(scope), "“{}” occurs twice", cause.title);
    }
}

#[test]
fn no_cause_is_shadowed_in_every_framework_by_an_earlier_one() {
    let causes = all();
    for (place, cause) in causes.iter().enumerate() {
        let speaks = |other: &Cause, framework| other.remedy(|of| of == framework).is_some();
        let wins = |framework: &Framework| {
            let is_rival = |other: &Cause| {
                speaks(other, *framework) && other.matches(&cause.example, cause.variable.as_deref())
            };
            speaks(cause, *framework) && !causes[..place].iter().any(is_rival)
        };
        let first =
            || causes[..place].iter().find(|other| other.matches(&cause.example, cause.variable.as_deref()));
        assert!(
            Framework::ALL.iter().any(wins),
            "{}: its example belongs to `{}`",
            cause.id,
            first().map_or("", |other| &other.id)
        );
    }
}

#[test]
fn texts_are_sentences_of_bounded_length() {
    for cause in all() {
        let remedies = cause.remedies.texts().map(|(_, text)| text);
        let texts = [&cause.title[..], &cause.meaning, &cause.check].into_iter().chain(remedies);
        for text in texts {
            assert!((10..=400).contains(&text.chars().count()), "{}: {text}", cause.id);
            assert!(!text.ends_with('.'), "{}: a view ends the sentence: {text}", cause.id);
        }
        // Causes of waits give a remedy to a finding that estimates its saving itself.
        let is_of_waits = !(cause.waits.is_empty() && cause.loops.is_empty() && cause.wait_lines.is_empty());
        let claims = cause.claims == Claims::Unknown || is_of_waits || cause.saves.most > 0.0;
        assert!(claims, "{} saves nothing", cause.id);
    }
}

#[test]
fn remedies_are_in_the_words_of_their_framework() {
    let shipped = Knowledge::shipped();
    let causes = shipped.causes().iter().map(|cause| (cause.id.as_str(), &cause.remedies));
    for (id, remedies) in causes.chain(shipped.remedies_of_rules()) {
        for (of, text) in remedies.texts() {
            // vLLM is written in PyTorch.
            let may = |framework| of == Some(framework) || of == Some(Framework::Vllm);
            for (framework, words) in WORDS.iter().filter(|(framework, _)| !may(*framework)) {
                let found = words.iter().find(|word| text.contains(**word));
                assert!(found.is_none(), "{id}: {found:?} of {framework:?} in a remedy for {of:?}");
            }
        }
    }
}

#[test]
fn causes_about_kernels_never_advise_on_the_blocks_of_a_library() {
    const BLOCKS: [&str; 5] =
        ["block size", "threads per block", "__launch_bounds__", "blockDim", "num_warps"];
    for cause in all().into_iter().filter(|cause| !cause.kernels.is_empty()) {
        let is_own = |symbol: &String| identify(symbol).traits.owner.kind() == OwnerKind::Own;
        if cause.owners == [Owner::Own] || cause.example.kernels.iter().all(is_own) {
            continue;
        }
        for (_, text) in cause.remedies.texts() {
            assert!(BLOCKS.iter().all(|word| !text.contains(word)), "{}: {text}", cause.id);
        }
    }
}

const ENTRY: &str = r#"
[[cause]]
id = "my-operation"
title = "Our slow operation"
meaning = "it copies everything twice"
source = "https://example.com/guide"
remedy.any = "Use our fast operation"
saves = [0.0, 0.5, 0.9]
check = "kernels slow_* disappear"
match = { kernels = ["slow_*"] }
example = { kernel = "slow_copy" }
"#;

/// Identifiers of the causes that are about a statement: of the device's time, of the host's, or of
/// how a kernel is made.
fn named_by(statement: &str) -> BTreeSet<String> {
    let is_about = |cause: &Cause| {
        cause.names_line(statement) || cause.names_host_line(statement) || cause.names_maker(statement)
    };
    all().into_iter().filter(is_about).map(|cause| cause.id).collect()
}

#[test]
fn statements_that_only_look_like_a_cause_are_not_taken_for_it() {
    let others = [
        ("divergence-by-all-derivatives", "change = rate * laplacian(u) - u * v * v"),
        ("real-part-of-a-transform", "psi = jnp.fft.ifft(jnp.fft.fft(psi) * kinetic)"),
        ("masked-blocks-computed", "x = tl.where((m[:, None] >= 0) & (n[None, :] >= 0), x, 0.0)"),
        ("scores-by-expansion", "x = torch.cat((self.cls_token.expand(b, -1, -1), x), 1)"),
        ("window-moved-each-step", "labels = torch.cat((tokens[:, 1:], last), 1)"),
        ("filters-for-each-sample", "y = F.conv2d(x, self.weight, groups=num_channels)"),
        ("texts-scored-one-choice-at-a-time", "x = torch.cat((self.prefix, x), 1)"),
        ("kernel-compiled-for-debugging", "parser.add_argument(\"-G\", \"--grid\", type=int)"),
        ("times-read-in-step", "tree = parser.parse(source)"),
        ("searched-in-a-list", "if word in self.vocabulary:"),
        ("searched-in-a-list", "return self.fast(x) if self.mode in (\"a\", \"b\") else self.slow(x)"),
    ];
    for (cause, statement) in others {
        assert!(!named_by(statement).contains(cause), "{cause}: {statement}");
    }
    let same = [
        ("masked-blocks-computed", "score = tl.where(own[:, None] >= other[None, :], score, -1.0e6)"),
        ("filters-for-each-sample", "y = F.conv2d(x, filters, groups=b * channels)"),
        ("times-read-in-step", "moment = parser.parse(row.timestamp)"),
        ("kernel-compiled-for-debugging", "kernel = cp.RawKernel(SOURCE, \"f\", options=(\"-G\",))"),
        ("searched-in-a-list", "if name in known:"),
    ];
    for (cause, statement) in same {
        assert!(named_by(statement).contains(cause), "{cause}: {statement}");
    }
}

/// A loop whose end is that of the rows leaves out the blocks beyond the mask.
#[test]
fn a_loop_that_ends_at_the_diagonal_is_no_masked_one() {
    let causes = all();
    let masked = causes.iter().find(|cause| cause.id == "masked-blocks-computed").expect("the cause");
    for ends in ["for n in range(0, hi, OTHERS):", "for n in range(0, start_m * OWN, OTHERS):"] {
        assert!(masked.is_excepted_by(ends), "{ends}");
    }
    assert!(!masked.is_excepted_by("for other in range(0, WORDS, OTHERS):"));
}

fn with(text: &str) -> Result<Knowledge, String> {
    Knowledge::with_files([(Path::new("mine.toml"), text)]).map_err(|error| error.to_string())
}

#[test]
fn a_users_cause_is_added_in_front_and_replaces_one_of_its_name() {
    let knowledge = with(ENTRY).expect("valid");
    assert_eq!(knowledge.causes().len(), all().len() + 1);
    let replaced = ENTRY.replace("my-operation", &all()[0].id);
    assert_eq!(with(&replaced).expect("valid").causes().len(), all().len());
}

#[test]
fn an_error_names_the_file_the_line_and_what_to_do() {
    let cases = [
        ("title = \"Our slow operation\"\n", "", "mine.toml:2: ", "title"),
        ("saves = [0.0, 0.5, 0.9]", "saves = [0.5, 0.1, 0.9]", "mine.toml:2: ", "[least, likely, most]"),
        ("saves = [0.0, 0.5, 0.9]\n", "", "mine.toml:2: ", "`saves` is missing"),
        ("https://", "ftp://", "mine.toml:2: ", "https://"),
        ("remedy.any", "remedy.pytroch", "mine.toml:2: ", "pytorch"),
        ("\"slow_copy\"", "\"fast_copy\"", "mine.toml:2: ", "does not match its `example`"),
        ("kernels =", "kernls =", "mine.toml:10: ", "kernls"),
        ("kernels =", "both = true, kernels =", "mine.toml:2: ", "`both` is for a cause with"),
        ("kernels =", "host = [\"f\"], kernels =", "mine.toml:2: ", "either kernels"),
        ("kernels = [", "loops = [", "mine.toml:2: ", "does not match its `example`"),
        ("\"my-operation\"", "\"My operation\"", "mine.toml:2: ", "lowercase"),
        ("check = ", "check = =", "mine.toml:9: ", ""),
    ];
    for (old, new, place, what) in cases {
        let text = ENTRY.replace(old, new);
        assert_ne!(text, ENTRY, "{old}");
        let error = with(&text).err().unwrap_or_else(|| panic!("`{new}` is accepted"));
        assert!(error.starts_with(place) && error.contains(what), "{new}: {error}");
    }
    let twice = with(&ENTRY.repeat(2)).err().unwrap_or_else(|| panic!("an entry is accepted twice"));
    assert!(twice.starts_with("mine.toml:13: ") && twice.contains("mine.toml:2"), "{twice}");
}
