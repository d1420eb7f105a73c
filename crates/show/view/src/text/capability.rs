//! Libraries that `apex run --capability` told another compute capability, in words.

use apex_trace::meta::ToldCapability;
use std::collections::BTreeMap;

/// A sentence for each library: `/opt/libchooser.so was told 12 in place of 9 by
/// cuDeviceGetAttribute(COMPUTE_CAPABILITY_MAJOR)`.
pub fn sentences(told: &[ToldCapability]) -> Vec<String> {
    let mut libraries: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for each in told {
        let answer = format!("{} in place of {} by {}", each.told, each.real, each.call);
        let answers = libraries.entry(&each.library).or_default();
        if !answers.contains(&answer) {
            answers.push(answer);
        }
    }
    let sentence =
        |(library, answers): (&str, Vec<String>)| format!("{library} was told {}", answers.join(", "));
    libraries.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_library_has_a_sentence() {
        let told = |library: &str, call: &str, real: &str, told: &str| ToldCapability {
            library: library.into(),
            call: call.into(),
            real: real.into(),
            told: told.into(),
        };
        let major = told("/b.so", "cuDeviceGetAttribute(COMPUTE_CAPABILITY_MAJOR)", "9", "12");
        let all = [major.clone(), told("/a.so", "cuDeviceComputeCapability", "9.0", "12.0"), major];
        assert_eq!(
            sentences(&all),
            [
                "/a.so was told 12.0 in place of 9.0 by cuDeviceComputeCapability",
                "/b.so was told 12 in place of 9 by cuDeviceGetAttribute(COMPUTE_CAPABILITY_MAJOR)"
            ]
        );
    }
}
