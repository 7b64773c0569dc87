//! A model as one HTML page that loads nothing and runs nothing: graph, chains, callbacks, charts,
//! and what the recording could not see.
mod charts;

use crate::export::svg::{self, type_name};
use crate::layout::{self, captions};
use crate::schema::{Callback, CallbackFigures, CallbackType, Chain, Edge, JunctionKind, Model};
use crate::text::{duration, percent, period, shorten, xml};
use onbeat_trace::Manifest;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Charts of growth that are shown at once; the rest can be unfolded.
const GROWTH_SHOWN: usize = 12;

/// Chains that are shown at once; the rest can be unfolded.
const CHAINS_SHOWN: usize = 10;
/// Scale below which the graph's text cannot be read: then it scrolls.
const READABLE: f64 = 0.72;
/// Width that the page gives to the graph at most.
const PAGE_WIDTH: f64 = 1400.0;

/// The page. `title` heads it; `recordings` are what the recorders of its runs said, where known.
pub fn html(model: &Model, title: &str, recordings: &[Manifest]) -> String {
    let mut out = String::with_capacity(1 << 18);
    let title = xml(&shorten(title, 200));
    // Nothing may be loaded and no script may run, whatever slipped into the text.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} – onbeat report</title>\n<style>\n{}{}{}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n",
        include_str!("style.css"),
        svg::STYLE,
        pick_style(model),
    );
    header(&mut out, model);
    if model.callbacks.is_empty() {
        out.push_str("<h2>Nothing ran</h2>\n<p>No callback was executed in this recording.</p>\n");
    } else {
        graph(&mut out, model);
        chains(&mut out, model);
        callbacks(&mut out, model);
        box_plots(&mut out, model);
        edges(&mut out, model);
        junctions(&mut out, model);
        modes(&mut out, model);
        growth(&mut out, model);
    }
    coverage(&mut out, model, recordings);
    for recording in recordings {
        probes(&mut out, recording);
    }
    let _ = write!(
        out,
        "<footer>Made by onbeat {} from a model of schema {}. Times are measured, not proven: the \
         worst case seen is not the worst case there is.</footer>\n</main>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        xml(&model.schema)
    );
    out
}

/// `1 run`, `12 runs`.
fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn modes_of(model: &Model) -> BTreeSet<&str> {
    model.runs.iter().map(|r| r.mode.as_str()).collect()
}

fn losses(model: &Model) -> BTreeMap<&str, u64> {
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

fn header(out: &mut String, model: &Model) {
    let nodes: BTreeSet<&str> = model.callbacks.iter().map(|c| c.node.as_str()).collect();
    let _ = write!(
        out,
        "<p class=\"lead\">Timing model: {} in {}, {}.</p>\n<nav>",
        counted(model.callbacks.len(), "callback"),
        counted(nodes.len(), "node"),
        counted(model.chains.len(), "chain")
    );
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
    for (id, name) in links {
        let _ = write!(out, "<a href=\"#{id}\">{name}</a>");
    }
    out.push_str("</nav>\n<dl class=\"facts\">");
    let total: u64 = model
        .runs
        .iter()
        .fold(0, |a, r| a.saturating_add(r.duration_ns));
    let events: u64 = model.runs.iter().fold(0, |a, r| a.saturating_add(r.events));
    let lost: u64 = losses(model).values().fold(0, |a, n| a.saturating_add(*n));
    let distributions: BTreeSet<&str> = model
        .runs
        .iter()
        .flat_map(|r| &r.distribution)
        .map(String::as_str)
        .collect();
    let list = |set: &BTreeSet<&str>| {
        let text = set
            .iter()
            .map(|s| shorten(s, 40))
            .collect::<Vec<_>>()
            .join(", ");
        if text.is_empty() {
            "unknown".to_string()
        } else {
            text
        }
    };
    let modes = modes_of(model);
    for (name, value, bad) in [
        ("Runs", model.runs.len().to_string(), false),
        (
            if modes.len() == 1 { "Mode" } else { "Modes" },
            list(&modes),
            false,
        ),
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
    if lost > 0 {
        let _ = writeln!(
            out,
            "<p class=\"alert\">{} events of this recording were lost: counts, losses on edges and \
             latencies can be off. Record again with a larger buffer; <a href=\"#coverage\">what \
             was lost</a>.</p>",
            grouped(lost)
        );
    }
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

/// Thousands apart, by a thin space.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    out
}

/// `2026-11-21 20:22:43` of a time in ns since 1970 (proleptic Gregorian calendar).
fn date(realtime_ns: u64) -> String {
    let seconds = realtime_ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day comes last.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let dom = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{dom:02} {:02}:{:02}:{:02}",
        rest / 3600,
        rest % 3600 / 60,
        rest % 60
    )
}

/// Rules that show a picked chain in the graph: no script needed.
fn pick_style(model: &Model) -> String {
    let mut css = String::new();
    if model.chains.is_empty() {
        return css;
    }
    let index: BTreeMap<&str, usize> = model
        .callbacks
        .iter()
        .enumerate()
        .map(|(i, c)| (c.id.as_str(), i))
        .collect();
    css.push_str(
        "body:has(.chains input:not(#k-all):checked) .graph :is(.net>g,.callback){opacity:.16}\n\
         body:has(.chains input:not(#k-all):checked) .graph .label{opacity:.35}\n",
    );
    // The class is named three times so that these rules weigh more than those that dim.
    for (k, chain) in by_latency(model).into_iter().enumerate() {
        let mut parts: Vec<String> = chain
            .callbacks
            .iter()
            .filter_map(|id| index.get(id.as_str()))
            .map(|i| format!(".c{i}"))
            .collect();
        for (i, pair) in chain.callbacks.windows(2).enumerate() {
            let edges = model.edges.iter().enumerate().filter(|(_, e)| {
                e.from == pair[0]
                    && e.to == pair[1]
                    && chain.topics.get(i).is_none_or(|t| *t == e.topic)
            });
            parts.extend(edges.map(|(e, _)| format!(".e{e}")));
        }
        let _ = writeln!(
            css,
            "body:has(#k{k}:checked) .graph.graph.graph :is({}){{opacity:1}}",
            parts.join(",")
        );
    }
    css
}

fn graph(out: &mut String, model: &Model) {
    let placed = layout::layout(model);
    let (w, h) = (placed.width.ceil(), placed.height.ceil());
    let _ = write!(
        out,
        "<h2 id=\"graph\">Graph</h2>\n<p class=\"note\">Boxes are nodes, in them their callbacks with \
         the execution time's mean (min–max) and the load on one CPU; lines are topics, requests and \
         responses. A name that begins with ~ is relative to its node. Hover over anything for its \
         figures.</p>\n<div class=\"graphbox\"><svg class=\"graph\" viewBox=\"0 0 {w} {h}\" \
         style=\"width:100%;min-width:{:.0}px;max-width:{w}px\">{}</svg></div>\n<ul class=\"legend\">",
        w * READABLE,
        svg::drawing(model, &placed)
    );
    let kinds: BTreeSet<&str> = model.callbacks.iter().map(|c| type_name(c.kind)).collect();
    for kind in ["timer", "subscription", "service", "client"]
        .iter()
        .filter(|k| kinds.contains(*k))
    {
        let _ = write!(out, "<li><i class=\"{kind}\"></i>{kind}</li>");
    }
    if model.junctions.iter().any(|j| j.kind == JunctionKind::And) || kinds.contains("sync") {
        out.push_str("<li><b>&amp;</b>fires when all inputs have new data</li>");
    }
    if model.junctions.iter().any(|j| j.kind == JunctionKind::Or) {
        out.push_str("<li><b>OR</b>fires on any of several publishers</li>");
    }
    if model.edges.iter().any(|e| e.assumed) {
        out.push_str("<li>- - - assumed, not seen</li>");
    }
    out.push_str("</ul>\n");
    if w * READABLE > PAGE_WIDTH {
        out.push_str(
            "<fieldset class=\"pick size\"><span>Size:</span>\
             <input type=\"radio\" name=\"size\" id=\"g-read\" checked><label for=\"g-read\">to read</label>\
             <input type=\"radio\" name=\"size\" id=\"g-fit\"><label for=\"g-fit\">to fit</label></fieldset>\n",
        );
    }
    if !model.chains.is_empty() {
        out.push_str(
            "<fieldset class=\"pick chains\"><span>Show in the graph:</span>\
             <input type=\"radio\" name=\"pick\" id=\"k-all\" checked><label for=\"k-all\">everything</label>",
        );
        for (k, chain) in by_latency(model).into_iter().enumerate() {
            let _ = write!(
                out,
                "<input type=\"radio\" name=\"pick\" id=\"k{k}\"><label for=\"k{k}\" title=\"{}\">{}</label>",
                xml(&shorten(&chain.callbacks.join(" → "), 600)),
                // Many chains have the same ends: then only ids tell them apart.
                xml(&if model.chains.len() <= 6 { ends(model, chain) } else { shorten(&chain.id, 40) })
            );
        }
        out.push_str("</fieldset>\n");
    }
}

/// A callback in a few words: node and what it waits for.
fn in_words(model: &Model, id: &str) -> String {
    match model.callbacks.iter().find(|c| c.id == id) {
        Some(c) => format!("{} ({})", c.node, captions(c).0),
        None => id.to_string(),
    }
}

fn chains(out: &mut String, model: &Model) {
    if model.chains.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"chains\">Chains</h2>\n<p class=\"note\">Latency runs from the start of the first \
         callback to the publication of the chain's output, followed item by item. Jitter is half of \
         its largest minus its smallest value. The slowest chain comes first.</p>\n",
    );
    let sorted = by_latency(model);
    let shown = sorted.len().min(CHAINS_SHOWN);
    for chain in &sorted[..shown] {
        chain_card(out, model, chain);
    }
    if sorted.len() > shown {
        let _ = write!(
            out,
            "<details><summary>{} more</summary>",
            sorted.len() - shown
        );
        for chain in &sorted[shown..] {
            chain_card(out, model, chain);
        }
        out.push_str("</details>\n");
    }
}

/// The nodes at a chain's ends.
fn ends(model: &Model, chain: &Chain) -> String {
    let node = |id: Option<&String>| {
        let callback = model.callbacks.iter().find(|c| Some(&c.id) == id);
        shorten(callback.map_or("?", |c| c.node.as_str()), 60)
    };
    format!(
        "{} → {}",
        node(chain.callbacks.first()),
        node(chain.callbacks.last())
    )
}

/// The slowest first.
fn by_latency(model: &Model) -> Vec<&Chain> {
    let mut sorted: Vec<&Chain> = model.chains.iter().collect();
    sorted.sort_by(|a, b| {
        let key = |c: &Chain| c.figures.latency_ns.max();
        key(b).cmp(&key(a)).then(a.id.cmp(&b.id))
    });
    sorted
}

fn chain_card(out: &mut String, model: &Model, chain: &Chain) {
    let f = &chain.figures;
    let l = &f.latency_ns;
    let _ = write!(
        out,
        "<section class=\"chain\"><header><h3>{}{} <small>{}</small></h3><p>{}, <span{}>{} lost on the way</span></p></header><ol class=\"path\">",
        xml(&ends(model, chain)),
        if chain.assumed { " <span class=\"bad\">(stands on an assumed link)</span>" } else { "" },
        xml(&shorten(&chain.id, 40)),
        format_args!("{} executions", grouped(f.executions)),
        if f.lost > 0 { " class=\"bad\"" } else { "" },
        grouped(f.lost)
    );
    for id in &chain.callbacks {
        let callback = model.callbacks.iter().find(|c| &c.id == id);
        let node = callback.map_or(id.as_str(), |c| c.node.as_str());
        let sign = if callback.is_some_and(|c| c.kind == CallbackType::Sync) {
            " &amp;"
        } else {
            ""
        };
        let _ = write!(
            out,
            "<li title=\"{}\">{}{sign}</li>",
            xml(&shorten(id, 300)),
            xml(&shorten(node, 60))
        );
    }
    out.push_str("</ol>");
    if l.count() == 0 {
        out.push_str(
            "<p class=\"note\">No execution was followed from end to end.</p></section>\n",
        );
        return;
    }
    out.push_str("<div class=\"cols\"><div><dl class=\"kv\">");
    for (name, value) in [
        ("min", duration(l.min() as f64)),
        ("median", duration(l.quantile(0.5) as f64)),
        ("mean", duration(l.mean())),
        ("99 %", duration(l.quantile(0.99) as f64)),
        ("max", duration(l.max() as f64)),
        ("jitter", duration(f.jitter_ns as f64)),
    ] {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    let _ = write!(
        out,
        "</dl>{}</div><div>",
        charts::histogram(l, "Histogram of the chain's latency")
    );
    out.push_str(&charts::share_bar(&f.shares));
    out.push_str("<table class=\"sharelist\"><tbody>");
    let into_sync = |i: usize| {
        let next = f.shares.get(i + 1).map(|s| s.name.as_str());
        let next = model.callbacks.iter().find(|c| Some(c.id.as_str()) == next);
        next.is_some_and(|c| c.kind == CallbackType::Sync)
    };
    let classes = charts::share_classes(&f.shares);
    for (i, (share, class)) in f.shares.iter().zip(classes).enumerate() {
        let name = if share.element != "edge" {
            in_words(model, &share.name)
        } else if into_sync(i) {
            "until the synchroniser had all inputs".to_string()
        } else {
            format!("over {}", share.name)
        };
        let _ = write!(
            out,
            "<tr><td><span class=\"sw {class}\"></span></td><td title=\"{}\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            xml(&shorten(&share.name, 300)),
            xml(&shorten(&name, 64)),
            duration(share.mean_ns),
            percent(share.fraction)
        );
    }
    out.push_str("</tbody></table></div></div></section>\n");
}

/// The cell that names a callback.
fn name_cell(c: &Callback) -> String {
    format!(
        "<td class=\"name\" title=\"{}\"><span class=\"node\">{}</span><span class=\"what\">\
         <span class=\"chip {}\"></span>{}</span></td>",
        xml(&shorten(&c.id, 300)),
        xml(&shorten(&c.node, 90)),
        type_name(c.kind),
        xml(&shorten(&captions(c).0, 90))
    )
}

/// A time of a distribution, or a dash where it is empty.
fn time(count: u64, ns: f64) -> String {
    if count == 0 {
        "–".into()
    } else {
        duration(ns)
    }
}

fn callbacks(out: &mut String, model: &Model) {
    out.push_str(
        "<h2 id=\"callbacks\">Callbacks</h2>\n<p class=\"note\">Execution is time on the CPU, without \
         preemption and blocking; response runs from the moment the callback could run to its end. \
         Load is the share of one CPU.</p>\n<div class=\"scroll\"><table><thead>\
         <tr><th rowspan=\"2\">Callback</th><th class=\"n\" rowspan=\"2\">Count</th>\
         <th class=\"g\" colspan=\"4\">Execution</th><th class=\"g\" colspan=\"2\">Response</th>\
         <th class=\"n\" rowspan=\"2\">Period</th><th class=\"n\" rowspan=\"2\">Release<br>jitter 99 %</th>\
         <th class=\"n\" rowspan=\"2\">Load</th><th class=\"n\" rowspan=\"2\">Preempted<br>/ blocked</th>\
         <th rowspan=\"2\">Threads</th></tr><tr><th class=\"n\">min</th><th class=\"n\">mean</th>\
         <th class=\"n\">99 %</th><th class=\"n\">max</th><th class=\"n\">99 %</th>\
         <th class=\"n\">max</th></tr></thead><tbody>",
    );
    let busiest = model
        .callbacks
        .iter()
        .map(|c| c.figures.load)
        .fold(0.0, f64::max);
    for c in &model.callbacks {
        let f: &CallbackFigures = &c.figures;
        let (e, r, j) = (&f.exec_ns, &f.response_ns, &f.release_jitter_ns);
        let threads: Vec<String> = c
            .threads
            .iter()
            .map(|t| {
                let cpus: Vec<String> = t.cpus.iter().take(32).map(u16::to_string).collect();
                let priority = if t.priority < 100 {
                    format!(" {}", 99 - u16::from(t.priority))
                } else {
                    String::new()
                };
                format!(
                    "{}, {}{priority}, CPU {}",
                    shorten(&t.comm, 24),
                    t.policy,
                    cpus.join(" ")
                )
            })
            .collect();
        let shown = threads
            .iter()
            .take(3)
            .map(|t| xml(t))
            .collect::<Vec<_>>()
            .join("<br>");
        let more = match threads.len() {
            0..=3 => String::new(),
            n => format!("<br>and {} more", n - 3),
        };
        let meter = if busiest > 0.0 && f.load.is_finite() && e.count() > 0 {
            format!(
                "<span class=\"meter\"><i style=\"width:{:.1}%\"></i></span>",
                100.0 * (f.load / busiest).clamp(0.0, 1.0)
            )
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "<tr>{}<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}{meter}</td>\
             <td class=\"n\">{} / {}</td><td>{shown}{more}</td></tr>",
            name_cell(c),
            grouped(e.count()),
            time(e.count(), e.min() as f64),
            time(e.count(), e.mean()),
            time(e.count(), e.quantile(0.99) as f64),
            time(e.count(), e.max() as f64),
            time(r.count(), r.quantile(0.99) as f64),
            time(r.count(), r.max() as f64),
            c.period_ns.map_or("–".into(), |p| {
                let exact = period(p);
                if exact.len() < 9 { exact } else { duration(p as f64) }
            }),
            time(j.count(), j.quantile(0.99) as f64),
            if f.observed_ns > 0 { percent(f.load) } else { "–".into() },
            grouped(f.preemptions),
            grouped(f.blockings),
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn box_plots(out: &mut String, model: &Model) {
    let mut rows: Vec<charts::Named> = model
        .callbacks
        .iter()
        .filter(|c| c.figures.exec_ns.count() > 0)
        .map(|callback| charts::Named {
            callback,
            caption: captions(callback).0,
            kind: type_name(callback.kind),
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    rows.sort_by(|a, b| {
        let mean = |r: &charts::Named| r.callback.figures.exec_ns.mean();
        mean(b)
            .total_cmp(&mean(a))
            .then(a.callback.id.cmp(&b.callback.id))
    });
    let _ = write!(
        out,
        "<h2 id=\"times\">Execution times</h2>\n<p class=\"note\">Whiskers reach from the measured best \
         to the measured worst case; the box holds the middle half, the bar in it is the median, the dot \
         the mean. Logarithmic scale, longest mean first.</p>\n{}\n",
        charts::box_plots(&rows)
    );
}

fn edges(out: &mut String, model: &Model) {
    if model.edges.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"edges\">Communication</h2>\n<p class=\"note\">Latency runs from publication to the \
         start of the callback that takes the item: transport, then waiting for the executor. Lost items \
         were published and never taken; overwritten ones gave way to a later item.</p>\n\
         <div class=\"scroll\"><table><thead><tr><th rowspan=\"2\">Topic</th>\
         <th rowspan=\"2\">From</th><th rowspan=\"2\">To</th>\
         <th class=\"n\" rowspan=\"2\">Published</th><th class=\"n\" rowspan=\"2\">Taken</th>\
         <th class=\"n\" rowspan=\"2\">Lost</th><th class=\"g\" colspan=\"3\">Latency</th>\
         <th class=\"n\">Transport</th><th class=\"n\">Waiting</th></tr><tr><th class=\"n\">median</th>\
         <th class=\"n\">99 %</th><th class=\"n\">max</th><th class=\"n\">median</th>\
         <th class=\"n\">median</th></tr></thead><tbody>",
    );
    let mut sorted: Vec<&Edge> = model.edges.iter().collect();
    sorted.sort_by(|a, b| (&a.topic, &a.from, &a.to).cmp(&(&b.topic, &b.from, &b.to)));
    for e in sorted {
        let f = &e.figures;
        let (l, t, w) = (&f.latency_ns, &f.transport_ns, &f.waiting_ns);
        let mut marks = String::new();
        if e.assumed {
            marks.push_str(" <span class=\"bad\">assumed</span>");
        }
        if e.intra_process {
            marks.push_str(" <span class=\"note\">intra-process</span>");
        }
        let end = |id: &str| {
            let text = model
                .callbacks
                .iter()
                .find(|c| c.id == id)
                .map_or(id.to_string(), |c| match c.kind {
                    CallbackType::Sync => format!("{} &", c.node),
                    CallbackType::Subscription => c.node.clone(),
                    kind => format!("{} ({})", c.node, type_name(kind)),
                });
            format!(
                "<td title=\"{}\">{}</td>",
                xml(&shorten(id, 300)),
                xml(&shorten(&text, 46))
            )
        };
        let _ = writeln!(
            out,
            "<tr><td title=\"{}\">{}{marks}</td>{}{}<td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n{}\">{}{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            xml(&shorten(&e.topic, 300)),
            xml(&shorten(&e.topic, 52)),
            end(&e.from),
            end(&e.to),
            grouped(f.published),
            grouped(f.taken),
            if f.lost > 0 { " bad" } else { "" },
            grouped(f.lost),
            if f.overwritten > 0 {
                format!("<br>{} overwritten", grouped(f.overwritten))
            } else {
                String::new()
            },
            time(l.count(), l.quantile(0.5) as f64),
            time(l.count(), l.quantile(0.99) as f64),
            time(l.count(), l.max() as f64),
            time(t.count(), t.quantile(0.5) as f64),
            time(w.count(), w.quantile(0.5) as f64),
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn junctions(out: &mut String, model: &Model) {
    if model.junctions.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"junctions\">Junctions</h2>\n<div class=\"scroll\"><table><thead><tr><th>Where</th>\
         <th>Kind</th><th>Inputs</th><th>Recognised by</th><th class=\"n\">Confidence</th></tr></thead><tbody>",
    );
    for j in &model.junctions {
        let inputs: Vec<String> = j
            .inputs
            .iter()
            .map(|i| xml(&shorten(&in_words(model, i), 110)))
            .collect();
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td></tr>",
            xml(&shorten(&in_words(model, &j.callback), 110)),
            match j.kind {
                JunctionKind::And => "AND",
                JunctionKind::Or => "OR",
            },
            inputs.join("<br>"),
            xml(&shorten(&j.criterion.replace('_', " "), 60)),
            percent(j.confidence)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn modes(out: &mut String, model: &Model) {
    let modes = modes_of(model);
    if modes.len() < 2 {
        return;
    }
    let heads: String = modes
        .iter()
        .map(|m| {
            format!(
                "<th class=\"g\" colspan=\"2\">{}</th>",
                xml(&shorten(m, 30))
            )
        })
        .collect();
    let row = |name: String, values: Vec<Option<(f64, f64)>>| {
        let cells: String = values
            .iter()
            .map(|v| match v {
                Some((a, b)) => {
                    format!(
                        "<td class=\"n\">{}</td><td class=\"n\">{}</td>",
                        duration(*a),
                        duration(*b)
                    )
                }
                None => "<td class=\"n\">–</td><td class=\"n\">–</td>".into(),
            })
            .collect();
        format!("<tr>{name}{cells}</tr>\n")
    };
    let table = |out: &mut String, what: &str, first: &str, second: &str, rows: String| {
        let sub: String = modes
            .iter()
            .map(|_| format!("<th class=\"n\">{first}</th><th class=\"n\">{second}</th>"))
            .collect();
        let _ = writeln!(
            out,
            "<div class=\"scroll\" style=\"margin-bottom:16px\"><table><thead><tr><th rowspan=\"2\">{what}</th>{heads}</tr>\
             <tr>{sub}</tr></thead><tbody>{rows}</tbody></table></div>"
        );
    };
    out.push_str("<h2 id=\"modes\">Modes</h2>\n");
    let rows: String = model
        .callbacks
        .iter()
        .map(|c| {
            let values = modes.iter().map(|m| {
                let e = &c.modes.get(*m)?.exec_ns;
                (e.count() > 0).then(|| (e.mean(), e.max() as f64))
            });
            row(name_cell(c), values.collect())
        })
        .collect();
    table(out, "Execution of callback", "mean", "max", rows);
    if model.chains.is_empty() {
        return;
    }
    let rows: String = model
        .chains
        .iter()
        .map(|c| {
            let values = modes.iter().map(|m| {
                let l = &c.modes.get(*m)?.latency_ns;
                (l.count() > 0).then(|| (l.quantile(0.5) as f64, l.max() as f64))
            });
            row(
                format!("<td>{}</td>", xml(&shorten(&c.id, 80))),
                values.collect(),
            )
        })
        .collect();
    table(out, "Latency of chain", "median", "max", rows);
}

fn growth(out: &mut String, model: &Model) {
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
         were recorded: a curve that has been flat for long says that more runs will hardly change it. \
         Heaviest load first.</p>\n",
    );
    let figures = |some: &[&Callback]| {
        let mut text = String::from("<div class=\"small\">");
        for c in some {
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
    };
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

fn coverage(out: &mut String, model: &Model, recordings: &[Manifest]) {
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
    let head = "What the recording could not see";
    list(out, head, &unseen, "Nothing is known to be missing.");
    let assumed = model.assumptions.iter().map(String::as_str).collect();
    let head = "What the model assumes";
    list(out, head, &assumed, "Nothing: every edge was seen.");
    let lost: Vec<String> = losses(model)
        .iter()
        .map(|(kind, n)| format!("{} events of {kind}", grouped(*n)))
        .collect();
    let lost = lost.iter().map(String::as_str).collect();
    list(out, "Events lost while recording", &lost, "None.");
}

/// What a recorder says of itself: machine, processes, and how each of its probes did.
fn probes(out: &mut String, recording: &Manifest) {
    let missing = recording.probes.iter().filter(|p| !p.attached).count();
    let _ = write!(
        out,
        "<details><summary>Recorder of run {}: {}, {}{}</summary><p class=\"note\">onbeat {} on {} \
         (Linux {}).</p>",
        xml(&shorten(&recording.id, 60)),
        match recording.processes.len() {
            1 => "1 process".to_string(),
            n => format!("{n} processes"),
        },
        counted(recording.probes.len(), "probe"),
        if missing > 0 { format!(", {missing} not attached") } else { String::new() },
        xml(&shorten(&recording.recorder_version, 40)),
        xml(&shorten(&recording.hostname, 80)),
        xml(&shorten(&recording.kernel, 80)),
    );
    if !recording.processes.is_empty() {
        out.push_str(
            "<div class=\"scroll\" style=\"margin-bottom:14px\"><table><thead><tr>\
             <th class=\"n\">Process</th><th>Command</th><th>ROS 2</th><th>Middleware</th><th>Nodes</th>\
             <th>Since</th></tr></thead><tbody>",
        );
        for p in &recording.processes {
            let _ = write!(
                out,
                "<tr><td class=\"n\">{}</td><td title=\"{}\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                p.pid,
                xml(&shorten(&p.command, 600)),
                xml(&shorten(&p.command, 70)),
                xml(&shorten(&p.distribution, 30)),
                xml(&shorten(&p.rmw, 40)),
                xml(&shorten(&p.nodes.join(", "), 120)),
                if p.late { "before the recording" } else { "its start" }
            );
        }
        out.push_str("</tbody></table></div>");
    }
    if !recording.probes.is_empty() {
        out.push_str(
            "<div class=\"scroll\"><table><thead><tr><th>Probe</th><th>Where</th><th>Placement</th>\
             <th class=\"n\">Hits</th><th>Not attached: what the model lacks</th></tr></thead><tbody>",
        );
        for p in &recording.probes {
            let library = p.library.rsplit('/').next().unwrap_or(&p.library);
            let place = if p.symbol.is_empty() {
                library.to_string()
            } else if p.offset > 0 {
                format!("{library}: {}+{:#x}", p.symbol, p.offset)
            } else {
                format!("{library}: {}", p.symbol)
            };
            let trouble = [p.error.as_deref(), p.consequence.as_deref()];
            let trouble = trouble.into_iter().flatten().collect::<Vec<_>>().join("; ");
            let trouble = if p.attached { String::new() } else { trouble };
            let _ = write!(
                out,
                "<tr><td>{}</td><td title=\"{}\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"bad\">{}</td></tr>",
                xml(&shorten(&p.name, 60)),
                xml(&shorten(&p.library, 300)),
                xml(&shorten(&place, 80)),
                xml(&shorten(&p.placement, 30)),
                grouped(p.hits),
                xml(&shorten(&trouble, 300))
            );
        }
        out.push_str("</tbody></table></div>");
    }
    out.push_str("</details>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(951_827_696_000_000_000), "2000-02-29 12:34:56");
        assert_eq!(date(4_102_444_799_000_000_000), "2099-12-31 23:59:59");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
    }
}
