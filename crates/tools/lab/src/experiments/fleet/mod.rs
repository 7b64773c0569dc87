//! `fleet`: merges the models of a fleet in one process and on cluster engines, and compares
//! results and cost.

mod figures;
mod models;
mod run;

use crate::frame::files;
use crate::frame::report::Report;
use crate::frame::{Context, Experiment, Result};

pub const EXPERIMENT: Experiment = Experiment {
    name: "fleet",
    about: "100 to 1,000 models merged by one process, Dask, Ray and Spark (thesis, Section 3.6)",
    parts: &[],
    takes: &[],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let mut report = Report::new();
    let sizes = context.pick([100, 300, 1000], [10, 30, 100]);
    let scratch = context.dir().join("models");
    let _ = std::fs::remove_dir_all(&scratch);
    let paths = models::write(context, &scratch, sizes[2])?;
    let engines = run::engines(&mut report);
    let (merges, kept) = run::measure(context, &engines, &paths, &sizes)?;
    figures::add(context, &mut report, &engines, &merges, sizes, &kept);
    figures::plot(context, &engines, &merges, &sizes)?;
    files::remove_dir(&scratch)?;
    Ok(report)
}
