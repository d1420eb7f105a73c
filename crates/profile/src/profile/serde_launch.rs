//! Launches and functions as the profile's JSON has them. Its names are older than those of
//! `cuda_launch`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Members of a kernel's object that say how it is launched.
pub mod config {
    use super::*;
    use cuda_launch::{Dim3, LaunchConfig};

    #[derive(Serialize, Deserialize)]
    struct Members {
        grid: Dim3,
        block: Dim3,
        cluster: Dim3,
        dynamic_shared: u32,
    }

    pub fn serialize<S: Serializer>(launch: &LaunchConfig, to: S) -> Result<S::Ok, S::Error> {
        let LaunchConfig { grid, block, cluster, dynamic_shared_bytes } = *launch;
        Members { grid, block, cluster, dynamic_shared: dynamic_shared_bytes }.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<LaunchConfig, D::Error> {
        let Members { grid, block, cluster, dynamic_shared } = Members::deserialize(from)?;
        Ok(LaunchConfig { grid, block, cluster, dynamic_shared_bytes: dynamic_shared })
    }
}

/// Attributes of a function: those that occupancy depends on are an object of their own.
pub mod attributes {
    use super::*;
    use cuda_launch::{Carveout, FunctionAttributes};

    #[derive(Serialize, Deserialize)]
    struct Members {
        resources: Resources,
        local: u32,
        constant: u32,
        carveout: i32,
        binary_version: u32,
        ptx_version: u32,
    }

    #[derive(Serialize, Deserialize)]
    struct Resources {
        registers: u32,
        static_shared: u32,
        max_threads: u32,
        max_dynamic_shared: Option<u32>,
        barriers: u32,
    }

    pub fn serialize<S: Serializer>(
        attributes: &Option<FunctionAttributes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let members = attributes.map(|attributes| Members {
            resources: Resources {
                registers: attributes.registers,
                static_shared: attributes.static_shared_bytes,
                max_threads: attributes.max_threads_per_block,
                max_dynamic_shared: attributes.max_dynamic_shared_bytes,
                barriers: attributes.barriers,
            },
            local: attributes.local_bytes,
            constant: attributes.constant_bytes,
            carveout: attributes.carveout.to_attribute(),
            binary_version: attributes.binary_version,
            ptx_version: attributes.ptx_version,
        });
        members.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<FunctionAttributes>, D::Error> {
        let members = Option::<Members>::deserialize(deserializer)?;
        Ok(members.map(|members| FunctionAttributes {
            registers: members.resources.registers,
            static_shared_bytes: members.resources.static_shared,
            local_bytes: members.local,
            constant_bytes: members.constant,
            max_threads_per_block: members.resources.max_threads,
            max_dynamic_shared_bytes: members.resources.max_dynamic_shared,
            carveout: Carveout::from_attribute(members.carveout),
            barriers: members.resources.barriers,
            binary_version: members.binary_version,
            ptx_version: members.ptx_version,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_launch::{Carveout, FunctionAttributes, LaunchConfig};
    use serde_json::{Value, json};

    #[test]
    fn each_part_of_a_launch_has_its_member() {
        let launch = LaunchConfig {
            cluster: [7, 8, 9].into(),
            ..LaunchConfig::new([1, 2, 3], [4, 5, 6]).with_dynamic_shared_bytes(10)
        };
        let json = config::serialize(&launch, serde_json::value::Serializer).unwrap();
        let expected =
            json!({"grid": [1, 2, 3], "block": [4, 5, 6], "cluster": [7, 8, 9], "dynamic_shared": 10});
        assert_eq!(json, expected);
        assert_eq!(config::deserialize(json).unwrap(), launch);
    }

    #[test]
    fn each_attribute_has_its_member() {
        let known = Some(FunctionAttributes {
            registers: 1,
            static_shared_bytes: 2,
            local_bytes: 3,
            constant_bytes: 4,
            max_threads_per_block: 5,
            max_dynamic_shared_bytes: Some(6),
            carveout: Carveout::Percent(7),
            barriers: 8,
            binary_version: 90,
            ptx_version: 80,
        });
        let json = attributes::serialize(&known, serde_json::value::Serializer).unwrap();
        let expected = json!({
            "resources": {"registers": 1, "static_shared": 2, "max_threads": 5, "max_dynamic_shared": 6, "barriers": 8},
            "local": 3, "constant": 4, "carveout": 7, "binary_version": 90, "ptx_version": 80,
        });
        assert_eq!(json, expected);
        assert_eq!(attributes::deserialize(json).unwrap(), known);
        assert_eq!(attributes::deserialize(Value::Null).unwrap(), None);
    }
}
