//! `onbeat link bound`: the longest latency of each channel of a port, by computation.

use crate::error::CliError;
use crate::term::{self, Align, Screen, Table};
use crate::units::{parse_duration, parse_rate, parse_size};
use crate::{files, ExitStatus};
use onbeat_link::bound::{Load, NoBound, Port};
use onbeat_link::port::Settings;
use onbeat_model::text::duration;
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Compute the longest latency of channels that share a port.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat link bound --rate 1G --channel stop=9,1K,10ms --channel scans=1,4M,100ms
  onbeat link bound --rate 1G --chunk 16K --way 50us --channel scans=1,4M,100ms,2ms,80ms
  onbeat link bound channels.json --json

A file has what the options say, and may name hosts:
  {\"rate\": \"1G\", \"chunk\": \"64K\", \"window\": \"128K\", \"mtu\": 1500, \"way\": \"50us\", \"channels\": [
    {\"name\": \"stop\", \"priority\": 9, \"bytes\": \"1K\", \"period\": \"10ms\", \"deadline\": \"2ms\"},
    {\"name\": \"scans\", \"priority\": 1, \"bytes\": \"4M\", \"period\": \"100ms\", \"jitter\": \"2ms\",
     \"from\": \"lidar\", \"to\": \"fusion\"}]}
Each host that sends has a port of its own. Two hosts that send to one (incast) are refused: there
the receiver's port is shared too, and no bound is known.

Exit codes: 0 all have a bound, within their deadlines; 1 failed; 2 wrong command line; 5 a channel
has no bound, or misses its deadline.")]
pub struct Args {
    /// File with the port and its channels
    #[arg(value_name = "FILE", conflicts_with_all = ["rate", "channel"], required_unless_present = "channel")]
    pub file: Option<PathBuf>,
    /// Rate of the wire in bits per second: 100M, 1G, 10G
    #[arg(long, value_name = "RATE", value_parser = parse_rate, required_unless_present = "file")]
    pub rate: Option<u64>,
    /// A channel; a larger priority is more urgent [repeatable]
    #[arg(long, value_name = "NAME=PRIORITY,SIZE,PERIOD[,JITTER[,DEADLINE]]", value_parser = parse_channel)]
    pub channel: Vec<Channel>,
    #[command(flatten)]
    port: PortArgs,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// What a port is by options. Those of the file count where there are none.
#[derive(clap::Args)]
struct PortArgs {
    /// Bytes of a chunk [default: as a port of that rate: two take 1 ms]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    chunk: Option<u64>,
    /// Bytes on the wire that may be posted at once [default: a port's, two chunks]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    window: Option<u64>,
    /// Largest packet of the network [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(576..=65535))]
    mtu: Option<u64>,
    /// From the last byte's leaving until the message is handed out: 50us [default: 0]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    way: Option<Duration>,
    /// Without encryption: fewer bytes on the wire
    #[arg(long)]
    in_clear: bool,
}

/// A channel, as a file has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    name: String,
    priority: u8,
    #[serde(deserialize_with = "size")]
    bytes: u64,
    #[serde(deserialize_with = "time")]
    period: Duration,
    #[serde(default, deserialize_with = "time")]
    jitter: Duration,
    #[serde(default, deserialize_with = "some_time")]
    deadline: Option<Duration>,
    #[serde(default)]
    from: String,
    #[serde(default)]
    to: String,
}

/// A port and its channels, as a file has them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    #[serde(deserialize_with = "rate")]
    rate: u64,
    #[serde(default, deserialize_with = "some_size")]
    chunk: Option<u64>,
    #[serde(default, deserialize_with = "some_size")]
    window: Option<u64>,
    mtu: Option<u64>,
    #[serde(default, deserialize_with = "some_time")]
    way: Option<Duration>,
    #[serde(default)]
    in_clear: bool,
    channels: Vec<Channel>,
}

fn parsed<'d, D: serde::Deserializer<'d>, T>(
    from: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    let text = match Value::deserialize(from)? {
        Value::String(text) => text,
        other => other.to_string(),
    };
    parse(&text).map_err(|e| serde::de::Error::custom(format!("'{text}': {e}")))
}

fn size<'d, D: serde::Deserializer<'d>>(from: D) -> Result<u64, D::Error> {
    parsed(from, parse_size)
}

fn some_size<'d, D: serde::Deserializer<'d>>(from: D) -> Result<Option<u64>, D::Error> {
    size(from).map(Some)
}

fn rate<'d, D: serde::Deserializer<'d>>(from: D) -> Result<u64, D::Error> {
    parsed(from, parse_rate)
}

fn time<'d, D: serde::Deserializer<'d>>(from: D) -> Result<Duration, D::Error> {
    parsed(from, parse_duration)
}

fn some_time<'d, D: serde::Deserializer<'d>>(from: D) -> Result<Option<Duration>, D::Error> {
    time(from).map(Some)
}

/// `NAME=PRIORITY,SIZE,PERIOD[,JITTER[,DEADLINE]]`.
fn parse_channel(text: &str) -> Result<Channel, String> {
    let form = || String::from("write NAME=PRIORITY,SIZE,PERIOD, like stop=9,1K,10ms");
    let (name, rest) = text.split_once('=').ok_or_else(form)?;
    let words: Vec<&str> = rest.split(',').collect();
    if name.is_empty() || !(3..=5).contains(&words.len()) {
        return Err(form());
    }
    let at = |i: usize| words.get(i).map(|w| parse_duration(w)).transpose();
    Ok(Channel {
        name: name.into(),
        priority: words[0]
            .parse()
            .map_err(|_| format!("priority '{}': write 0 to 255", words[0]))?,
        bytes: parse_size(words[1])?,
        period: parse_duration(words[2])?,
        jitter: at(3)?.unwrap_or_default(),
        deadline: at(4)?,
        from: String::new(),
        to: String::new(),
    })
}

fn read(path: &Path) -> Result<Description, CliError> {
    const MOST: usize = 1 << 20;
    let bytes = files::read_at_most(path, MOST)?;
    serde_json::from_slice(&bytes).map_err(|e| {
        CliError::Link(format!(
            "{}: {e}: `onbeat link bound --help` shows the form",
            path.display()
        ))
    })
}

impl Args {
    fn description(&self) -> Result<Description, CliError> {
        let mut found = match &self.file {
            Some(path) => read(path)?,
            None => Description {
                rate: self.rate.unwrap_or(0),
                chunk: None,
                window: None,
                mtu: None,
                way: None,
                in_clear: false,
                channels: self.channel.clone(),
            },
        };
        found.chunk = self.port.chunk.or(found.chunk);
        found.window = self.port.window.or(found.window);
        found.mtu = self.port.mtu.or(found.mtu);
        found.way = self.port.way.or(found.way);
        found.in_clear |= self.port.in_clear;
        Ok(found)
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Description {
    fn port(&self) -> Port {
        let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(1 << 30);
        let settings = Settings::of_rate(self.rate);
        let settings = match self.chunk {
            Some(chunk) => settings.chunk_bytes(bytes(chunk)),
            None => settings,
        };
        let mtu = bytes(self.mtu.unwrap_or(1500));
        let port = settings.model(mtu, !self.in_clear, ns(self.way.unwrap_or_default()));
        Port {
            window_bytes: self.window.map_or(port.window_bytes, bytes),
            ..port
        }
    }

    /// Two senders to one receiver.
    fn incast(&self) -> Option<String> {
        let mut senders = BTreeMap::new();
        self.channels.iter().find_map(|c| {
            let first = *senders.entry(&c.to).or_insert(&c.from);
            let (to, from) = (&c.to, &c.from);
            (!to.is_empty() && first != from).then(|| {
                format!(
                    "'{first}' and '{from}' both send to '{to}' (incast): what waits there is not modelled; \
                     let one host send, or give each a network of its own (another name in \"to\")"
                )
            })
        })
    }

    /// The bound of each channel; each sender has a port of its own.
    fn bounds(&self, port: &Port) -> Vec<Result<u64, NoBound>> {
        let load = |c: &Channel| Load {
            priority: c.priority,
            bytes: usize::try_from(c.bytes).unwrap_or(usize::MAX).min(1 << 40),
            period_ns: ns(c.period),
            jitter_ns: ns(c.jitter),
        };
        let of = |c: &Channel| {
            let beside: Vec<&Channel> = self.channels.iter().filter(|o| o.from == c.from).collect();
            let at = beside.iter().position(|o| std::ptr::eq(*o, c));
            let loads: Vec<Load> = beside.into_iter().map(load).collect();
            port.bounds(&loads).swap_remove(at.unwrap_or(0))
        };
        self.channels.iter().map(of).collect()
    }
}

fn assumptions(port: &Port) -> Vec<String> {
    vec![
        "the sender's port is the bottleneck, and nothing else sends through it".into(),
        "each channel is a TCP link, all of a host's on one port with this chunk (Tcp::on_port)"
            .into(),
        "answers to what comes the other way (40 bytes each) are few: they are not modelled".into(),
        "a channel sends no more, and no larger messages, than is said here".into(),
        "the next chunk is posted before the window is empty: the sender's threads run in time"
            .into(),
        "no packet is lost: a repeated one comes later than any bound".into(),
        match port.way_ns {
            0 => "the way behind the port takes no time (--way)".into(),
            way => format!(
                "the way behind the port takes {} at most",
                duration(way as f64)
            ),
        },
    ]
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let described = args.description()?;
    if described.channels.is_empty() {
        return Err(CliError::Usage(
            "no channel: give --channel, or a file with some".into(),
        ));
    }
    if let Some(why) = described.incast() {
        return Err(CliError::Link(why));
    }
    let port = described.port();
    let bounds = described.bounds(&port);
    let late = |c: &Channel, b: &Result<u64, NoBound>| match (b, c.deadline) {
        (Ok(bound), deadline) => deadline.is_some_and(|d| *bound > ns(d)),
        (Err(_), _) => true,
    };
    let rows: Vec<_> = described.channels.iter().zip(&bounds).collect();
    let is_kept = !rows.iter().any(|(c, b)| late(c, b));
    let mut out = io::stdout().lock();
    if args.json {
        let channels: Vec<Value> = rows.iter().map(|(c, b)| as_json(c, b)).collect();
        let text = json!({
            "rate_bits_per_second": port.bits_per_second,
            "chunk_bytes": port.chunk_bytes,
            "window_bytes": port.window_bytes,
            "overhead_bytes": port.overhead_bytes,
            "way_ns": port.way_ns,
            "channels": channels,
            "assumptions": assumptions(&port),
        });
        term::write_json(&mut out, &text)?;
    } else {
        print(&mut out, &port, &rows)?;
    }
    Ok(match is_kept {
        true => ExitStatus::Success,
        false => ExitStatus::PromiseBroken,
    })
}

fn as_json(channel: &Channel, bound: &Result<u64, NoBound>) -> Value {
    json!({
        "name": channel.name,
        "from": channel.from,
        "to": channel.to,
        "priority": channel.priority,
        "bytes": channel.bytes,
        "period_ns": ns(channel.period),
        "jitter_ns": ns(channel.jitter),
        "deadline_ns": channel.deadline.map(ns),
        "bound_ns": bound.as_ref().ok(),
        "reason": bound.as_ref().err().map(ToString::to_string),
    })
}

fn print(
    out: &mut dyn io::Write,
    port: &Port,
    rows: &[(&Channel, &Result<u64, NoBound>)],
) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut table = Table::new()
        .names("channel", 1)
        .column("priority", Align::Right)
        .column("bytes", Align::Right)
        .column("period", Align::Right)
        .column("jitter", Align::Right)
        .column("longest latency", Align::Right)
        .column("deadline", Align::Left);
    for (channel, bound) in rows {
        let time = |t: Duration| duration(t.as_nanos() as f64);
        let deadline = match (channel.deadline, bound) {
            (None, _) => String::from("-"),
            (Some(d), Ok(bound)) if *bound <= ns(d) => format!("{} kept", time(d)),
            (Some(d), _) => format!("{} MISSED", time(d)),
        };
        table.row(vec![
            channel.name.clone(),
            channel.priority.to_string(),
            channel.bytes.to_string(),
            time(channel.period),
            time(channel.jitter),
            match bound {
                Ok(bound) => duration(*bound as f64),
                Err(_) => "none".into(),
            },
            deadline,
        ]);
    }
    table.write(out, &screen)?;
    let mut say = |line: &str| writeln!(out, "{}", term::one_line(line)).map_err(CliError::Stdout);
    for (channel, bound) in rows {
        if let Err(reason) = bound {
            say(&format!("{}: {reason}", channel.name))?;
        }
    }
    say(&format!(
        "Chunks of {} bytes ({} more on the wire), a window of {}.",
        port.chunk_bytes, port.overhead_bytes, port.window_bytes
    ))?;
    for line in assumptions(port) {
        say(&format!("assumed: {line}"))?;
    }
    Ok(())
}
