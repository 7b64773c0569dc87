//! The report's section on chains: their latency, and the share of each callback and edge.

use super::charts;
use super::html::{grouped, in_words};
use super::Recordings;
use onbeat_document::schema::{CallbackType, Chain, Model};
use onbeat_document::text::{duration, percent, shorten, xml};
use onbeat_document::titles::titles;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The number of chains that the report shows at first. The reader can unfold the others.
const CHAINS_SHOWN: usize = 10;

pub(super) fn chains(out: &mut String, model: &Model, recordings: Recordings) {
    if model.chains.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"chains\">Chains</h2>\n<p class=\"note\">Latency runs from the start of the first \
         callback to the publication of the chain's output, followed item by item. Jitter is half of \
         the difference between its largest and its smallest value. The slowest chain comes first. <code>onbeat why TRACE --html</code> \
         writes a page with the causes of each late execution.</p>\n",
    );
    let sorted = by_latency(model);
    let names = names(model);
    let shown = sorted.len().min(CHAINS_SHOWN);
    for chain in &sorted[..shown] {
        card(out, model, chain, &names[chain.id.as_str()], recordings);
    }
    if sorted.len() > shown {
        let _ = write!(
            out,
            "<details><summary>{} more</summary>",
            sorted.len() - shown
        );
        for chain in &sorted[shown..] {
            card(out, model, chain, &names[chain.id.as_str()], recordings);
        }
        out.push_str("</details>\n");
    }
}

pub(super) fn names(model: &Model) -> BTreeMap<&str, String> {
    let ids = model.chains.iter().map(|c| c.id.as_str());
    ids.zip(titles(model)).collect()
}

pub(super) fn by_latency(model: &Model) -> Vec<&Chain> {
    let mut sorted: Vec<&Chain> = model.chains.iter().collect();
    sorted.sort_by(|a, b| {
        let key = |c: &Chain| c.figures.latency_ns.max();
        key(b).cmp(&key(a)).then(a.id.cmp(&b.id))
    });
    sorted
}

fn card(out: &mut String, model: &Model, chain: &Chain, name: &str, recordings: Recordings) {
    let f = &chain.figures;
    let l = &f.latency_ns;
    let _ = write!(
        out,
        "<section class=\"chain\"><header><h3>{}{} <small>{}</small></h3>\
         <p>{}, <span{}>{} lost on the way</span></p></header>",
        xml(&shorten(name, 200)),
        if chain.assumed {
            " <span class=\"bad\">(contains an assumed edge)</span>"
        } else {
            ""
        },
        xml(&shorten(&chain.id, 40)),
        format_args!("{} executions", grouped(f.executions)),
        if f.lost > 0 { " class=\"bad\"" } else { "" },
        grouped(f.lost)
    );
    path(out, model, chain);
    if l.count() == 0 {
        out.push_str(
            "<p class=\"note\">No execution was followed from end to end.</p></section>\n",
        );
        return;
    }
    out.push_str("<div class=\"cols\"><div>");
    figures(out, chain);
    out.push_str("</div><div>");
    shares(out, model, chain);
    out.push_str("</div></div>");
    let of_chain = |all: &&(String, String)| all.0 == chain.id;
    for (_, sentence) in recordings.late.iter().filter(of_chain) {
        let _ = write!(out, "<p class=\"note\">{}</p>", xml(sentence));
    }
    if let Some((_, page)) = recordings.pages.iter().find(of_chain) {
        let _ = write!(
            out,
            "<p><a href=\"{}\">The causes of each late execution</a></p>",
            xml(page)
        );
    }
    out.push_str("</section>\n");
}

fn path(out: &mut String, model: &Model, chain: &Chain) {
    out.push_str("<ol class=\"path\">");
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
}

fn figures(out: &mut String, chain: &Chain) {
    let f = &chain.figures;
    let l = &f.latency_ns;
    out.push_str("<dl class=\"kv\">");
    for (name, value) in [
        ("min", duration(l.min() as f64)),
        ("median", duration(l.quantile(0.5) as f64)),
        ("mean", duration(l.mean())),
        ("99 %", duration(l.quantile(0.99) as f64)),
        ("max", duration(l.max() as f64)),
        ("jitter", duration(f.jitter_ns as f64)),
        ("reaction, max", duration(f.reaction_ns.max() as f64)),
        ("data age, max", duration(f.data_age_ns().max() as f64)),
    ] {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    let _ = write!(
        out,
        "</dl>{}",
        charts::histogram(l, "Histogram of the chain's latency")
    );
}

fn shares(out: &mut String, model: &Model, chain: &Chain) {
    let f = &chain.figures;
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
            "time until the synchroniser had all inputs".to_string()
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
    out.push_str("</tbody></table>");
}
