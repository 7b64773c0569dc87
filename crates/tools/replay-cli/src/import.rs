//! `onbeat import`: turns a trace of LTTng into a trace of onbeat.

use super::{failed, PATIENCE, SHOW_EVERY};
use onbeat_ctf::Imported;
use onbeat_document::text::duration;
use onbeat_terminal::live::LiveLine;
use onbeat_terminal::term::{one_line, write_json};
use onbeat_terminal::{CliError, ExitStatus};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Import a trace of LTTng (ros2_tracing, CARET) as a trace of onbeat
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat import ~/.ros/tracing/session-20261128 -o trace     what `ros2 trace` wrote
  onbeat model trace
  onbeat import session -o trace --mode urban
  onbeat import session -o trace --json | jq '.notes'

SESSION is the directory of a stopped session, or a directory within it. All traces below it are
merged: of processes, users and the kernel. Events need the contexts vpid and vtid, as `ros2 trace`
adds them. Execution times need the kernel's event sched_switch; waiting times also need
sched_waking.

The notes say what the trace lacks. onbeat leaves out a figure that it cannot know (docs/how-to/import.md).

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but no process ran callbacks of rclcpp.")]
pub struct Args {
    /// Directory of the session
    #[arg(value_name = "SESSION")]
    session: PathBuf,
    /// Directory to write the trace to: new, or empty
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Mode of the run, for example urban
    #[arg(long, value_name = "NAME", default_value = "")]
    mode: String,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Summary<'a> {
    trace: &'a PathBuf,
    events: u64,
    processes: usize,
    duration_ns: u64,
    lost: u64,
    notes: &'a [String],
}

pub fn run(args: &Args) -> Result<ExitStatus, CliError> {
    let mut line = LiveLine::new();
    let (started, mut shown) = (Instant::now(), Instant::now());
    let mut progress = |done: u64, total: u64| {
        if started.elapsed() > PATIENCE && shown.elapsed() > SHOW_EVERY {
            shown = Instant::now();
            line.show(&format!("{} % read", done * 100 / total.max(1)));
        }
    };
    let imported = onbeat_ctf::import(&args.session, &args.output, &args.mode, &mut progress);
    line.clear();
    let imported = imported.map_err(failed)?;
    let mut out = io::stdout().lock();
    if args.json {
        let Imported {
            events,
            processes,
            duration_ns,
            lost,
            notes,
            ..
        } = &imported;
        write_json(
            &mut out,
            &Summary {
                trace: &args.output,
                events: *events,
                processes: *processes,
                duration_ns: *duration_ns,
                lost: *lost,
                notes,
            },
        )?;
    } else {
        print(&mut out, args, &imported).map_err(CliError::Stdout)?;
    }
    Ok(match imported.has_callbacks {
        true => ExitStatus::Success,
        false => ExitStatus::NothingFound,
    })
}

fn print(out: &mut dyn Write, args: &Args, imported: &Imported) -> io::Result<()> {
    let took = duration(imported.duration_ns as f64);
    writeln!(
        out,
        "{took}  {} processes  {} events  {} lost  ->  {}",
        imported.processes,
        imported.events,
        imported.lost,
        one_line(&args.output.display().to_string())
    )?;
    for note in &imported.notes {
        writeln!(out, "{}", one_line(note))?;
    }
    out.flush()
}
