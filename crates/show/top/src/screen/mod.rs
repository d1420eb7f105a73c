//! A frame: which parts of the screen get which rows, and the parts.
//!
//! The title stands in the first row and the keys in the last one; between them rows are granted to
//! the parts in the order of their importance, until none are left.

mod accounts;
mod findings;
mod graphs;
mod head;
mod help;
mod kernels;
mod theme;

use crate::top::{Mode, Top};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::Line;

pub use theme::Theme;

/// Lines of a part.
type Lines = Vec<Line<'static>>;

/// Places of the parts, from top to bottom.
const HEAD: usize = 0;
const ACCOUNTS: usize = 1;
const GRAPHS: usize = 2;
const KERNELS: usize = 3;
const FINDINGS: usize = 4;
const PARTS: usize = 5;

/// Parts with a blank row above, where there is room.
const SPACED: [usize; 3] = [ACCOUNTS, KERNELS, FINDINGS];

/// Rows that are granted, those of one screen.
struct Rows {
    left: usize,
    of: [usize; PARTS],
}

impl Rows {
    /// Grants a part rows up to this number, as many as are left.
    fn grant(&mut self, part: usize, upto: usize) {
        let more = upto.saturating_sub(self.of[part]).min(self.left);
        self.of[part] += more;
        self.left -= more;
    }

    /// Grants all of them or none: a table without its header says nothing.
    fn grant_whole(&mut self, part: usize, upto: usize) {
        if upto.saturating_sub(self.of[part]) <= self.left {
            self.grant(part, upto);
        }
    }
}

impl Top {
    /// Draws a frame: into all of `area`, and nothing else.
    pub fn render(&self, area: Rect, buffer: &mut Buffer, theme: Theme) {
        let area = area.intersection(buffer.area);
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        if width == 0 || height == 0 {
            return;
        }
        let mut lines = vec![head::title(self, width, theme)];
        let inside = height.saturating_sub(2);
        lines.extend(match self.mode {
            Mode::Help => help::lines(theme),
            Mode::Table | Mode::Filter => self.parts(width, inside, theme),
        });
        lines.resize(height.saturating_sub(1).max(1), Line::default());
        if height > 1 {
            lines.push(help::footer(self, width, theme));
        }
        for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
            buffer.set_line(area.left(), y, line, area.width);
        }
    }

    /// The parts in so many rows.
    fn parts(&self, width: usize, height: usize, theme: Theme) -> Lines {
        let Some(look) = self.look() else { return head::nothing_yet(self, width, theme) };
        let head = head::lines(self, look, width, theme);
        let (bars, accounts) = accounts::heights(look, width);
        let graphs = graphs::height(self);
        let kernels = kernels::height(self);
        let findings = findings::lines(look, width, theme);

        let mut rows = Rows { left: height, of: [0; PARTS] };
        rows.grant(HEAD, head.len());
        rows.grant(ACCOUNTS, bars.min(1));
        rows.grant_whole(KERNELS, kernels.min(kernels::LEAST));
        rows.grant_whole(FINDINGS, findings.len().min(2));
        rows.grant(ACCOUNTS, accounts.min(2));
        rows.grant(GRAPHS, graphs);
        rows.grant_whole(KERNELS, kernels.min(kernels::LEAST + 3));
        let is_spaced = rows.left >= SPACED.len();
        if is_spaced {
            rows.left -= SPACED.len();
        }
        rows.grant(ACCOUNTS, accounts);
        // Each finding has two lines; half of one says less than another kernel.
        rows.grant(FINDINGS, findings.len().min(5));
        rows.grant(KERNELS, kernels);
        rows.grant(FINDINGS, findings.len());

        let mut lines = Lines::new();
        for part in 0..PARTS {
            let given = rows.of[part];
            if is_spaced && SPACED.contains(&part) && given > 0 {
                lines.push(Line::default());
            }
            let mut own = match part {
                HEAD => head.clone(),
                ACCOUNTS => accounts::lines(look, width, given, theme),
                GRAPHS => graphs::lines(self, width, theme),
                KERNELS => kernels::lines(self, look, width, given, theme),
                _ => findings.clone(),
            };
            own.truncate(given);
            lines.extend(own);
        }
        lines
    }
}
