//! Products of matrices with so few rows that each reads all weights for next to nothing.

use super::{Needs, Outcome, Rule, by_name, idle_around_launches};
use crate::finding::{Saving, Scope, Severity};
use apex_profile::names::{Operation, OwnerKind};
use apex_profile::{Figure, Kernel, Profile};

/// A tile this narrow is chosen where one dimension of the product is no larger.
const NARROW: u32 = 8;
/// Minimum share of the time in such products.
const MOST: f64 = 0.3;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T67",
    slug: "small-batch",
    title: "Small batch: products read all weights for few rows",
    severity: Severity::High,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "Products of a matrix and a vector, or of matrices in tiles of at most 8 rows or columns, of a library: together at least \
              30% of the time.",
    source: "NVIDIA, Matrix Multiplication Background: with few rows a product is limited by reading its weights. cuBLAS takes such \
             kernels where one dimension is that small.",
    why: "Each call reads all weights regardless of the number of rows: sixteen rows take hardly longer than one.",
    change: "Batch: collect requests, sequences or samples, and run them through the model together (for generation: several sequences at \
             once, continuous batching, or speculative decoding).",
    saving: "Seven eighths of their time and of the idle time around their launches (a batch of 8), between nothing and 63/64 (a batch of \
             64).",
    verify: "products become larger and fewer, and the time per request or sample decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if profile.totals.gpu_time_ns.is_some() && time_of(profile, is_narrow) < MOST * profile.totals.span_ns {
        return Outcome::Clear;
    }
    let saves = Figure::predicted(7.0 / 8.0, (0.0, 63.0 / 64.0));
    let (of_tiny, of_all) = (time_of(profile, is_tiny), time_of(profile, is_narrow));
    let (change, what) = match of_tiny >= 0.5 * of_all {
        true => (OF_TINY, "a batch of tiny matrix products, with a block for each of them"),
        false => (RULE.change, "reads all weights for few rows"),
    };
    let outcome = by_name::judge(
        profile,
        change,
        "it is unknown whether there is more to batch, or how small the products are",
        |kernel| is_narrow(kernel).then_some(saves),
        |who| format!("{who}: {what}"),
    );
    let Outcome::Found(mut draft) = outcome else { return outcome };
    draft.saving = Saving { beyond: idle_around_launches(profile, saves), ..Saving::default() };
    Outcome::Found(draft)
}

/// What to do with many products of a few rows and columns each.
const OF_TINY: &str = "Write the products of tiny matrices out as elementwise operations: of matrices a with vectors b \
    (a * b[:, None, :]).sum(-1), of small matrices (a[..., :, :, None] * b[..., None, :, :]).sum(-2), in one compiled function; a \
    library's batched product has a block or a tile for each of them, most of whose threads have nothing to do";
/// Products of a batch from which on each is tiny where it has a block of its own.
const BATCH: u32 = 1024;

/// Whether each block of a batched product has a whole small product.
fn is_tiny(kernel: &Kernel) -> bool {
    let grid = kernel.launch.grid;
    is_narrow(kernel) && u64::from(grid.x) * u64::from(grid.y) == 1 && grid.z >= BATCH
}

fn time_of(profile: &Profile, is_such: fn(&Kernel) -> bool) -> f64 {
    profile.kernels.iter().filter(|kernel| is_such(kernel)).filter_map(Kernel::gpu_total_ns).sum()
}

fn is_narrow(kernel: &Kernel) -> bool {
    let traits = &kernel.traits;
    let narrow = match traits.operation {
        Operation::MatrixVector => true,
        Operation::MatrixProduct => tile(&kernel.short_name).is_some_and(|(m, n)| m.min(n) <= NARROW),
        _ => false,
    };
    narrow && traits.owner.kind() != OwnerKind::Own
}

/// The tile that a short name tells: `nvjet gemm bf16 64×8 tnt`.
fn tile(name: &str) -> Option<(u32, u32)> {
    name.split(' ').find_map(|word| {
        let (m, n) = word.split_once('×')?;
        Some((m.parse().ok()?, n.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{activity, assert_clear_in, assert_finds_in, named, profile_of, timed};
    use super::RULE;
    use apex_profile::Profile;
    use cuda_launch::LaunchConfig;

    fn product(tile: &str, each_ns: f64) -> Profile {
        let profile =
            profile_of([timed(named(&format!("nvjet_tst_{tile}_64x4_1x2_h_bz_coopA_TNT")), each_ns)]);
        Profile { activities: vec![activity(10e9, 0.2)], ..profile }
    }

    #[test]
    fn fires_on_narrow_tiles_that_take_the_time() {
        let finding = assert_finds_in(&RULE, product("64x8", 5e6));
        // 5 s of products, and the 2 s in which the host prepares the next ones.
        let saving = finding.saving.of_job.expect("timed");
        assert!((saving.value - 0.7 * 7.0 / 8.0).abs() < 1e-9, "{saving:?}");
        assert_clear_in(&RULE, product("64x16", 5e6));
        assert_clear_in(&RULE, product("64x8", 2.9e6));
    }

    #[test]
    fn batches_of_tiny_products_have_another_remedy() {
        let of = |products| {
            let mut one = product("8x8", 5e6);
            one.kernels[0].launch = LaunchConfig::new([1, 1, products], [32, 1, 1]);
            assert_finds_in(&RULE, one)
        };
        let tiny = of(65_535);
        assert!(tiny.summary.contains("tiny matrix products"), "{}", tiny.summary);
        assert!(tiny.change.contains("elementwise"), "{}", tiny.change);
        assert!(of(64).change.starts_with("Batch"));
    }
}
