//! Measures the size of the playback buffer, reports it, and warns if it is too small.

use super::bus::{load, Buses};
use super::list;
use super::{failed, Args, PATIENCE, SHOW_EVERY};
use onbeat_document::text::duration;
use onbeat_replay::bus::offered::{self, Offered};
use onbeat_replay::bus::{device::Device, BusFigures, Meter};
use onbeat_replay::chain::Chain;
use onbeat_replay::contents::Contents;
use onbeat_replay::control::State;
use onbeat_replay::item::SourceError;
use onbeat_replay::route::Target;
use onbeat_replay::session::Settings;
use onbeat_replay::sizing::{measure, Sizing};
use onbeat_replay::LEAST_BYTES;
use onbeat_terminal::live::LiveLine;
use onbeat_terminal::CliError;
use onbeat_terminal::{term, ExitStatus};
use std::io::{self, Write};
use std::time::Instant;

pub struct Measured {
    pub sizing: Sizing,
    pub contents: Contents,
    pub buses: Vec<BusFigures>,
}

/// The result of measuring a recording.
pub enum Measuring {
    /// The user does not want the recording to be measured, or its times do not count.
    NotWanted,
    /// The recording has no items, but perhaps damage.
    Empty(Box<Contents>),
    Done(Box<Measured>),
}

impl Measuring {
    pub fn into_measured(self) -> Option<Measured> {
        match self {
            Measuring::Done(measured) => Some(*measured),
            Measuring::NotWanted | Measuring::Empty(_) => None,
        }
    }
}

/// Measures the recording, determines the size of the buffer, and computes the load of CAN buses.
/// `targets` contains the target of each stream.
pub fn of(
    args: &Args,
    targets: &[Target],
    open: impl FnOnce() -> Result<Chain, SourceError>,
) -> Result<Measuring, CliError> {
    let Some(wish) = args.wish() else {
        return Ok(Measuring::NotWanted);
    };
    let mut chain = open().map_err(failed)?;
    let mut line = LiveLine::new();
    let (started, mut shown) = (Instant::now(), Instant::now());
    let mut buses = Buses::of(args, targets);
    let mut offered = Offered::new(&mut chain, &mut buses.meters, &buses.of_stream, wish.rate);
    let curves = measure(&mut offered, &mut |items| {
        if started.elapsed() > PATIENCE && shown.elapsed() > SHOW_EVERY {
            shown = Instant::now();
            line.show(&format!(
                "measuring the recording before it plays: {items} items read. To play at once, give --unmeasured"
            ));
        }
    });
    line.clear();
    if curves.is_empty() {
        return Ok(Measuring::Empty(Box::new(curves.contents)));
    }
    let sizing = curves.sizing(&wish);
    let room = match wish.by_hand {
        true => wish.memory_bytes / 4,
        false => wish.memory_bytes.saturating_sub(LEAST_BYTES as u64 / 2),
    };
    if sizing.largest_bytes > room && !args.plan {
        let (option, least) = match wish.by_hand {
            true => ("--buffer", sizing.largest_bytes * 4),
            false => (
                "--memory",
                sizing.least_bytes.unwrap_or(sizing.largest_bytes * 4),
            ),
        };
        return Err(failed(format!(
            "an item of {} bytes does not fit into the buffer. Give {option} {least} or more",
            sizing.largest_bytes
        )));
    }
    Ok(Measuring::Done(Box::new(Measured {
        sizing,
        contents: curves.contents,
        buses: buses.meters.iter().map(Meter::figures).collect(),
    })))
}

pub fn set(settings: &mut Settings, sizing: &Sizing) {
    settings.buffer_bytes = usize::try_from(sizing.buffer_bytes).unwrap_or(usize::MAX);
    if !sizing.by_hand {
        settings.largest_bytes = usize::try_from(sizing.largest_bytes).ok();
    }
    // The warning comes while half of the reserve is left.
    let reserve_ns = sizing.stall_ns.unwrap_or(0) / 2;
    settings.watched = sizing.watched.map(|curve| (curve, reserve_ns));
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Warns the user of the problems that the playback will have. The caller must call this before
/// playback begins.
pub fn tell(measured: &Measured) {
    let sizing = &measured.sizing;
    for bus in &measured.buses {
        if let Some(shortage) = offered::shortage(bus) {
            eprintln!("onbeat: {shortage}");
        }
        let cannot = Device::of(&bus.interface).is_ok_and(|device| !device.takes_fd());
        if bus.fd_frames > 0 && cannot {
            eprintln!(
                "onbeat: {0} is not set to CAN FD, so {1} frames cannot be played. Run `ip link set {0} type can ... fd on`, or `ip link set {0} mtu 72` for vcan",
                bus.interface, bus.fd_frames
            );
        }
    }
    if sizing.stall_ns != Some(sizing.stall_asked_ns) {
        eprintln!("onbeat: {}", shortage(sizing));
    }
}

/// Returns a sentence that says what will happen because the buffer is too small, and what the user
/// can do.
fn shortage(sizing: &Sizing) -> String {
    let option = match sizing.by_hand {
        true => "--buffer",
        false => "--memory",
    };
    let have = megabytes(sizing.buffer_bytes);
    let asked = duration(sizing.stall_asked_ns as f64);
    let least = sizing.least_bytes.map(megabytes);
    match (sizing.stall_ns, least, sizing.wanted_bytes.map(megabytes)) {
        (Some(stall_ns), _, wanted) => format!(
            "with a buffer of {have}, pauses of the loader may be up to {} longer than the measured pauses. --stall asks for {asked}{}",
            list::length(stall_ns),
            wanted.map_or(String::new(), |w| format!(". For that, give {option} {w}")),
        ),
        (None, Some(least), wanted) => format!(
            "a buffer of {have} is too small, so items may be late. The recording needs a buffer of {least} at this rate{}",
            wanted.map_or(String::new(), |w| format!(", and a buffer of {w} for --stall {asked}")),
        ),
        (None, None, _) => format!(
            "the loader delivers {:.1} MB/s and playback needs {:.1} MB/s, so items will be late. Play more slowly, or give memory for the whole recording",
            sizing.loader_bytes_per_s / 1e6,
            sizing.playback_bytes_per_s / 1e6,
        ),
    }
}

/// Returns a sentence about the size of the buffer, and about the time by which the loader may
/// pause longer than measured before the buffer is empty.
pub fn sentence(sizing: &Sizing) -> String {
    let have = megabytes(sizing.buffer_bytes);
    let stall = duration(sizing.stall_asked_ns as f64);
    if sizing.holds_all {
        return format!("the buffer of {have} holds the whole recording");
    }
    if sizing.stall_ns != Some(sizing.stall_asked_ns) {
        return shortage(sizing);
    }
    let preload = sizing.preload_items.unwrap_or(0);
    let delay = sizing.delay_ns.map_or("-".into(), |ns| duration(ns as f64));
    let least = sizing.least_bytes.map_or("-".into(), megabytes);
    format!(
        "a buffer of {have} is enough, even if pauses of the loader are {stall} longer than the measured pauses. Without longer pauses, a buffer of {least} is enough. Once the buffer is full, playback gets at most {preload} items ahead of the loader, and the loader replaces each played item within {delay}"
    )
}

pub fn warning(state: &State) -> String {
    format!(
        "onbeat: the loader is {} behind the schedule that follows from its measured speed; the buffer still contains {} of recorded time",
        list::length(state.behind_ns),
        list::length(state.ahead_ns.max(0).unsigned_abs()),
    )
}

#[derive(serde::Serialize)]
struct Planned<'p> {
    #[serde(flatten)]
    sizing: &'p Sizing,
    recording: &'p Contents,
    buses: &'p [BusFigures],
}

pub fn show(measuring: &Measuring, json: bool) -> Result<ExitStatus, CliError> {
    let mut out = io::stdout().lock();
    let measured = match measuring {
        Measuring::Done(measured) => measured,
        Measuring::NotWanted => {
            eprintln!("onbeat: nothing to measure: --plan needs a file whose recorded times count. Name a file, and leave out --as-fast-as-consumed");
            return Ok(ExitStatus::NothingFound);
        }
        Measuring::Empty(recording) => {
            match json {
                true => term::write_json(&mut out, &serde_json::json!({"recording": recording}))?,
                false => list::table(&mut out, recording)?,
            }
            return match &recording.error {
                Some(error) => Err(failed(error)),
                None => Ok(ExitStatus::NothingFound),
            };
        }
    };
    let (sizing, recording) = (&measured.sizing, &measured.contents);
    let planned = Planned {
        sizing,
        recording,
        buses: &measured.buses,
    };
    match json {
        true => term::write_json(&mut out, &planned)?,
        false => {
            list::table(&mut out, recording)?;
            let rates = format!(
                "playback needs {:.1} MB/s in the long run, the loader delivers up to {:.1} MB/s (both count the bytes that items take in the buffer)",
                sizing.playback_bytes_per_s / 1e6,
                sizing.loader_bytes_per_s / 1e6,
            );
            writeln!(out, "\n{}\n{rates}", sentence(sizing)).map_err(CliError::Stdout)?;
            for bus in &measured.buses {
                let load = offered::shortage(bus).unwrap_or_else(|| load(bus));
                writeln!(out, "{load}").map_err(CliError::Stdout)?;
            }
        }
    }
    Ok(ExitStatus::Success)
}
