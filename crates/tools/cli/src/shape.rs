//! `onbeat shape`: runs an application under a plan, and compares the result with its promises.

mod bands;
mod dry_run;
mod status;

use crate::error::CliError;
use crate::live::LiveLine;
use crate::notify::Notifier;
use crate::term::{self, Align, Screen, Table};
use crate::units::parse_duration;
use crate::{files, ExitStatus};
use onbeat_plan::Plan;
use onbeat_shape::judge::Figure;
use onbeat_shape::observe::Fate;
use onbeat_shape::status::{Board, Service, WriteFigures};
use onbeat_shape::{AdaptOptions, GateKind, Live, PlacedThread, ShapeError, ShapeOptions, Summary};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Run an application under a plan: its chain takes the same time every time.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo onbeat shape plan.yaml -- ros2 launch my_robot all.launch.py
  sudo onbeat shape plan.yaml                     an application that runs already
  sudo onbeat shape plan.yaml --verify 60s -- python3 app.py
  sudo onbeat shape --status                      what runs, and how well
  sudo onbeat shape plan.yaml --dry-run           what would be done, and the machine's settings
  sudo onbeat shape plan.yaml --adapt -- python3 app.py

The command first records the application. When it has seen every callback of the plan and knows
the period of the first one, it assigns the threads to their servers. Ctrl-C restores everything;
if this command is killed, its guard does so.

With COMMAND, topics that the plan holds back are remapped on its command line (behind
--ros-args). An application that runs already must have been started with these arguments;
--remap prints them.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 nothing was shaped; 4 this kernel or user may
not; 5 --verify: a promise of the plan was broken. With COMMAND: its own code where that is not 0.")]
pub struct Args {
    /// The plan, from onbeat plan
    #[arg(value_name = "PLAN", default_value = "plan.yaml")]
    pub plan: PathBuf,
    /// Shape for this time, then compare the result with the plan's promises
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub verify: Option<Duration>,
    /// Stop after this time of shaping
    #[arg(long, value_name = "T", value_parser = parse_duration, conflicts_with = "verify")]
    pub duration: Option<Duration>,
    /// How long to wait until all callbacks of the plan were seen [default: 60s; with --dry-run 10s]
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub find: Option<Duration>,
    /// Keep the recording in this directory
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Write every execution to this file (CSV; '-': standard output)
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,
    /// Observe only these processes
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Vec<u32>,
    /// The application that runs already is this user's [default: root's, and yours under sudo]
    #[arg(long, value_name = "NAME", value_parser = user_id, conflicts_with_all = ["command", "pid"])]
    pub user: Vec<u32>,
    /// CPU of the dispatcher [default: the middleware's]
    #[arg(long, value_name = "CPU")]
    pub dispatcher_cpu: Option<u16>,
    /// What the end of a slot does to a thread at work: soft lowers its priority until it waits, and
    /// freezes it then; hard freezes it at once, with what it holds
    #[arg(long, value_name = "KIND", value_enum, default_value_t)]
    pub gate: GateChoice,
    /// End where a thread cannot be shaped, or a second instance of a node runs, instead of telling it and going on
    #[arg(long)]
    pub strict: bool,
    /// Place the bands again as the load changes, within the chain's slot (onbeat plan --room)
    #[arg(long)]
    pub adapt: bool,
    /// With --adapt: no band ends later than this after the start of its cycle
    #[arg(long, value_name = "T", value_parser = parse_duration, requires = "adapt")]
    pub deadline: Option<Duration>,
    /// With --adapt: write the bands and each of their changes to this file (CSV; '-': standard output)
    #[arg(long, value_name = "FILE", requires = "adapt")]
    pub record_bands: Option<PathBuf>,
    /// Let idle CPUs sleep deeply: saves power, costs precision
    #[arg(long)]
    pub idle: bool,
    /// Change nothing: print which thread would go where, what shares it, what is at risk
    #[arg(long, conflicts_with_all = ["command", "verify", "duration", "trace", "samples", "remap"])]
    pub dry_run: bool,
    /// Print the status of the sessions that run (with --pid: of these)
    #[arg(long, conflicts_with_all = ["command", "verify", "duration", "trace", "samples", "remap", "dry_run", "metrics"])]
    pub status: bool,
    /// With --status: as Prometheus text
    #[arg(long, requires = "status", conflicts_with = "json")]
    pub prometheus: bool,
    /// Write figures as Prometheus text every five seconds (for the node exporter: DIR/onbeat.prom)
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Directory of status sockets [default: /run/onbeat]
    #[arg(long, value_name = "DIR", hide = true)]
    pub sockets: Option<PathBuf>,
    /// Only print the arguments that remap the plan's topics
    #[arg(long)]
    pub remap: bool,
    /// Print the result as JSON; what COMMAND prints goes to the standard error
    #[arg(long)]
    pub json: bool,
    /// Start this application, and shape it
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// What the end of a slot does to a thread that is at work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GateChoice {
    /// Its priority drops until it waits; then it is frozen
    #[default]
    Soft,
    /// It is frozen at once
    Hard,
}

impl From<GateChoice> for GateKind {
    fn from(choice: GateChoice) -> GateKind {
        match choice {
            GateChoice::Soft => GateKind::Soft,
            GateChoice::Hard => GateKind::Hard,
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let sockets = args.sockets.clone().unwrap_or_else(onbeat_shape::ledgers);
    if args.status {
        let form = match (args.json, args.prometheus) {
            (true, _) => status::Form::Json,
            (_, true) => status::Form::Prometheus,
            _ => status::Form::Text,
        };
        return status::status(&sockets, args.pid.first().copied(), form);
    }
    let plan = crate::plan::load(&args.plan)?;
    if args.remap {
        let command = [String::from("-")];
        let moves = onbeat_shape::launch::moves(&plan);
        let words = onbeat_ros::remap::remap_command(&command, &moves)
            .map_err(|e| CliError::Record(e.to_string()))?;
        let words = words[1..].to_vec();
        return writeln!(io::stdout(), "{}", words.join(" "))
            .map(|()| ExitStatus::Success)
            .map_err(CliError::Stdout);
    }
    // Before sudo can end: who called is read from it.
    let user = onbeat_record::user_behind_sudo();
    let options = ShapeOptions {
        users: users(&args, user.as_ref()),
        command: args.command,
        pids: args.pid,
        duration: args.verify.or(args.duration),
        trace: args.trace,
        find_within: args.find.unwrap_or(if args.dry_run { LOOK } else { FIND }),
        program: std::env::current_exe().map_err(|source| CliError::Read {
            path: PathBuf::from("/proc/self/exe"),
            source,
        })?,
        command_to_stderr: args.json,
        dispatcher_cpu: args.dispatcher_cpu,
        idle: args.idle,
        gate: args.gate.into(),
        strict: args.strict,
        adapt: args.adapt.then(|| AdaptOptions {
            deadline_ns: args
                .deadline
                .map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
        }),
    };
    if args.dry_run {
        return dry_run::run(&plan, &options, args.json);
    }
    let mut show = LiveLine::new();
    let mut printed = 0;
    let board = Arc::new(Board::default());
    let service = serve(&sockets, &board, args.metrics.as_ref(), user.as_ref());
    let mut notifier = Notifier::of_environment();
    let tell = &mut |live: &Live| {
        for note in &live.notes {
            show.print(&format!("note: {}", term::one_line(note)));
            printed += 1;
        }
        let line = term::fit(&term::one_line(&line(live)), LIVE_WIDTH);
        notifier.lives(&line);
        show.show(&line);
    };
    let summary = onbeat_shape::shape_on(&plan, &options, tell, Some(board.clone()));
    notifier.ends();
    drop(service);
    show.clear();
    let summary = summary.map_err(|e| match e {
        e if e.is_refusal() => CliError::Refused(e.to_string()),
        ShapeError::Adapt(_) | ShapeError::Record(onbeat_record::RecordError::NoProcess(_)) => {
            CliError::Usage(e.to_string())
        }
        e => CliError::Record(e.to_string()),
    })?;
    if args.json {
        print_json(&summary)?;
    } else {
        print(&summary, args.verify.is_some(), printed).map_err(CliError::Stdout)?;
        tables(&summary)?;
    }
    if let Some(path) = &args.samples {
        write_as(user.as_ref(), path, || samples(path, &plan, &summary))?;
    }
    if let (Some(path), Some(adapted)) = (&args.record_bands, &summary.adapted) {
        write_as(user.as_ref(), path, || bands::write(path, adapted))?;
    }
    Ok(match summary.command_status {
        Some(code) if code != 0 => ExitStatus::Command(code),
        _ if summary.judgements.is_empty() => ExitStatus::NothingFound,
        _ if args.verify.is_some() && !summary.verdict.is_kept() => ExitStatus::PromiseBroken,
        _ => ExitStatus::Success,
    })
}

/// Writes a file as the user behind sudo: not over what only root may write to.
fn write_as(
    user: Option<&onbeat_record::User>,
    path: &Path,
    write: impl Fn() -> Result<(), CliError>,
) -> Result<(), CliError> {
    let written = user.map_or_else(|| Ok(write()), |user| user.act(&write));
    written.unwrap_or_else(|source| {
        let path = path.to_path_buf();
        Err(CliError::Write { path, source })
    })
}

/// Answers on the status socket, and writes figures to a file. A session runs without it too.
fn serve(
    sockets: &Path,
    board: &Arc<Board>,
    metrics: Option<&PathBuf>,
    user: Option<&onbeat_record::User>,
) -> Option<Service> {
    if !onbeat_rights::is_root() || onbeat_rights::is_elevated() {
        // It will be refused with the reason.
        return None;
    }
    // As the samples: not over what only root may write to.
    let (metrics, user) = (metrics.cloned(), user.cloned());
    let write = metrics.map(|path| -> WriteFigures {
        let mut has_failed = false;
        Box::new(move |status| {
            let text = onbeat_shape::status::prometheus(status);
            let write = || onbeat_files::replace(&path, |file| file.write_all(text.as_bytes()));
            let written = match &user {
                Some(user) => user.act(write).and_then(|written| written),
                None => write(),
            };
            let was_told = std::mem::replace(&mut has_failed, written.is_err());
            if let (Err(e), false) = (written, was_told) {
                let line = format!("note: cannot write {}: {e}", path.display());
                let _ = writeln!(io::stderr(), "{}", term::one_line(&line));
            }
        })
    });
    match Service::start(sockets, board.clone(), write) {
        Ok(service) => Some(service),
        Err(e) => {
            let line = format!("note: {e}: --status will not find this session");
            let _ = writeln!(io::stderr(), "{}", term::one_line(&line));
            None
        }
    }
}

/// A user by name or number.
fn user_id(text: &str) -> Result<u32, String> {
    let number = text.parse().ok();
    let id = number.or_else(|| onbeat_record::user_id(text));
    id.ok_or_else(|| "there is no such user".into())
}

/// The users whose processes may be shaped, besides root and ourselves. Everybody can call nodes as the plan
/// does, and what is shaped gets real-time priorities.
fn users(args: &Args, behind_sudo: Option<&onbeat_record::User>) -> Option<Vec<u32>> {
    let is_chosen = !args.command.is_empty() || !args.pid.is_empty();
    let behind = behind_sudo.map(|user| user.uid);
    (!is_chosen).then(|| args.user.iter().copied().chain(behind).collect())
}

/// How long callbacks are looked for.
const FIND: Duration = Duration::from_secs(60);
/// The same where nothing is done with them.
const LOOK: Duration = Duration::from_secs(10);

/// Columns of the live line.
const LIVE_WIDTH: usize = 99;

fn ms(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

fn line(live: &Live) -> String {
    let Some(shaping) = live.shaping else {
        return match live.missing.len() {
            0 => "looking for the period and the shapers".into(),
            1 => format!("looking for {}", live.missing[0]),
            n => format!("looking for {} and {} more", live.missing[0], n - 1),
        };
    };
    let s = shaping.as_secs();
    let last = live.judgements.last().map_or(String::new(), |o| {
        let band = o.band.map_or("outside".into(), |b| (b + 1).to_string());
        format!("  {} ms (band {band})", ms(o.execution.latency_ns()))
    });
    let unshaped = live.unshaped_jitter_ns;
    let unshaped = unshaped.map_or(String::new(), |ns| format!(" (unshaped {})", ms(ns)));
    format!(
        "{:02}:{:02}:{:02}  cycle {}{last}  jitter {} ms{unshaped}  of {}: {} late, {} discarded, {} missing  dispatcher p99 {:.0} us",
        s / 3600,
        s / 60 % 60,
        s % 60,
        live.cycle,
        ms(live.jitter_ns),
        live.executions,
        live.late,
        live.dropped,
        live.without,
        live.dispatcher_p99_ns as f64 / 1e3,
    )
}

fn number(figure: &Figure, value: f64) -> String {
    match figure.unit {
        "" => format!("{value:.0}"),
        "%" => format!("{value:.2} %"),
        unit => format!("{value:.3} {unit}"),
    }
}

fn print(summary: &Summary, verify: bool, printed: usize) -> io::Result<()> {
    let mut out = io::stdout();
    // The first ones were printed while it ran.
    for note in summary.notes.iter().skip(printed) {
        writeln!(out, "note: {}", term::one_line(note))?;
    }
    if summary.judgements.is_empty() {
        writeln!(
            out,
            "No execution of the chain was seen while it was shaped."
        )?;
    } else if verify {
        let kept = if summary.verdict.is_kept() {
            "kept"
        } else {
            "NOT kept"
        };
        writeln!(out, "The plan's promises were {kept}.")?;
    }
    Ok(())
}

fn tables(summary: &Summary) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut out = io::stdout();
    let mut figures = Table::new()
        .names("figure", 3)
        .column("promised", Align::Right)
        .column("measured", Align::Right)
        .column("kept", Align::Left);
    for f in &summary.verdict.figures {
        let kept = f.kept.map_or("", |k| if k { "yes" } else { "NO" });
        figures.row(vec![
            f.name.clone(),
            f.promised.map_or(String::new(), |p| number(f, p)),
            number(f, f.measured),
            kept.into(),
        ]);
    }
    if let Some(stats) = &summary.stats {
        for (name, q) in [
            ("p50", 0.5),
            ("p99", 0.99),
            ("p99.9", 0.999),
            ("longest", 1.0),
        ] {
            let late = stats.lateness.quantile_ns(q) as f64 / 1e6;
            figures.row(vec![
                format!("dispatcher's lateness, {name}"),
                String::new(),
                format!("{late:.3} ms"),
                String::new(),
            ]);
        }
    }
    gates(summary).into_iter().for_each(|row| figures.row(row));
    figures.write(&mut out, &screen)?;
    if summary.placed.is_empty() {
        return Ok(());
    }
    writeln!(out).map_err(CliError::Stdout)?;
    let mut threads = Table::new()
        .column("server", Align::Left)
        .column("threads", Align::Right)
        .column("name", Align::Left)
        .names("for", 3);
    // The middleware has many that do the same.
    let mut alike: BTreeMap<(&str, String, &str), usize> = BTreeMap::new();
    for PlacedThread {
        name, place, job, ..
    } in &summary.placed
    {
        let family = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        *alike.entry((place, family.to_owned(), job)).or_default() += 1;
    }
    for ((place, name, job), count) in alike {
        threads.row(vec![place.into(), count.to_string(), name, job.into()]);
    }
    threads.write(&mut out, &screen)
}

/// Rows of what the ends of slots met, for servers that have threads.
fn gates(summary: &Summary) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: String, measured: String| {
        rows.push(vec![name, String::new(), measured, String::new()]);
    };
    let gates = summary.stats.iter().flat_map(|s| &s.gates);
    for gate in gates.filter(|g| g.ends > 0) {
        let (server, of) = (&gate.server, gate.ends);
        row(
            format!("{server}: at work at the end of a slot"),
            format!("{} of {of}", gate.working),
        );
        let counts = [
            ("not known at the end of a slot", gate.unknown),
            ("frozen at work", gate.hard),
            ("at work until the next slot", gate.unfinished),
        ];
        for (what, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            row(format!("{server}: {what}"), format!("{count} of {of}"));
        }
        for (name, q) in [("p50", 0.5), ("p99", 0.99), ("longest", 1.0)] {
            if gate.waited.count() > 0 {
                let waited = gate.waited.quantile_ns(q);
                row(
                    format!("{server}: time until it waited, {name}"),
                    format!("{} ms", ms(waited)),
                );
            }
        }
    }
    rows
}

fn print_json(summary: &Summary) -> Result<(), CliError> {
    let figures: Vec<_> = summary
        .verdict
        .figures
        .iter()
        .map(|f| {
            json!({"name": f.name, "unit": f.unit, "promised": f.promised, "measured": f.measured,
                   "kept": f.kept})
        })
        .collect();
    let threads: Vec<_> = summary
        .placed
        .iter()
        .map(|p| json!({"tid": p.tid, "pid": p.pid, "name": p.name, "server": p.place, "job": p.job}))
        .collect();
    let dispatcher = summary.stats.as_ref().map(|s| {
        json!({"lateness_p50_ns": s.lateness.quantile_ns(0.5),
               "lateness_p99_ns": s.lateness.quantile_ns(0.99),
               "lateness_p999_ns": s.lateness.quantile_ns(0.999),
               "lateness_max_ns": s.lateness.quantile_ns(1.0),
               "cpu_ns": s.cpu_ns, "cycles": s.cycles})
    });
    let gates = summary.stats.iter().flat_map(|s| &s.gates);
    let gates: Vec<_> = gates
        .map(|g| {
            json!({"server": g.server, "ends": g.ends, "working": g.working, "unknown": g.unknown,
                   "frozen_working": g.hard, "taken_back": g.taken_back, "unfinished": g.unfinished,
                   "waited": g.waited.count(), "waited_p50_ns": g.waited.quantile_ns(0.5),
                   "waited_p99_ns": g.waited.quantile_ns(0.99), "waited_max_ns": g.waited.max_ns})
        })
        .collect();
    let late: Vec<_> = summary
        .late
        .iter()
        .map(|l| {
            let parts = l.parts.iter().map(|p| json!({"what": p.what, "ns": p.ns}));
            json!({"cycle": l.cycle, "start_ns": l.start_ns, "cause": l.cause,
                   "parts": parts.collect::<Vec<_>>(), "dump": l.dump})
        })
        .collect();
    let text = json!({"kept": summary.verdict.is_kept(), "executions": summary.judgements.len(),
                      "figures": figures, "threads": threads, "dispatcher": dispatcher, "gates": gates,
                      "adapted": summary.adapted.as_ref().map(bands::json), "late": late,
                      "notes": summary.notes});
    writeln!(io::stdout(), "{text:#}").map_err(CliError::Stdout)
}

fn samples(path: &Path, plan: &Plan, summary: &Summary) -> Result<(), CliError> {
    files::write_whole(path, |out| {
        writeln!(
            out,
            "chain,start_ns,left_ns,output_ns,latency_ns,offset_ns,band,late,dropped,refused"
        )?;
        for o in &summary.judgements {
            let e = &o.execution;
            let chain = plan.chains.get(e.chain).map_or("", |c| c.id.as_str());
            writeln!(
                out,
                "{},{},{},{},{},{},{},{},{},{}",
                chain,
                e.start_ns,
                e.left_ns,
                e.output_ns,
                e.latency_ns(),
                o.offset_ns,
                o.band.map_or(String::new(), |b| (b + 1).to_string()),
                u8::from(e.late),
                u8::from(e.fate == Fate::Discarded),
                u8::from(e.fate == Fate::Refused)
            )?;
        }
        Ok(())
    })
}
