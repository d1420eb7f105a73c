//! Colours, or what stands for them.

use apex_profile::{Account, IdleCause};
use ratatui_core::style::{Color, Modifier, Style};

/// Whether a frame has colours. Without, parts of a bar differ by their characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Whether colours are used; bold, dim and reversed text always are.
    pub color: bool,
}

impl Theme {
    /// Headings.
    pub fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Text that matters less.
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The title, the selected row.
    pub fn reversed(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Worth a look.
    pub fn warning(self) -> Style {
        self.colored(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// A graph.
    pub fn graph(self) -> Style {
        self.colored(Color::Green)
    }

    fn colored(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    /// Look of an account in a bar: a character, and its colour.
    pub fn account(self, account: Account) -> (char, Style) {
        let (plain, color) = match account {
            Account::Kernels => ('█', Color::Green),
            Account::Collectives => ('▓', Color::Blue),
            Account::Waiting => ('w', Color::Magenta),
            Account::Copies => ('▒', Color::Cyan),
            Account::Idle(IdleCause::Launching) => ('l', Color::Red),
            Account::Idle(IdleCause::Allocating) => ('a', Color::LightRed),
            Account::Idle(IdleCause::Transferring) => ('c', Color::Yellow),
            Account::Idle(IdleCause::Synchronising) => ('s', Color::LightYellow),
            Account::Idle(IdleCause::Loading) => ('m', Color::LightMagenta),
            Account::Idle(IdleCause::Capturing) => ('g', Color::LightBlue),
            Account::Idle(IdleCause::OtherCalls) => ('o', Color::LightCyan),
            Account::Idle(IdleCause::HostCode) => ('h', Color::White),
            Account::Idle(IdleCause::Unrecorded) => ('?', Color::Gray),
            Account::Unknown => ('░', Color::DarkGray),
        };
        let is_busy_or_unknown = !matches!(account, Account::Idle(_));
        let shown = if self.color && !is_busy_or_unknown { '▒' } else { plain };
        let shown =
            if self.color && is_busy_or_unknown && account != Account::Unknown { '█' } else { shown };
        (shown, self.colored(color))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn without_colours_every_account_has_a_character_of_its_own() {
        let theme = Theme { color: false };
        let characters: BTreeSet<char> =
            Account::ALL.into_iter().map(|account| theme.account(account).0).collect();
        assert_eq!(characters.len(), Account::ALL.len());
    }
}
