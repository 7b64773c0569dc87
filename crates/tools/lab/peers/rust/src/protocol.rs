//! The protocol between an experiment and the programs that it measures.
//!
//! `../../README.md` describes it. `../../protocol.h` implements it for C and C++.

use crate::{die, or_die, used, Usage};
use std::fmt::Display;
use std::io::{BufRead, Write};
use std::str::FromStr;

/// Settings in the form `NAME=VALUE`, from the command line or after the command `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words(Vec<(String, String)>);

impl Words {
    /// Collects the words of the form `NAME=VALUE` and ignores other words.
    pub fn new(words: impl IntoIterator<Item = impl AsRef<str>>) -> Words {
        let pair = |word: &str| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_string(), value.to_string()))
        };
        Words(words.into_iter().filter_map(|w| pair(w.as_ref())).collect())
    }

    pub fn of_command_line() -> Words {
        Words::new(std::env::args().skip(1))
    }

    pub fn text(&self, name: &str) -> Result<&str, String> {
        self.0
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
            .ok_or_else(|| format!("the setting {name}= is missing"))
    }

    pub fn number<N: FromStr>(&self, name: &str) -> Result<N, String> {
        let text = self.text(name)?;
        text.parse()
            .map_err(|_| format!("{name}={text} is not a number"))
    }
}

/// A command that the experiment writes to a peer program's standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Run(Words),
    /// Begin the run at this time, in ns of CLOCK_MONOTONIC.
    Start(i64),
    /// Write the samples to the file. If the program has not reported `done` yet, end the run
    /// early.
    Stop,
}

impl Command {
    fn parse(line: &str) -> Option<Command> {
        let mut words = line.split_whitespace();
        match words.next()? {
            "run" => Some(Command::Run(Words::new(words))),
            "start" => Some(Command::Start(words.next()?.parse().ok()?)),
            "stop" => Some(Command::Stop),
            _ => None,
        }
    }

    pub fn read() -> Option<Command> {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if or_die(read, "standard input") == 0 {
            return None;
        }
        let command = Command::parse(&line);
        Some(command.unwrap_or_else(|| die(format!("unknown command '{}'", line.trim()))))
    }
}

fn say(line: impl Display) {
    let mut out = std::io::stdout().lock();
    or_die(
        writeln!(out, "{line}").and_then(|()| out.flush()),
        "standard output",
    );
}

/// Reports to the experiment that this side is connected, or that senders can connect to it.
pub fn ready() {
    say("ready");
}

/// Reports to the experiment that this side has sent or received all its messages. The report
/// contains the resources that the process has used since `began`.
pub fn done(messages: usize, began: &Usage) {
    let now = used();
    say(format!(
        "done {messages} {} {} {}",
        now.cpu_ns - began.cpu_ns,
        now.voluntary - began.voluntary,
        now.involuntary - began.involuntary
    ));
}

/// Reports to the experiment that the samples are in their files.
pub fn written() {
    say("written");
}

/// Returns the settings of the next run, or `None` at the end of standard input. For programs that
/// read commands only between the phases of a run.
pub fn next_run() -> Option<Words> {
    match Command::read()? {
        Command::Run(words) => Some(words),
        other => die(format!("the experiment sent {other:?} out of order")),
    }
}

/// Reports `ready` and waits for the `start` command. Returns the time that the command contains,
/// at which the run begins (CLOCK_MONOTONIC, ns). Ends the program at the end of standard input.
pub fn await_start() -> i64 {
    ready();
    match Command::read() {
        Some(Command::Start(ns)) => ns,
        Some(other) => die(format!("the experiment sent {other:?} out of order")),
        None => std::process::exit(0),
    }
}

/// Waits for the command `stop`. Ends the program at the end of standard input.
pub fn await_stop() {
    match Command::read() {
        Some(Command::Stop) => {}
        Some(other) => die(format!("the experiment sent {other:?} out of order")),
        None => std::process::exit(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiment_commands_are_parsed_and_unknown_ones_refused() {
        let run = Command::parse("run bytes=64 rate_hz=0.5 file=/tmp/a\n").unwrap();
        let Command::Run(words) = run else {
            panic!("{run:?}");
        };
        assert_eq!(words.number("bytes"), Ok(64));
        assert_eq!(words.number("rate_hz"), Ok(0.5));
        assert_eq!(words.text("file"), Ok("/tmp/a"));
        assert!(words.text("count").unwrap_err().contains("count="));
        assert!(words.number::<u64>("file").unwrap_err().contains("/tmp/a"));
        assert_eq!(Command::parse("start 17\n"), Some(Command::Start(17)));
        assert_eq!(Command::parse("stop\n"), Some(Command::Stop));
        for wrong in ["", "go\n", "start\n", "start soon\n"] {
            assert_eq!(Command::parse(wrong), None, "{wrong:?}");
        }
    }
}
