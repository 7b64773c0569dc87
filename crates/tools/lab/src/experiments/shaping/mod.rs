//! The `shaping` experiment: chapter 4 of the thesis with real ROS 2 processes.
//!
//! It measures the latency of a chain under plain priorities, under reservation servers, and in one
//! or more latency bands. Each run starts the application again with `onbeat shape` and the plan of
//! the arm. Arms take turns, so that a drift of the machine affects all of them. The plans come
//! from a profile of the same application at a high SCHED_FIFO priority, as in the thesis.

mod app;
mod arm;
mod figures;
mod listener;
mod parking;
mod results;
mod synthetic;
mod targets;

use crate::frame::report::Report;
use crate::frame::{Context, Experiment, Extra, Result};
use crate::measure::floor;
use std::path::PathBuf;

type Part = fn(&mut Context, &mut Report, &mut Profiles) -> Result<()>;

#[derive(Default)]
struct Profiles {
    chain: Option<PathBuf>,
}

pub const EXPERIMENT: Experiment = Experiment {
    name: "shaping",
    about:
        "latency and jitter of chains under a plan (thesis, Tables 4.1 to 4.5, Figures 4.7 to 4.10)",
    parts: &[
        "motivation",
        "parking",
        "async",
        "let",
        "parking-let",
        "dag",
        "overshoot",
    ],
    takes: &[Extra::Long],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let mut report = Report::new();
    floor::measure(context, &mut report)?;
    let parts: [(&str, Part); 7] = [
        ("motivation", synthetic::motivation),
        ("parking", parking::parking),
        ("async", synthetic::asynchronous),
        ("let", synthetic::logical),
        ("parking-let", parking::logical),
        ("dag", synthetic::dag),
        ("overshoot", synthetic::overshoot),
    ];
    let mut profiles = Profiles::default();
    for (name, part) in parts {
        context.part(&mut report, (name, name), |context, report| {
            part(context, report, &mut profiles)
        });
    }
    Ok(report)
}
