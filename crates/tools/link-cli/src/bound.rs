//! The command `onbeat link bound`: computes the longest latency of each channel of a port.

use onbeat_document::text::duration;
use onbeat_link::bound::{Bound, Cpu, Load, NoBound, Port};
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

The bound has two parts: one for the wire and the protocol, and one for the CPUs. The part for the
CPUs holds if steps of a link's threads take at most --wake. Some steps may take longer, if their
excess times add up to at most --stall until a message is taken. `onbeat link status` shows how long
steps have taken.

--port reads rate, chunk and window from a port that processes of this user have open
(Port::shared). If the port has measured a lower rate than it was given, the bounds hold for the
measured rate less an eighth, because the port does not notice smaller changes. The bounds then use
the chunk and the window that are in force.

A file holds the same values as the options, and may name hosts:
  {\"rate\": \"1G\", \"chunk\": \"64K\", \"window\": \"128K\", \"mtu\": 1500, \"way\": \"50us\",
   \"wake\": \"100us\", \"stall\": \"1ms\", \"channels\": [
    {\"name\": \"stop\", \"priority\": 9, \"bytes\": \"1K\", \"period\": \"10ms\", \"deadline\": \"2ms\"},
    {\"name\": \"scans\", \"priority\": 1, \"bytes\": \"4M\", \"period\": \"100ms\", \"jitter\": \"2ms\",
     \"from\": \"lidar\", \"to\": \"fusion\"}]}
Each sending host has its own port. Two hosts that send to the same host (incast) are refused: they
share the receiver's port too, and no bound is known for that.

Exit codes: 0 every channel has a bound within its deadline; 1 failed; 2 wrong command line; 5 a
channel has no bound, or misses its deadline.")]
pub struct Args {
    /// File with the port and its channels
    #[arg(value_name = "FILE", conflicts_with_all = ["rate", "channel"], required_unless_present = "channel")]
    pub file: Option<PathBuf>,
    /// Rate of the wire in bits per second: 100M, 1G, 10G
    #[arg(long, value_name = "RATE", value_parser = parse_rate, required_unless_present_any = ["file", "port"])]
    pub rate: Option<u64>,
    /// Use the measured rate, the chunk and the window of this port, which must be running
    #[arg(long = "port", id = "port", value_name = "NAME", conflicts_with_all = ["chunk", "window"])]
    pub running: Option<String>,
    /// Channel that uses the port; a larger priority is more urgent [repeatable]
    #[arg(long, value_name = "NAME=PRIORITY,SIZE,PERIOD[,JITTER[,DEADLINE]]", value_parser = parse_channel)]
    pub channel: Vec<Channel>,
    #[command(flatten)]
    wire: PortArgs,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// The options that describe a port. For an option that is missing, the value in the file counts.
#[derive(clap::Args)]
struct PortArgs {
    /// Largest content of a chunk in bytes [default: two chunks take 1 ms at the wire's rate]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    chunk: Option<u64>,
    /// Bytes that may be sent and not yet acknowledged [default: two chunks]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    window: Option<u64>,
    /// Largest packet of the network [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(576..=65535))]
    mtu: Option<u64>,
    /// Time from when the last byte leaves the sender until the receiver's kernel has it: 50us
    /// [default: 0]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    way: Option<Duration>,
    /// Longest usual time from an event until a thread of the link has done the step that follows
    /// [default: 100us]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wake: Option<Duration>,
    /// Longest total time by which the steps for a message exceed --wake [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    stall: Option<Duration>,
    /// The channels are not encrypted, and so put fewer bytes on the wire
    #[arg(long)]
    in_clear: bool,
}

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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    /// The rate of the wire in bits per second. `None` is allowed if the bound is for a running
    /// port, because the port has its own rate.
    #[serde(default, deserialize_with = "some_rate")]
    rate: Option<u64>,
    #[serde(default, deserialize_with = "some_size")]
    chunk: Option<u64>,
    #[serde(default, deserialize_with = "some_size")]
    window: Option<u64>,
    mtu: Option<u64>,
    #[serde(default, deserialize_with = "some_time")]
    way: Option<Duration>,
    #[serde(default, deserialize_with = "some_time")]
    wake: Option<Duration>,
    #[serde(default, deserialize_with = "some_time")]
    stall: Option<Duration>,
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

/// Parses a channel in the form `NAME=PRIORITY,SIZE,PERIOD[,JITTER[,DEADLINE]]`.
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
            .map_err(|_| format!("'{}' is not a priority. Write 0 to 255.", words[0]))?,
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
            "{}: {e}. `onbeat link bound --help` shows the format.",
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
                wake: None,
                stall: None,
                in_clear: false,
                channels: self.channel.clone(),
            },
        };
        found.chunk = self.wire.chunk.or(found.chunk);
        found.window = self.wire.window.or(found.window);
        found.mtu = self.wire.mtu.or(found.mtu);
        found.way = self.wire.way.or(found.way);
        found.wake = self.wire.wake.or(found.wake);
        found.stall = self.wire.stall.or(found.stall);
        found.in_clear |= self.wire.in_clear;
        Ok(found)
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Description {
    fn port(&self, running: Option<&str>) -> Result<(Port, Option<Rates>), CliError> {
        if let Some(name) = running {
            let stats = port::Port::look(name).map_err(CliError::failed)?;
            let rates = Rates::of(name, &stats);
            return Ok((self.as_running(&rates, &stats)?, Some(rates)));
        }
        let none = || {
            CliError::Failed(
                "the file of channels does not give the rate of the wire in bit/s. Add \"rate\" to the file, for example \"1G\", or use --port.".into(),
            )
        };
        Ok((self.planned(self.rate.ok_or_else(none)?), None))
    }

    fn as_running(&self, rates: &Rates, stats: &PortStats) -> Result<Port, CliError> {
        let Rates { name, given, .. } = rates;
        let differs = |what: &str, said: u64, is: u64| {
            CliError::Failed(format!(
                "port '{name}' has a {what} of {is}, but you gave {said}. Leave that value out, or leave out --port."
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
                "port '{name}' has the given rate {} and has measured {measured}, the lowest rate that a port can measure. The wire \
                 may be slower, so no bound is known. Make the port with the rate of the wire.",
                megabits(*given)
            ))
        })
    }

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

    /// Returns an error text if two hosts send to the same host (incast), otherwise `None`.
    fn incast(&self) -> Option<String> {
        let mut senders = BTreeMap::new();
        self.channels.iter().find_map(|c| {
            let first = *senders.entry(&c.to).or_insert(&c.from);
            let (to, from) = (&c.to, &c.from);
            (!to.is_empty() && first != from).then(|| {
                format!(
                    "'{first}' and '{from}' both send to '{to}' (incast). No bound is known for messages that wait \
                     in the network before '{to}'. Let only one host send, or give each host its own network \
                     (another name in \"to\")."
                )
            })
        })
    }

    fn cpu(&self) -> Cpu {
        let usual = Cpu::default();
        Cpu {
            wake_ns: self.wake.map_or(usual.wake_ns, ns),
            stall_ns: self.stall.map_or(usual.stall_ns, ns),
        }
    }

    fn bounds(&self, port: &Port) -> Vec<Result<Bound, NoBound>> {
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
            port.bounds(&loads, &self.cpu())
                .swap_remove(at.unwrap_or(0))
        };
        self.channels.iter().map(of).collect()
    }
}

struct Rates {
    name: String,
    given: u64,
    /// The rate that the port has measured. `None` if it equals the given rate.
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

    fn explain(&self, used: u64) -> [String; 2] {
        let (name, given) = (term::fit(&self.name, 30), megabits(self.given));
        match self.measured {
            Some(measured) if measured < self.given => [
                format!(
                    "port '{name}' has measured a rate of {} (given rate: {given}):",
                    megabits(measured)
                ),
                format!(
                    "  the bounds hold if the port sends at {} or faster, an eighth below its measured rate.",
                    megabits(used)
                ),
            ],
            _ => [
                format!("port '{name}' has not measured a rate below the given rate of {given}:"),
                "  the port notices a lower rate only if it is lower by over an eighth and links wait for the port."
                    .into(),
            ],
        }
    }
}

fn assumptions(port: &Port, cpu: &Cpu, rates: Option<&Rates>) -> Vec<String> {
    let time = |ns: u64| duration(ns as f64);
    let rate = match rates {
        None => "the wire has the given rate; a running port can measure this rate (--port)".into(),
        Some(rates) if rates.measured.is_some() => String::from(
            "the wire keeps its measured rate; after a fall, chunks are too large until the port notices",
        ),
        Some(_) => "the wire has the rate that is set for the port".into(),
    };
    vec![
        rate,
        "the sender's port is the bottleneck, and nothing else sends through it".into(),
        "each channel is a TCP link; a host's links share one port (Tcp::on_port) and its chunk size"
            .into(),
        "the port sends only few acknowledgements (40 bytes each); no bound includes them"
            .into(),
        "no channel sends more or larger messages than stated for it".into(),
        format!(
            "a link's thread does its work within {} after an event (--wake), if it does not stall",
            time(cpu.wake_ns)
        ),
        format!(
            "for one message, delays of threads beyond --wake add up to at most {} (--stall)",
            time(cpu.stall_ns)
        ),
        "no packet is lost, and TCP has left slow start; otherwise messages can exceed their bounds"
            .into(),
        match port.way_ns {
            0 => "the network path to the receiver's kernel adds no time (--way states another time)".into(),
            way => format!(
                "the network path to the receiver's kernel and the path back take at most {} each",
                time(way)
            ),
        },
    ]
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let described = args.description()?;
    if described.channels.is_empty() {
        return Err(CliError::Usage(
            "no channel is given. Use --channel, or a file with channels.".into(),
        ));
    }
    if let Some(why) = described.incast() {
        return Err(CliError::Failed(why));
    }
    let (port, rates) = described.port(args.running.as_deref())?;
    let (bounds, cpu) = (described.bounds(&port), described.cpu());
    let late = |c: &Channel, b: &Result<Bound, NoBound>| match (b, c.deadline) {
        (Ok(bound), deadline) => deadline.is_some_and(|d| bound.longest_ns() > ns(d)),
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
            "wake_ns": cpu.wake_ns,
            "stall_ns": cpu.stall_ns,
            "channels": channels,
            "assumptions": assumptions(&port, &cpu, rates.as_ref()),
        });
        term::write_json(&mut out, &text)?;
    } else {
        print(&mut out, &rows)?;
        if let Some(rates) = &rates {
            say(&mut out, &rates.explain(port.bits_per_second))?;
        }
        let chunk = format!(
            "Chunks of {} bytes (plus {} on the wire), a window of {} bytes.",
            port.chunk_bytes, port.overhead_bytes, port.window_bytes
        );
        say(&mut out, &[chunk])?;
        let assumed = assumptions(&port, &cpu, rates.as_ref()).into_iter();
        let assumed = assumed.map(|line| format!("assumed: {line}"));
        say(&mut out, &assumed.collect::<Vec<_>>())?;
    }
    Ok(match is_kept {
        true => ExitStatus::Success,
        false => ExitStatus::PromiseBroken,
    })
}

fn as_json(channel: &Channel, bound: &Result<Bound, NoBound>) -> Value {
    let known = bound.as_ref().ok();
    json!({
        "name": channel.name,
        "from": channel.from,
        "to": channel.to,
        "priority": channel.priority,
        "bytes": channel.bytes,
        "period_ns": ns(channel.period),
        "jitter_ns": ns(channel.jitter),
        "deadline_ns": channel.deadline.map(ns),
        "bound_ns": known.map(Bound::longest_ns),
        "wire_ns": known.map(|b| b.wire_ns),
        "cpu_ns": known.map(|b| b.cpu_ns),
        "reason": bound.as_ref().err().map(ToString::to_string),
    })
}

fn say(out: &mut dyn io::Write, lines: &[String]) -> Result<(), CliError> {
    let mut lines = lines.iter();
    let said = lines.try_for_each(|line| writeln!(out, "{}", term::one_line(line)));
    said.map_err(CliError::Stdout)
}

fn print(
    out: &mut dyn io::Write,
    rows: &[(&Channel, &Result<Bound, NoBound>)],
) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut table = Table::new()
        .names("channel", 1)
        .column("priority", Align::Right)
        .column("bytes", Align::Right)
        .column("period", Align::Right)
        .column("jitter", Align::Right)
        .column("wire", Align::Right)
        .column("CPU", Align::Right)
        .column("longest latency", Align::Right)
        .column("deadline", Align::Left);
    for (channel, bound) in rows {
        let time = |t: Duration| duration(t.as_nanos() as f64);
        let deadline = match (channel.deadline, bound) {
            (None, _) => String::from("-"),
            (Some(d), Ok(bound)) if bound.longest_ns() <= ns(d) => format!("{} kept", time(d)),
            (Some(d), _) => format!("{} MISSED", time(d)),
        };
        let part = |of: fn(&Bound) -> u64| match bound {
            Ok(bound) => duration(of(bound) as f64),
            Err(_) => "none".into(),
        };
        table.row(vec![
            channel.name.clone(),
            channel.priority.to_string(),
            channel.bytes.to_string(),
            time(channel.period),
            time(channel.jitter),
            part(|b| b.wire_ns),
            part(|b| b.cpu_ns),
            part(Bound::longest_ns),
            deadline,
        ]);
    }
    table.write(out, &screen)?;
    let reason = |(channel, bound): &(&Channel, &Result<Bound, NoBound>)| {
        let reason = bound.as_ref().err()?;
        Some(format!("{}: {reason}", channel.name))
    };
    for reason in rows.iter().filter_map(reason) {
        // Two sentences are longer than a line.
        let sentences = reason
            .split_inclusive(". ")
            .map(|s| s.trim_end().to_owned());
        say(out, &sentences.collect::<Vec<_>>())?;
    }
    Ok(())
}
