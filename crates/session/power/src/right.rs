//! Whether this process has the permission to set clocks, as far as that can be known without
//! trying.

/// The bit of `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// Whether this process is root and has `CAP_SYS_ADMIN`, which containers lack by default. NVML may
/// still refuse.
pub fn may_set_clocks() -> bool {
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    is_root && std::fs::read_to_string("/proc/self/status").is_ok_and(|status| has_capability(&status))
}

fn has_capability(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> SYS_ADMIN & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::has_capability;

    #[test]
    fn the_capability_is_a_bit_of_the_effective_ones() {
        assert!(has_capability("Name:\tapex\nCapPrm:\t0\nCapEff:\t000001ffffffffff\n"));
        // Those of a container.
        assert!(!has_capability("CapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n"));
        assert!(!has_capability("") && !has_capability("CapEff:\tx\n"));
    }
}
