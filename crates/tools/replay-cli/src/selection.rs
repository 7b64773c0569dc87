//! Defines the options that select a part of a recording. `onbeat replay` and `onbeat convert`
//! share them.

use super::dbc::{self, Ids};
use onbeat_replay::chain::{Choice, Direction};
use onbeat_terminal::units::parse_duration;
use onbeat_terminal::CliError;
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Selection {
    /// Use only these streams; * stands for any characters
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    topics: Vec<String>,
    /// Leave these streams out; * stands for any characters
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    exclude: Vec<String>,
    /// Use only CAN frames with these hexadecimal identifiers, or with these names in --dbc; *
    /// stands for any characters
    #[arg(long, value_name = "ID,FROM-TO,NAME,...", value_delimiter = ',')]
    ids: Vec<String>,
    /// DBC file with the names of CAN messages
    #[arg(long, value_name = "FILE")]
    dbc: Vec<PathBuf>,
    /// Use only the CAN frames and packets that the recorder's host received, or only those that it
    /// sent
    #[arg(long, value_name = "received|sent|all", default_value = "all", hide_default_value = true, value_parser = parse_direction)]
    direction: Direction,
    /// Give stream A the name B
    #[arg(long, value_name = "A:=B", value_parser = parse_remap)]
    remap: Vec<(String, String)>,
    /// Give CAN channel N of a log (stream canN) the name NAME
    #[arg(long, value_name = "N:=NAME", value_parser = parse_channel)]
    channel: Vec<(String, String)>,
    /// Skip the first TIME of the recording
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    pub start: Duration,
    /// End when TIME has passed since the beginning of the recording
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "duration")]
    until: Option<Duration>,
    /// End when TIME has passed since --start
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Shorten to TIME the gaps in which no item was recorded, for example gaps from steps of the
    /// recorder's clock
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_gap: Option<Duration>,
}

fn parse_remap(text: &str) -> Result<(String, String), String> {
    match text.split_once(":=") {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.into(), to.into())),
        _ => Err("write OLD:=NEW, for example /scan:=/front/scan".into()),
    }
}

fn parse_channel(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(":=");
    let parts = parts.filter(|(number, name)| number.parse::<u8>().is_ok() && !name.is_empty());
    let (number, name) = parts.ok_or("write N:=NAME, for example 1:=can0")?;
    Ok((format!("can{number}"), name.into()))
}

fn parse_direction(text: &str) -> Result<Direction, String> {
    match text {
        "received" => Ok(Direction::Received),
        "sent" => Ok(Direction::Sent),
        "all" => Ok(Direction::All),
        _ => Err("write one of the words received, sent, all".into()),
    }
}

fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl Selection {
    /// Returns the selection that the options describe. Reads the DBC files.
    pub fn choice(&self) -> Result<Choice, CliError> {
        let end = match (self.until, self.duration) {
            (Some(until), _) => Some(until),
            (None, Some(duration)) => Some(self.start.saturating_add(duration)),
            (None, None) => None,
        };
        if end.is_some_and(|end| end <= self.start) {
            return Err(CliError::Usage(
                "the chosen part of the recording ends before it begins. Give a larger --until or --duration".into(),
            ));
        }
        let ids = Ids::parse(&self.ids, &dbc::read(&self.dbc)?).map_err(CliError::Usage)?;
        Ok(Choice {
            only: self.topics.clone(),
            without: self.exclude.clone(),
            rename: [&self.remap[..], &self.channel].concat(),
            ids: ids.ranges,
            messages: ids.messages,
            direction: self.direction,
            start_ns: ns(self.start),
            end_ns: end.map(ns),
            times: 1,
            max_gap_ns: self
                .max_gap
                .map(|gap| u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX)),
            ..Choice::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_names_of_streams_are_parsed_or_refused() {
        assert_eq!(parse_channel("1:=can0"), Ok(("can1".into(), "can0".into())));
        for wrong in ["can1:=can0", "1=can0", ":=can0", "1:=", "300:=can0"] {
            assert!(parse_channel(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_remap("/a:=/b"), Ok(("/a".into(), "/b".into())));
        assert!(parse_remap("/a=/b").is_err() && parse_remap(":=/b").is_err());
    }
}
