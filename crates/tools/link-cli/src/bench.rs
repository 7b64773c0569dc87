//! The command `onbeat link bench`: measures how fast a link is between two hosts.

use onbeat_document::text::duration;
use onbeat_link::bench::{self, Amount, BenchError, Measured, Series, LEAST_BYTES, MOST_BYTES};
use onbeat_link::interface::{Backend, SetupError};
use onbeat_link::{Key, Shm, Tcp};
use onbeat_terminal::live::LiveLine;
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::units::{parse_duration, parse_size};
use onbeat_terminal::CliError;
use onbeat_terminal::ExitStatus;
use serde_json::{json, Value};
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Measure a link between two hosts, or two processes: round trips and rate by size.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat link bench --listen 0.0.0.0:7400 --key link.key       on one machine
  onbeat link bench --connect 10.0.0.2:7400 --key link.key     on the other: prints the table
  onbeat link bench --connect 10.0.0.2:7400 --key link.key --sizes 64K,1M --runs 1000 --json
  onbeat link bench --listen shm:try                           in shared memory, one process
  onbeat link bench --connect shm:try                          and the other

The listening end serves one bench after another until Ctrl-C; with --once it serves one and ends.
A round trip takes a message of that size to the peer and back. A round trip lasts from before the
send until the answer is received. The rate counts content that is sent one way, until the peer has
received all of it. The bench neither writes nor reads the contents. A percentile is `-` if the runs
are too few for it.

Exit codes: 0 done; 1 failed: no peer, wrong key, connection lost; 2 wrong command line.")]
pub struct Args {
    #[command(flatten)]
    end: EndArgs,
    /// Key file, the same on both machines (`onbeat link key`); not for shm
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// End after one bench; only with --listen
    #[arg(long, requires = "listen")]
    pub once: bool,
    /// Message sizes to measure
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = parse_size, conflicts_with = "listen", default_value = "1K,8K,64K,256K,1M,4M,16M,32M")]
    pub sizes: Vec<u64>,
    /// Largest number of round trips at each size, and of messages in one direction for the rate
    #[arg(long, value_name = "N", conflicts_with = "listen", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub runs: u32,
    /// Longest time for the round trips of a size, and for measuring its rate; at least ten runs
    /// are made
    #[arg(long, value_name = "TIME", conflicts_with = "listen", default_value = "2s", value_parser = parse_duration)]
    pub time: Duration,
    /// Largest number of messages on their way at the same time in each direction
    #[arg(long, value_name = "N", conflicts_with = "listen", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub credits: u32,
    /// Over TCP, measure only with encryption (sealed) or only without (clear) [default: both]
    #[arg(long, value_name = "WHICH", conflicts_with = "listen")]
    pub only: Option<Only>,
    /// Print JSON, for programs
    #[arg(long, conflicts_with = "listen")]
    pub json: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct EndArgs {
    /// Serve at this address: HOST:PORT, or shm:NAME
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Measure the link to the end that listens at this address
    #[arg(long, value_name = "ADDRESS")]
    connect: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Only {
    /// Only links that encrypt their messages
    Sealed,
    /// Only links that authenticate both ends at the beginning but do not encrypt messages
    Clear,
}

enum Place {
    Shm(String),
    Tcp(SocketAddr, Key),
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::failed(error)
}

impl Place {
    fn parse(text: &str, key: Option<&PathBuf>) -> Result<Place, CliError> {
        if let Some(name) = text.strip_prefix("shm:") {
            if key.is_some() {
                return Err(CliError::Usage(
                    "--key is only for TCP. Leave --key out for shared memory.".into(),
                ));
            }
            return Ok(Place::Shm(name.into()));
        }
        let found = text.to_socket_addrs().map(|mut all| all.next());
        let Ok(Some(address)) = found else {
            return Err(CliError::Failed(format!(
                "'{text}' is not an address. Write HOST:PORT (10.0.0.2:7400) or shm:NAME."
            )));
        };
        let how = "a link over TCP needs --key FILE. Make the file with `onbeat link key`.";
        let path = key.ok_or_else(|| CliError::Usage(how.into()))?;
        let key = Key::read_file(path).map_err(failed)?;
        Ok(Place::Tcp(address, key))
    }

    /// Makes an end of the link, which listens if `listens` is true. With `series`, the end is for
    /// the messages of this series of measurements. With `None`, the end is for the requests by
    /// which one side asks the other for a series.
    fn end(&self, listens: bool, series: Option<Series>) -> Result<Box<dyn Backend>, SetupError> {
        Ok(match self {
            Place::Shm(name) => {
                let part = if series.is_some() { "series" } else { "ask" };
                let name = format!("bench/{name}/{part}");
                Box::new(match listens {
                    true => Shm::listen(&name),
                    false => Shm::connect(&name),
                })
            }
            Place::Tcp(address, key) => {
                let end = match listens {
                    true => Tcp::listen(*address, key.clone())?,
                    false => Tcp::connect(*address, key.clone()),
                };
                match series {
                    Some(series) if !series.sealed => Box::new(end.in_clear()),
                    _ => Box::new(end),
                }
            }
        })
    }
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    match (&args.end.listen, &args.end.connect) {
        (Some(address), _) => listen(
            &Place::parse(address, args.key.as_ref())?,
            address,
            args.once,
        ),
        (_, Some(address)) => connect(&args, &Place::parse(address, args.key.as_ref())?),
        // clap requires one of them.
        (None, None) => Ok(ExitStatus::NothingFound),
    }
}

fn say(line: &str) -> Result<(), CliError> {
    let mut out = io::stdout();
    writeln!(out, "{}", term::one_line(line))
        .and_then(|()| out.flush())
        .map_err(CliError::Stdout)
}

fn listen(place: &Place, address: &str, once: bool) -> Result<ExitStatus, CliError> {
    say(&format!("Listening at {address}."))?;
    // With --once, the end serves until the client has no further series.
    let mut left = None;
    loop {
        let mut printed = Ok(());
        let mut began = |series: Series| {
            printed = say(&format!(
                "A series of measurements ({}), with messages of at most {} bytes.",
                way(place, series),
                series.most_bytes
            ));
            left = Some(series.further);
        };
        let served = bench::serve(&mut |series| place.end(true, series), &mut began);
        printed?;
        match served {
            Ok(()) if once && left == Some(0) => return Ok(ExitStatus::Success),
            Ok(()) => {}
            // A client that leaves does not end the service; an error of its own address does.
            Err(BenchError::Setup(e @ SetupError::System { .. })) => return Err(failed(e)),
            Err(e) if once => return Err(failed(e)),
            Err(e) => say(&format!("note: {e}"))?,
        }
    }
}

fn way(place: &Place, series: Series) -> &'static str {
    match (place, series.sealed) {
        (Place::Shm(_), _) => "in shared memory",
        (_, true) => "sealed",
        (_, false) => "in clear",
    }
}

fn series(args: &Args, place: &Place, most_bytes: usize) -> Vec<Series> {
    let ways: &[bool] = match (place, args.only) {
        (Place::Tcp(..), None) => &[true, false],
        (Place::Tcp(..), Some(Only::Sealed)) => &[true],
        _ => &[false],
    };
    let of = |(at, &sealed): (usize, &bool)| Series {
        sealed,
        credits: args.credits as usize,
        most_bytes,
        further: ways.len() - 1 - at,
    };
    ways.iter().enumerate().map(of).collect()
}

fn connect(args: &Args, place: &Place) -> Result<ExitStatus, CliError> {
    let fits = |&s: &u64| {
        usize::try_from(s)
            .ok()
            .filter(|s| (LEAST_BYTES..=MOST_BYTES).contains(s))
    };
    let sizes: Option<Vec<usize>> = args.sizes.iter().map(fits).collect();
    let refused = || {
        CliError::Usage(format!(
            "--sizes: a size is out of range. Give {LEAST_BYTES} bytes to {}M.",
            MOST_BYTES >> 20
        ))
    };
    let sizes = sizes.ok_or_else(refused)?;
    let most = sizes.iter().copied().max().ok_or_else(refused)?;
    let amount = Amount {
        runs: args.runs as usize,
        time: args.time,
    };
    let mut results = Vec::new();
    for series in series(args, place, most) {
        let (mut line, began) = (LiveLine::new(), Instant::now());
        let mut shown = began;
        let mut tell = |done: usize, runs: usize| {
            if began.elapsed() < Duration::from_secs(2) || shown.elapsed() < Duration::from_secs(1)
            {
                return;
            }
            shown = Instant::now();
            let way = way(place, series);
            line.show(&format!(
                "{way}: {} bytes, run {runs}; {done} of {} sizes done",
                sizes[done],
                sizes.len()
            ));
        };
        let make = &mut |series| place.end(false, series);
        let measured = bench::measure(make, series, &sizes, amount, &mut tell);
        line.clear();
        results.push((series, measured.map_err(failed)?));
    }
    let mut out = io::stdout().lock();
    if args.json {
        let all: Vec<Value> = results.iter().map(|(s, m)| as_json(place, *s, m)).collect();
        term::write_json(&mut out, &json!({ "series": all }))?;
    } else {
        print(&mut out, place, &results)?;
    }
    Ok(ExitStatus::Success)
}

fn as_json(place: &Place, series: Series, measured: &[Measured]) -> Value {
    let sizes = measured.iter().map(|m| {
        json!({
            "bytes": m.bytes,
            "round_trips": m.round_trips_ns.len(),
            "round_trip_p50_ns": m.quantile_ns(0.5),
            "round_trip_p99_ns": m.quantile_ns(0.99),
            "round_trip_max_ns": m.longest_ns(),
            "messages": m.messages,
            "one_way_ns": m.one_way_ns,
            "bytes_per_second": m.bytes_per_second(),
        })
    });
    json!({
        "over": match place { Place::Shm(_) => "shm", Place::Tcp(..) => "tcp" },
        "sealed": matches!(place, Place::Tcp(..)).then_some(series.sealed),
        "credits": series.credits,
        "sizes": sizes.collect::<Vec<_>>(),
    })
}

fn rate(bytes_per_second: f64) -> String {
    let (unit, name) = match bytes_per_second {
        r if r >= 1e9 => (1e9, "GB/s"),
        r if r >= 1e6 => (1e6, "MB/s"),
        _ => (1e3, "kB/s"),
    };
    format!(
        "{} {name}",
        onbeat_document::text::significant(bytes_per_second / unit)
    )
}

fn print(
    out: &mut dyn Write,
    place: &Place,
    results: &[(Series, Vec<Measured>)],
) -> Result<(), CliError> {
    let mut table = Table::new()
        .column("link", Align::Left)
        .column("bytes", Align::Right)
        .column("round trips", Align::Right)
        .column("p50", Align::Right)
        .column("p99", Align::Right)
        .column("max", Align::Right)
        .column("messages", Align::Right)
        .column("one-way rate", Align::Right);
    for (series, measured) in results {
        for m in measured {
            let quantile = |q| {
                m.quantile_ns(q)
                    .map_or("-".into(), |ns| duration(ns as f64))
            };
            table.row(vec![
                way(place, *series).into(),
                m.bytes.to_string(),
                m.round_trips_ns.len().to_string(),
                quantile(0.5),
                quantile(0.99),
                duration(m.longest_ns() as f64),
                m.messages.to_string(),
                rate(m.bytes_per_second()),
            ]);
        }
    }
    table.write(out, &Screen::of_stdout())
}
