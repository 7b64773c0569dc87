//! The page: the executions of a chain as one HTML file that loads nothing.
//!
//! The page's policy allows its own script and its own styles by their hashes, and nothing else.
//! Names from the recorded system are data in JSON, which the script only shows as text. Without
//! scripts the page shows the tables of the longest executions.

mod packed;

use crate::explain::Explanation;
use crate::lines::summed;
use crate::stretch::Execution;
use base64::prelude::{Engine as _, BASE64_STANDARD};
use onbeat_document::schema::SCHEMA;
use onbeat_document::text::{duration, percent, shorten, xml};
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::fmt::Write as _;

const TABLES_WITHOUT_SCRIPTS: usize = 5;

const NAME_WITHOUT_SCRIPTS_MAX: usize = 300;

const SCRIPT: &[&str] = &[
    include_str!("data.js"),
    include_str!("draw.js"),
    include_str!("charts.js"),
    include_str!("detail.js"),
    include_str!("main.js"),
];

/// The content of an HTML page that explains executions.
#[allow(missing_docs)]
pub struct Page<'a> {
    /// The heading: the title of the chain, or the id of the callback.
    pub title: &'a str,
    /// The id of the chain. `None` if the page explains a callback.
    pub id: Option<&'a str>,
    pub callbacks: &'a [String],
    /// Sentences for the head of the page: counts and limits of the recording.
    pub notes: &'a [String],
    pub start_monotonic_ns: u64,
    /// The start of the recording, ns since 1970.
    pub start_realtime_ns: u64,
    /// The instant that the page shows when it is opened, CLOCK_MONOTONIC.
    pub at_ns: Option<u64>,
    pub explanation: &'a Explanation,
}

impl Page<'_> {
    /// Returns the page as HTML. `instant` formats an instant of CLOCK_MONOTONIC.
    ///
    /// # Errors
    ///
    /// Fails if the data cannot be written as JSON.
    pub fn html(&self, instant: &dyn Fn(u64) -> String) -> Result<String, serde_json::Error> {
        let script = format!("(() => {{\n'use strict';\n{}}})();\n", SCRIPT.concat());
        let style = format!(
            "{}{}",
            onbeat_views::report::STYLE,
            include_str!("page.css")
        );
        let mut out = String::with_capacity(1 << 20);
        self.head(&mut out, &script, &style);
        out.push_str(include_str!("app.html"));
        self.tables(&mut out, instant);
        let _ = write!(
            out,
            "<script type=\"application/json\" id=\"data\">{}</script>\n<script>{script}</script>\n",
            self.json()?
        );
        onbeat_views::report::end(&mut out, SCHEMA);
        Ok(out)
    }

    /// Returns the data of the page as JSON that cannot end a `script` element.
    fn json(&self) -> Result<String, serde_json::Error> {
        let json = serde_json::to_string(&packed::Packed::new(self))?;
        // In JSON, this character stands only within texts.
        Ok(json.replace('<', "\\u003c"))
    }

    fn head(&self, out: &mut String, script: &str, style: &str) {
        let title = xml(&shorten(self.title, NAME_WITHOUT_SCRIPTS_MAX));
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src '{}'; \
             style-src '{}'; base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title} – onbeat why</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n",
            hash(script),
            hash(style)
        );
        if let Some(id) = self.id {
            let _ = writeln!(
                out,
                "<p class=\"lead\">{}</p>",
                xml(&shorten(id, NAME_WITHOUT_SCRIPTS_MAX))
            );
        }
        if let Some(comparison) = &self.explanation.comparison {
            let sentence = xml(&shorten(
                &comparison.sentence(),
                8 * NAME_WITHOUT_SCRIPTS_MAX,
            ));
            let _ = writeln!(out, "<p class=\"sentence\">{sentence}</p>");
        }
        for note in self.notes {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", xml(note));
        }
        let e = self.explanation;
        let others = e.count.saturating_sub(e.executions.len() as u64);
        if others > 0 && !e.executions.is_empty() {
            let kept = e.executions.len();
            let _ = writeln!(
                out,
                "<p class=\"note\">The stretches of {kept} executions are on this page. The other {others} \
                 executions count in the sentence, and the chart shows the range of their latencies.</p>"
            );
        }
    }

    fn tables(&self, out: &mut String, instant: &dyn Fn(u64) -> String) {
        let mut longest: Vec<&Execution> = self.explanation.executions.iter().collect();
        longest.sort_by_key(|e| (Reverse(e.latency_ns), e.start_ns));
        longest.truncate(TABLES_WITHOUT_SCRIPTS);
        out.push_str(
            "<details id=\"tables\" open><summary>The longest executions as tables</summary>\n",
        );
        if longest.is_empty() {
            out.push_str("<p>No execution was found.</p>\n");
        }
        for execution in longest {
            let _ = write!(
                out,
                "<div class=\"scroll why\"><table><caption>{} at {}{}</caption><thead><tr><th class=\"n\">From</th>\
                 <th class=\"n\">Takes</th><th class=\"n\">Share</th><th>Cause</th></tr></thead><tbody>",
                duration(execution.latency_ns as f64),
                xml(&instant(execution.start_ns)),
                if execution.late { ", late" } else { "" }
            );
            rows(out, execution);
            out.push_str("</tbody></table></div>\n");
        }
        out.push_str("</details>\n");
    }
}

fn rows(out: &mut String, execution: &Execution) {
    let all = execution.latency_ns.max(1) as f64;
    let mut row = |class: &str, begin_ns: u64, ns: u64, what: &str| {
        let _ = write!(
            out,
            "<tr class=\"{class}\"><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            duration(begin_ns as f64),
            duration(ns as f64),
            percent(ns as f64 / all),
            xml(&shorten(what, NAME_WITHOUT_SCRIPTS_MAX))
        );
    };
    for share in execution.stretches.chunk_by(|a, b| a.place == b.place) {
        let (Some(first), Some(last)) = (share.first(), share.last()) else {
            continue;
        };
        let ns = last.begin_ns + last.ns - first.begin_ns;
        row("place", first.begin_ns, ns, &first.place);
        for line in summed(share, execution.latency_ns) {
            row("cause", line.begin_ns, line.ns, &line.text());
            for during in &line.during {
                let what = format!("which {}", during.text());
                row("which", during.begin_ns, during.ns, &what);
            }
        }
    }
}

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests;
