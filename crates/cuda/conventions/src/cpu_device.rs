//! The CPU device's identity. The driver API tells programs its name; sessions record it.

/// The name that the driver API gives, of a device of compute capability 8.0.
pub const NAME: &str = "APEX CPU device (sm_80)";

/// The same of one of 9.0.
pub const NAME_90: &str = "APEX CPU device (sm_90)";

/// The same of one of 12.0.
pub const NAME_120: &str = "APEX CPU device (sm_120)";

/// The beginning of its name, whatever architecture it has.
const KIND: &str = "APEX CPU device";

/// The name of its library, without what cargo and the platform add.
pub const LIBRARY: &str = "libapex_cpu_device";

/// Whether a device of this name is the CPU device.
pub fn is(name: &str) -> bool {
    name.starts_with(KIND)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_device_is_recognised_by_its_name() {
        assert!([super::NAME, super::NAME_90, super::NAME_120].into_iter().all(super::is));
        assert!(!super::is("NVIDIA H200"));
    }
}
