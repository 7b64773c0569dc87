//! The report's head: figures over all runs, links to the sections, and the list of runs.

use super::coverage::losses;
use super::html::{counted, date, grouped, modes_of};
use onbeat_document::schema::Model;
use onbeat_document::text::{duration, shorten, xml};
use std::collections::BTreeSet;
use std::fmt::Write as _;

pub(super) fn header(out: &mut String, model: &Model) {
    let nodes: BTreeSet<&str> = model.callbacks.iter().map(|c| c.node.as_str()).collect();
    let _ = writeln!(
        out,
        "<p class=\"lead\">Timing model: {} in {}, {}.</p>",
        counted(model.callbacks.len(), "callback"),
        counted(nodes.len(), "node"),
        counted(model.chains.len(), "chain")
    );
    links(out, model);
    let lost: u64 = losses(model).values().fold(0, |a, n| a.saturating_add(*n));
    facts(out, model, lost);
    if lost > 0 {
        let _ = writeln!(
            out,
            "<p class=\"alert\">{} events of this recording were lost, so counts, losses on edges and \
             latencies can be wrong. Record again with a larger buffer (<a href=\"#coverage\">lost \
             events</a>).</p>",
            grouped(lost)
        );
    }
    runs(out, model);
}

fn links(out: &mut String, model: &Model) {
    let mut links = vec![];
    if !model.callbacks.is_empty() {
        links.push(("graph", "Graph"));
        if !model.chains.is_empty() {
            links.push(("chains", "Chains"));
        }
        links.extend([
            ("callbacks", "Callbacks"),
            ("times", "Execution times"),
            ("edges", "Communication"),
        ]);
        if model.runs.len() > 1 {
            links.push(("growth", "Growth over runs"));
        }
    }
    links.push(("coverage", "Coverage and losses"));
    out.push_str("<nav>");
    for (id, name) in links {
        let _ = write!(out, "<a href=\"#{id}\">{name}</a>");
    }
    out.push_str("</nav>\n");
}

fn facts(out: &mut String, model: &Model, lost: u64) {
    let runs = &model.runs;
    let total = runs
        .iter()
        .fold(0u64, |a, r| a.saturating_add(r.duration_ns));
    let events = runs.iter().fold(0u64, |a, r| a.saturating_add(r.events));
    let distributions = runs.iter().flat_map(|r| &r.distribution);
    let distributions: BTreeSet<&str> = distributions.map(String::as_str).collect();
    let modes = modes_of(model);
    let modes_name = if modes.len() == 1 { "Mode" } else { "Modes" };
    out.push_str("<dl class=\"facts\">");
    for (name, value, bad) in [
        ("Runs", runs.len().to_string(), false),
        (modes_name, list(&modes), false),
        ("ROS 2", list(&distributions), false),
        ("Recorded", duration(total as f64), false),
        ("Events", grouped(events), false),
        ("Events lost", grouped(lost), lost > 0),
    ] {
        let _ = write!(
            out,
            "<div{}><dt>{name}</dt><dd>{}</dd></div>",
            if bad { " class=\"bad\"" } else { "" },
            xml(&value)
        );
    }
    out.push_str("</dl>\n");
}

fn list(names: &BTreeSet<&str>) -> String {
    let names: Vec<String> = names.iter().map(|s| shorten(s, 40)).collect();
    match names.join(", ") {
        text if text.is_empty() => "unknown".into(),
        text => text,
    }
}

fn runs(out: &mut String, model: &Model) {
    if model.runs.len() > 1 {
        let _ = write!(
            out,
            "<details><summary>{}</summary>",
            counted(model.runs.len(), "run")
        );
        runs_table(out, model);
        out.push_str("</details>\n");
    } else if let [run] = model.runs.as_slice() {
        let _ = writeln!(
            out,
            "<p class=\"note\" style=\"margin-top:10px\">Run {}, started {} UTC.</p>",
            xml(&shorten(&run.id, 120)),
            date(run.start)
        );
    }
}

fn runs_table(out: &mut String, model: &Model) {
    out.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>Run</th><th>Mode</th><th>ROS 2</th>\
         <th>Started (UTC)</th><th class=\"n\">Length</th><th class=\"n\">Events</th>\
         <th class=\"n\">Lost</th></tr></thead><tbody>",
    );
    for r in &model.runs {
        let lost: u64 = r.lost.values().fold(0, |a, n| a.saturating_add(*n));
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n{}\">{}</td></tr>",
            xml(&shorten(&r.id, 120)),
            xml(&shorten(&r.mode, 60)),
            xml(&shorten(&r.distribution.join(", "), 60)),
            date(r.start),
            duration(r.duration_ns as f64),
            grouped(r.events),
            if lost > 0 { " bad" } else { "" },
            grouped(lost)
        );
    }
    out.push_str("</tbody></table></div>");
}
