//! Launches as they are typed: `64,64`, `16x16`, `block=512,grid=128`.

use apex_predict::Change;
use cuda_launch::Dim3;

/// The sides of a grid or block: one to three numbers with commas or `x` between; missing ones are
/// 1.
pub fn extent(text: &str) -> Result<Dim3, String> {
    let explain =
        || format!("invalid extent `{text}`: use one to three whole numbers, such as 1024, 64,64 or 16x16x4");
    let mut sides = [1; 3];
    let mut parts = text.split([',', 'x', 'X']);
    for (side, part) in sides.iter_mut().zip(&mut parts) {
        let part = part.trim();
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let beyond =
            || format!("`{part}` is beyond every device's limit: a grid has at most 2147483647 blocks in x");
        *side = part.parse().map_err(|_| if digits { beyond() } else { explain() })?;
    }
    if parts.next().is_some() { Err(explain()) } else { Ok(sides.into()) }
}

/// Bytes of shared or local memory: `4096`, `48K`.
pub fn bytes(text: &str) -> Result<u32, String> {
    let bytes = crate::units::parse_size(text)?;
    u32::try_from(bytes).map_err(|_| format!("{bytes} bytes are more than any launch can have"))
}

/// A duration in microseconds: `12.5`, `12.5us`, `3ms`.
pub fn microseconds(text: &str) -> Result<f64, String> {
    let explain = || format!("invalid duration `{text}`: use microseconds, or a number with ns, us, ms or s");
    let at = text.find(|c: char| c.is_alphabetic() && c != 'e').unwrap_or(text.len());
    let (number, unit) = (text[..at].trim(), &text[at..]);
    let scale = match unit {
        "ns" => 1e-3,
        "" | "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return Err(explain()),
    };
    let value = number.parse::<f64>().map_err(|_| explain())? * scale;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(explain()) }
}

/// Parses `block=512,grid=16x16,shared=4K,registers=64`: any of these, in any order. An extent's
/// sides stand with `x` between.
pub fn change(text: &str) -> Result<Change, String> {
    let mut change = Change::default();
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(|| {
            format!(
                "invalid change `{part}`: use block=, grid=, shared= or registers=, such as \
                block=512,grid=16x16"
            )
        })?;
        let twice = match name.trim() {
            "grid" => change.grid.replace(extent(value)?).is_some(),
            "block" => change.block.replace(extent(value)?).is_some(),
            "shared" => change.dynamic_shared_bytes.replace(bytes(value)?).is_some(),
            "registers" => {
                let registers =
                    value.trim().parse().map_err(|_| format!("invalid register count `{value}`"))?;
                change.registers.replace(registers).is_some()
            }
            name => return Err(format!("`{name}` cannot be changed; block, grid, shared and registers can")),
        };
        if twice {
            return Err(format!("`{name}` is given twice"));
        }
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_launch::LaunchConfig;

    #[test]
    fn extents_in_their_forms() {
        for (text, sides) in
            [("1024", [1024, 1, 1]), ("64,32", [64, 32, 1]), ("16x16x4", [16, 16, 4]), (" 8 , 4", [8, 4, 1])]
        {
            assert_eq!(extent(text), Ok(sides.into()), "{text}");
        }
        for text in ["", "x", "1,2,3,4", "-1", "1.5", "1,,2"] {
            assert!(extent(text).unwrap_err().contains("64,64"), "{text}");
        }
        for text in ["4294967296", "1,99999999999"] {
            assert!(extent(text).unwrap_err().contains("limit: a grid has at most 2147483647"), "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, value) in
            [("12.5", 12.5), ("12.5us", 12.5), ("3 ms", 3000.0), ("250ns", 0.25), ("1e3µs", 1000.0)]
        {
            assert_eq!(microseconds(text), Ok(value), "{text}");
        }
        for text in ["", "0", "-1", "nan", "inf", "3 h", "us"] {
            assert!(microseconds(text).unwrap_err().contains("microseconds"), "{text}");
        }
    }

    #[test]
    fn a_change_of_the_block_keeps_the_threads() {
        let launch = LaunchConfig::new((100, 3), 256).with_dynamic_shared_bytes(64);
        let changed = |text| change(text).and_then(|change| change.apply_to_launch(launch));
        assert_eq!(
            changed("block=512"),
            Ok(LaunchConfig { grid: (50, 3).into(), block: 512.into(), ..launch })
        );
        assert_eq!(
            changed("block=96x2"),
            Ok(LaunchConfig { grid: (267, 2).into(), block: (96, 2).into(), ..launch })
        );
        assert_eq!(
            changed("grid=7,shared=1K"),
            Ok(LaunchConfig::new(7, 256).with_dynamic_shared_bytes(1024))
        );
        assert_eq!(change("registers=64").map(|change| change.registers), Ok(Some(64)));
        for (text, why) in [
            ("block", "invalid change"),
            ("blocks=2", "cannot be changed"),
            ("grid=2,grid=3", "given twice"),
            ("block=0", "give grid="),
            ("registers=many", "invalid register count"),
            ("shared=8G", "more than any launch"),
        ] {
            assert!(changed(text).unwrap_err().contains(why), "{text}");
        }
    }
}
