//! The state of the screen: the sessions that are shown, and the user's choices.

use crate::Look;
use crate::history::History;
use apex_profile::{Kernel, Profile};
use cuda_launch::LaunchConfig;
use std::path::{Path, PathBuf};

/// Sessions that are kept; the first that has ended goes when there are more.
const SESSIONS: usize = 64;
/// Rows that Page Up and Page Down move.
const PAGE: isize = 10;
/// Characters of a filter.
const FILTER: usize = 100;

/// A key of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Up.
    Up,
    /// Down.
    Down,
    /// Left.
    Left,
    /// Right.
    Right,
    /// Page Up.
    PageUp,
    /// Page Down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// Tab.
    Tab,
    /// Shift and Tab.
    BackTab,
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
}

/// Request of a key to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To draw again.
    Draw,
    /// To end.
    Quit,
}

/// Order of the table of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// GPU time.
    Time,
    /// Launches.
    Launches,
    /// GPU time of a launch, on average.
    Mean,
    /// CPU time of launch calls.
    Cpu,
}

impl Sort {
    const ALL: [Self; 4] = [Self::Time, Self::Launches, Self::Mean, Self::Cpu];

    /// Order of the table if the user does not say: time, where any was measured.
    fn default_of(profile: &Profile) -> Self {
        if profile.totals.gpu_time_ns.is_some() { Self::Time } else { Self::Launches }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|&sort| sort == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// As a heading has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "GPU time",
            Self::Launches => "launches",
            Self::Mean => "GPU time of a launch",
            Self::Cpu => "CPU time of launch calls",
        }
    }

    /// The quantity, of one kernel.
    pub(crate) fn of(self, kernel: &Kernel) -> f64 {
        match self {
            Self::Time => kernel.gpu_total_ns().unwrap_or(0.0),
            Self::Launches => kernel.launches.ran() as f64,
            Self::Mean => kernel.gpu.as_ref().map_or(0.0, |gpu| gpu.each.mean_ns),
            Self::Cpu => kernel.cpu.total_ns,
        }
    }
}

/// Tells a kernel from the others of its session, in every look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelKey {
    short_name: String,
    launch: LaunchConfig,
    device: Option<usize>,
}

impl KernelKey {
    fn of(kernel: &Kernel) -> Self {
        Self { short_name: kernel.short_name.clone(), launch: kernel.launch, device: kernel.device }
    }
}

/// A session, as far as it was looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub folder: PathBuf,
    /// The latest look that succeeded.
    pub look: Option<Look>,
    /// Error of the latest one, where it failed.
    pub problem: Option<String>,
    pub history: History,
}

/// Input line that the keyboard writes into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Table,
    Filter,
    Help,
}

/// The screen's state: the latest look at each session, and what the user chose.
#[derive(Clone, Debug, Default)]
pub struct Top {
    pub(crate) sessions: Vec<Session>,
    pub(crate) chosen: usize,
    pub(crate) sort: Option<Sort>,
    pub(crate) filter: String,
    pub(crate) mode: Mode,
    pub(crate) is_paused: bool,
    selected: Option<KernelKey>,
    /// The latest look at each session since the pause began.
    held: Vec<(PathBuf, Result<Look, String>)>,
}

impl Top {
    /// A screen that waits for the first look at these sessions, or for the first session.
    pub fn new(named: &[PathBuf]) -> Self {
        let session = |folder: &PathBuf| Session { folder: folder.clone(), ..Session::default() };
        Self { sessions: named.iter().map(session).collect(), ..Self::default() }
    }

    /// Takes in a look at a session, or why there is none. In a pause the latest ones are held.
    pub fn update(&mut self, folder: &Path, looked: Result<Look, String>) {
        if self.is_paused {
            self.held.retain(|(held, _)| held != folder);
            self.held.truncate(SESSIONS - 1);
            self.held.push((folder.to_owned(), looked));
            return;
        }
        let known = self.sessions.iter().position(|session| session.folder == folder);
        let at = known.unwrap_or_else(|| self.add(folder));
        let session = &mut self.sessions[at];
        match looked {
            Ok(look) => {
                session.history.add(&look);
                session.look = Some(look);
                session.problem = None;
            }
            Err(problem) => session.problem = Some(problem),
        }
    }

    /// Begins a pause, or ends it.
    fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        for (folder, looked) in std::mem::take(&mut self.held) {
            self.update(&folder, looked);
        }
    }

    /// Adds a session; returns its place.
    fn add(&mut self, folder: &Path) -> usize {
        if self.sessions.len() >= SESSIONS {
            let ended = |session: &Session| session.look.as_ref().is_none_or(Look::is_over);
            let mut gone = (0..self.sessions.len()).filter(|&at| at != self.chosen);
            let gone = gone.find(|&at| ended(&self.sessions[at])).unwrap_or(usize::from(self.chosen == 0));
            self.sessions.remove(gone);
            self.chosen -= usize::from(gone < self.chosen);
        }
        self.sessions.push(Session { folder: folder.to_owned(), ..Session::default() });
        self.sessions.len() - 1
    }

    /// Handles a key.
    pub fn key(&mut self, key: Key) -> Action {
        match self.mode {
            Mode::Filter => self.key_of_filter(key),
            // Any key leaves the help.
            Mode::Help => self.mode = Mode::Table,
            Mode::Table => return self.key_of_table(key),
        }
        Action::Draw
    }

    fn key_of_filter(&mut self, key: Key) {
        match key {
            Key::Enter => self.mode = Mode::Table,
            Key::Escape => {
                self.mode = Mode::Table;
                self.filter.clear();
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(c) if self.filter.chars().count() < FILTER => self.filter.push(c),
            _ => {}
        }
    }

    fn key_of_table(&mut self, key: Key) -> Action {
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Char('p' | ' ') => self.pause(),
            Key::Char('s') => self.sort = self.sort().map(Sort::next),
            Key::Char('t') => self.sort = Some(Sort::Time),
            Key::Char('l') => self.sort = Some(Sort::Launches),
            Key::Char('m') => self.sort = Some(Sort::Mean),
            Key::Char('c') => self.sort = Some(Sort::Cpu),
            Key::Up | Key::Char('k') => self.select(-1),
            Key::Down | Key::Char('j') => self.select(1),
            Key::PageUp => self.select(-PAGE),
            Key::PageDown => self.select(PAGE),
            Key::Home | Key::Char('g') => self.select(isize::MIN),
            Key::End | Key::Char('G') => self.select(isize::MAX),
            Key::Tab | Key::Right => self.choose(1),
            Key::BackTab | Key::Left => self.choose(-1),
            Key::Escape => {
                self.selected = None;
                self.filter.clear();
            }
            Key::Char(_) | Key::Enter | Key::Backspace => {}
        }
        Action::Draw
    }

    fn choose(&mut self, by: isize) {
        let count = self.sessions.len().max(1).cast_signed();
        self.chosen = (self.chosen.cast_signed() + by).rem_euclid(count).cast_unsigned();
        self.selected = None;
    }

    /// Selects the kernel so many rows further down; from no selection, the first row counts as
    /// above the table.
    fn select(&mut self, by: isize) {
        let Some(look) = self.look() else { return };
        let rows = self.rows();
        let last = rows.len().cast_signed() - 1;
        let from = self.selected_row(&rows).map_or(-1, usize::cast_signed);
        let to = from.saturating_add(by).clamp(0, last.max(0)).cast_unsigned();
        self.selected = rows.get(to).map(|&kernel| KernelKey::of(&look.profile.kernels[kernel]));
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        self.sessions.get(self.chosen)
    }

    pub(crate) fn look(&self) -> Option<&Look> {
        self.session()?.look.as_ref()
    }

    pub(crate) fn sort(&self) -> Option<Sort> {
        Some(self.sort.unwrap_or(Sort::default_of(&self.look()?.profile)))
    }

    /// The kernels that the filter leaves, in the order of the table: indices into those of the
    /// profile.
    pub(crate) fn rows(&self) -> Vec<usize> {
        let (Some(look), Some(sort)) = (self.look(), self.sort()) else { return Vec::new() };
        let part = self.filter.to_lowercase();
        let kernels = &look.profile.kernels;
        let shown = |kernel: &Kernel| {
            [&kernel.short_name, &kernel.name].iter().any(|name| name.to_lowercase().contains(&part))
        };
        let mut rows = apex_view::text::kernels::ranked(&look.profile, |kernel| sort.of(kernel));
        rows.retain(|&kernel| shown(&kernels[kernel]));
        rows
    }

    /// The selected one of these rows; `None` where none is, or it is gone.
    pub(crate) fn selected_row(&self, rows: &[usize]) -> Option<usize> {
        let (key, look) = (self.selected.as_ref()?, self.look()?);
        rows.iter().position(|&kernel| KernelKey::of(&look.profile.kernels[kernel]) == *key)
    }
}
