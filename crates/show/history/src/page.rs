//! The report as one HTML page without a script: a chart for each figure, drawn as SVG.

use std::fmt::Write as _;

use crate::markdown::short;
use crate::{Point, Report, Series, number};

/// Size of a chart, pixels, and the room around its line.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 96.0;
const MARGIN: f64 = 8.0;

const STYLE: &str = "\
:root{color-scheme:light dark;font:15px/1.4 system-ui,sans-serif}
body{max-width:60rem;margin:2rem auto;padding:0 1rem}
figure{margin:1rem 0}
figcaption{display:flex;gap:1rem;justify-content:space-between}
svg{width:100%;height:6rem;background:#8881}
polyline{fill:none;stroke:#36c;stroke-width:1.5}
circle{fill:#36c}
.worse{stroke:#c33}.better{stroke:#283}
table{border-collapse:collapse}td,th{text-align:left;padding:.15rem .8rem .15rem 0}";

/// The page.
pub fn page(report: &Report, title: &str) -> String {
    let title = escaped(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n<p>{}</p>\n",
        escaped(&report.verdict())
    );
    changes(report, &mut page);
    let mut name = None;
    for series in &report.series {
        let of = format!("{} ({})", series.name, series.device);
        if name.as_ref() != Some(&of) {
            let _ = writeln!(page, "<h2>{}</h2>", escaped(&of));
            name = Some(of);
        }
        chart(series, &mut page);
    }
    page + "</html>\n"
}

fn changes(report: &Report, page: &mut String) {
    let changes = report.changes();
    if changes.is_empty() {
        return;
    }
    page.push_str("<table><tr><th><th>program<th>figure<th>change<th>at commit<th>when</tr>\n");
    for (series, change) in changes {
        let cells = [
            if change.is_worse { "worse" } else { "better" },
            &series.name,
            &series.what(),
            &change.amount(),
            short(&change.commit),
            &change.time,
        ];
        let cells: String = cells.map(|cell| format!("<td>{}", escaped(cell))).concat();
        let _ = writeln!(page, "<tr>{cells}</tr>");
    }
    page.push_str("</table>\n");
}

/// A chart: the values over the runs from 0 up, and a line at each change.
fn chart(series: &Series, page: &mut String) {
    let most = series.points.iter().map(|point| point.value).fold(f64::MIN_POSITIVE, f64::max);
    let last = (series.points.len() - 1).max(1) as f64;
    let x = |at: usize| MARGIN + at as f64 / last * (WIDTH - 2.0 * MARGIN);
    let y = |value: f64| HEIGHT - MARGIN - value.max(0.0) / most * (HEIGHT - 2.0 * MARGIN);
    let latest = number(series.latest().value);
    let _ = writeln!(
        page,
        "<figure><figcaption><b>{}</b><span>{latest}</span></figcaption>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}: latest {latest}\">",
        escaped(&series.what()),
        escaped(&series.what()),
    );
    for change in &series.changes {
        let class = if change.is_worse { "worse" } else { "better" };
        let said = escaped(&format!("{class}: {} at {}", change.amount(), short(&change.commit)));
        let at = x(change.at);
        let _ = writeln!(
            page,
            "<line class=\"{class}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{HEIGHT}\"><title>{said}</title></line>"
        );
    }
    let place = |(at, point): (usize, &Point)| format!("{:.1},{:.1}", x(at), y(point.value));
    let line: Vec<String> = series.points.iter().enumerate().map(place).collect();
    let _ = writeln!(page, "<polyline points=\"{}\"/>", line.join(" "));
    for (at, point) in series.points.iter().enumerate() {
        let said = escaped(&format!("{} {}: {}", short(&point.commit), point.time, number(point.value)));
        let _ = writeln!(
            page,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\"><title>{said}</title></circle>",
            x(at),
            y(point.value)
        );
    }
    page.push_str("</svg></figure>\n");
}

/// A text that is neither markup nor the end of an attribute.
fn escaped(text: &str) -> String {
    let text = apex_untrusted::printable(text).replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
