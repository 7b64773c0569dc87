//! `onbeat link bound`: the longest latency of each channel of a port, by computation.

use onbeat_document::text::duration;
use onbeat_link::bound::{Load, NoBound, Port};
use onbeat_link::port::{self, PortStats, Settings};
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::units::{parse_duration, parse_rate, parse_size};
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
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
  onbeat link bound --port eth0 --channel scans=1,4M,100ms
  onbeat link bound channels.json --json

--port takes rate, chunk and window from a port that processes of this user have now
(Port::shared). If it has measured a lower rate than it was given, the bounds are for that rate
less an eighth (a smaller difference is not noticed), with the chunk and window that are in force.

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
    #[arg(long, value_name = "RATE", value_parser = parse_rate, required_unless_present_any = ["file", "port"])]
    pub rate: Option<u64>,
    /// A running port: its rate as measured, its chunk and window
    #[arg(long = "port", id = "port", value_name = "NAME", conflicts_with_all = ["chunk", "window"])]
    pub running: Option<String>,
    /// A channel; a larger priority is more urgent [repeatable]
    #[arg(long, value_name = "NAME=PRIORITY,SIZE,PERIOD[,JITTER[,DEADLINE]]", value_parser = parse_channel)]
    pub channel: Vec<Channel>,
    #[command(flatten)]
    wire: PortArgs,
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
    /// A running port has one of its own.
    #[serde(default, deserialize_with = "some_rate")]
    rate: Option<u64>,
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

fn some_rate<'d, D: serde::Deserializer<'d>>(from: D) -> Result<Option<u64>, D::Error> {
    parsed(from, parse_rate).map(Some)
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
        CliError::Failed(format!(
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
                rate: self.rate,
                chunk: None,
                window: None,
                mtu: None,
                way: None,
                in_clear: false,
                channels: self.channel.clone(),
            },
        };
        found.chunk = self.wire.chunk.or(found.chunk);
        found.window = self.wire.window.or(found.window);
        found.mtu = self.wire.mtu.or(found.mtu);
        found.way = self.wire.way.or(found.way);
        found.in_clear |= self.wire.in_clear;
        Ok(found)
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Description {
    /// The port, and its rates if it is a running one.
    fn port(&self, running: Option<&str>) -> Result<(Port, Option<Rates>), CliError> {
        if let Some(name) = running {
            let stats = port::Port::look(name).map_err(CliError::failed)?;
            let rates = Rates::of(name, &stats);
            return Ok((self.as_running(&rates, &stats)?, Some(rates)));
        }
        let none = || CliError::Failed("no rate: give \"rate\" in the file, or --port".into());
        Ok((self.planned(self.rate.ok_or_else(none)?), None))
    }

    /// A port that runs, as it is now. What the description says of it must be true.
    fn as_running(&self, rates: &Rates, stats: &PortStats) -> Result<Port, CliError> {
        let Rates { name, given, .. } = rates;
        let differs = |what: &str, said: u64, is: u64| {
            CliError::Failed(format!(
                "port '{name}' has a {what} of {is}, but {said} is given: leave it out, or leave --port out"
            ))
        };
        let settings = stats.settings;
        let own = [
            ("rate (bit/s)", self.rate, *given),
            ("chunk (bytes)", self.chunk, settings.chunk() as u64),
            ("window (bytes)", self.window, settings.window_bytes()),
        ];
        for (what, said, is) in own {
            if let Some(said) = said.filter(|said| *said != is) {
                return Err(differs(what, said, is));
            }
        }
        let (mtu, way) = (self.mtu.unwrap_or(1500), self.way.unwrap_or_default());
        let model = stats.model(mtu as usize, !self.in_clear, ns(way));
        model.ok_or_else(|| {
            let measured = megabits(rates.measured.unwrap_or(0));
            CliError::Failed(format!(
                "port '{name}' was given {}, and has measured {measured} or less, as little as it can: no bound \
                 is known; make the port with the rate that the wire has",
                megabits(*given)
            ))
        })
    }

    /// A port that is to be made with this rate.
    fn planned(&self, rate: u64) -> Port {
        let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(1 << 30);
        let settings = Settings::of_rate(rate);
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

/// The rates of a running port, bit/s.
struct Rates {
    name: String,
    given: u64,
    /// If it was found to be another one.
    measured: Option<u64>,
}

fn megabits(bits_per_second: u64) -> String {
    let megabits = format!("{:.1}", bits_per_second as f64 / 1e6);
    format!("{} Mbit/s", megabits.trim_end_matches(".0"))
}

impl Rates {
    fn of(name: &str, stats: &PortStats) -> Rates {
        Rates {
            name: name.into(),
            given: stats.settings.bits_per_second(),
            measured: stats.measured_bits_per_second,
        }
    }

    /// What a person has to know of them, in lines.
    fn said(&self, used: u64) -> [String; 2] {
        let (name, given) = (term::fit(&self.name, 30), megabits(self.given));
        match self.measured {
            Some(measured) if measured < self.given => [
                format!(
                    "port '{name}' has measured {}, but was given {given}:",
                    megabits(measured)
                ),
                format!(
                    "  the bounds are for {}, an eighth less than measured.",
                    megabits(used)
                ),
            ],
            _ => [
                format!("port '{name}' was given {given}, and has measured no lower rate:"),
                "  an eighth less would be noticed, while links wait for it.".into(),
            ],
        }
    }
}

fn assumptions(port: &Port, rates: Option<&Rates>) -> Vec<String> {
    let rate = match rates {
        None => "the wire has this rate: a port measures it (--port)".into(),
        Some(rates) if rates.measured.is_some() => String::from(
            "the wire keeps this rate: after a change, chunks are larger until it is measured",
        ),
        Some(_) => "the wire has the rate that the port was given".into(),
    };
    vec![
        rate,
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
        return Err(CliError::Failed(why));
    }
    let (port, rates) = described.port(args.running.as_deref())?;
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
            "port": rates.as_ref().map(|r| &r.name),
            "given_bits_per_second": rates.as_ref().map(|r| r.given),
            "measured_bits_per_second": rates.as_ref().and_then(|r| r.measured),
            "rate_bits_per_second": port.bits_per_second,
            "chunk_bytes": port.chunk_bytes,
            "window_bytes": port.window_bytes,
            "overhead_bytes": port.overhead_bytes,
            "way_ns": port.way_ns,
            "channels": channels,
            "assumptions": assumptions(&port, rates.as_ref()),
        });
        term::write_json(&mut out, &text)?;
    } else {
        print(&mut out, (&port, rates.as_ref()), &rows)?;
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
    (port, rates): (&Port, Option<&Rates>),
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
    if let Some(rates) = rates {
        for line in rates.said(port.bits_per_second) {
            say(&line)?;
        }
    }
    say(&format!(
        "Chunks of {} bytes ({} more on the wire), a window of {}.",
        port.chunk_bytes, port.overhead_bytes, port.window_bytes
    ))?;
    for line in assumptions(port, rates) {
        say(&format!("assumed: {line}"))?;
    }
    Ok(())
}
