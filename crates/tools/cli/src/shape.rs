//! `onbeat shape`: runs an application under a plan, and compares the result with the plan's
//! promises.

mod args;
mod bands;
mod dry_run;
mod export;
mod line;
mod reload;
mod result;
mod service;
mod status;

pub use args::Args;

use onbeat_plan::Plan;
use onbeat_record::User;
use onbeat_shape::status::Board;
use onbeat_shape::{InsideError, Live, ShapeError, ShapeOptions, Summary};
use onbeat_terminal::live::LiveLine;
use onbeat_terminal::notify::Notifier;
use onbeat_terminal::CliError;
use onbeat_terminal::{term, ExitStatus};
use service::write_as;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    if args.instead.status {
        return status(&args);
    }
    if args.instead.reload {
        let only = args.application.pid.first().copied();
        return reload::reload(&sockets(&args), only, args.json);
    }
    let plan = crate::plan::load(&args.plan)?;
    if args.instead.remap {
        return remap(&plan);
    }
    // This must happen before sudo can end, because the caller is read from the sudo process.
    let caller = onbeat_record::user_behind_sudo();
    let options = args.options(caller.as_ref())?;
    if args.instead.dry_run {
        return dry_run::run(&plan, &options, args.json);
    }
    let (summary, printed) = session(&plan, &options, &args, caller.as_ref())?;
    if args.json {
        export::print_json(&summary)?;
    } else {
        let is_verified = args.end.verify.is_some();
        result::print(&summary, is_verified, printed).map_err(CliError::Stdout)?;
        result::tables(&summary)?;
    }
    if let Some(path) = &args.files.samples {
        write_as(caller.as_ref(), path, || {
            export::samples(path, &plan, &summary)
        })?;
    }
    if let (Some(path), Some(adapted)) = (&args.bands.record_bands, &summary.adapted) {
        write_as(caller.as_ref(), path, || bands::write(path, adapted))?;
    }
    Ok(match summary.command_status {
        Some(code) if code != 0 => ExitStatus::Command(code),
        _ if summary.judgements.is_empty() => ExitStatus::NothingFound,
        _ if args.end.verify.is_some() && !summary.is_kept() => ExitStatus::PromiseBroken,
        _ => ExitStatus::Success,
    })
}

fn sockets(args: &Args) -> PathBuf {
    let chosen = args.instead.sockets.clone();
    chosen.unwrap_or_else(onbeat_shape::ledgers)
}

fn status(args: &Args) -> Result<ExitStatus, CliError> {
    let form = match (args.json, args.instead.prometheus) {
        (true, _) => status::Form::Json,
        (_, true) => status::Form::Prometheus,
        _ => status::Form::Text,
    };
    status::status(&sockets(args), args.application.pid.first().copied(), form)
}

fn remap(plan: &Plan) -> Result<ExitStatus, CliError> {
    let command = [String::from("-")];
    let moves = onbeat_shape::launch::moves(plan);
    let words = onbeat_ros::remap::remap_command(&command, &moves).map_err(CliError::failed)?;
    writeln!(io::stdout(), "{}", words[1..].join(" "))
        .map(|()| ExitStatus::Success)
        .map_err(CliError::Stdout)
}

/// Shapes the application. Meanwhile shows a status line, answers on the status socket and reports
/// to systemd. Returns the result of shaping and the number of printed notes.
fn session(
    plan: &Plan,
    options: &ShapeOptions,
    args: &Args,
    caller: Option<&User>,
) -> Result<(Summary, usize), CliError> {
    let mut show = LiveLine::new();
    let mut printed = 0;
    let board = Arc::new(Board::default());
    let hangup = Arc::<AtomicBool>::default();
    let files = service::Files {
        plan: &args.plan,
        metrics: args.files.metrics.as_ref(),
        hangup: hangup.clone(),
    };
    let service = service::serve(&sockets(args), &board, files, caller);
    let options = &ShapeOptions {
        // SIGHUP from a closed terminal ends the session. Without a terminal, SIGHUP asks for a
        // reload.
        hangup: (service.is_some() && !reload::has_terminal()).then_some(hangup),
        ..options.clone()
    };
    let mut notifier = Notifier::of_environment();
    let tell = &mut |live: &Live| {
        for note in &live.notes {
            show.print(&format!("note: {}", term::one_line(note)));
            printed += 1;
        }
        let line = term::fit(&term::one_line(&line::line(live)), line::WIDTH);
        notifier.lives(&line);
        show.show(&line);
    };
    let summary = onbeat_shape::shape_on(plan, options, tell, Some(board.clone()));
    notifier.ends();
    drop(service);
    show.clear();
    let summary = summary.map_err(|e| match e {
        e if e.is_refusal() => CliError::Refused(e.to_string()),
        ShapeError::Adapt(_) => CliError::Usage(e.to_string()),
        ShapeError::Inside(InsideError::Files(_)) => CliError::failed(e),
        ShapeError::Inside(_) => CliError::Usage(e.to_string()),
        ShapeError::Record(record) if record.is_usage() => CliError::Usage(record.to_string()),
        e => CliError::failed(e),
    })?;
    Ok((summary, printed))
}
