//! The report: a model as one HTML page that loads nothing and runs no script. Each section is a
//! module.

mod callbacks;
mod chains;
mod charts;
mod communication;
mod coverage;
mod ends;
mod graph;
mod header;
mod html;
mod runs;

use crate::export::svg;
use onbeat_document::schema::Model;
use onbeat_document::text::{shorten, xml};
use onbeat_trace::Manifest;
use std::fmt::Write as _;

/// The form in which the report names recorded processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProcessNames {
    /// The report shows only the program's name. Reports are passed on, and command lines may
    /// contain secrets.
    #[default]
    Programs,
    /// The report shows the full command line, which may contain secrets.
    CommandLines,
}

/// The recordings from which a model was made, and how the report shows them. Without recordings,
/// all lists are empty.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, Default)]
pub struct Recordings<'a> {
    pub manifests: &'a [Manifest],
    pub process_names: ProcessNames,
    /// The ids of chains, each with a sentence about what its late executions have in common. The
    /// sentences are untrusted.
    pub late: &'a [(String, String)],
    /// The ids of chains, each with the address of a page that explains its executions.
    pub pages: &'a [(String, String)],
    /// Sentences (untrusted) about the causes of losses.
    pub lost: &'a [String],
}

pub use charts::pair;

/// The CSS rules that all pages share.
pub const STYLE: &str = include_str!("style.css");

/// Begins an HTML page with a title and its own CSS rules. `kind` is the word for the page in its
/// title, for example `report`.
pub fn begin(out: &mut String, title: &str, kind: &str, style: &str) {
    let title = xml(&shorten(title, 200));
    // The page must not load anything or run a script, even if the text contains markup.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} – onbeat {kind}</title>\n<style>\n{}{style}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n",
        STYLE,
    );
}

/// Ends an HTML page. `schema` names the format of the shown data.
pub fn end(out: &mut String, schema: &str) {
    let _ = write!(
        out,
        "<footer>Made by onbeat {} from a model of schema {}. Times are measured, not proven. The \
         true worst case may be longer than the measured one.</footer>\n</main>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        xml(schema)
    );
}

/// Returns the report on a model as an HTML page with this title.
pub fn html(model: &Model, title: &str, recordings: Recordings) -> String {
    let mut out = String::with_capacity(1 << 18);
    let style = format!("{}{}", svg::STYLE, graph::pick_style(model));
    begin(&mut out, title, "report", &style);
    header::header(&mut out, model);
    if model.callbacks.is_empty() {
        out.push_str("<h2>Nothing ran</h2>\n<p>No callback was executed in this recording.</p>\n");
    } else {
        graph::graph(&mut out, model);
        chains::chains(&mut out, model, recordings);
        ends::ends(&mut out, model);
        callbacks::callbacks(&mut out, model);
        callbacks::box_plots(&mut out, model);
        communication::edges(&mut out, model);
        communication::losses(&mut out, recordings.lost);
        communication::actions(&mut out, model);
        communication::junctions(&mut out, model);
        runs::modes(&mut out, model);
        runs::growth(&mut out, model);
    }
    coverage::coverage(&mut out, model, recordings.manifests);
    for recording in recordings.manifests {
        coverage::recorder(&mut out, recording, recordings.process_names);
    }
    end(&mut out, &model.schema);
    out
}
