//! Defines the options of `onbeat replay`.

use super::judge::Live;
use super::place::{source_of, Where};
use super::selection::Selection;
use super::Report;
use onbeat_replay::bus::Speed;
use onbeat_replay::chain::{Choice, Sides};
use onbeat_replay::route::Target;
use onbeat_replay::session::Settings;
use onbeat_replay::sink::qos::Overrides;
use onbeat_replay::sink::ros::Answer;
use onbeat_replay::sizing::Wish;
use onbeat_replay::Pace;
use onbeat_terminal::term::one_line;
use onbeat_terminal::units::{parse_duration, parse_rate, parse_size};
use onbeat_terminal::CliError;
use std::path::PathBuf;
use std::time::Duration;

const PRIORITY: u8 = 80;
/// The default limit of the playback buffer, in bytes. The help text states it as 64M.
const MEMORY: u64 = 64 << 20;
/// The default of `--stall`: the time by which a pause of the loader may be longer than measured
/// without making items late. The help text states it as 1s.
const STALL: Duration = Duration::from_secs(1);

/// Play recorded traffic again: no item is lost, and each item leaves at its recorded time.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat replay drive.mcap                        its topics into ROS 2, at their times
  onbeat replay drive.mcap can.log --topics '/front/*,can0' --clock --rate 0.5
  onbeat replay drive.mcap --as-fast-as-consumed --answer /scan=/cmd
  onbeat replay drive.mcap --plan --rate 4        its streams, and the buffer that this needs
  onbeat replay drive.mcap --rate 5 --answer /scan_front,/scan_rear=/cmd
  onbeat replay drive.mcap --requests             requests of services and actions to their servers
  onbeat replay can.log --to can:vcan0
  onbeat replay capture.pcap --to eth:veth0 --rate 0.5
  onbeat replay capture.pcap --to udp:10.0.0.2 --map 2368=10.0.0.2:7000
  onbeat replay drive.blf --channel 1:=can0 --dbc car.dbc --ids 'Brake_*'
  onbeat replay can.log --to udp:127.0.0.1:7400 --report replay.html
  onbeat replay drive.mcap --compare '/planning/*' --tolerance 1% --junit outputs.xml
  onbeat replay can.log --ids 123,200-2ff --loop 10 --max-late 1ms
  onbeat replay drive.mcap --to link:10.0.0.2:7400 --key link.key     read here, played there:
  onbeat replay link:0.0.0.0:7400 --key link.key --to can:can0

onbeat reads the recording once before it plays. From the rate of the items and the speed of
reading, onbeat computes the smallest buffer that never runs empty (--memory, --stall). A loader
reads ahead into the buffer, and waits when the buffer is full. If the loader falls behind, onbeat
warns before an item is late. The player lets each item leave at its time. The player is a thread
under SCHED_FIFO with locked memory, as far as both are permitted; the report says what it got. An
item that was not in the buffer at its time leaves late and is counted in the report.

Without --to, onbeat publishes ROS 2 messages on their topics, in the ROS 2 that LD_LIBRARY_PATH
names, and CAN frames go to the interface that has the name of their stream.

On a terminal, space pauses and continues, s plays one item, + and - change the rate and 1 resets it,
the arrows left and right go 5 s, up and down 1 min, and q ends the replay.

--compare does not play the topics that it names: the application publishes them, and onbeat
compares these messages with the recorded ones. onbeat finds missing and additional messages, the
shift of each message against its recorded time, and the fields that differ.

Exit codes: 0 all played, or ended by q or Ctrl-C; 1 failed, or the recording could not be read to
its end; 2 wrong command line; 3 nothing to play; 5 something left later than --max-late; 6 or 7
with --compare: 6 onbeat did not receive all messages, so the comparison is open; 7 something
differs from the recording.")]
pub struct Args {
    /// Recordings: rosbag2 and ROS 1 bags, MCAP, logs (candump, ASC, BLF, MDF, TRC), pcap, pcapng;
    /// also packed with gzip, xz, zstd or bzip2. Several recordings share one time axis.
    /// link:ADDRESS:PORT receives a recording that another host sends
    #[arg(value_name = "RECORDING", required = true)]
    pub sources: Vec<PathBuf>,
    /// Shift recordings that were made at different times so that all begin at the same time
    #[arg(long)]
    pub align: bool,
    /// Destination: ros, udp:HOST:PORT, can:INTERFACE or eth:INTERFACE. udp:HOST keeps the recorded
    /// ports of a capture. If there are several destinations, each stream goes to the destination
    /// that suits it best. link:HOST:PORT sends the recording to another host, which plays it
    #[arg(long, value_name = "WHERE")]
    pub to: Vec<Where>,
    /// Send UDP datagrams that were recorded to PORT to this address
    #[arg(long, value_name = "PORT=HOST:PORT", value_parser = parse_map)]
    pub map: Vec<(u16, String)>,
    /// Bitrates of CAN interfaces, for the bus load: 500k, 500k/2M with CAN FD, or can0=250k.
    /// Without this option, onbeat uses the bitrates that the kernel reports
    #[arg(long, value_name = "[NAME=]RATE[/DATA]", value_parser = parse_bitrate)]
    pub bitrate: Vec<(Option<String>, Speed)>,
    /// Key of the link, the same on both hosts (onbeat link key FILE)
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    how: How,
    /// Do not play. List the recording, and print the size of the buffer that it needs at this
    /// --rate
    #[arg(long)]
    pub plan: bool,
    /// Wait for at most TIME until each topic has a subscriber, or until the host that plays the
    /// recording is connected
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    pub wait: Duration,
    #[command(flatten)]
    pub course: Course,
    /// Fail with exit code 5 if an item left later than TIME after it was due
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub max_late: Option<Duration>,
    /// Write the figures of the replay to FILE.json, an HTML page with a picture to FILE.html, or
    /// only the picture to FILE.svg
    #[arg(long, value_name = "FILE")]
    report: Vec<PathBuf>,
    #[command(flatten)]
    pub compare: Live,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// The options for the beginning of a replay, and for orders during the replay.
#[derive(clap::Args)]
pub struct Course {
    /// Begin paused, to step through the recording
    #[arg(long)]
    pub paused: bool,
    /// Begin to play TIME after the buffer is full
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    delay: Duration,
    /// Take orders (pause, rate, seek ...) as lines of JSON at this Unix socket
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

#[derive(clap::Args)]
struct What {
    #[command(flatten)]
    selection: Selection,
    /// Play the recording N times
    #[arg(long = "loop", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
}

#[derive(clap::Args)]
struct How {
    /// Play FACTOR times as fast as recorded
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_factor)]
    rate: f64,
    /// Ignore recorded times: the next item leaves as soon as the consumer has consumed enough
    /// earlier items
    #[arg(long, conflicts_with = "rate", requires = "answer")]
    as_fast_as_consumed: bool,
    /// Send the next message on IN only when the application has answered the previous one by a
    /// message on OUT. If one answer is for messages on several topics, write A,B=OUT
    #[arg(long, value_name = "IN,...=OUT", value_parser = parse_answer)]
    answer: Option<Answer>,
    #[command(flatten)]
    buffer: BufferArgs,
    /// Priority of the player under SCHED_FIFO; 0 means time-sharing
    #[arg(long, value_name = "1-99", default_value_t = PRIORITY, value_parser = clap::value_parser!(u8).range(0..=99))]
    priority: u8,
    /// CPU on which the player runs
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
    /// Publish the recorded time on /clock, HZ times a second
    #[arg(long, value_name = "HZ", num_args = 0..=1, default_missing_value = "100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clock: Option<u32>,
    /// Send the recorded requests of services and actions to their servers, instead of publishing
    /// their service events. The value says which requests: those that servers recorded, or those
    /// that clients recorded. Without a value, onbeat decides for each service
    #[arg(long, value_name = "server|client", num_args = 0..=1, require_equals = true, default_missing_value = "auto", value_parser = parse_requests)]
    requests: Option<Requests>,
    /// File with the QoS of publishers, in the format of rosbag2's QoS overrides. Settings that are
    /// not in the file stay as recorded
    #[arg(long, value_name = "FILE")]
    qos: Option<PathBuf>,
    /// Busy-wait for the last TIME before each item: items are less late, at the cost of CPU time
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    spin: Duration,
}

#[derive(clap::Args)]
struct BufferArgs {
    /// Maximum memory of the playback buffer. The buffer uses only the memory that the recording
    /// needs
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_size)]
    memory: u64,
    /// Memory of the playback buffer, instead of a size that onbeat measures. A quarter of the
    /// memory is for the largest item
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "memory")]
    buffer: Option<u64>,
    /// Make the buffer so large that the loader may pause for this much longer than measured
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s")]
    stall: Duration,
    /// Play at once, without measuring the recording first. The buffer then uses all its memory,
    /// and onbeat does not warn in advance of items that will be late
    #[arg(long, conflicts_with = "plan")]
    unmeasured: bool,
}

/// Which of the recorded requests to services a replay sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requests {
    /// Each request once: the requests of the server if it recorded any, otherwise those of the
    /// clients.
    Each,
    Of(Sides),
}

fn parse_requests(text: &str) -> Result<Requests, String> {
    match text {
        "auto" => Ok(Requests::Each),
        "server" => Ok(Requests::Of(Sides::Server)),
        "client" => Ok(Requests::Of(Sides::Client)),
        _ => Err("write --requests, --requests=server or --requests=client".into()),
    }
}

fn parse_answer(text: &str) -> Result<Answer, String> {
    match text.split_once('=') {
        Some((asked, answered))
            if !answered.is_empty() && asked.split(',').all(|a| !a.is_empty()) =>
        {
            Ok(Answer {
                asked: asked.split(',').map(String::from).collect(),
                answered: answered.into(),
                credits: 1,
            })
        }
        _ => Err("write IN=OUT, for example /scan=/cmd, or A,B=OUT".into()),
    }
}

fn parse_bitrate(text: &str) -> Result<(Option<String>, Speed), String> {
    let how = |_| String::from("write a bitrate, for example 500k, 500k/2M or can0=250k");
    let (name, rates) = match text.split_once('=') {
        Some((name, rates)) => (Some(name.to_owned()), rates),
        None => (None, text),
    };
    let (nominal, data) = rates.split_once('/').unwrap_or((rates, rates));
    let speed = Speed {
        nominal: parse_rate(nominal).map_err(how)?,
        data: parse_rate(data).map_err(how)?,
    };
    Ok((name, speed))
}

fn parse_map(text: &str) -> Result<(u16, String), String> {
    let parts = text.split_once('=');
    let parts = parts.and_then(|(port, to)| Some((port.parse().ok()?, to.to_owned())));
    let is_address = |(_, to): &(u16, String)| to.contains(':');
    parts
        .filter(is_address)
        .ok_or_else(|| String::from("write PORT=HOST:PORT, for example 2368=10.0.0.2:7000"))
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor: Option<f64> = text.parse().ok();
    factor.filter(|f| (1e-6..=1e6).contains(f)).ok_or_else(|| {
        String::from("write a factor from 0.000001 to 1000000, for example 0.5 or 2")
    })
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Course {
    fn says_how(&self) -> bool {
        self.paused || !self.delay.is_zero() || self.control.is_some()
    }
}

impl Args {
    pub fn targets(&self) -> Vec<Target> {
        let here = self.to.iter().filter_map(|to| match to {
            Where::Here(target) => Some(target.clone()),
            Where::Link(_) => None,
        });
        here.collect()
    }

    pub fn link(&self) -> Option<&str> {
        self.to.iter().find_map(|to| match to {
            Where::Link(address) => Some(address.as_str()),
            Where::Here(_) => None,
        })
    }

    /// Returns true if the user gave an option for playing on this host.
    pub fn says_how(&self) -> bool {
        let (how, buffer) = (&self.how, &self.how.buffer);
        let paced = how.rate != 1.0 || how.as_fast_as_consumed || how.clock.is_some();
        let player = how.priority != PRIORITY || how.cpu.is_some() || !how.spin.is_zero();
        let sized = buffer.memory != MEMORY || buffer.buffer.is_some() || buffer.stall != STALL;
        let told = self.max_late.is_some() || !self.report.is_empty();
        let sent = how.answer.is_some() || how.requests.is_some();
        let played = paced || player || sent || self.course.says_how();
        let compared = !self.compare.topics.is_empty()
            || !self.bitrate.is_empty()
            || !self.map.is_empty()
            || how.qos.is_some();
        played || sized || buffer.unmeasured || told || self.plan || compared
    }

    pub fn times(&self) -> u32 {
        self.what.times
    }

    pub fn choice(&self) -> Result<Choice, CliError> {
        Ok(Choice {
            compared: self.compare.topics.clone(),
            times: self.what.times,
            plays_latched: true,
            requests: self.how.requests.map(|requests| match requests {
                Requests::Each => Sides::Server,
                Requests::Of(sides) => sides,
            }),
            ..self.what.selection.choice()?
        })
    }

    /// Returns the selection of the recorded messages with which the application's outputs are
    /// compared.
    pub fn choice_compared(&self) -> Result<Choice, CliError> {
        Ok(Choice {
            only: self.compare.topics.clone(),
            compared: Vec::new(),
            ids: Vec::new(),
            messages: Vec::new(),
            plays_latched: false,
            requests: None,
            ..self.choice()?
        })
    }

    /// Returns the reason why the user cannot seek, or `None` if seeking is possible.
    pub fn no_seek(&self) -> Option<&'static str> {
        match () {
            _ if source_of(&self.sources).is_some() => Some(
                "a recording that comes over a link can be played only once, from start to end",
            ),
            _ if !self.compare.topics.is_empty() => {
                Some("--compare needs a recording that is played once, from start to end")
            }
            _ => None,
        }
    }

    /// Returns the reason why the user cannot change the rate, or `None` if that is possible.
    pub fn no_rate(&self) -> Option<&'static str> {
        match () {
            _ if self.how.as_fast_as_consumed => {
                Some("the rate cannot be changed, because the consumer sets the pace (--as-fast-as-consumed)")
            }
            _ if !self.compare.topics.is_empty() => {
                Some("--compare needs the same rate during the whole replay")
            }
            _ => None,
        }
    }

    /// Returns the rate of playback, or `None` if the replay ignores recorded times.
    pub fn rate(&self) -> Option<f64> {
        (!self.how.as_fast_as_consumed).then_some(self.how.rate)
    }

    pub fn settings(&self) -> Result<Settings, CliError> {
        let how = &self.how;
        let least = onbeat_replay::LEAST_BYTES;
        let memory = self.buffer_memory();
        let buffer_bytes = usize::try_from(memory).unwrap_or(usize::MAX);
        if buffer_bytes < least {
            return Err(CliError::Usage(format!(
                "a buffer of {memory} bytes (--buffer, --memory) is too small. Give at least {}K",
                least >> 10
            )));
        }
        Ok(Settings {
            buffer_bytes,
            largest_bytes: None,
            watched: None,
            pace: match how.as_fast_as_consumed {
                true => Pace::Consumed,
                false => Pace::Recorded(how.rate),
            },
            priority: Some(how.priority).filter(|&p| p > 0),
            cpu: how.cpu,
            spin_ns: ns(how.spin),
            clock_ns: self.clock_ns(),
            delay_ns: ns(self.course.delay),
            is_seekable: self.no_seek().is_none(),
        })
    }

    /// Returns true if onbeat must read the recording first to decide for each service whose
    /// requests it sends: those of the server or those of the clients.
    pub fn takes_each_request_once(&self) -> bool {
        self.how.requests == Some(Requests::Each)
    }

    /// Returns the selection that onbeat measures before the replay. The selection has at most two
    /// repetitions of the recording, because all transitions between repetitions are equal.
    pub fn choice_measured(&self) -> Result<Choice, CliError> {
        let choice = self.choice()?;
        Ok(Choice {
            times: self.what.times.min(2),
            requests: match self.takes_each_request_once() {
                true => Some(Sides::Both),
                false => choice.requests,
            },
            ..choice
        })
    }

    fn buffer_memory(&self) -> u64 {
        self.how.buffer.buffer.unwrap_or(self.how.buffer.memory)
    }

    fn buffer_by_hand(&self) -> bool {
        self.how.buffer.buffer.is_some()
    }

    /// Returns the requirements for the size of the buffer. Returns `None` if onbeat does not
    /// measure the recording, if the recording comes over a link, or if the replay ignores recorded
    /// times.
    pub fn wish(&self) -> Option<Wish> {
        let how = &self.how;
        let comes = source_of(&self.sources).is_some();
        (!how.buffer.unmeasured && !how.as_fast_as_consumed && !comes).then(|| Wish {
            rate: how.rate,
            stall_ns: ns(how.buffer.stall),
            memory_bytes: self.buffer_memory(),
            by_hand: self.buffer_by_hand(),
        })
    }

    pub fn overrides(&self) -> Result<Overrides, CliError> {
        let Some(path) = &self.how.qos else {
            return Ok(Overrides::default());
        };
        let failed = |fault: String| {
            let path = one_line(&path.display().to_string());
            super::failed(format!("--qos {path}: {}", one_line(&fault)))
        };
        let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        Overrides::parse(&bytes).map_err(failed)
    }

    pub fn answer(&self) -> Option<&Answer> {
        self.how.answer.as_ref()
    }

    pub fn clock_ns(&self) -> Option<u64> {
        self.how.clock.map(|hz| 1_000_000_000 / u64::from(hz))
    }

    pub(super) fn reports(&self) -> Result<Vec<(PathBuf, Report)>, CliError> {
        let of = |path: &PathBuf| {
            let ending = path.extension().and_then(|e| e.to_str());
            let kind = match ending {
                Some("json") => Report::Json,
                Some("html") => Report::Html,
                Some("svg") => Report::Svg,
                _ => {
                    return Err(CliError::Usage(format!(
                        "--report {}: the file name must end in .json, .html or .svg",
                        path.display()
                    )))
                }
            };
            Ok((path.clone(), kind))
        };
        self.report.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_option_values_are_parsed_or_refused() {
        let answer = parse_answer("/a,/b=/c").unwrap();
        assert_eq!(answer.asked, ["/a", "/b"]);
        for wrong in ["/a", "/a=", "=/b", "/a,=/b"] {
            assert!(parse_answer(wrong).is_err(), "{wrong}");
        }
        let fast = Speed {
            nominal: 500_000,
            data: 2_000_000,
        };
        assert_eq!(
            parse_bitrate("can0=500k/2M"),
            Ok((Some("can0".into()), fast))
        );
        assert_eq!(parse_map("2368=a:7"), Ok((2368, "a:7".into())));
        for wrong in ["", "2368", "x=a:7", "70000=a:7", "1=a"] {
            assert!(parse_map(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "500k/", "can0=", "fast"] {
            assert!(parse_bitrate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_requests("client"), Ok(Requests::Of(Sides::Client)));
        assert!(parse_requests("both").is_err());
        for wrong in ["0", "-1", "NaN", "inf", "fast", "1000001"] {
            assert!(parse_factor(wrong).is_err(), "{wrong}");
        }
    }
}
