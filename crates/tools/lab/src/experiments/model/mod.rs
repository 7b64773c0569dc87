//! `model`: measures the time and memory that making a model from a trace takes.

mod before;
mod dense;
mod figures;
mod nodes;
mod peers;
mod run;
mod tables;

use crate::frame::files;
use crate::frame::report::Report;
use crate::frame::{Context, Experiment, Extra, Result};

pub const EXPERIMENT: Experiment = Experiment {
    name: "model",
    about: "speed and memory of `onbeat model` on made-up traces of up to 50 million events",
    parts: &["speed", "peers", "nodes", "dense"],
    takes: &[Extra::Before],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let mut report = Report::new();
    let scratch = context.dir().join("traces");
    let _ = std::fs::remove_dir_all(&scratch);
    if context.wants("speed") {
        let (measured, kept) = run::measure(context, &scratch)?;
        let reading = run::read_speed(context, &scratch, &measured)?;
        report.tables.push(tables::modelling(&measured));
        figures::add(context, &mut report, (&measured, &kept), reading);
        before::add(context, &mut report, &measured, &kept);
        figures::plot(context, &measured)?;
    }
    if context.wants("peers") {
        if let Err(e) = peers::measure(context, &mut report, &scratch) {
            report.skip(
                "comparison with babeltrace2",
                format!("{e}. Install the Debian packages babeltrace2 and python3-bt2"),
            );
        }
    }
    if context.wants("nodes") {
        nodes::measure(context, &mut report, &scratch)?;
    }
    if context.wants("dense") {
        dense::measure(context, &mut report, &scratch)?;
    }
    files::remove_dir(&scratch)?;
    Ok(report)
}
