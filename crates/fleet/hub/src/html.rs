//! Pieces of pages. Everything that comes from a message is escaped here.

use apex_aggregate::{PARTS, Times};
use std::fmt::Write as _;

/// The style of all pages, `/style.css`.
pub const STYLE: &str = include_str!("style.css");

/// Pages at the top of each page: address and name.
const PAGES: [(&str, &str); 6] = [
    ("/", "Jobs"),
    ("/owners", "Owners"),
    ("/kernels", "Kernels"),
    ("/changes", "Changes"),
    ("/report", "Week"),
    ("/health", "Hub"),
];

/// The text, so that it stands in a page or an attribute as it is.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in apex_untrusted::printable(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The text as a value in an address.
pub fn in_address(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte.into()),
            byte => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// A page that refers to [`STYLE`].
pub fn page(title: &str, here: &str, body: &str) -> String {
    document(title, "<link rel=\"stylesheet\" href=\"/style.css\">", &format!("{}{body}", navigation(here)))
}

/// A page that holds the style itself.
pub fn standalone(title: &str, body: &str) -> String {
    document(title, &format!("<style>{STYLE}</style>"), body)
}

fn document(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{} · APEX</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">{style}</head>\n<body>\n<main>{body}</main>\n</body></html>\n",
        escaped(title)
    )
}

fn navigation(here: &str) -> String {
    let link = |(address, name): &(&str, &str)| {
        let current = if *address == here { " aria-current=\"page\"" } else { "" };
        format!("<a href=\"{address}\"{current}>{name}</a>")
    };
    format!("<nav><strong>APEX hub</strong>{}</nav>\n", PAGES.iter().map(link).collect::<String>())
}

/// A table; `columns` are headings, those that end with `#` of numbers. Cells are HTML.
pub fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let is_number: Vec<bool> = columns.iter().map(|column| column.ends_with('#')).collect();
    let class = |at: usize| if is_number[at] { " class=\"number\"" } else { "" };
    let mut table = "<div class=\"card scroll\"><table><thead><tr>".to_owned();
    for (at, column) in columns.iter().enumerate() {
        let _ = write!(table, "<th{}>{}</th>", class(at), column.trim_end_matches('#'));
    }
    table.push_str("</tr></thead><tbody>\n");
    for row in rows {
        table.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let _ = write!(table, "<td{}>{cell}</td>", class(at));
        }
        table.push_str("</tr>\n");
    }
    table.push_str("</tbody></table></div>\n");
    table
}

/// Named figures in a row. Values are HTML.
pub fn figures(figures: &[(&str, String)]) -> String {
    let figure = |(name, value): &(&str, String)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>");
    format!("<dl class=\"figures card\">{}</dl>\n", figures.iter().map(figure).collect::<String>())
}

/// The parts of held time as a bar.
pub fn bar(times: &Times) -> String {
    let held = times.held_us();
    if held == 0 {
        return String::new();
    }
    let mut at = 0.0;
    let mut bar =
        "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" role=\"img\">".to_owned();
    for ((name, words), us) in PARTS.iter().zip(times.parts()).filter(|(_, us)| *us > 0) {
        let width = 100.0 * us as f64 / held as f64;
        let share = share(us, held);
        let _ = write!(
            bar,
            "<rect class=\"{name}\" x=\"{at:.3}\" width=\"{width:.3}\" height=\"8\"><title>{words}: {share}</title></rect>"
        );
        at += width;
    }
    bar + "</svg>"
}

/// Time of devices, in hours unless it is short.
pub fn hours(us: u64) -> String {
    match us as f64 / 3.6e9 {
        hours if hours >= 1000.0 => format!("{} h", count(hours.round() as u64)),
        hours if hours >= 0.1 => format!("{hours:.2} h"),
        _ if us == 0 => "0".to_owned(),
        _ => duration(1000.0 * us as f64),
    }
}

/// An energy, in kilowatt-hours unless it is little.
pub fn energy(mj: u64) -> String {
    match mj as f64 / 3.6e9 {
        kwh if kwh >= 1000.0 => format!("{} kWh", count(kwh.round() as u64)),
        kwh if kwh >= 0.1 => format!("{kwh:.2} kWh"),
        kwh if kwh >= 1e-4 => format!("{:.2} Wh", 1000.0 * kwh),
        _ => format!("{:.1} J", mj as f64 / 1000.0),
    }
}

/// The colour of a part of held time, before its name.
pub fn swatch(part: &str) -> String {
    format!(
        "<svg class=\"swatch\" viewBox=\"0 0 8 8\"><rect class=\"{part}\" width=\"8\" height=\"8\"/></svg> "
    )
}

/// A share of a whole in percent.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    percent(part as f64 / whole as f64)
}

/// A share from 0 to 1 in percent.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// A duration.
pub fn duration(ns: f64) -> String {
    match ns {
        ns if ns >= 7.2e12 => format!("{:.1} h", ns / 3.6e12),
        ns if ns >= 1.2e11 => format!("{:.1} min", ns / 6e10),
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.1} µs", ns / 1e3),
    }
}

/// A number with its thousands apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let apart = |(at, digit): (usize, char)| {
        let gap = at > 0 && (digits.len() - at).is_multiple_of(3);
        gap.then_some('\u{202f}').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(apart).collect()
}

/// A number of things whose plural ends with `s`.
pub fn counted(number: u64, one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {one}{ending}")
}

/// The page with its links to the hub: to the hub at this address, or none where nobody names one.
pub fn relinked(body: &str, hub: Option<&str>) -> String {
    if let Some(hub) = hub {
        return body.replace("<a href=\"/", &format!("<a href=\"{}/", escaped(hub.trim_end_matches('/'))));
    }
    let mut parts = body.split("<a href=\"/");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // The address, the text, and what is behind the link.
        let (_, rest) = part.split_once('>').unwrap_or(("", part));
        text += &rest.replacen("</a>", "", 1);
    }
    text
}

/// A moment as `2026-11-29 14:05` in UTC.
pub fn moment(ns: u64) -> String {
    let minutes = ns / 60_000_000_000;
    let (hour, minute) = (minutes / 60 % 24, minutes % 60);
    format!("{} {hour:02}:{minute:02}", date(minutes / 1440))
}

/// A day, counted from 1970, as `2026-11-29`.
pub fn date(day: u64) -> String {
    // Years are counted from March, so that a leap day is a year's last one; 400 of them are an
    // era.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{:02}", of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_text() {
        assert_eq!(
            escaped("<a href=\"x\" id='y'>&\u{1b}"),
            "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;\\x1b"
        );
        assert_eq!(in_address("a b/ö?&"), "a%20b%2F%C3%B6%3F%26");
    }

    #[test]
    fn numbers_are_written_with_their_units() {
        assert_eq!([0, 7, 1234, 1_234_567].map(count), ["0", "7", "1\u{202f}234", "1\u{202f}234\u{202f}567"]);
        assert_eq!(duration(1.5e3), "1.5 µs");
        assert_eq!(duration(3.6e13), "10.0 h");
        assert_eq!(hours(3_600_000_000), "1.00 h");
        assert_eq!(hours(7_200_000_000_000), "2\u{202f}000 h");
        assert_eq!((hours(1_500), hours(0)), ("1.50 ms".to_owned(), "0".to_owned()));
        assert_eq!((share(1, 8), share(1, 0)), ("12.5%".to_owned(), "–".to_owned()));
    }

    #[test]
    fn days_have_dates() {
        for (day, expected) in
            [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_786, "2026-11-29")]
        {
            assert_eq!(date(day), expected);
        }
        assert_eq!(moment(86_400_000_000_000 + 3_660_000_000_000), "1970-01-02 01:01");
    }

    #[test]
    fn links_lead_to_a_hub_or_nowhere() {
        let body = "a <a href=\"/jobs/1\">one</a>, <a href=\"/?owner=x\">x &gt;</a>.";
        assert_eq!(relinked(body, None), "a one, x &gt;.");
        let linked = "a <a href=\"https://h/jobs/1\">one</a>, <a href=\"https://h/?owner=x\">x &gt;</a>.";
        assert_eq!(relinked(body, Some("https://h/")), linked);
        assert!(!relinked(body, Some("\"><script>")).contains("<script"));
    }

    #[test]
    fn a_bar_has_the_parts_that_are_not_empty() {
        let bar = bar(&Times { kernels_us: 3, outside_us: 1, ..Times::default() });
        assert_eq!(bar.matches("<rect").count(), 2);
        assert!(bar.contains("class=\"outside\" x=\"75.000\" width=\"25.000\""), "{bar}");
    }
}
