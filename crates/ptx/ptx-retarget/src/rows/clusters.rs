//! Clusters, for GPUs that have none: each block is its own cluster.

use ptx::syntax::tree::{Name, Operand};

use crate::code::Code;
use crate::site::Site;

/// `.cluster` as the scope of an access, an atomic operation or a fence.
pub(super) fn scope(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if !site.has("cluster") || site.has("proxy") {
        return None;
    }
    let mnemonic = match site.opcode() {
        // `.acquire` and `.release` alone are as new as clusters.
        "fence" if site.has("sc") => "fence.sc.gpu".to_owned(),
        "fence" => "fence.acq_rel.gpu".to_owned(),
        "ld" | "st" | "atom" | "red" if !site.has("async") => {
            site.rewritten(|word| Some(if word == "cluster" { "gpu" } else { word }))
        }
        _ => return None,
    };
    code.op(format!("{mnemonic} {}", site.rest(0)).trim_end());
    Some(())
}

/// Addresses in the shared memory of a cluster are those of the block.
pub(super) fn memory(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let d = site.operand(0)?;
    match site.opcode() {
        "mapa" => code.op(format!("mov.{} {d}, {}", site.last(), site.operand(1)?)),
        "getctarank" => code.op(format!("mov.u32 {d}, 0")),
        _ if site.has("shared::cluster") && !site.has("async") && site.opcode() != "cp" => {
            let mnemonic =
                site.rewritten(|word| Some(if word == "shared::cluster" { "shared::cta" } else { word }));
            code.op(format!("{mnemonic} {}", site.rest(0)));
        }
        _ => return None,
    }
    Some(())
}

/// Special registers of clusters.
pub(super) fn registers(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let mut changed = false;
    let operands: Vec<String> = site
        .operands()
        .iter()
        .map(|operand| {
            let replaced = of_one_block(operand);
            changed |= replaced.is_some();
            replaced.unwrap_or_else(|| operand.to_string())
        })
        .collect();
    changed.then(|| code.op(format!("{} {}", site.words.join("."), operands.join(", "))))
}

/// The operand where each cluster is a block; `None` if it stays.
fn of_one_block(operand: &Operand) -> Option<String> {
    let (name, component): (&Name, Option<&Name>) = match operand {
        Operand::Name(name) => (name, None),
        Operand::Component(name, component) => (name, Some(component)),
        _ => return None,
    };
    let of =
        |register: &str| component.map_or(register.to_owned(), |component| format!("{register}.{component}"));
    Some(match (&**name, component) {
        ("%clusterid", _) => of("%ctaid"),
        ("%nclusterid", _) => of("%nctaid"),
        ("%cluster_ctaid", None) => "{0, 0, 0, 0}".to_owned(),
        ("%cluster_nctaid", None) => "{1, 1, 1, 1}".to_owned(),
        ("%cluster_ctaid", _) | ("%cluster_ctarank" | "%is_explicit_cluster", None) => "0".to_owned(),
        ("%cluster_nctaid", _) | ("%cluster_nctarank", None) => "1".to_owned(),
        _ => return None,
    })
}
