//! `onbeat replay --compare` and `onbeat compare`: the outputs of a device under test, held against
//! a recording.

use super::judge::{seconds, Judge};
use super::keys;
use super::list::instant;
use super::options::Args;
use super::{failed, opener, LOOK, PATIENCE, SHOW_EVERY};
use onbeat_document::text::duration;
use onbeat_replay::chain::Chain;
use onbeat_replay::chain::Choice;
use onbeat_replay::compare::figures::{Aspect, Compared, TopicFindings, Verdict};
use onbeat_replay::compare::{compare, Observation, Rules};
use onbeat_replay::control::Control;
use onbeat_replay::item::{Kind, Source, Stream};
use onbeat_replay::observe::{Observer, Watched};
use onbeat_replay::{definition, source};
use onbeat_terminal::live::LiveLine;
use onbeat_terminal::term::{one_line, write_json, Align, Screen, Table};
use onbeat_terminal::{files, CliError, ExitStatus};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Compare two recordings of the same outputs: missing and additional messages, times and contents
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat compare drive.mcap observed.mcap --topics '/planning/*'
  onbeat compare drive.mcap observed.mcap --tolerance 1% --ignore header.stamp --junit out.xml
  onbeat compare monday friday --align --max-shift p50=1ms,p99=10ms

Both recordings must be on one time axis. For recordings of different times, --align shifts them so
that both begin at the same time. `onbeat replay --compare` compares during a replay. Its --observed
writes a recording on the time axis of the played one.

Exit codes: 0 equal; 1 a file cannot be read to its end; 2 wrong command line; 3 nothing to compare;
7 something differs.")]
pub struct Offline {
    /// Recording with the expected messages
    expected: PathBuf,
    /// Recording with the observed messages
    observed: PathBuf,
    /// Compare only these topics of the recording with the expected messages; * stands for any
    /// characters
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    topics: Vec<String>,
    /// Shift the recordings so that both begin at the same time: each at its first message of the
    /// compared topics
    #[arg(long)]
    align: bool,
    #[command(flatten)]
    judge: Judge,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// A comparison whose options have been checked, and whose replay has not begun yet.
pub struct Prepared {
    watched: Vec<Watched>,
    rules: Rules,
}

/// A comparison whose replay is running. onbeat observes the application's outputs.
pub struct Running {
    observer: Observer,
    rules: Rules,
}

/// Checks the options that compare during a replay, and finds out which topics to observe. Returns
/// `None` if the user wants no comparison.
pub fn prepare(args: &Args) -> Result<Option<Prepared>, CliError> {
    let live = &args.compare;
    if live.topics.is_empty() {
        return match live.expect.is_none() && live.observed.is_none() && live.judge.is_default() {
            true => Ok(None),
            false => Err(CliError::Usage(
                "--expect, --observed, --tolerance, --ignore, --max-shift, --follows and --junit need --compare. Add --compare TOPICS".into(),
            )),
        };
    }
    if super::place::source_of(&args.sources).is_some() {
        return Err(CliError::Usage(
            "--compare needs the recording on this host, but the recording comes over a link. Record the outputs here with `ros2 bag record`, and compare them later with `onbeat compare --align`".into(),
        ));
    }
    if args.rate() != Some(1.0) && !live.judge.max_shift.is_empty() {
        return Err(CliError::Usage(
            "--max-shift needs the recorded rate, because a device's processing time does not change with the rate. Leave --rate, --as-fast-as-consumed or --max-shift out".into(),
        ));
    }
    let chain = expected(args)?;
    let watched: Result<Vec<Watched>, CliError> = chain
        .streams()
        .iter()
        .map(|stream| match &stream.kind {
            Kind::Ros { type_name, .. } => Ok(Watched {
                name: stream.name.clone(),
                type_name: type_name.clone(),
                definition: chain
                    .definition(type_name)
                    .or_else(|| definition::installed(type_name)),
            }),
            _ => Err(failed(format!(
                "--compare: {} has no messages of ROS 2. Name topics of ROS 2",
                stream.name
            ))),
        })
        .collect();
    let rules = live.judge.rules();
    Ok(Some(Prepared {
        watched: watched?,
        rules,
    }))
}

fn expected(args: &Args) -> Result<Chain, CliError> {
    let choice = args.choice_compared()?;
    let Some(path) = &args.compare.expect else {
        let open = opener(args.sources.clone(), args.align);
        return Chain::new(open, choice).map_err(failed);
    };
    let is_changed = choice.times > 1 || choice.max_gap_ns.is_some() || args.align;
    if is_changed {
        return Err(CliError::Usage(
            "--expect compares with the times in its recording. --loop, --max-gap and --align change the played times, so they do not work with --expect. Leave these options out".into(),
        ));
    }
    let choice = Choice {
        start_ns: 0,
        end_ns: None,
        without: Vec::new(),
        ..choice
    };
    Chain::new(opener(vec![path.clone()], false), choice).map_err(failed)
}

impl Prepared {
    pub fn start(self, args: &Args, control: &Arc<Control>) -> Result<Running, CliError> {
        let started = Observer::start(&self.watched, control.clone(), args.wait);
        let (observer, silent) = started.map_err(failed)?;
        for topic in silent {
            let within = duration(args.wait.as_nanos() as f64);
            eprintln!(
                "onbeat: nobody publishes {} within {within} (--wait)",
                one_line(&topic)
            );
        }
        Ok(Running {
            observer,
            rules: self.rules,
        })
    }
}

impl Running {
    pub fn finish(
        self,
        args: &Args,
        control: &Control,
        stopped: bool,
    ) -> Result<Compared, CliError> {
        let rate = args.rate().unwrap_or(1.0);
        let wait = Duration::from_nanos(self.rules.within_ns.min(60_000_000_000));
        let until = Instant::now() + wait;
        let mut line = LiveLine::new();
        line.show("waiting for the last outputs");
        while Instant::now() < until && !(keys::was_interrupted() && stopped) {
            std::thread::sleep(LOOK);
        }
        line.clear();
        let played = control.played_ns();
        let seen = self.observer.finish().map_err(failed)?;
        if let Some(path) = &args.compare.observed {
            let path_of = seen.file.path();
            let mut from = std::fs::File::open(path_of).map_err(failed)?;
            files::write_whole(path, |out| io::copy(&mut from, out).map(|_| ()))?;
        }
        let tail_ns = match stopped {
            // Outputs after the last item answer to items that were not played.
            true => 0,
            false => (wait.as_nanos() as f64 * rate / 2.0) as i64,
        };
        let observation = Observation {
            from_ns: played.map(|(first, _)| first),
            until_ns: played.map(|(_, last)| last.saturating_add(tail_ns)),
            has_times: args.rate() == Some(1.0),
            unseen: seen.unseen,
            notes: seen.notes,
        };
        let mut expected = expected(args)?;
        let mut observed = source::open(seen.file.path()).map_err(failed)?;
        let compared = hold(&mut expected, &mut *observed, &self.rules, &observation)?;
        let name = args
            .sources
            .first()
            .map_or("replay".into(), |p| p.display().to_string());
        args.compare.judge.write_junit(&compared, &name)?;
        Ok(compared)
    }
}

fn hold(
    expected: &mut dyn Source,
    observed: &mut dyn Source,
    rules: &Rules,
    observation: &Observation,
) -> Result<Compared, CliError> {
    let mut line = LiveLine::new();
    let (started, mut shown) = (Instant::now(), Instant::now());
    let compared = compare(expected, observed, rules, observation, &mut |messages| {
        // The clock is read rarely, because reading it takes as long as a message.
        let is_time = messages.is_multiple_of(1 << 8) && started.elapsed() > PATIENCE;
        if is_time && shown.elapsed() > SHOW_EVERY {
            shown = Instant::now();
            line.show(&format!("comparing: {messages} messages read"));
        }
    });
    line.clear();
    compared.map_err(failed)
}

pub fn run(args: &Offline) -> Result<ExitStatus, CliError> {
    let choice = || Choice {
        only: args.topics.clone(),
        times: 1,
        ..Choice::default()
    };
    let mut expected =
        Chain::new(opener(vec![args.expected.clone()], false), choice()).map_err(failed)?;
    let names: Vec<String> = expected.streams().iter().map(|s| s.name.clone()).collect();
    let open = |at: &Path, names: &[String]| -> Result<Box<dyn Source>, CliError> {
        let source = source::open(at).map_err(failed)?;
        let is_playable = |s: &&Stream| !matches!(s.kind, Kind::Unplayable { .. });
        let known = source.streams().iter().filter(is_playable);
        let known = known.map(|s| s.name.clone());
        let only: Vec<String> = known.filter(|name| names.contains(name)).collect();
        if only.is_empty() {
            // All messages are missing then, and nothing has to be selected.
            return Ok(source);
        }
        let choice = Choice {
            only,
            times: 1,
            ..Choice::default()
        };
        Ok(Box::new(
            Chain::new(opener(vec![at.to_owned()], false), choice).map_err(failed)?,
        ))
    };
    let mut observed = open(&args.observed, &names)?;
    let mut begins = [0; 2];
    for (path, begin_ns) in [&args.expected, &args.observed]
        .into_iter()
        .zip(&mut begins)
    {
        let first = open(path, &names)?.next(&mut Vec::new()).map_err(failed)?;
        *begin_ns = first.map_or(0, |stamp| stamp.time_ns);
    }
    if args.align {
        observed = Box::new(source::shifted(
            observed,
            begins[0].saturating_sub(begins[1]),
        ));
    }
    let observation = Observation {
        has_times: true,
        ..Observation::default()
    };
    let compared = hold(
        &mut expected,
        &mut *observed,
        &args.judge.rules(),
        &observation,
    )?;
    let lacks_pairs = |t: &TopicFindings| t.paired == 0 && t.expected > 0 && t.observed > 0;
    if !args.align
        && compared.topics.iter().any(lacks_pairs)
        && compared.topics.iter().all(|t| t.paired == 0)
    {
        return Err(failed(format!(
            "no message of one recording matches a message of the other: the compared topics begin at {} and {}. For recordings of different times, add --align",
            instant(begins[0]),
            instant(begins[1]),
        )));
    }
    args.judge
        .write_junit(&compared, &args.expected.display().to_string())?;
    let mut out = BufWriter::new(io::stdout().lock());
    match args.json {
        true => write_json(&mut out, &compared)?,
        false => table(&mut out, &compared)?,
    }
    out.flush().map_err(CliError::Stdout)?;
    Ok(status(&compared))
}

pub fn status(compared: &Compared) -> ExitStatus {
    let messages: u64 = compared
        .topics
        .iter()
        .map(|t| t.expected + t.observed)
        .sum();
    match compared.verdict {
        _ if messages == 0 => ExitStatus::NothingFound,
        Verdict::Equal => ExitStatus::Success,
        Verdict::NotKnown => ExitStatus::NotKnown,
        Verdict::Different => ExitStatus::Changed,
    }
}

fn shift(ns: Option<i64>) -> String {
    let Some(ns) = ns else { return "-".into() };
    let sign = if ns < 0 { "-" } else { "+" };
    format!("{sign}{}", duration(ns.unsigned_abs() as f64))
}

pub fn table(out: &mut dyn Write, compared: &Compared) -> Result<(), CliError> {
    let mut table = Table::new().names("compared topic", 2);
    for head in [
        "recorded",
        "observed",
        "missing",
        "additional",
        "different",
        "shift min",
        "p50",
        "p99",
        "max",
    ] {
        table = table.column(head, Align::Right);
    }
    for topic in &compared.topics {
        table.row(row(topic));
    }
    table.write(out, &Screen::of_stdout())?;
    for topic in &compared.topics {
        for sentence in sentences(topic) {
            writeln!(out, "{}", one_line(&format!("{}: {sentence}", topic.name)))
                .map_err(CliError::Stdout)?;
        }
    }
    let all = compared.topics.len();
    let equal = compared
        .topics
        .iter()
        .filter(|t| t.verdict == Verdict::Equal)
        .count();
    let open = compared
        .topics
        .iter()
        .filter(|t| t.verdict == Verdict::NotKnown)
        .count();
    let last = format!(
        "{equal} of {all} topics are as recorded, {open} could not be judged, {} differ",
        all - equal - open
    );
    for sentence in compared.damage.iter().chain([&last]) {
        writeln!(out, "{}", one_line(sentence)).map_err(CliError::Stdout)?;
    }
    Ok(())
}

fn row(topic: &TopicFindings) -> Vec<String> {
    let of = topic.shift_ns.as_ref();
    vec![
        topic.name.clone(),
        topic.expected.to_string(),
        topic.observed.to_string(),
        topic.missing.count.to_string(),
        topic.additional.count.to_string(),
        topic.different.to_string(),
        shift(of.map(|s| s.min)),
        shift(of.map(|s| s.p50)),
        shift(of.map(|s| s.p99)),
        shift(of.map(|s| s.max)),
    ]
}

fn sentences(topic: &TopicFindings) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for Aspect {
        label,
        verdict,
        said: why,
        ..
    } in topic.aspects(&seconds)
    {
        match verdict {
            Verdict::Equal => {}
            Verdict::NotKnown => said.push(format!("{label}, but this is not certain: {why}")),
            Verdict::Different => said.push(format!("{label}: {why}")),
        }
    }
    let stamp = topic
        .fields
        .iter()
        .find(|f| f.path.ends_with("stamp") && f.messages == topic.paired);
    if let Some(stamp) = stamp {
        said.push(format!(
            "{} differs in all messages. If the application writes the current time to this field, add --ignore {0}",
            stamp.path
        ));
    }
    said.extend(topic.notes.iter().cloned());
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_is_shown_with_its_direction() {
        let shown = [Some(-1_000_000), Some(0), None].map(shift);
        assert_eq!(shown, ["-1 ms", "+0 ns", "-"]);
    }
}
