//! Exports a model as comma-separated tables with one line per callback, edge and chain. Times are
//! in ns.

use super::svg::type_name;
use onbeat_document::schema::{Bracket, JunctionKind, Model};
use onbeat_document::Dist;

/// A table of the model: the name of its CSV file and its text.
pub type Table = (&'static str, String);

/// Formats a text as a CSV cell. A leading apostrophe prevents spreadsheets from running a text
/// that begins with `= + - @` as a formula.
pub(super) fn text(cell: &str) -> String {
    let cell = onbeat_document::text::visible(cell);
    let guard = if cell.trim_start().starts_with(['=', '+', '-', '@']) {
        "'"
    } else {
        ""
    };
    if guard.is_empty() && !cell.contains(['"', ',', ';', '\'']) {
        return cell;
    }
    format!("\"{guard}{}\"", cell.replace('"', "\"\""))
}

const DIST: [&str; 6] = ["count", "min", "mean", "p50", "p99", "max"];

fn heads(prefix: &str) -> String {
    DIST.map(|d| {
        if d == "count" {
            format!("{prefix}_count")
        } else {
            format!("{prefix}_{d}_ns")
        }
    })
    .join(",")
}

fn figures(d: &Dist) -> String {
    if d.count() == 0 {
        return "0,,,,,".into();
    }
    format!(
        "{},{},{:.1},{},{},{}",
        d.count(),
        d.min(),
        d.mean(),
        d.quantile(0.5),
        d.quantile(0.99),
        d.max()
    )
}

/// Returns the tables of callbacks, edges, chains and so on as CSV.
pub fn tables(model: &Model) -> Vec<Table> {
    vec![
        ("callbacks.csv", callbacks(model)),
        ("edges.csv", edges(model)),
        ("chains.csv", chains(model)),
        ("shares.csv", shares(model)),
        ("junctions.csv", junctions(model)),
    ]
}

fn callbacks(model: &Model) -> String {
    let mut out = format!(
        "id,node,type,input,caller,period_ns,outputs,bracket,load,preemptions,blockings,{},{},{},{},{},{},untimed\r\n",
        heads("exec"),
        heads("response"),
        heads("interarrival"),
        heads("release_jitter"),
        heads("preempted"),
        heads("blocked")
    );
    for c in &model.callbacks {
        let f = &c.figures;
        let mut cells = vec![
            text(&c.id),
            text(&c.node),
            type_name(c.kind).to_string(),
            text(&c.input),
            text(c.caller.as_deref().unwrap_or("")),
            c.period_ns.map(|p| p.to_string()).unwrap_or_default(),
            text(&c.outputs.join(" ")),
            match c.bracket {
                Bracket::Exact => "exact".into(),
                Bracket::Inferred => "inferred".into(),
            },
            match f.is_untimed() {
                true => String::new(),
                false => format!("{:.6}", f.load),
            },
            f.preemptions.to_string(),
            f.blockings.to_string(),
        ];
        cells.extend(
            [
                &f.exec_ns,
                &f.response_ns,
                &f.interarrival_ns,
                &f.release_jitter_ns,
                &f.preempted_ns,
                &f.blocked_ns,
            ]
            .map(figures),
        );
        cells.push(f.untimed.to_string());
        out.push_str(&(cells.join(",") + "\r\n"));
    }
    out
}

fn edges(model: &Model) -> String {
    let mut out = format!(
        "from,to,topic,assumed,intra_process,published,taken,lost,overwritten,unselected,{},{},{}\r\n",
        heads("latency"),
        heads("transport"),
        heads("waiting")
    );
    for e in &model.edges {
        let f = &e.figures;
        let cells = [
            text(&e.from),
            text(&e.to),
            text(&e.topic),
            e.assumed.is_some().to_string(),
            e.intra_process.to_string(),
            f.published.to_string(),
            f.taken.to_string(),
            f.lost.to_string(),
            f.overwritten.to_string(),
            f.unselected.to_string(),
            figures(&f.latency_ns),
            figures(&f.transport_ns),
            figures(&f.waiting_ns),
        ];
        out.push_str(&(cells.join(",") + "\r\n"));
    }
    out
}

fn chains(model: &Model) -> String {
    let mut out = format!(
        "id,callbacks,topics,assumed,executions,lost,jitter_ns,{},{},{}\r\n",
        heads("latency"),
        heads("reaction"),
        heads("age")
    );
    for c in &model.chains {
        let f = &c.figures;
        let cells = [
            text(&c.id),
            text(&c.callbacks.join(" > ")),
            text(&c.topics.join(" > ")),
            c.assumed.to_string(),
            f.executions.to_string(),
            f.lost.to_string(),
            f.jitter_ns.to_string(),
            figures(&f.latency_ns),
            figures(&f.reaction_ns),
            figures(f.data_age_ns()),
        ];
        out.push_str(&(cells.join(",") + "\r\n"));
    }
    out
}

fn shares(model: &Model) -> String {
    let mut out = String::from("chain,position,element,name,mean_ns,fraction\r\n");
    for c in &model.chains {
        for (i, s) in c.figures.shares.iter().enumerate() {
            let cells = [
                text(&c.id),
                i.to_string(),
                text(&s.element),
                text(&s.name),
                format!("{:.1}", s.mean_ns),
                format!("{:.6}", s.fraction),
            ];
            out.push_str(&(cells.join(",") + "\r\n"));
        }
    }
    out
}

fn junctions(model: &Model) -> String {
    let mut out = String::from("callback,kind,inputs,criterion,confidence\r\n");
    for j in &model.junctions {
        let cells = [
            text(&j.callback),
            match j.kind {
                JunctionKind::And => "and".into(),
                JunctionKind::Or => "or".into(),
            },
            text(&j.inputs.join(" ")),
            text(&j.criterion),
            format!("{:.3}", j.confidence),
        ];
        out.push_str(&(cells.join(",") + "\r\n"));
    }
    out
}
