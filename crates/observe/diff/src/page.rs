//! Shows changes as one HTML page with both distributions of each changed figure. The page loads
//! nothing and runs no script.

use crate::judge::{Found, Report};
use crate::rows::{rows, Row};
use onbeat_document::text::{duration, percent, shorten, xml};
use onbeat_document::Model;
use onbeat_views::report::{begin, end, pair};
use std::fmt::Write as _;

/// Returns the HTML page that shows the changes between two models.
pub fn html(report: &Report, a: &Model, b: &Model, title: &str) -> String {
    let mut out = String::new();
    begin(&mut out, title, "diff", "");
    facts(&mut out, report);
    structure(&mut out, report);
    figures(&mut out, report, a, b);
    out.push_str("<h2>Basis of the comparison</h2>\n<ul class=\"notes\">");
    for note in &report.notes {
        let _ = write!(out, "<li>{}</li>", xml(note));
    }
    out.push_str("</ul>\n");
    end(&mut out, &a.schema);
    out
}

fn facts(out: &mut String, report: &Report) {
    out.push_str("<dl class=\"facts\">");
    let mut fact = |name: &str, value: String| {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    };
    let following = report.structure.len() + report.figures.len() - report.causes();
    fact("changes", report.causes().to_string());
    fact(
        "changes that follow from other changes",
        following.to_string(),
    );
    fact("runs", format!("{} and {}", report.runs.0, report.runs.1));
    fact("figures compared", report.compared.to_string());
    fact(
        "significant changes that are too small to matter",
        report.small.to_string(),
    );
    if let Some(least) = report.resolution {
        fact(
            "smallest detectable change of an execution time",
            percent(least),
        );
    }
    if let Some(speed) = &report.speed {
        let (fast, slow) = speed.extremes();
        fact(
            "execution times of the fastest and the slowest run",
            format!("{} to {}", signed(fast - 1.0), signed(slow - 1.0)),
        );
    }
    out.push_str("</dl>\n");
}

fn signed(share: f64) -> String {
    let sign = if share < 0.0 { "\u{2212}" } else { "+" };
    format!("{sign}{}", percent(share.abs()))
}

fn structure(out: &mut String, report: &Report) {
    if report.structure.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Structure</h2>\n<div class=\"scroll\"><table><thead><tr><th>difference</th><th>name</th><th>details</th>\
         <th>follows from</th></tr></thead><tbody>",
    );
    for d in &report.structure {
        let _ = write!(
            out,
            "<tr><td>{} {}</td><td class=\"name\">{}</td><td>{}</td><td>{}</td></tr>",
            d.part.text(),
            d.what.text(),
            xml(&shorten(&d.title, 200)),
            xml(&shorten(&d.why, 300)),
            xml(&shorten(d.follows.as_deref().unwrap_or("\u{2013}"), 120))
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn figures(out: &mut String, report: &Report, a: &Model, b: &Model) {
    if report.figures.is_empty() {
        out.push_str("<h2>Times</h2>\n<p>None changed.</p>\n");
        return;
    }
    out.push_str(
        "<h2>Times</h2>\n<p class=\"note\">The change with the largest effect on a chain comes first. Both distributions are as \
         measured. The change is corrected for the speed of the machine in each run, unless --absolute was given.</p>\n",
    );
    let rows = rows(a, b);
    for found in &report.figures {
        let row = rows
            .iter()
            .find(|r| r.id == found.id && r.figure.text() == found.figure);
        card(out, found, row);
    }
}

fn card(out: &mut String, f: &Found, row: Option<&Row<'_>>) {
    let _ = write!(
        out,
        "<section class=\"chain\"><header><h3>{}<small>{}</small></h3>{}</header><div class=\"cols\"><div>\
         <dl class=\"kv\">",
        xml(&shorten(&f.title, 200)),
        xml(&f.figure),
        match &f.follows {
            Some(id) => format!("<p>follows from {}</p>", xml(&shorten(id, 120))),
            None => String::new(),
        }
    );
    let (low, high) = (f.change.low, f.change.high);
    let mut values = vec![("change", signed(f.change.shift))];
    if f.figure != "loss" {
        values.push(("95 %", format!("{} to {}", signed(low), signed(high))));
    }
    values.push(("p, corrected", format!("{:.1e}", f.p_corrected)));
    if row.is_some() {
        values.push(("before", duration(f.a)));
        values.push(("after", duration(f.b)));
        values.push(("Cliff's delta", format!("{:.2}", f.change.delta)));
    } else if f.figure == "loss" {
        values.push(("before", percent(f.a)));
        values.push(("after", percent(f.b)));
    }
    for (name, value) in values {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>");
    if let Some((share, chain)) = f.of_chain.as_ref().filter(|_| f.figure != "latency") {
        let of = (signed(*share), xml(&shorten(chain, 120)));
        let _ = write!(
            out,
            "<p class=\"note\">{} of the latency of {}</p>",
            of.0, of.1
        );
    }
    if let Some(mostly) = &f.mostly {
        let _ = write!(
            out,
            "<p class=\"note\">Mostly {}</p>",
            xml(&shorten(mostly, 200))
        );
    }
    out.push_str("</div><div>");
    if let Some(row) = row {
        let what = format!("{} before and after", f.figure);
        out.push_str(&pair(row.a.dist, row.b.dist, ["before", "after"], &what));
    }
    out.push_str("</div></div></section>\n");
}
