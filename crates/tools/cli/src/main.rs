//! The `onbeat` command: reads the command line, prints results and shows progress. All decisions
//! are made in the crates below.
mod advise;
mod chains;
mod check;
mod diagnostics;
mod diff;
mod export;
mod hosts;
mod late;
mod limits;
mod merge;
mod mode;
mod model;
mod modes;
mod plan;
mod programs;
mod record;
mod recover;
mod redact;
mod report;
mod shape;
mod shaper;
mod show;
mod tracks;
mod why;

use clap::{Parser, Subcommand};
use onbeat_rights::Capability;
use onbeat_terminal::{CliError, ExitStatus};
use programs::Program;
use std::ffi::OsString;
use std::process::ExitCode;

/// Find out when every callback of a ROS 2 system really runs
#[derive(Parser)]
#[command(
    name = "onbeat",
    version,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = "\
Examples:
  sudo onbeat record -o trace -- ros2 launch my_robot all.launch.py
  onbeat model trace -o model.json
  onbeat chains model.json
  onbeat why trace
  onbeat check model.json requirements.yaml
  onbeat diff before.json after.json
  onbeat advise model.json
  onbeat report model.json -o report.html
  onbeat plan model.json --bands auto -o plan.yaml
  sudo onbeat shape plan.yaml --verify 60s -- ros2 launch my_robot all.launch.py

Exit codes:
  0  done
  1  failed; one line on stderr names the fault and the way out
  2  the command line is wrong
  3  done, but empty: no callback in the trace, no chain in the model
  4  this kernel or user may not record or shape; recover: a session is running
  5  a promise of the plan was broken (shape --verify); no bound (link
     bound); a requirement was violated (check); an item left too late
     (replay --max-late); a format cannot hold everything (convert --strict)
  6  the model cannot decide a requirement (check); nothing could be
     compared (diff)
  7  something changed (diff)"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Record(record::Args),
    Model(model::Args),
    Merge(merge::Args),
    Redact(redact::Args),
    Show(show::Args),
    Chains(chains::Args),
    Why(why::Args),
    Modes(modes::Args),
    Check(check::Args),
    Diff(diff::Args),
    Advise(advise::Args),
    Export(export::Args),
    Report(report::Args),
    Plan(plan::Args),
    Shape(shape::Args),
    Recover(recover::Args),
    /// Links between processes and machines: make keys, compute bounds, measure, show status
    Link(programs::Words),
    /// Play recorded traffic again: no item is lost, and each item leaves at its recorded time
    Replay(programs::Words),
    /// List what recordings have: streams, counts, rates, gaps and damage
    Info(programs::Words),
    /// Write recordings in another format, or a part of them
    Convert(programs::Words),
    /// Compare two recordings of the same outputs: missing and additional messages, times and
    /// contents
    Compare(programs::Words),
    /// Import a trace of LTTng (ros2_tracing, CARET) as a trace of onbeat
    Import(programs::Words),
    /// Keep traces and models of many runs: query them, and merge each new run at little cost
    Store(programs::Words),
    /// Watch the timing of a running system: chains, callbacks, topics and CPUs
    Top(programs::Words),
    /// Watch a system for weeks: judge requirements all the time, report and save violations
    Monitor(programs::Words),
    #[command(hide = true)]
    Shaper(shaper::Args),
    #[command(hide = true)]
    Diagnostics(diagnostics::Args),
}

fn run(command: Command) -> Result<ExitStatus, CliError> {
    match command {
        Command::Record(args) => record::run(args),
        Command::Model(args) => model::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Redact(args) => redact::run(args),
        Command::Show(args) => show::run(args),
        Command::Chains(args) => chains::run(args),
        Command::Why(args) => why::run(args),
        Command::Modes(args) => modes::run(args),
        Command::Check(args) => check::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Advise(args) => advise::run(args),
        Command::Export(args) => export::run(args),
        Command::Report(args) => report::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Shape(args) => shape::run(args),
        Command::Recover(args) => recover::run(args),
        Command::Link(_)
        | Command::Replay(_)
        | Command::Info(_)
        | Command::Compare(_)
        | Command::Convert(_)
        | Command::Import(_)
        | Command::Store(_)
        | Command::Top(_)
        | Command::Monitor(_) => {
            unreachable!(
                "`onbeat` starts another program for this subcommand, and does not run it itself"
            )
        }
        Command::Shaper(args) => shaper::run(args),
        Command::Diagnostics(args) => diagnostics::run(args),
    }
}

/// Gives up the rights that the subcommand does not need, before onbeat reads or loads anything
/// else. `record` and `shape` keep the rights that they need, but deactivate these rights until
/// they have read the files that the caller named.
fn confine() -> std::io::Result<()> {
    let word = |at| std::env::args_os().nth(at).unwrap_or_default();
    match word(1).to_str() {
        Some("record" | "top" | "monitor") => onbeat_rights::limit_to(onbeat_record::AT_START)?,
        // With the rights of its file, the command refuses to run.
        Some("shape") if !onbeat_rights::is_elevated() => {
            onbeat_rights::limit_to(&onbeat_shape::rights())?
        }
        Some("recover") if !onbeat_rights::is_elevated() => {
            onbeat_rights::limit_to(onbeat_shape::RECOVER_RIGHTS)?
        }
        // As root, the player needs real-time priority, locked memory and raw sockets.
        Some("replay") => onbeat_rights::give_up(&[
            Capability::CAP_SYS_NICE,
            Capability::CAP_IPC_LOCK,
            Capability::CAP_NET_RAW,
        ])?,
        // These commands open descriptors of other processes, which may have more rights.
        Some("link") if ["status", "bound"].iter().any(|what| word(2) == *what) => {
            onbeat_rights::give_up(&[Capability::CAP_SYS_PTRACE])?
        }
        // The shaper belongs to root's application. Inside a container, root may lack the right to
        // raise its limits.
        Some("shaper") => {
            onbeat_rights::give_up(&[Capability::CAP_SYS_NICE, Capability::CAP_IPC_LOCK])?
        }
        _ => onbeat_rights::give_up(&[])?,
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let program = words.get(1).and_then(|word| Program::of_command(word));
    #[cfg(feature = "whole")]
    if let Some(program) = program {
        return program.run(words.into_iter().skip(2));
    }
    onbeat_terminal::run(
        // A separate program parses the other words of its command.
        words
            .iter()
            .take(if program.is_some() { 2 } else { usize::MAX })
            .cloned()
            .collect(),
        confine,
        |cli: Cli| match program {
            Some(program) => Err(program.become_it(words.into_iter().skip(2))),
            None => run(cli.command),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory as _;

    fn texts(command: &clap::Command, path: &str, found: &mut Vec<(String, String)>) {
        let path = format!("{path} {}", command.get_name());
        if let Some(text) = command.get_after_help() {
            found.push((path.clone(), text.to_string()));
        }
        for inner in command.get_subcommands() {
            texts(inner, &path, found);
        }
    }

    /// Checks the width of examples and explanations, whose lines were broken by hand. The terminal
    /// would break a longer line once more and leave a single word on the next line.
    #[test]
    fn help_texts_are_at_most_100_columns_wide() {
        let mut found = Vec::new();
        texts(&Cli::command(), "", &mut found);
        assert!(
            found.len() > 15,
            "not all commands have examples: {found:?}"
        );
        for (command, text) in found {
            for line in text.lines() {
                assert!(line.chars().count() <= 100, "{command} --help: {line}");
            }
        }
    }
}
