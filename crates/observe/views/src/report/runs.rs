//! The report's comparison of runs: figures per mode, and the growth of extremes from run to run.

use super::charts;
use super::html::{modes_of, name_cell};
use crate::layout::captions;
use onbeat_document::schema::{Callback, Chain, Model};
use onbeat_document::text::{duration, shorten, xml};
use onbeat_document::Dist;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The number of growth charts that the report shows at first. The reader can unfold the others.
const GROWTH_SHOWN: usize = 12;

pub(super) fn modes(out: &mut String, model: &Model) {
    let modes = modes_of(model);
    if modes.len() < 2 {
        return;
    }
    out.push_str("<h2 id=\"modes\">Modes</h2>\n");
    let callback = |c: &Callback| {
        let mean = |e: &Dist| e.mean();
        let exec = |m: &&str| Some(&c.modes.get(*m)?.exec_ns);
        row(name_cell(c), modes.iter().map(exec), mean)
    };
    let rows = model.callbacks.iter().map(callback).collect();
    table(out, &modes, ["Execution of callback", "mean", "max"], rows);
    if model.chains.is_empty() {
        return;
    }
    let chain = |c: &Chain| {
        let name = format!("<td>{}</td>", xml(&shorten(&c.id, 80)));
        let median = |l: &Dist| l.quantile(0.5) as f64;
        let latency = |m: &&str| Some(&c.modes.get(*m)?.latency_ns);
        row(name, modes.iter().map(latency), median)
    };
    let rows = model.chains.iter().map(chain).collect();
    table(out, &modes, ["Latency of chain", "median", "max"], rows);
}

fn row<'a>(
    name: String,
    modes: impl Iterator<Item = Option<&'a Dist>>,
    middle: impl Fn(&Dist) -> f64,
) -> String {
    let cells: String = modes
        .map(|dist| match dist.filter(|d| d.count() > 0) {
            Some(dist) => format!(
                "<td class=\"n\">{}</td><td class=\"n\">{}</td>",
                duration(middle(dist)),
                duration(dist.max() as f64)
            ),
            None => "<td class=\"n\">–</td><td class=\"n\">–</td>".into(),
        })
        .collect();
    format!("<tr>{name}{cells}</tr>\n")
}

fn table(out: &mut String, modes: &BTreeSet<&str>, heads: [&str; 3], rows: String) {
    let [what, first, second] = heads;
    let (mut names, mut columns) = (String::new(), String::new());
    for mode in modes {
        let mode = xml(&shorten(mode, 30));
        let _ = write!(names, "<th class=\"g\" colspan=\"2\">{mode}</th>");
        let _ = write!(
            columns,
            "<th class=\"n\">{first}</th><th class=\"n\">{second}</th>"
        );
    }
    let _ = writeln!(
        out,
        "<div class=\"scroll\" style=\"margin-bottom:16px\"><table><thead>\
         <tr><th rowspan=\"2\">{what}</th>{names}</tr>\
         <tr>{columns}</tr></thead><tbody>{rows}</tbody></table></div>"
    );
}

pub(super) fn growth(out: &mut String, model: &Model) {
    if model.runs.len() < 2 {
        return;
    }
    let mut sorted: Vec<&Callback> = model
        .callbacks
        .iter()
        .filter(|c| c.per_run.len() > 1)
        .collect();
    if sorted.is_empty() {
        return;
    }
    sorted.sort_by(|a, b| {
        b.figures
            .load
            .total_cmp(&a.figures.load)
            .then(a.id.cmp(&b.id))
    });
    out.push_str(
        "<h2 id=\"growth\">Growth over runs</h2>\n<p class=\"note\">The measured best (mBCET), average \
         (mACET) and worst case (mWCET) execution time over all runs so far, in the order in which they \
         were recorded. If a curve has been flat for many runs, more runs will hardly change it. \
         Heaviest load first.</p>\n",
    );
    let shown = sorted.len().min(GROWTH_SHOWN);
    out.push_str(&figures(&sorted[..shown]));
    if sorted.len() > shown {
        let rest = figures(&sorted[shown..]);
        let _ = writeln!(
            out,
            "<details><summary>{} more</summary>{rest}</details>",
            sorted.len() - shown
        );
    }
}

fn figures(callbacks: &[&Callback]) -> String {
    let mut text = String::from("<div class=\"small\">");
    for c in callbacks {
        let _ = write!(
            text,
            "<figure><figcaption><b>{}</b><span>{}</span></figcaption>{}</figure>",
            xml(&shorten(&c.node, 60)),
            xml(&shorten(&captions(c).0, 60)),
            charts::growth(c)
        );
    }
    text.push_str("</div>\n");
    text
}
