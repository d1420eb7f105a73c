//! The head of the screen: the title, and the state of the session in a line.

use super::{Lines, Theme};
use crate::Look;
use crate::top::Top;
use apex_machine::{DeviceSummary, Quantity, Summary};
use apex_profile::Profile;
use apex_profile::units;
use apex_untrusted::printable;
use apex_view::text::energy::joules;
use apex_view::text::figures::share;
use apex_view::text::{shorten, wrap};
use ratatui_core::text::{Line, Span};
use std::path::Path;

/// Devices of the machine that are listed.
const DEVICES: usize = 8;
/// Process identifiers that are listed.
const PIDS: usize = 3;

/// The machine is read once a second: a mean over fewer seconds is of others too.
const LEAST_SECONDS: f64 = 3.0;

/// The first row: which session this is, and how far it is.
pub fn title(top: &Top, width: usize, theme: Theme) -> Line<'static> {
    let Some(session) = top.session() else { return bar("apex top".into(), String::new(), width, theme) };
    let count = top.sessions.len();
    let which = if count > 1 { format!(" {}/{count}", top.chosen + 1) } else { String::new() };
    let state = match session.look.as_ref() {
        None => "no look yet".to_owned(),
        Some(look) if !look.has_calls() => look.state(),
        Some(look) => {
            format!("{}, {} · last {}", look.state(), units::time(look.window.end as f64), last(look))
        }
    };
    let name = apex_untrusted::shown(session.folder.file_name().map_or(&*session.folder, Path::new));
    bar(format!("apex top{which}  {name}"), state, width, theme)
}

/// A reversed row with a text at each end.
fn bar(left: String, right: String, width: usize, theme: Theme) -> Line<'static> {
    let right: String = right.chars().take(width).collect();
    let room = width.saturating_sub(right.chars().count() + 3);
    let left = if room > 0 { shorten(&left, room) } else { String::new() };
    Line::styled(format!(" {left:room$} {right} "), theme.reversed())
}

/// The length of the window.
pub fn last(look: &Look) -> String {
    units::time(look.seconds() * 1e9)
}

/// Problem, command and health.
pub fn lines(top: &Top, look: &Look, width: usize, theme: Theme) -> Lines {
    let mut lines = vec![identity(look, width, theme)];
    if let Some(verdict) = look.verdict() {
        lines.extend(wrap(&verdict, width, "  ").into_iter().map(|line| Line::styled(line, theme.bold())));
    }
    lines.extend(wrap(&health(look, width), width, "  ").into_iter().map(Line::from));
    lines.extend(machine(look).iter().map(|line| Line::from(shorten(line, width))));
    if let Some(problem) = top.session().and_then(|session| session.problem.as_ref()) {
        let text = format!("The last look failed, this is the one before it: {problem}");
        lines.extend(wrap(&text, width, "  ").into_iter().map(|line| Line::styled(line, theme.warning())));
    }
    lines
}

/// A line for each device, and one for the host.
fn machine(look: &Look) -> Vec<String> {
    let Some(machine) = &look.machine else { return Vec::new() };
    let number = |device: &DeviceSummary| match machine.devices.len() {
        1 => "GPU".to_owned(),
        _ => format!("GPU {}", device.index),
    };
    let devices = machine.devices.iter().take(DEVICES);
    let mut lines: Vec<String> = devices
        .map(|device| format!("{}: {}", number(device), apex_view::text::machine::line(device)))
        .collect();
    if let (Some(energy), Some(line)) = (energy_of_a_kernel(look, machine), lines.first_mut()) {
        *line = format!("{line} · {energy}");
    }
    lines.extend(apex_view::text::machine::host_line(machine));
    lines
}

/// `about 1.20 J for each kernel`: the mean power of the only device over the kernels in a second.
fn energy_of_a_kernel(look: &Look, machine: &Summary) -> Option<String> {
    let [device] = &machine.devices[..] else { return None };
    let watts = device.readings.get(Quantity::AveragePower)?.mean;
    let kernels =
        look.launches_per_s().filter(|kernels| *kernels > 0.0 && look.seconds() >= LEAST_SECONDS)?;
    Some(format!("about {} for each kernel", joules(watts / kernels)))
}

/// `python train.py · pid 12, 13 · 2 × NVIDIA H200`
fn identity(look: &Look, width: usize, theme: Theme) -> Line<'static> {
    let pids: Vec<String> = look.running.iter().take(PIDS).map(u32::to_string).collect();
    let more = match look.running.len().saturating_sub(PIDS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let parts = [
        (!pids.is_empty()).then(|| format!("pid {}{more}", pids.join(", "))),
        Some(devices(&look.profile)).filter(|devices| !devices.is_empty()),
    ];
    let rest: String = parts.into_iter().flatten().map(|part| format!(" · {part}")).collect();
    let rest = printable(&rest).into_owned();
    let room = width.saturating_sub(rest.chars().count()).max(width / 3);
    Line::from(vec![Span::styled(shorten(&look.command(), room), theme.bold()), Span::raw(rest)])
}

/// Devices by name, with how many there are of each.
fn devices(profile: &Profile) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for device in profile.devices.iter().filter(|device| !device.name.is_empty()) {
        match counts.iter_mut().find(|(name, _)| *name == device.name) {
            Some((_, count)) => *count += 1,
            None => counts.push((&device.name, 1)),
        }
    }
    let name = |(name, count): &(&str, usize)| match count {
        1 => (*name).to_owned(),
        count => format!("{count} × {name}"),
    };
    counts.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// How busy, how many launches, what recording costs and lost. Where there is room, launches since
/// the start, too.
fn health(look: &Look, width: usize) -> String {
    if !look.has_calls() {
        let yet = if look.running.is_empty() { "" } else { " yet" };
        return format!("no CUDA call{yet}");
    }
    let verdict = &look.advice.verdict;
    let busy = match look.gpu_busy() {
        Some(busy) => Some(format!("GPU busy {}", share(&busy))),
        None if look.profile.on_cpu_device() => None,
        None => Some("GPU busy: not known".to_owned()),
    };
    let launches = look.launches_per_s().map(|rate| format!("{}ᵐ", rate_in_words(rate)));
    let in_all = format!("{} in all", units::count(look.since_start.launches));
    let recorder = verdict.overhead_share.map(|cost| format!("recorder {}", share(&cost)));
    let lost = match look.since_start.lost_records {
        0 => "0 dropped".to_owned(),
        lost => format!("{} RECORDS DROPPED", units::count(lost)),
    };
    let in_words = |launches| {
        let parts = [busy.clone(), launches, recorder.clone(), Some(lost.clone())];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
    };
    let full = in_words(launches.as_ref().map(|rate| format!("{rate}, {in_all}")));
    if full.chars().count() <= width { full } else { in_words(launches) }
}

/// `12,345 launches/s`; below ten with what follows the point.
pub fn rate_in_words(per_s: f64) -> String {
    if per_s >= 9.95 || per_s == 0.0 {
        format!("{} launches/s", units::count(per_s.round() as u64))
    } else {
        format!("{} launches/s", units::ratio(per_s))
    }
}

/// The screen before the first look.
pub fn nothing_yet(top: &Top, width: usize, theme: Theme) -> Lines {
    let text = match top.session() {
        None => {
            "No session is recorded on this machine now. `apex run -- COMMAND` records a program; it appears \
                 here by itself."
                .to_owned()
        }
        Some(session) => match &session.problem {
            Some(problem) => format!("{}: {problem}", apex_untrusted::shown(&session.folder)),
            None => "Looking at the session for the first time …".to_owned(),
        },
    };
    let style = if top.session().is_some_and(|session| session.problem.is_some()) {
        theme.warning()
    } else {
        theme.dim()
    };
    let lines = wrap(&text, width, "").into_iter().map(|line| Line::styled(line, style));
    std::iter::once(Line::default()).chain(lines).collect()
}
