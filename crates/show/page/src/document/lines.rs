//! The CPU device's counts for each line of a kernel, with the code.

use super::figure::{NAME, text};
use super::{SENTENCE, json};
use apex_conventions::documents::LINES;
use apex_counts::{Fault, Line, LineCounts};
use apex_ordered::{Gather, Order};
use apex_predict_session::source_text;
use apex_profile::{Kernel, KernelCounts, Profile};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a line of code; the end of a longer one is left out.
const CODE: usize = 240;
/// What a tab is shown as: to the page it is no printable character.
const TAB: &str = "    ";

/// Limits on what is shown of a kernel's lines.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Counted lines: those that execute most instructions, and of each fault the worst.
    pub lines: usize,
    /// Lines of code before and after each.
    pub context: u32,
}

impl Extent {
    /// Extent of a server's answer: all lines that a session has of a kernel.
    pub const SERVED: Self = Self { lines: usize::MAX, context: 6 };
}

/// The lines of a kernel.
#[derive(Debug, Serialize)]
pub struct LinesOfKernel {
    /// Its identifier.
    id: String,
    /// Launches that were counted.
    launches: u64,
    /// The share of their instructions that was counted; `null` if all were.
    sampled_share: Option<f64>,
    /// PTX instructions of warps, of all lines.
    warp_instructions: u64,
    /// Counted lines that are not listed.
    left_out: u64,
    files: Vec<CodeFile>,
}

/// A file that has lines of the kernel.
#[derive(Debug, Serialize)]
struct CodeFile {
    /// As the line table names it; empty for the kernel's PTX.
    name: String,
    /// Reason for which some of its lines have no code beside them; `null` where all have.
    no_text: Option<String>,
    rows: Vec<CodeLine>,
}

/// A line.
#[derive(Debug, Serialize)]
struct CodeLine {
    line: u32,
    /// The code; `null` where the session does not have it.
    text: Option<String>,
    /// Its counts; `null` for a line that stands beside one that was counted.
    counts: Option<LineCounts>,
    /// Faults there: `uncoalesced`, `bank_conflict`, `divergence`.
    faults: Vec<&'static str>,
}

impl LinesOfKernel {
    /// Of a kernel whose lines were counted.
    pub fn of(profile: &Profile, kernel: &Kernel, extent: Extent) -> Option<Self> {
        let counts = kernel.counts.as_ref().filter(|counts| !counts.lines.is_empty())?;
        let chosen = chosen(&counts.lines, extent.lines);
        let mut files: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
        chosen.iter().for_each(|line| files.entry(&line.file).or_default().push(line));
        let mut files: Vec<_> = files.into_iter().collect();
        let executed = |lines: &[&Line]| lines.iter().map(|line| line.counts.warp_instructions).sum::<u64>();
        files.order_by_key(|(_, lines)| Reverse(executed(lines)));
        Some(Self {
            id: kernel.id(),
            launches: counts.launches,
            sampled_share: counts.sampled_share,
            warp_instructions: counts.sums.total_warp_instructions(),
            left_out: counts.lines_left_out + (counts.lines.len() - chosen.len()) as u64,
            files: files
                .into_iter()
                .map(|(name, lines)| CodeFile::of(profile, kernel, name, &lines, extent.context))
                .collect(),
        })
    }

    /// Those of the first kernels of a profile that have any.
    pub fn of_all(profile: &Profile, most: usize, extent: Extent) -> Vec<Self> {
        let kernels = profile.kernels.iter().filter(|kernel| kernel.launches.any());
        kernels.filter_map(|kernel| Self::of(profile, kernel, extent)).take(most).collect()
    }
}

/// The lines that execute most, and the worst of each fault, in their order.
fn chosen(lines: &[Line], most: usize) -> Vec<&Line> {
    let orders: [fn(&LineCounts) -> u64; 4] = [
        |counts| counts.warp_instructions,
        |counts| counts.global_excess,
        |counts| counts.shared_excess,
        |counts| counts.divergent_branches,
    ];
    let mut worst: Vec<Vec<usize>> = Vec::new();
    for value in orders {
        let mut places: Vec<usize> = (0..lines.len()).filter(|&at| value(&lines[at].counts) > 0).collect();
        places.order_by_key(|&at| Reverse(value(&lines[at].counts)));
        worst.push(places);
    }
    let mut kept = BTreeSet::new();
    for rank in 0..lines.len() {
        for place in worst.iter().filter_map(|places| places.get(rank)) {
            if kept.len() < most {
                kept.insert(*place);
            }
        }
    }
    kept.into_iter().map(|at| &lines[at]).collect()
}

impl CodeFile {
    fn of(profile: &Profile, kernel: &Kernel, name: &str, lines: &[&Line], context: u32) -> Self {
        let found = source_text::text(profile, kernel, name);
        let code: Vec<&str> = found.as_ref().map_or(Vec::new(), |text| text.lines().collect());
        let last = code.len() as u32;
        let beyond = lines.iter().any(|line| line.line > last);
        let no_text = match &found {
            Err(why) => Some(why.clone()),
            Ok(_) if beyond => Some(format!(
                "The file that was kept has {last} lines only: it was changed after the kernel was compiled, and the code may be another’s."
            )),
            Ok(_) => None,
        };
        let counted: BTreeMap<u32, &Line> = lines.iter().map(|line| (line.line, *line)).gathered();
        let around =
            |&line: &u32| line.saturating_sub(context).max(1)..=line.saturating_add(context).min(last);
        let beside: BTreeSet<u32> = counted.keys().copied().chain(counted.keys().flat_map(around)).gathered();
        let row = |line: u32| CodeLine {
            line,
            text: code.get((line as usize).wrapping_sub(1)).map(|code| shown(code)),
            counts: counted.get(&line).map(|line| line.counts),
            faults: counted
                .get(&line)
                .into_iter()
                .flat_map(|line| line.counts.faults())
                .map(Fault::name)
                .collect(),
        };
        Self {
            name: text(name, NAME),
            no_text: no_text.map(|why| text(&why, SENTENCE)),
            rows: beside.into_iter().map(row).collect(),
        }
    }
}

fn shown(code: &str) -> String {
    text(&code.trim_end().replace('\t', TAB), CODE)
}

/// The lines of the kernels of a session. It holds no more of the session.
#[derive(Debug)]
pub struct KernelLines(Profile);

impl KernelLines {
    /// Of the kernels of a profile.
    pub fn of(profile: &Profile) -> Self {
        let counts = |counts: &KernelCounts| KernelCounts {
            launches: counts.launches,
            sampled_share: counts.sampled_share,
            sums: counts.sums.clone(),
            lines: counts.lines.clone(),
            lines_left_out: counts.lines_left_out,
            ..KernelCounts::default()
        };
        // What a kernel's identifier follows from, and where its code is.
        let kernel = |kernel: &Kernel| Kernel {
            symbol: kernel.symbol.clone(),
            device: kernel.device,
            launch: kernel.launch,
            attributes: kernel.attributes,
            code: kernel.code.clone(),
            counts: kernel.counts.as_ref().map(counts),
            ..Kernel::default()
        };
        Self(Profile {
            devices: profile.devices.clone(),
            kernels: profile.kernels.iter().map(kernel).collect(),
            code: profile.code.clone(),
            images: profile.images.clone(),
            sources: profile.sources.clone(),
            ..Profile::default()
        })
    }

    /// Those of the kernel of an identifier, as JSON.
    ///
    /// # Errors
    /// If there is no such kernel, or if its lines were not counted.
    pub fn json(&self, kernel: &str) -> Result<String, String> {
        let found = self.0.kernels.iter().find(|known| known.id() == kernel);
        let found = found.ok_or("there is no such kernel in what is shown")?;
        let none = "no lines of this kernel were counted: the CPU device counts them (apex run --device cpu)";
        let lines = LinesOfKernel::of(&self.0, found, Extent::SERVED).ok_or(none)?;
        Ok(json(LINES, &lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u32, warp_instructions: u64, global_excess: u64) -> Line {
        let counts = LineCounts { warp_instructions, global_excess, ..LineCounts::default() };
        Line { file: "a.cu".into(), line: number, counts }
    }

    #[test]
    fn of_many_lines_the_busiest_and_the_worst_of_each_fault_are_chosen() {
        let mut lines: Vec<Line> =
            (1..=100).map(|number| line(number, u64::from(1000 - number), 0)).collect();
        lines[98].counts.global_excess = 1;
        let numbers = |most| chosen(&lines, most).iter().map(|line| line.line).collect::<Vec<_>>();
        assert_eq!(numbers(3), [1, 2, 99]);
        assert_eq!(numbers(usize::MAX), (1..=100).collect::<Vec<_>>());
    }

    fn kernel(lines: Vec<Line>) -> Kernel {
        let counts = KernelCounts { lines, lines_left_out: 2, ..KernelCounts::default() };
        Kernel { counts: Some(counts), ..Kernel::default() }
    }

    #[test]
    fn code_stands_beside_the_lines_and_hostile_text_is_text() {
        let mut profile = Profile::default();
        let hostile = format!("\u{1b}[2J</script>\u{202e}{}", "x".repeat(1 << 20));
        let code = format!("one\n\ttwo \nthree\n{hostile}\nfive");
        profile.sources.insert("a.cu".into(), Ok(code.into()));
        let kernel = kernel(vec![line(2, 5, 0), line(4, 1, 3)]);
        let shown = LinesOfKernel::of(&profile, &kernel, Extent { lines: 9, context: 1 }).unwrap();
        let [file] = &shown.files[..] else { panic!("{shown:?}") };
        let rows: Vec<_> = file.rows.iter().map(|row| (row.line, row.counts.is_some())).collect();
        assert_eq!(rows, [(1, false), (2, true), (3, false), (4, true), (5, false)]);
        assert_eq!(file.rows[1].text.as_deref(), Some("    two"));
        assert_eq!(file.rows[3].faults, ["uncoalesced"]);
        let text = file.rows[3].text.as_deref().unwrap();
        assert!(text.starts_with("\\x1b[2J</script>\\u{202e}") && text.len() < 300, "{text}");
        assert_eq!((file.no_text.clone(), shown.left_out), (None, 2));
    }

    #[test]
    fn without_text_lines_say_why() {
        let mut profile = Profile::default();
        let shown = |profile: &Profile, file: &str, number| {
            let kernel = kernel(vec![Line { file: file.into(), ..line(number, 1, 0) }]);
            let shown = LinesOfKernel::of(profile, &kernel, Extent::SERVED).unwrap();
            assert_eq!(shown.files[0].rows.len(), 1);
            shown.files[0].no_text.clone().unwrap()
        };
        assert!(shown(&profile, "a.cu", 3).contains("record it with `apex run --code`"));
        let ptx = shown(&profile, "", 3);
        assert!(ptx.contains("apex run --code") && ptx.contains("-lineinfo"), "{ptx}");
        profile.sources.insert("gone.cu".into(), Err("there is no such file".into()));
        assert!(shown(&profile, "gone.cu", 3).ends_with("this file: there is no such file."));
        profile.sources.insert("short.cu".into(), Ok("".into()));
        assert!(shown(&profile, "short.cu", 3).contains("has 0 lines only"));
        assert!(LinesOfKernel::of(&profile, &kernel(Vec::new()), Extent::SERVED).is_none());
    }
}
