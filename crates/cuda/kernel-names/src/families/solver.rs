//! Kernels of cuSOLVER and cuRAND that lie in no namespace: names of LAPACK's routines with parts
//! that only these libraries use.

use super::{Name, own};
use crate::{Identity, Operation, Owner, Traits};

/// Beginnings of names of cuSOLVER's kernels, as recorded of PyTorch's decompositions.
const SOLVER: [&str; 14] = [
    "gesvdbj_batch",
    "gesvdj_diagonal",
    "svd_column_rotate_batch",
    "svd_row_rotate_batch",
    "syevj_parallel_order",
    "syevj_batch",
    "ormtr_gerc",
    "ormtr_gemv",
    "offA_stage",
    "batch_FnrmA_stage",
    "lascl_kernel",
    "batch_eye_kernel",
    "pegasus",
    "xxtrf4_set_info",
];

pub(super) fn identify(name: &Name<'_>) -> Option<Identity> {
    let function = name.function().name;
    let is_alone = name.path.len() == 1;
    let (owner, operation) = match function {
        _ if is_alone && SOLVER.iter().any(|start| function.starts_with(start)) => {
            (Owner::CuSolver, Operation::LinearAlgebra)
        }
        "gen_sequenced" | "generate_seed_pseudo"
            if name.text.contains("curandState") || name.text.contains("rng_config") =>
        {
            (Owner::CuRand, Operation::Random)
        }
        _ => return None,
    };
    Some(own::identify(name).with(|traits| Traits { owner, operation, ..traits }))
}

#[cfg(test)]
mod tests {
    use crate::{Operation, Owner, identify};

    #[test]
    fn kernels_of_solvers_are_not_the_users() {
        let svd = "_Z19gesvdbj_batch_32x16IffEvlPKiS1_S1_iPKT_iT0_PS2_S6_PiS5_iS5_";
        let known = identify(svd);
        assert_eq!((known.traits.owner, known.traits.operation), (Owner::CuSolver, Operation::LinearAlgebra));
        assert_eq!(known.short_name, "gesvdbj_batch_32x16<float, float>");
        for own in ["_Z12potrf_kernelPf", "_ZN4mine13gesvdbj_batchEPf", "_Z13gen_sequencedPf"] {
            assert_eq!(identify(own).traits.owner, Owner::Own, "{own}");
        }
    }
}
