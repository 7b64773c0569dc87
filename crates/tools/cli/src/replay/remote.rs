//! A recording between two hosts: `--to link:HOST:PORT` on one of them, `link:ADDRESS:PORT` in place of a recording
//! on the other.

use super::options::Args;
use super::place::WORD;
use super::{failed, keys, opener};
use crate::error::CliError;
use crate::progress::Progress;
use crate::{term, ExitStatus};
use onbeat_link::{Key, Tcp};
use onbeat_replay::chain::{Chain, Open};
use onbeat_replay::control::Control;
use onbeat_replay::item::Source;
use onbeat_replay::remote::{self, Remote};
use serde::Serialize;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

fn resolve(text: &str) -> Result<SocketAddr, CliError> {
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| {
        CliError::Usage(format!(
            "{WORD}{text}: write {WORD}HOST:PORT, as {WORD}10.0.0.2:7400"
        ))
    })
}

fn key(args: &Args) -> Result<Key, CliError> {
    let path = args.key.as_ref().ok_or_else(|| {
        CliError::Usage(format!(
            "{WORD}... needs --key: `onbeat link key FILE` makes one, and both hosts need it"
        ))
    })?;
    Key::read_file(path).map_err(failed)
}

/// Opens what another host sends: waits until it is there, and has said which streams there are.
pub fn receiver(args: &Args, at: &str, control: &Arc<Control>) -> Result<Open, CliError> {
    let refused = |what: &str| {
        Err(CliError::Usage(format!(
            "{what}: a recording that comes over a link comes once; say it to the side that sends"
        )))
    };
    match () {
        _ if args.sources.len() > 1 => return refused("several recordings"),
        _ if args.plan => return refused("--plan"),
        _ if args.choice().times > 1 => return refused("--loop"),
        _ => {}
    }
    let link = Tcp::listen(resolve(at)?, key(args)?).map_err(failed)?;
    let name = format!("{WORD}{}", link.address());
    let mut err = io::stderr();
    let _ = writeln!(err, "onbeat: waits at {name} for the side that sends");
    let halves = remote::meet(&link, None).map_err(failed)?;
    let control = control.clone();
    let stop = Box::new(move || control.is_stopping());
    let mut remote = Some(Remote::open(&name, halves, stop).map_err(failed)?);
    Ok(Box::new(move || match remote.take() {
        Some(remote) => Ok(Box::new(remote) as Box<dyn Source>),
        None => Err(onbeat_replay::item::SourceError {
            file: name.clone(),
            fault: "it comes once".into(),
        }),
    }))
}

/// What was sent, for programs.
#[derive(Serialize)]
struct Sent<'a> {
    to: &'a str,
    items: u64,
    bytes: u64,
    damage: &'a [String],
}

/// Sends the recordings to another host, which plays them.
pub fn send(args: &Args, to: &str) -> Result<ExitStatus, CliError> {
    if args.to.len() > 1 || args.is_paced() {
        return Err(CliError::Usage(
            "--to link: the receiving side says where items go, and when: give --to, --rate and --paused there".into(),
        ));
    }
    let address = resolve(to)?;
    let opened = opener(args.sources.clone(), args.align);
    let mut chain = Chain::new(opened, args.choice()).map_err(failed)?;
    let link = Tcp::connect(address, key(args)?);
    let halves = remote::meet(&link, Some(args.wait));
    keys::catch_signals();
    let mut progress = Progress::new("sending");
    let sent = remote::send(
        &mut chain,
        halves.map_err(failed)?,
        &keys::was_interrupted,
        &mut |items| progress.update(items, 0, 0),
    );
    drop(progress);
    let sent = sent.map_err(failed)?;
    let mut out = io::stdout().lock();
    if args.json {
        let shown = Sent {
            to,
            items: sent.items,
            bytes: sent.bytes,
            damage: &sent.damage,
        };
        term::write_json(&mut out, &shown)?;
    } else {
        let line = format!(
            "{} items of {} bytes: {WORD}{to} has all of them",
            sent.items, sent.bytes
        );
        let lines = [line].into_iter().chain(sent.damage.iter().cloned());
        for line in lines {
            writeln!(out, "{}", term::one_line(&line)).map_err(CliError::Stdout)?;
        }
    }
    Ok(match sent.items {
        0 => ExitStatus::NothingFound,
        _ => ExitStatus::Success,
    })
}
