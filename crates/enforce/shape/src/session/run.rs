//! Runs a session from its options to its result: sets up the recording, its directory and the
//! servers.

use super::{Session, StartServers};
use crate::error::ShapeError;
use crate::follow::Following;
use crate::launch::{moved, moves, Moved};
use crate::options::{HoldAt, ShapeOptions};
use crate::report::{Live, Summary};
use crate::shaper::{without_moves, InsideError, Shaper};
use crate::status::{start_diagnostics, Board};
use crate::threads::{guarded, Servers, WhoWaits};
use onbeat_plan::Plan;
use onbeat_record::{CommandLibrary, FileOptions, Observer, RecordOptions, Target};
use onbeat_reserve::{Reservation, Server};
use onbeat_rights::Capability;
use onbeat_time::clock::monotonic_ns;
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// Returns the capabilities that a session needs: the recorder's capabilities, and three for
/// real-time priorities, locked memory and the file systems of a container.
pub fn rights() -> Vec<Capability> {
    let own = [
        Capability::CAP_SYS_NICE,
        Capability::CAP_IPC_LOCK,
        Capability::CAP_SYS_CHROOT,
    ];
    onbeat_record::AT_START.iter().copied().chain(own).collect()
}

/// Shapes an application by `plan` until the duration is over, a signal arrives, or the command
/// ends. Calls `report` about once a second.
///
/// # Errors
///
/// Returns a [`ShapeError`] if the plan cannot be run. All threads are then restored.
pub fn shape(
    plan: &Plan,
    options: &ShapeOptions,
    report: &mut dyn FnMut(&Live),
) -> Result<Summary, ShapeError> {
    shape_on(plan, options, report, None)
}

/// Shapes an application by `plan` like [`shape`], and publishes the session's status on `board`.
///
/// # Errors
///
/// Returns a [`ShapeError`] if the plan cannot be run. All threads are then restored.
pub fn shape_on(
    plan: &Plan,
    options: &ShapeOptions,
    report: &mut dyn FnMut(&Live),
    board: Option<Arc<Board>>,
) -> Result<Summary, ShapeError> {
    // A ledger belongs to the caller and says what to write where. With capabilities that the
    // caller does not have, it would let every caller do everything.
    if onbeat_rights::is_elevated() {
        return Err(ShapeError::Elevated);
    }
    options.refuse()?;
    let Holding { inside, note } = hold(plan, options)?;
    let (kept, inside) = inside.unzip();
    let plan = kept.as_ref().unwrap_or(plan);
    let command = &options.application.command;
    let moved = match inside {
        Some(_) => Moved::unchanged(command),
        None => moved(plan, command)?,
    };
    onbeat_rights::raise();
    let following = options
        .enforcement
        .adapt
        .map(|adapt| Following::new(plan, adapt));
    let following = following.transpose()?;
    let trace = Trace::new(options.trace.clone())?;
    let library = inside.as_ref().and_then(Shaper::library);
    let record = recording(options, &trace, (moved.command.clone(), library));
    let waits = Arc::new(WhoWaits::default());
    let on_wake = inside.as_ref().map(Shaper::on_wake);
    let start = |servers: &[Server], origin_ns| {
        let settings = options.reserve(plan, &waits, on_wake.clone());
        Reservation::start(plan.cycle_ms.0, servers, origin_ns, settings)
    };
    let start_servers: StartServers = Box::new(|servers, origin_ns| {
        let reservation: Box<dyn Servers> = Box::new(start(servers, origin_ns)?);
        Ok(reservation)
    });
    let mut session = Session::new(plan, options, report, (start_servers, waits.clone()));
    session.plans.following = following;
    note.into_iter().for_each(|note| session.notes.add(note));
    if let Some(inside) = inside {
        session.supervisor.hold_inside(inside);
    }
    let board = board.or_else(|| options.diagnostics.then(Arc::default));
    session.listeners.board = board.clone();
    // This checks that the machine and the user can shape, before an application is started.
    start(&guarded(plan), monotonic_ns())?.stop();
    let cpus: Vec<u16> = plan.servers.iter().map(|s| s.cpu).collect();
    let diagnostics = board.filter(|_| options.diagnostics);
    let diagnostics = diagnostics
        .map(|board| start_diagnostics(board, options.program.clone(), &cpus))
        .transpose()
        .map_err(|e| ShapeError::Diagnostics(e.to_string()))?;
    let recorded = onbeat_record::record_observed(&record, &mut session);
    // An application that the session ends in the middle of its work may return an error for that.
    let ended_by_us = session.is_over();
    session.stop();
    session.leave();
    drop(diagnostics);
    let (mut summary, error) = session.end();
    let recorded = recorded?;
    if let Some(error) = error {
        return Err(error);
    }
    summary.command_status = recorded.command_status.filter(|_| !ended_by_us);
    if !trace.is_temporary() {
        summary.notes.extend(recorded.notes);
    } else if let Some(outside) = options
        .application
        .limits
        .sentence(recorded.progress.outside)
    {
        summary.notes.retain(|note| *note != outside);
        summary.notes.push(outside);
    }
    Ok(summary)
}

/// Returns the options for recording the application. They include its `command`, if the session
/// starts it.
fn recording(
    options: &ShapeOptions,
    trace: &Trace,
    (command, library): (Vec<String>, Option<CommandLibrary>),
) -> RecordOptions {
    RecordOptions {
        files: FileOptions {
            output: trace.path(),
            is_private: trace.is_temporary(),
            max_segments: trace.is_temporary().then_some(1),
            ..FileOptions::default()
        },
        target: Target::new(
            command,
            options.application.command_to_stderr,
            options.application.pids.clone(),
        ),
        limits: options.application.limits.clone(),
        keep_privileges: true,
        lineage: true,
        hangup: options.hangup.clone(),
        library,
        ..RecordOptions::default()
    }
}

struct Holding {
    /// The plan and the shaper's files, if the application's own processes hold the outputs back.
    inside: Option<(Plan, Shaper)>,
    /// A sentence that says where outputs are held back. `None` if the user chose the place, or if
    /// no output is held back.
    note: Option<String>,
}

/// Decides where outputs are held back: in the application or in the shaper. Makes the files that
/// holding in the application needs.
fn hold(plan: &Plan, options: &ShapeOptions) -> Result<Holding, InsideError> {
    let outside = |note| Holding { inside: None, note };
    let moves = moves(plan);
    let topics = || {
        let topics: BTreeSet<&str> = moves.iter().map(|m| m.topic.as_str()).collect();
        topics.into_iter().collect::<Vec<_>>().join(", ")
    };
    // sudo hides it from this process, but the application gets it.
    let distribution = onbeat_record::user_variable("ROS_DISTRO");
    let distribution = distribution.as_ref().and_then(|name| name.to_str());
    match options.enforcement.hold {
        HoldAt::Outside => Ok(outside(None)),
        HoldAt::Inside => Ok(Holding {
            inside: Some(keep(plan, options, distribution)?),
            note: None,
        }),
        HoldAt::Auto if moves.is_empty() => Ok(outside(None)),
        HoldAt::Auto => Ok(match keep(plan, options, distribution) {
            Ok(inside) => Holding {
                inside: Some(inside),
                note: Some(format!("The application itself holds back {}.", topics())),
            },
            Err(why) => outside(Some(format!(
                "A shaper outside of the application holds back {}, because {}.",
                topics(),
                why.reason()
            ))),
        }),
    }
}

/// Returns the plan and the shaper's files for an application whose own processes hold the outputs
/// back. `distribution` is the application's `ROS_DISTRO`.
fn keep(
    plan: &Plan,
    options: &ShapeOptions,
    distribution: Option<&str>,
) -> Result<(Plan, Shaper), InsideError> {
    if options.application.command.is_empty() {
        return Err(InsideError::NoCommand);
    }
    if let Some(name) = distribution.filter(|name| BEFORE_JAZZY.contains(name)) {
        return Err(InsideError::Distribution(name.to_owned()));
    }
    let plan = without_moves(plan.clone())?;
    onbeat_rights::raise();
    let shaper = Shaper::inside(&plan)?;
    Ok((plan, shaper))
}

/// The ROS 2 distributions in which the recorder sees no time stamp of a publication.
const BEFORE_JAZZY: &[&str] = &["humble", "iron"];

pub(crate) enum Trace {
    Wanted(PathBuf),
    Temporary(TempDir),
}

impl Trace {
    pub(crate) fn new(wanted: Option<PathBuf>) -> Result<Trace, ShapeError> {
        if let Some(path) = wanted {
            return Ok(Trace::Wanted(path));
        }
        let made = tempfile::Builder::new()
            .prefix("onbeat-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir();
        made.map(Trace::Temporary).map_err(ShapeError::Temporary)
    }

    fn is_temporary(&self) -> bool {
        matches!(self, Trace::Temporary(_))
    }

    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Trace::Wanted(path) => path.clone(),
            Trace::Temporary(dir) => dir.path().join("trace"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_held_inside_the_application_if_that_is_possible() {
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        let mut plan = onbeat_plan::file::read(text).expect("a plan");
        let mut options = crate::session::tests::options(&[]);
        let mut held = |plan: &Plan, hold, command: &[&str]| {
            options.enforcement.hold = hold;
            options.application.command = command.iter().map(|w| (*w).to_owned()).collect();
            let held = super::hold(plan, &options);
            held.map(|h| (h.inside.is_some(), h.note.unwrap_or_default()))
        };
        let command = ["sh", "start.sh"];
        let auto = held(&plan, HoldAt::Auto, &command).expect("a place");
        let inside = "The application itself holds back /points, /t5.";
        assert_eq!(auto, (true, inside.to_owned()));
        let (is_inside, note) = held(&plan, HoldAt::Auto, &[]).expect("a place");
        assert!(
            !is_inside && note.contains("/t5, because only an application that onbeat starts can"),
            "{note}"
        );
        assert!(held(&plan, HoldAt::Inside, &[]).is_err());
        let second = plan.inputs[0].clone();
        plan.inputs.push(second);
        plan.inputs[1].node = "/another".into();
        let (is_inside, note) = held(&plan, HoldAt::Auto, &command).expect("a place");
        assert!(
            !is_inside && note.contains("2 nodes publish /points"),
            "{note}"
        );
        assert!(held(&plan, HoldAt::Inside, &command).is_err());
        plan.inputs.pop();
        let refused = keep(&plan, &options, Some("humble")).err();
        let refused = refused.expect("an old distribution").to_string();
        assert!(refused.contains("ROS_DISTRO is humble"), "{refused}");
    }
}
