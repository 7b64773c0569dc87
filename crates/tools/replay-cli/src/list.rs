//! `onbeat info`: lists what recordings have.

use super::{dbc, failed, unpacking, PATIENCE, SHOW_EVERY};
use onbeat_document::text::duration;
use onbeat_replay::contents::{Contents, Gap, StreamContents, STEP_NS};
use onbeat_replay::database::FrameId;
use onbeat_replay::item::{Attachment, Extras, Metadata};
use onbeat_replay::requests::Recorded;
use onbeat_replay::source::Format;
use onbeat_terminal::live::LiveLine;
use onbeat_terminal::term::{one_line, write_json, Align, Screen, Table};
use onbeat_terminal::{date, CliError, ExitStatus};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

const IDS_SHOWN: usize = 12;
/// The number of attachments and of records of metadata in the output for people.
const EXTRAS_SHOWN: usize = 20;
/// The number of characters up to which a value of metadata is shown.
const VALUE_SHOWN: usize = 40;
/// Smaller disorder is normal: recorders of several buses or topics write items in batches.
const BACK_NS: u64 = 1_000_000_000;

/// List what recordings have: streams, counts, rates, gaps and damage
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat info drive.mcap                          its topics, with counts and rates
  onbeat info can.log capture.pcapng              several recordings, one after the other
  onbeat info can.blf --dbc vehicle.dbc           CAN frames by message
  onbeat info drive.mcap --full                   also sizes, damage and requests of services
  onbeat info can.log --json | jq '.[0].streams[0].ids'

Of MCAP files and bags, onbeat reads only the index, which has no sizes and does not show damage of
messages. --full reads all messages. All other recordings are read to their end. Damage is
reported with the place of the first fault of each kind. A gap of an hour or more is reported as a step
of the clock: replay --max-gap shortens it. Items of logs and captures that are a second or more out
of order are reported, too: replay sorts them.

Exit codes: 0 listed; 1 a file cannot be read, or not to its end; 2 wrong command line;
3 a recording has no items.")]
pub struct Args {
    /// Recordings: rosbag2 and ROS 1 bags, MCAP, logs (candump, ASC, BLF, MDF, TRC), pcap, pcapng;
    /// also packed with gzip, xz, zstd or bzip2
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// DBC file with the names of CAN messages: list the frames by message
    #[arg(long, value_name = "FILE")]
    dbc: Vec<PathBuf>,
    /// Read all messages, also of a recording with an index: sizes, damage, requests of services
    #[arg(long)]
    full: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed {
    file: PathBuf,
    format: &'static str,
    #[serde(flatten)]
    contents: Contents,
}

/// Prints the contents of each recording. Returns the worst exit status of all recordings.
pub fn run(args: &Args) -> Result<ExitStatus, CliError> {
    let database = match args.dbc.is_empty() {
        true => None,
        false => Some(dbc::read(&args.dbc)?),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut all = Vec::new();
    for (number, path) in args.files.iter().enumerate() {
        let mut listed = read(path, args.full)?;
        if let Some(database) = &database {
            listed.contents.name_messages(database);
        }
        if !args.json {
            if number > 0 {
                writeln!(out).map_err(CliError::Stdout)?;
            }
            let shown = one_line(&path.display().to_string());
            writeln!(out, "{shown}: {}", listed.format).map_err(CliError::Stdout)?;
            table(&mut out, &listed.contents)?;
        }
        all.push(listed);
    }
    if args.json {
        write_json(&mut out, &all)?;
    }
    out.flush().map_err(CliError::Stdout)?;
    if let Some(error) = all.iter().find_map(|listed| listed.contents.error.as_ref()) {
        return Err(failed(format!(
            "{error}. The list has only the part before the error"
        )));
    }
    Ok(match all.iter().any(|listed| listed.contents.items == 0) {
        true => ExitStatus::NothingFound,
        false => ExitStatus::Success,
    })
}

fn read(path: &Path, is_full: bool) -> Result<Listed, CliError> {
    let format = Format::of(path).map_err(failed)?.name();
    let (mut line, mut packed) = (LiveLine::new(), LiveLine::new());
    let (started, mut shown) = (Instant::now(), Instant::now());
    let mut tell = |items: u64| {
        // The clock is read rarely, because reading it takes as long as an item.
        let is_time = items.is_multiple_of(1 << 12) && started.elapsed() > PATIENCE;
        if is_time && shown.elapsed() > SHOW_EVERY {
            shown = Instant::now();
            line.show(&format!("{items} items read"));
        }
    };
    let indexed = (!is_full)
        .then(|| Contents::of_index(path, &mut tell))
        .flatten();
    let contents = match indexed {
        Some(contents) => Ok(contents),
        None => Contents::read(path, &mut unpacking(path, &mut packed), &mut tell),
    };
    packed.clear();
    line.clear();
    Ok(Listed {
        file: path.to_owned(),
        format,
        contents: contents.map_err(failed)?,
    })
}

pub fn instant(ns: i64) -> String {
    let Ok(ns) = u64::try_from(ns) else {
        return format!("{:.3} s before 1970", ns as f64 / -1e9);
    };
    let (s, ms) = (ns / 1_000_000_000 % 60, ns / 1_000_000 % 1000);
    format!("{}:{s:02}.{ms:03} UTC", date::minute(ns))
}

pub fn table(out: &mut dyn Write, contents: &Contents) -> Result<(), CliError> {
    let has_encodings = contents.streams.iter().any(has_unusual_encoding);
    let mut table = Table::new().names("stream", 2).names("type", 2);
    if has_encodings {
        table = table.column("encoding", Align::Left);
    }
    table = table
        .column("items", Align::Right)
        .column("rate", Align::Right)
        .column("size", Align::Right)
        .column("plays to", Align::Left);
    for stream in &contents.streams {
        table.row(row(stream, has_encodings));
    }
    table.write(out, &Screen::of_stdout())?;
    let messages = |stream: &StreamContents| !stream.can.messages.is_empty();
    if contents.streams.iter().any(messages) {
        writeln!(out).map_err(CliError::Stdout)?;
        messages_table(contents).write(out, &Screen::of_stdout())?;
    }
    for sentence in sentences(contents) {
        writeln!(out, "{}", one_line(&sentence)).map_err(CliError::Stdout)?;
    }
    Ok(())
}

fn messages_table(contents: &Contents) -> Table {
    let mut table = Table::new()
        .names("message", 2)
        .column("identifier", Align::Right)
        .names("stream", 2)
        .column("frames", Align::Right);
    for stream in &contents.streams {
        for message in &stream.can.messages {
            let id = FrameId {
                is_extended: message.is_extended,
                id: message.id,
            };
            table.row(vec![
                message.name.clone().unwrap_or_else(|| "-".into()),
                id.to_string(),
                stream.name.clone(),
                message.frames.to_string(),
            ]);
        }
    }
    table
}

/// Returns true for messages that are not encoded as ROS 2 encodes them.
fn has_unusual_encoding(stream: &StreamContents) -> bool {
    let is_message = matches!(stream.kind, "ros" | "requests" | "unplayable");
    is_message && stream.encoding.as_deref() != Some("cdr")
}

fn row(stream: &StreamContents, has_encoding: bool) -> Vec<String> {
    let rate = |hz: f64| match hz {
        hz if hz >= 100.0 => format!("{hz:.0} Hz"),
        hz if hz < 0.001 => "< 0.001 Hz".into(),
        hz => format!("{hz:.3} Hz"),
    };
    let of_type = stream.of_type.clone();
    let mut cells = vec![
        stream.name.clone(),
        of_type.unwrap_or_else(|| "CAN frames".into()),
    ];
    if has_encoding {
        cells.push(stream.encoding.clone().unwrap_or_else(|| "-".into()));
    }
    cells.extend([
        stream.items.to_string(),
        stream.rate_hz.map_or("-".into(), rate),
        stream.bytes.map_or("-".into(), size),
        match stream.plays_to {
            [] => "-".into(),
            plays_to => plays_to.join(", "),
        },
    ]);
    cells
}

pub fn length(ns: u64) -> String {
    const HOUR_NS: u64 = 3_600_000_000_000;
    match ns / HOUR_NS {
        0..2 => duration(ns as f64),
        hours @ 2..48 => format!("{hours} h"),
        hours => format!("{} days", hours / 24),
    }
}

pub fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn sentences(contents: &Contents) -> Vec<String> {
    let mut said = Vec::new();
    if let (Some(first_ns), Some(last_ns)) = (contents.first_ns, contents.last_ns) {
        let bytes = contents
            .bytes
            .map_or(String::new(), |bytes| format!(", {}", size(bytes)));
        said.push(format!(
            "{} items{bytes}, from {} to {} ({})",
            contents.items,
            instant(first_ns),
            instant(last_ns),
            length(last_ns.abs_diff(first_ns)),
        ));
    } else {
        said.push("no items".into());
    }
    if contents.is_from_index {
        said.push("onbeat read only the index. --full also reads the sizes of messages, damage and requests of services".into());
    }
    said.extend(extras(&contents.extras));
    let is_pause = |gap: &Gap| (1_000_000_000..STEP_NS).contains(&gap.length_ns);
    if let Some(gap) = contents.longest_gap.filter(is_pause) {
        said.push(format!(
            "longest gap: {} after {}",
            length(gap.length_ns),
            instant(gap.at_ns)
        ));
    }
    said.extend(clock(contents));
    for stream in contents.streams.iter().filter(|s| s.sent > 0) {
        said.push(format!(
            "{}: the recorder's host sent {} of {} items itself (--direction selects sent or received items)",
            stream.name, stream.sent, stream.items
        ));
    }
    said.extend(contents.requests.iter().filter_map(|recorded| {
        let stream = contents.streams.get(recorded.stream.0 as usize)?;
        requests(stream.kind, recorded)
    }));
    for stream in &contents.streams {
        if stream.can.ids.is_empty() || !stream.can.messages.is_empty() {
            continue;
        }
        let shown = stream.frames().take(IDS_SHOWN);
        let shown: Vec<_> = shown.map(|(id, count)| format!("{id} ({count})")).collect();
        let rest = match stream.can.ids.len().saturating_sub(IDS_SHOWN) {
            0 => String::new(),
            rest => format!(" and {rest} more (--json lists all)"),
        };
        said.push(format!(
            "identifiers of {}: {}{rest}",
            stream.name,
            shown.join(", ")
        ));
    }
    let reasons = contents.streams.iter();
    said.extend(reasons.filter_map(|stream| {
        let reason = stream.unplayable.as_ref()?;
        Some(format!("{} cannot be played: {reason}", stream.name))
    }));
    said.extend(
        contents
            .damage
            .iter()
            .flatten()
            .map(|damage| format!("damage: {damage}")),
    );
    said.extend(
        contents
            .error
            .iter()
            .map(|error| format!("the recording was not read to its end: {error}")),
    );
    said
}

/// Returns a sentence about each attachment and each record of metadata.
fn extras(extras: &Extras) -> Vec<String> {
    let attachments = extras.attachments.iter().take(EXTRAS_SHOWN);
    let metadata = extras.metadata.iter().take(EXTRAS_SHOWN);
    let mut said: Vec<_> = attachments
        .map(attachment)
        .chain(metadata.map(record))
        .collect();
    let shown = said.len() as u64;
    let listed = (extras.attachments.len() + extras.metadata.len()) as u64;
    match listed - shown {
        0 => {}
        more => said.push(format!(
            "{more} more attachments and records of metadata (--json lists them)"
        )),
    }
    match extras.more_extras {
        0 => {}
        more => said.push(format!(
            "{more} more attachments and records of metadata are not listed"
        )),
    }
    said
}

fn attachment(attachment: &Attachment) -> String {
    let about = [
        attachment.media_type.clone(),
        attachment.bytes.map(size),
        attachment.time_ns.map(instant),
    ];
    let about: Vec<_> = about.into_iter().flatten().collect();
    match about[..] {
        [] => format!("attachment {}", attachment.name),
        _ => format!("attachment {}: {}", attachment.name, about.join(", ")),
    }
}

fn record(metadata: &Metadata) -> String {
    let values = metadata.values.iter().map(|(key, value)| {
        let is_short = !value.is_empty() && value.chars().count() <= VALUE_SHOWN;
        match is_short {
            true => format!("{key} = {value}"),
            false => key.clone(),
        }
    });
    let values = values.collect::<Vec<_>>().join("; ");
    format!("metadata {}: {values}", metadata.name)
}

/// Returns a sentence about the recorded requests of a service, or `None` if no requests were
/// recorded.
fn requests(kind: &str, recorded: &Recorded) -> Option<String> {
    let mut said = Vec::new();
    let service = &recorded.service;
    match (recorded.playable(), kind) {
        (0, _) => {}
        (n, "requests") => said.push(format!("{n} requests are sent")),
        (n, _) => said.push(format!("{n} requests can be sent (replay --requests)")),
    }
    match recorded.without_contents() {
        0 => {}
        n => said.push(format!(
            "{n} requests without contents (introspection of metadata only) cannot be sent"
        )),
    }
    match recorded.damaged {
        0 => {}
        n => said.push(format!("{n} requests are damaged")),
    }
    (!said.is_empty()).then(|| format!("service {service}: {}", said.join("; ")))
}

/// Returns sentences about recorded times that look like sudden changes of the recorder's clock.
pub fn clock(contents: &Contents) -> Vec<String> {
    let back = (contents.back_ns >= BACK_NS).then(|| {
        format!(
            "items are up to {} earlier than items before them in the recording, for example because the recorder's clock was set back. onbeat sorts the items by their times, as far as its memory allows",
            length(contents.back_ns)
        )
    });
    step(&contents.steps).into_iter().chain(back).collect()
}

fn step(steps: &[Gap]) -> Option<String> {
    let first = steps.first()?;
    let others = match steps.len() {
        1 => String::new(),
        n => format!(", and {} more", n - 1),
    };
    Some(format!(
        "the recorder's clock steps by {} after {}{others}. A replay waits for this time, unless --max-gap 1s shortens it",
        length(first.length_ns),
        instant(first.at_ns),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_lists_instants_and_sizes_in_readable_units() {
        assert_eq!(
            instant(1_700_000_000_249_713_000),
            "2023-11-14 22:13:20.249 UTC"
        );
        assert_eq!(instant(-1_500_000_000), "1.500 s before 1970");
        assert_eq!(
            [size(999), size(1000), size(2_500_000_000)],
            ["999 B", "1.0 kB", "2.5 GB"]
        );
    }
}
