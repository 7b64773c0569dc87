//! The report's section on callbacks: their figures as a table and as box plots.

use super::charts;
use super::html::{grouped, name_cell, time};
use crate::export::svg::type_name;
use crate::layout::captions;
use onbeat_document::schema::{Callback, CallbackFigures, Model, ThreadUse};
use onbeat_document::text::{duration, percent, period, shorten, xml};
use std::fmt::Write as _;

pub(super) fn callbacks(out: &mut String, model: &Model) {
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
        row(out, c, busiest);
    }
    out.push_str("</tbody></table></div>\n");
}

fn executions(f: &CallbackFigures) -> String {
    match f.untimed {
        0 => grouped(f.executions()),
        n => format!("{}<br>({} untimed)", grouped(f.executions()), grouped(n)),
    }
}

fn row(out: &mut String, c: &Callback, busiest: f64) {
    let f = &c.figures;
    let (e, r, j) = (&f.exec_ns, &f.response_ns, &f.release_jitter_ns);
    let threads = threads(&c.threads);
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
         <td class=\"n\">{} / {}</td><td>{threads}</td></tr>",
        name_cell(c),
        executions(f),
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
        f.known_load().map_or("–".into(), percent),
        grouped(f.preemptions),
        grouped(f.blockings),
    );
}

fn threads(all: &[ThreadUse]) -> String {
    let mut lines: Vec<String> = all.iter().take(3).map(|t| xml(&thread(t))).collect();
    if all.len() > 3 {
        lines.push(format!("and {} more", all.len() - 3));
    }
    lines.join("<br>")
}

fn thread(t: &ThreadUse) -> String {
    let cpus: Vec<String> = t.cpus.iter().take(32).map(u16::to_string).collect();
    let priority = match t.priority {
        p @ 0..=99 => format!(" {}", 99 - p),
        _ => String::new(),
    };
    format!(
        "{}, {}{priority}, CPU {}",
        shorten(&t.comm, 24),
        t.policy,
        cpus.join(" ")
    )
}

pub(super) fn box_plots(out: &mut String, model: &Model) {
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
