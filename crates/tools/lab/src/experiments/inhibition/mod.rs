//! `inhibition`: measures how a real-time program delays the threads of a middleware on the same
//! core. It repeats the experiment of paper 001: ping-pong in three layouts, measures M1 to M4.
//!
//! The lab runs in a network namespace of its own, so no other packets interfere. The namespace
//! ends with the lab. An inhibitor cannot keep a core for ever: the kernel ends it after twice its
//! time (`RLIMIT_RTTIME`), and it dies with the lab.

mod cause;
mod condition;
mod locks;
mod measures;
mod minute;
mod programs;
mod results;
mod run;

use crate::frame::programs::output;
use crate::frame::report::Report;
use crate::frame::{Context, Experiment, Extra, LabError, Result};
use crate::measure::floor;
use condition::Condition;
use programs::{Middleware, Programs, MIDDLEWARES};
use results::Arm;
use run::{Bench, Length, Run};
use std::process::Command;

pub const EXPERIMENT: Experiment = Experiment {
    name: "inhibition",
    about: "how much a real-time program on the core of a middleware's threads delays a ping-pong (measures M1 to M4 of the forum post on inhibited child threads)",
    parts: &["cyclonedds", "fastdds", "ros2", "cause", "minute"],
    takes: &[Extra::Long],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let mut report = Report::new();
    namespace()?;
    floor::measure(context, &mut report)?;
    report.note(throttling());
    let programs = Programs::prepare(context, &mut report)?;
    for middleware in MIDDLEWARES {
        if context.wants(middleware.part()) && programs.has(middleware) {
            let arms = measure(context, &programs, middleware)?;
            results::judge(context, &mut report, middleware, &arms)?;
        }
    }
    if context.wants("cause") {
        cause::measure(context, &mut report, &programs)?;
    }
    // The minute takes long, so it runs only with --long or if it is named.
    let by_name = !context.wants("ros2");
    if context.wants("minute") && context.pick_of_three(true, by_name, by_name) {
        minute::measure(context, &mut report, &programs)?;
    }
    Ok(report)
}

fn measure(context: &mut Context, programs: &Programs, middleware: Middleware) -> Result<Vec<Arm>> {
    let conditions = Condition::all();
    let rounds = context.pick(9, 2);
    let runs = in_turns(context, programs, middleware, (&conditions, rounds, ""))?;
    let mut arms: Vec<Arm> = conditions.into_iter().map(Arm::new).collect();
    for (index, _, run) in runs {
        arms[index].runs.push(run);
    }
    Ok(arms)
}

/// Runs all conditions in turn, each `rounds` times. Returns each run with the index of its
/// condition and the number of its round.
fn in_turns(
    context: &mut Context,
    programs: &Programs,
    middleware: Middleware,
    (conditions, rounds, how): (&[Condition], usize, &str),
) -> Result<Vec<(usize, usize, Run)>> {
    let length = Length::of_loops(context.pick(150, 120));
    let mut rng = context.rng(&format!("{}{how}", middleware.part()));
    let purpose = format!("{}{how} order", middleware.part());
    let mut turns = context.turns(&purpose, conditions.len(), rounds);
    let mut runs = Vec::new();
    for (round, index) in turns.by_ref() {
        let title = format!(
            "{}{how}: {}, run {}",
            middleware.name(),
            conditions[index].name(),
            round + 1,
        );
        context.step(&title, 180);
        let bench = Bench {
            context,
            programs,
            middleware,
            length,
        };
        runs.push((index, round, bench.run(conditions[index], &mut rng)?));
    }
    let shown = turns.finish().shown();
    runs.retain(|(_, round, _)| shown.contains(round));
    Ok(runs)
}

/// Moves the lab and its children into a network namespace that has only a loopback interface. The
/// kernel removes the namespace when the last of these processes ends.
fn namespace() -> Result<()> {
    // SAFETY: the argument is a plain number. The call changes only the network that this thread
    // and its children see.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(LabError::kernel("making a network namespace"));
    }
    for words in [
        &["link", "set", "lo", "up"][..],
        &["route", "add", "224.0.0.0/4", "dev", "lo"],
    ] {
        let what = format!("ip {}", words.join(" "));
        output(Command::new("ip").args(words), &what, "install iproute2")?;
    }
    Ok(())
}

fn throttling() -> String {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        text.map_or("?".into(), |t| t.trim().to_owned())
    };
    format!(
        "sched_rt_runtime_us is {} of {}, the same for all runs. Since Linux 6.12 the kernel's fair server \
         keeps 50 ms of each second for time-sharing threads, whatever sched_rt_runtime_us says",
        read("sched_rt_runtime_us"),
        read("sched_rt_period_us")
    )
}
