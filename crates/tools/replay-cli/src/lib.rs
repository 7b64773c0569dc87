//! `onbeat-replay`: the program behind five commands.
//!
//! | command | job |
//! |---|---|
//! | `onbeat replay` | plays recorded traffic again, without loss and on time |
//! | `onbeat info` | lists what recordings have |
//! | `onbeat convert` | writes recordings in another format |
//! | `onbeat compare` | compares two recordings |
//! | `onbeat import` | reads the traces of other tracers |

mod bus;
mod compare;
mod convert;
mod dbc;
mod import;
mod judge;
mod keys;
mod list;
mod options;
mod order;
mod place;
mod remote;
mod selection;
mod show;
mod size;
mod socket;

use keys::Keys;
use onbeat_document::text::duration;
use onbeat_replay::chain::Chain;
use onbeat_replay::compare::figures::Compared;
use onbeat_replay::control::Control;
use onbeat_replay::item::{Source, SourceError, Stream, StreamId};
use onbeat_replay::route::{Outputs, Stating, Target};
use onbeat_replay::session::{Played, Session};
use onbeat_replay::sink::ros::{Plan, Topics};
use onbeat_replay::sink::{Sink, SinkError};
use onbeat_replay::{picture, route, source};
use onbeat_rights::Capability;
use onbeat_terminal::live::LiveLine;
use onbeat_terminal::term;
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
use options::Args;
use order::{Order, Orders};
use socket::Socket;
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(2);
const SHOW_EVERY: Duration = Duration::from_millis(500);

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::failed(error)
}

#[derive(clap::Parser)]
#[command(name = "onbeat", max_term_width = 100)]
enum Words {
    Replay(Box<Args>),
    Info(list::Args),
    Compare(compare::Offline),
    Convert(convert::Args),
    Import(import::Args),
}

/// Drops all capabilities of the process that `command` does not need. Only the command `replay`
/// keeps some: those for real-time scheduling, locked memory and raw packets.
fn confine(command: &str) -> io::Result<()> {
    let kept: &[Capability] = match command {
        "replay" => &[
            Capability::CAP_SYS_NICE,
            Capability::CAP_IPC_LOCK,
            Capability::CAP_NET_RAW,
        ],
        _ => &[],
    };
    onbeat_rights::give_up(kept)
}

/// Runs the program with these words of its command line. The first word is the name under which
/// `onbeat` started it.
pub fn main(words: Vec<OsString>) -> ExitCode {
    onbeat_terminal::helper(
        words,
        &["replay", "info", "compare", "convert", "import"],
        confine,
        |words| match words {
            Words::Replay(args) => run(*args),
            Words::Info(args) => list::run(&args),
            Words::Compare(args) => compare::run(&args),
            Words::Convert(args) => convert::run(&args),
            Words::Import(args) => import::run(&args),
        },
    )
}

fn run(args: Args) -> Result<ExitStatus, CliError> {
    let mut settings = args.settings()?;
    let reports = args.reports()?;
    let from = place::source_of(&args.sources);
    match (from, args.link()) {
        (Some(_), Some(_)) => {
            return Err(CliError::Usage(
                "the source and --to are both links: a recording that comes over a link can be played here, but not sent on. Choose another --to"
                    .into(),
            ))
        }
        (None, None) if args.key.is_some() => {
            return Err(CliError::Usage(
                "--key needs a link, and this replay has none. Leave --key out, or write link:HOST:PORT"
                    .into(),
            ))
        }
        (None, Some(to)) => return remote::send(&args, to),
        _ => {}
    }
    let prepared = compare::prepare(&args)?;
    let control = Arc::new(Control::default());
    let orders = Orders {
        control: control.clone(),
        no_rate: args.no_rate(),
        no_seek: args.no_seek(),
    };
    let open = match from {
        Some(at) => remote::receiver(&args, at, settings.room(), &control)?,
        None => opener(args.sources.clone(), args.align),
    };
    let mut chain = Chain::new(open, args.choice()?).map_err(failed)?;
    let streams = chain.streams().to_vec();
    let targets = match route::targets(&streams, &args.targets()) {
        // A plan needs no place to play to.
        Err(_) if args.plan => Vec::new(),
        targets => targets.map_err(failed)?,
    };
    if !args.plan {
        for remark in route::check(&targets).map_err(failed)? {
            eprintln!("onbeat: {}", term::one_line(&remark));
        }
    }
    let choice = args.choice_measured()?;
    let measuring = size::of(&args, &targets, || {
        Chain::new(opener(args.sources.clone(), args.align), choice)
    })?;
    if args.plan {
        return size::show(&measuring, args.json);
    }
    let measured = measuring.into_measured();
    if let Some(measured) = &measured {
        size::tell(measured);
        size::set(&mut settings, &measured.sizing);
        if args.takes_each_request_once() {
            chain.take_each_request_once(&measured.contents.requests);
        }
        for sentence in list::clock(&measured.contents) {
            eprintln!("onbeat: {sentence}");
        }
    }
    let path = args.course.control.as_deref();
    let socket = path.map(|path| Socket::listen(path, orders.clone()));
    let socket = socket.transpose()?;
    let running = prepared.map(|prepared| prepared.start(&args, &control));
    let running = running.transpose()?;
    let outputs = outputs(&args, &streams, &targets)?;
    if args.course.paused {
        control.pause();
    }
    // This comes before the threads start, because they inherit it.
    keys::catch_signals();
    let session = Session::start(Box::new(chain), outputs, &settings, control.clone());
    let session = session.map_err(failed)?;
    watch(&session, &orders);
    drop(socket);
    let mut played = session.finish().map_err(failed)?;
    played.sizing = measured.map(|measured| measured.sizing);
    let running = running.filter(|_| played.failed.is_none());
    let compared = running.map(|running| running.finish(&args, &control, played.stopped));
    let done = Done {
        compared: compared.transpose()?,
        played,
    };
    for (path, kind) in &reports {
        write_report(path, *kind, &done)?;
    }
    done.print(args.json)?;
    verdict(&args, &done)
}

#[derive(serde::Serialize)]
struct Done {
    #[serde(flatten)]
    played: Played,
    #[serde(skip_serializing_if = "Option::is_none")]
    compared: Option<Compared>,
}

impl Done {
    fn print(&self, json: bool) -> Result<(), CliError> {
        let mut out = BufWriter::new(io::stdout().lock());
        if json {
            term::write_json(&mut out, self)?;
        } else {
            show::table(&mut out, &self.played)?;
            if let Some(compared) = &self.compared {
                writeln!(out).map_err(CliError::Stdout)?;
                compare::table(&mut out, compared)?;
            }
        }
        out.flush().map_err(CliError::Stdout)
    }
}

/// Opens the outputs for the targets of the streams. Loads ROS 2 only if a stream goes to a ROS 2
/// topic.
fn outputs(args: &Args, streams: &[Stream], targets: &[Target]) -> Result<Outputs, CliError> {
    let clock = args.clock_ns().map(|_| StreamId(streams.len() as u32));
    if clock.is_some() && streams.iter().any(|s| s.name == "/clock") {
        let how =
            "the recording already has a topic /clock. Add --exclude /clock, or leave --clock out";
        return Err(failed(how));
    }
    if args.answer().is_some() && !targets.contains(&Target::Ros) {
        return Err(failed(
            "--answer works only with ROS 2, but no stream is played to ROS 2. Leave --answer out",
        ));
    }
    let wait = args.wait;
    let overrides = args.overrides()?;
    let ros = |streams: &[(StreamId, Stream)]| -> Result<Box<dyn Sink>, SinkError> {
        let plan = Plan {
            streams,
            clock,
            overrides: &overrides,
            answer: args.answer(),
            wait,
        };
        let (topics, alone) = Topics::open(&plan)?;
        let within = duration(wait.as_nanos() as f64);
        for topic in alone.topics {
            let topic = term::one_line(&topic);
            eprintln!("onbeat: nobody has subscribed to {topic} within {within} (--wait)");
        }
        for service in alone.services {
            let service = term::one_line(&service);
            eprintln!("onbeat: {service} has no server within {within} (--wait). Requests are skipped until the service has a server");
        }
        Ok(Box::new(topics))
    };
    let stating = Stating {
        speeds: &args.bitrate,
        ports: &args.map,
    };
    let mut outputs = route::open(streams, targets, stating, ros).map_err(failed)?;
    if let Some(stream) = clock {
        let sink = match targets.iter().position(|t| *t == Target::Ros) {
            Some(stream) => outputs.routes[stream],
            None => {
                outputs.sinks.push(ros(&[]).map_err(failed)?);
                outputs.sinks.len() - 1
            }
        };
        outputs.clock = Some((sink, stream));
    }
    Ok(outputs)
}

/// Returns a function that opens the recordings as one source. A replay calls this function once
/// for each repetition. If `align` is true, the recordings are shifted so that all begin at the
/// same time.
fn opener(paths: Vec<PathBuf>, align: bool) -> onbeat_replay::chain::Open {
    Box::new(move || {
        let mut opened = Vec::with_capacity(paths.len());
        for path in &paths {
            opened.push(opened_with_progress(path)?);
        }
        match opened.len() {
            1 => Ok(opened.remove(0)),
            _ => source::merged(opened, align),
        }
    })
}

/// Opens a recording. If the recording is packed and unpacking takes long, shows the progress.
fn opened_with_progress(path: &Path) -> Result<Box<dyn Source>, SourceError> {
    let mut line = LiveLine::new();
    let source = source::open_with_progress(path, &mut unpacking(path, &mut line));
    line.clear();
    source
}

/// Returns a function that shows on `line` how far a packed recording is unpacked, if unpacking
/// takes long.
fn unpacking<'a>(path: &'a Path, line: &'a mut LiveLine) -> impl FnMut(u64, u64) + 'a {
    let (started, mut shown) = (Instant::now(), Instant::now());
    move |used, all| {
        if started.elapsed() > PATIENCE && shown.elapsed() > SHOW_EVERY {
            shown = Instant::now();
            let percent = used * 100 / all.max(1);
            let path = term::one_line(&path.display().to_string());
            line.show(&format!("unpacking {path}: {percent} %"));
        }
    }
}

/// Shows the progress until the replay has ended. Meanwhile, reacts to keys and signals.
fn watch(session: &Session, orders: &Orders) {
    let control = &orders.control;
    let mut line = LiveLine::new();
    let mut keys = Keys::of_terminal();
    if keys.is_some() && control.state().paused {
        line.print("Paused: space continues, s plays one item, arrows seek, q ends the replay.");
    }
    let (started, mut shown) = (Instant::now(), Instant::now());
    let mut warned = false;
    while !session.is_over() {
        if let Some(order) = Keys::wait(keys.as_mut(), LOOK) {
            if let Err(why) = orders.carry_out(order) {
                line.print(&format!("onbeat: {why}"));
            } else if !matches!(order, Order::Stop {}) {
                line.show(&show::progress(&control.state()));
            }
        }
        if keys::was_interrupted() {
            control.stop();
        }
        if !warned && control.state().behind_ns > 0 {
            warned = true;
            line.print(&size::warning(&control.state()));
        }
        if started.elapsed() > PATIENCE && shown.elapsed() > SHOW_EVERY {
            shown = Instant::now();
            line.show(&show::progress(&control.state()));
        }
    }
    line.clear();
}

#[derive(Debug, Clone, Copy)]
enum Report {
    Json,
    Html,
    Svg,
}

fn write_report(path: &Path, kind: Report, done: &Done) -> Result<(), CliError> {
    let played = &done.played;
    files::write_whole(path, |out| match kind {
        Report::Json => {
            serde_json::to_writer_pretty(&mut *out, done)?;
            out.write_all(b"\n")
        }
        Report::Html => out.write_all(picture::html(played).as_bytes()),
        Report::Svg => out.write_all(picture::svg(&played.figures).as_bytes()),
    })
}

fn verdict(args: &Args, done: &Done) -> Result<ExitStatus, CliError> {
    let played = &done.played;
    if let Some(why) = &played.failed {
        return Err(failed(why));
    }
    if played.items.lost > 0 {
        return Err(failed(format!(
            "{} items were read but did not leave the player. Report this as a bug",
            played.items.lost
        )));
    }
    let late = Duration::from_nanos(played.figures.lateness_ns.extent.max);
    Ok(match args.max_late {
        _ if played.items.read == 0 && !played.stopped => ExitStatus::NothingFound,
        Some(most) if late > most => ExitStatus::PromiseBroken,
        _ => done
            .compared
            .as_ref()
            .map_or(ExitStatus::Success, compare::status),
    })
}
