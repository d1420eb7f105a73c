//! The answer about a pair: which bytes flow, and whether one kernel may do both.

use crate::adjacent::Pair;
use crate::given::{Given, around};
use crate::{Answer, Candidate, Joined};
use apex_predict_session::programs::{Programs, Recorded};
use apex_profile::{Kernel, Profile};
use apex_trace::definition::Config;
use apex_trace::{Process, Session};
use cuda_launch::LaunchConfig;
use ptx::Module;
use ptx_access::{Extent, Sets};
use ptx_fuse::{Fused, Part, Refusal, Same};
use std::ops::Range;

/// A pair as a candidate; `None` if no data flows, or the launches have different shapes.
pub fn candidate(
    pair: &Pair,
    session: &Session,
    profile: &Profile,
    programs: &Programs<'_>,
) -> Option<Candidate> {
    let process = session.processes.get(pair.process)?;
    let [first, second] = pair.configs.map(|config| process.definitions.config(config));
    let (first, second) = (first?, second?);
    let plain = |launch: &LaunchConfig| launch.dynamic_shared_bytes == 0 && launch.cluster.count() <= 1;
    if first.launch != second.launch || !plain(&first.launch) {
        return None;
    }
    let name = |config: &Config| Some(process.definitions.function(config.function)?.name.clone());
    let (flowing_bytes, answer) = match parts(pair, process, [first, second], profile, programs) {
        Err(missing) => (None, Answer::Unknown(missing)),
        Ok(parts) => {
            let bytes = flowing(&parts);
            if bytes == Some(0) {
                return None;
            }
            (bytes, answer(parts))
        }
    };
    let kernels = [name(first)?, name(second)?];
    let code =
        |config: &Config| process.definitions.function_code(config.function).map_or(0, |code| code.ptx);
    let (codes, launch) = ([first, second].map(code), first.launch);
    Some(Candidate { kernels, codes, launch, times: pair.times, flowing_bytes, answer })
}

/// A kernel with what one launch of it was given.
struct Launched {
    module: Module,
    name: String,
    given: Given,
}

/// Both launches, or what is not known of them.
fn parts(
    pair: &Pair,
    process: &Process,
    configs: [&Config; 2],
    profile: &Profile,
    programs: &Programs<'_>,
) -> Result<[Launched; 2], &'static str> {
    let [one, other] = configs.map(|config| code(config, process, profile, programs));
    let (one, other) = one.zip(other).ok_or("the session has no PTX of both kernels")?;
    let samples =
        pair.samples.ok_or("the session has no arguments of two such launches: record it with --code")?;
    let given = |config: &Config, sample: &apex_trace::layout::ArgumentSample| {
        let recorded = process.definitions.arguments(sample.arguments)?;
        Given::of(config.launch, recorded, &sample.allocations)
    };
    let [first, second] = [0, 1].map(|at| given(configs[at], &samples[at]));
    let (first, second) =
        first.zip(second).ok_or("the session does not tell which allocations the arguments point into")?;
    let launched = |(module, name): (Module, String), given| Launched { module, name, given };
    Ok([launched(one, first), launched(other, second)])
}

/// The module and name of a configuration's kernel.
fn code(
    config: &Config,
    process: &Process,
    profile: &Profile,
    programs: &Programs<'_>,
) -> Option<(Module, String)> {
    let name = &process.definitions.function(config.function)?.name;
    let image = format!("{:032x}", process.definitions.function_code(config.function)?.image);
    let is_it = |kernel: &&Kernel| {
        let same_image = kernel.code.as_ref().and_then(|code| code.image.as_ref()) == Some(&image);
        kernel.symbol == *name && kernel.launch == config.launch && same_image
    };
    let kernel = profile.kernels.iter().find(is_it)?;
    match programs.recorded(kernel) {
        Recorded::Code(code) => Some((code.module().clone(), code.name)),
        _ => None,
    }
}

/// Bytes that the first launch may write and the second one reads; `None` if the access sets do not
/// tell.
fn flowing(parts: &[Launched; 2]) -> Option<u64> {
    let written = ranges(&parts[0], |access| access.is_written())?;
    let read = ranges(&parts[1], |access| access.is_read())?;
    let shared = |a: &Range<u64>, b: &Range<u64>| a.end.min(b.end).saturating_sub(a.start.max(b.start));
    // (Ranges of one launch may overlap: each byte that is read counts once for each range.)
    Some(read.iter().map(|read| written.iter().map(|written| shared(read, written)).max().unwrap_or(0)).sum())
}

/// Where a launch accesses memory in this way.
fn ranges(part: &Launched, is_wanted: impl Fn(ptx_access::Use) -> bool) -> Option<Vec<Range<u64>>> {
    let sets = Sets::of(&part.module, &part.name)?;
    if sets.barrier.is_some() {
        return None;
    }
    let parameters = part.given.packed();
    let given = ptx_access::Given { config: part.given.launch, parameters: &parameters };
    let mut all = Vec::new();
    for memory in sets.memory.iter().filter(|memory| is_wanted(memory.access)) {
        match memory.at(&given)? {
            Extent::Ranges(ranges) => {
                all.extend(
                    ranges.into_iter().filter(|(access, _)| is_wanted(*access)).map(|(_, range)| range),
                );
            }
            Extent::Allocation(address) => {
                if let Some((start, bytes)) = around(&part.given.allocations, address) {
                    all.push(start..start + bytes);
                }
            }
            Extent::Variable(_) => return None,
        }
    }
    all.sort_by_key(|range| (range.start, range.end));
    all.dedup();
    Some(all)
}

/// Joins the kernels: pointers that are equal become one parameter, then also numbers that are.
fn answer(parts: [Launched; 2]) -> Answer {
    let [first, second] = &parts;
    let mut refused = None;
    for same in [equal(first, second, false), equal(first, second, true)] {
        match joined(first, second, &same) {
            Ok(fused) => {
                let sources = [first.module.to_string(), second.module.to_string()];
                let given = [first.given.clone(), second.given.clone()];
                return Answer::Joined(Box::new(Joined { fused, sources, same, given }));
            }
            Err(refusal) => refused = Some(refusal),
        }
    }
    let [first, second] = &parts.map(|part| part.name);
    let named = |refusal: Refusal| match refusal {
        Refusal::Alone(Part::First, _) | Refusal::Contraction(Part::First, _) => {
            format!("{first}: {refusal}")
        }
        Refusal::Alone(Part::Second, _) | Refusal::Contraction(Part::Second, _) => {
            format!("{second}: {refusal}")
        }
        other => other.to_string(),
    };
    Answer::Refused(refused.map_or_else(String::new, named))
}

fn joined(first: &Launched, second: &Launched, same: &[Same]) -> Result<Fused, Refusal> {
    let kernel = |part: &Launched| (part.module.clone(), part.name.clone());
    let (one, other) = (kernel(first), kernel(second));
    let fused = Fused::of(
        ptx_fuse::Kernel { module: &one.0, name: &one.1 },
        ptx_fuse::Kernel { module: &other.0, name: &other.1 },
        same,
    )?;
    let parameters = parameters(&fused, [&first.given, &second.given]);
    let allocation = |address: u64| {
        around(&first.given.allocations, address).or_else(|| around(&second.given.allocations, address))
    };
    fused.judge(first.given.launch, &parameters, &allocation).map_err(Refusal::Together)?;
    Ok(fused)
}

/// The parameter space of a joined kernel.
fn parameters(fused: &Fused, given: [&Given; 2]) -> Vec<u8> {
    let params = ptx_fuse::Kernel { module: &fused.module, name: ptx_fuse::NAME }.function();
    let params = params.map_or(&[][..], |function| &function.params);
    let mut bytes: Vec<u8> = Vec::new();
    for (param, &(part, place)) in params.iter().zip(&fused.parameters) {
        bytes.resize(bytes.len().next_multiple_of(param.alignment() as usize), 0);
        let from = given[usize::from(part == Part::Second)];
        bytes.extend(from.arguments.get(place).map_or(&[][..], |argument| &argument.bytes));
    }
    bytes
}

/// Parameters of the second launch that have the value of one of the first: pointers, and numbers
/// if these count, each of which may be several of the first one's; the one at the same place is
/// preferred.
fn equal(first: &Launched, second: &Launched, numbers: bool) -> Vec<Same> {
    let mut all = Vec::new();
    for (at, argument) in second.given.arguments.iter().enumerate() {
        let counts = argument.pointer.is_some() || numbers && !argument.is_mixed;
        let is_it = |place: &usize| {
            first.given.arguments.get(*place).is_some_and(|known| {
                known.bytes == argument.bytes && known.pointer.is_some() == argument.pointer.is_some()
            })
        };
        let place = std::iter::once(at).chain(0..first.given.arguments.len()).find(is_it);
        if let Some(place) = place.filter(|_| counts) {
            all.push(Same { first: place, second: at });
        }
    }
    all
}
