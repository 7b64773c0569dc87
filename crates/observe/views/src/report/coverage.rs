//! The report's section on coverage: limits of the recordings, assumptions, losses, and the
//! recorders' statistics.

use super::html::{counted, grouped};
use super::ProcessNames;
use onbeat_document::schema::Model;
use onbeat_document::text::{shorten, xml};
use onbeat_trace::manifest::{program, ProbeInfo};
use onbeat_trace::Manifest;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

pub(super) fn losses(model: &Model) -> BTreeMap<&str, u64> {
    let mut lost: BTreeMap<&str, u64> = BTreeMap::new();
    for (kind, n) in model
        .runs
        .iter()
        .flat_map(|r| &r.lost)
        .filter(|(_, n)| **n > 0)
    {
        let sum = lost.entry(kind).or_default();
        *sum = sum.saturating_add(*n);
    }
    lost
}

pub(super) fn coverage(out: &mut String, model: &Model, recordings: &[Manifest]) {
    out.push_str("<h2 id=\"coverage\">Coverage, assumptions and losses</h2>\n");
    let list = |out: &mut String, head: &str, lines: &BTreeSet<&str>, none: &str| {
        let _ = write!(
            out,
            "<p style=\"margin:0 0 4px\"><strong>{head}</strong></p>"
        );
        if lines.is_empty() {
            let _ = writeln!(out, "<p class=\"note\">{none}</p>");
            return;
        }
        out.push_str("<ul class=\"notes\">");
        for line in lines {
            let _ = write!(out, "<li>{}</li>", xml(&shorten(line, 1000)));
        }
        out.push_str("</ul><p></p>\n");
    };
    let mut unseen: BTreeSet<&str> = model.coverage.iter().map(String::as_str).collect();
    for recording in recordings {
        unseen.extend(recording.coverage.iter().map(String::as_str));
        unseen.extend(recording.not_recovered.iter().map(String::as_str));
    }
    let head = "Limits of the recording";
    list(out, head, &unseen, "No known gaps.");
    let assumed = model.assumptions.iter().map(String::as_str).collect();
    let head = "Assumptions of the model";
    list(
        out,
        head,
        &assumed,
        "No assumptions: the recording shows every edge.",
    );
    let lost: Vec<String> = losses(model)
        .iter()
        .map(|(kind, n)| format!("{} events of {kind}", grouped(*n)))
        .collect();
    let lost = lost.iter().map(String::as_str).collect();
    list(out, "Events lost while recording", &lost, "None.");
}

pub(super) fn recorder(out: &mut String, recording: &Manifest, names: ProcessNames) {
    let missing = recording
        .observed
        .probes
        .iter()
        .filter(|p| !p.attached)
        .count();
    let _ = write!(
        out,
        "<details><summary>Recorder of run {}: {}, {}{}</summary><p class=\"note\">onbeat {} on {} \
         (Linux {}).</p>",
        xml(&shorten(&recording.id, 60)),
        match recording.observed.processes.len() {
            1 => "1 process".to_string(),
            n => format!("{n} processes"),
        },
        counted(recording.observed.probes.len(), "probe"),
        if missing > 0 { format!(", {missing} not attached") } else { String::new() },
        xml(&shorten(&recording.machine.recorder_version, 40)),
        xml(&shorten(&recording.machine.hostname, 80)),
        xml(&shorten(&recording.machine.kernel, 80)),
    );
    processes(out, recording, names);
    probes(out, recording);
    out.push_str("</details>\n");
}

fn processes(out: &mut String, recording: &Manifest, names: ProcessNames) {
    if recording.observed.processes.is_empty() {
        return;
    }
    out.push_str(
        "<div class=\"scroll\" style=\"margin-bottom:14px\"><table><thead><tr>\
         <th class=\"n\">Process</th><th>Command</th><th>ROS 2</th><th>Middleware</th><th>Nodes</th>\
         <th>Since</th></tr></thead><tbody>",
    );
    for p in &recording.observed.processes {
        let command = match names {
            ProcessNames::Programs => program(&p.command),
            ProcessNames::CommandLines => &p.command,
        };
        let _ = write!(
            out,
            "<tr><td class=\"n\">{}</td><td title=\"{}\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            p.pid,
            xml(&shorten(command, 600)),
            xml(&shorten(command, 70)),
            xml(&shorten(&p.distribution, 30)),
            xml(&shorten(&p.rmw, 40)),
            xml(&shorten(&p.nodes.join(", "), 120)),
            if p.late { "before the recording" } else { "its start" }
        );
    }
    out.push_str("</tbody></table></div>");
}

fn probes(out: &mut String, recording: &Manifest) {
    if recording.observed.probes.is_empty() {
        return;
    }
    out.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>Probe</th><th>Where</th><th>Placement</th>\
         <th class=\"n\">Hits</th><th>Not attached: missing in the model</th></tr></thead><tbody>",
    );
    for p in &recording.observed.probes {
        let trouble = [p.error.as_deref(), p.consequence.as_deref()];
        let trouble = trouble.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let trouble = if p.attached { String::new() } else { trouble };
        let _ = write!(
            out,
            "<tr><td>{}</td><td title=\"{}\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"bad\">{}</td></tr>",
            xml(&shorten(&p.name, 60)),
            xml(&shorten(&p.library, 300)),
            xml(&shorten(&place(p), 80)),
            xml(&shorten(&p.placement, 30)),
            grouped(p.hits),
            xml(&shorten(&trouble, 300))
        );
    }
    out.push_str("</tbody></table></div>");
}

fn place(p: &ProbeInfo) -> String {
    let library = p.library.rsplit('/').next().unwrap_or(&p.library);
    if p.symbol.is_empty() {
        library.to_string()
    } else if p.offset > 0 {
        format!("{library}: {}+{:#x}", p.symbol, p.offset)
    } else {
        format!("{library}: {}", p.symbol)
    }
}
