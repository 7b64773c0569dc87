//! The report's section on sources and sinks: the times over all paths between them.

use super::html::{grouped, in_words, time};
use onbeat_document::schema::{EndToEnd, Model};
use onbeat_document::text::{shorten, xml};
use std::fmt::Write as _;

/// Writes a table of the times between each source and sink that several paths connect. Leaves out
/// pairs with one path, because their times are those of the chain.
pub(super) fn ends(out: &mut String, model: &Model) {
    let several = model.end_to_end.iter().filter(|e| e.paths != Some(1));
    let mut several: Vec<&EndToEnd> = several.collect();
    if several.is_empty() {
        return;
    }
    several.sort_by_key(|e| std::cmp::Reverse(e.figures.data_age_ns().max()));
    out.push_str(
        "<h2 id=\"ends\">From source to sink</h2>\n<p class=\"note\">Times over all paths between a source \
         and a sink, however many there are. Latency runs from the newest start of the source on which an \
         output depends, the data age from the oldest. The oldest data comes first.</p>\n\
         <div class=\"scroll\"><table><thead><tr><th>Source</th><th>Sink</th>\
         <th class=\"n\">Paths</th><th class=\"n\">Outputs</th><th class=\"n\">Latency, median</th>\
         <th class=\"n\">99 %</th><th class=\"n\">max</th><th class=\"n\">Data age, median</th>\
         <th class=\"n\">max</th><th class=\"n\">Reaction, max</th></tr></thead><tbody>",
    );
    for e in several {
        let f = &e.figures;
        let (l, age, reaction) = (&f.latency_ns, f.data_age_ns(), &f.reaction_ns);
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            xml(&shorten(&in_words(model, &e.from), 110)),
            xml(&shorten(&in_words(model, &e.to), 110)),
            e.paths.map_or_else(|| "a loop".into(), grouped),
            grouped(f.outputs),
            time(l.count(), l.quantile(0.5) as f64),
            time(l.count(), l.quantile(0.99) as f64),
            time(l.count(), l.max() as f64),
            time(age.count(), age.quantile(0.5) as f64),
            time(age.count(), age.max() as f64),
            time(reaction.count(), reaction.max() as f64),
        );
    }
    out.push_str("</tbody></table></div>\n");
}
