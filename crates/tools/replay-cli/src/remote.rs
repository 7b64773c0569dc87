//! Plays a recording across two hosts: `--to link:HOST:PORT` on the sender, `link:ADDRESS:PORT` in
//! place of a recording on the receiver.

use super::options::Args;
use super::place::WORD;
use super::{failed, keys, opener};
use onbeat_link::interface::{Halves, SetupError};
use onbeat_link::{Key, Tcp};
use onbeat_replay::chain::{Chain, Open};
use onbeat_replay::control::Control;
use onbeat_replay::item::Source;
use onbeat_replay::remote::{self, Remote, SendFault, Sent};
use onbeat_terminal::progress::Progress;
use onbeat_terminal::CliError;
use onbeat_terminal::{term, ExitStatus};
use serde::Serialize;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TURN: Duration = Duration::from_secs(1);

fn resolve(text: &str) -> Result<Vec<SocketAddr>, CliError> {
    let how = || {
        CliError::Usage(format!(
            "{WORD}{text}: write {WORD}HOST:PORT, as {WORD}10.0.0.2:7400"
        ))
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(how)?;
    let port = port.parse::<u16>().map_err(|_| how())?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let unknown = |what: &str| {
        failed(format!(
            "{WORD}{text}: cannot find an address of {host}: {what}"
        ))
    };
    let found = (host, port).to_socket_addrs();
    let found: Vec<SocketAddr> = found.map_err(|e| unknown(&e.to_string()))?.collect();
    match found.is_empty() {
        true => Err(unknown("the name has no address")),
        false => Ok(found),
    }
}

/// Connects to the host that will play the recording, at the first of its addresses that answers.
fn meet(addresses: &[SocketAddr], key: &Key, wait: Duration) -> Result<Halves, CliError> {
    let until = Instant::now() + wait;
    loop {
        for address in addresses {
            let rest = until.saturating_duration_since(Instant::now());
            let turn = match addresses.len() {
                1 => rest,
                _ => rest.min(TURN),
            };
            match remote::meet(&Tcp::connect(*address, key.clone()), Some(turn)) {
                Err(SetupError::NoPeer { refused: None, .. }) if rest > turn => {}
                met => return met.map_err(failed),
            }
        }
    }
}

/// Listens at the first of the addresses that belongs to this host and is free.
fn listen(addresses: &[SocketAddr], key: &Key) -> Result<Tcp, CliError> {
    let mut tried = addresses.iter().map(|at| Tcp::listen(*at, key.clone()));
    let first = tried.next().ok_or_else(|| failed("no address"))?;
    tried.fold(first, Result::or).map_err(failed)
}

fn key(args: &Args) -> Result<Key, CliError> {
    let path = args.key.as_ref().ok_or_else(|| {
        CliError::Usage(format!(
            "{WORD}... needs --key. Create a key with `onbeat link key FILE`, and copy it to both hosts"
        ))
    })?;
    Key::read_file(path).map_err(failed)
}

/// Opens the recording that another host sends. Waits until the sender has connected and sent its
/// list of streams. `most` is the largest size of an item, in bytes.
pub fn receiver(
    args: &Args,
    at: &str,
    most: usize,
    control: &Arc<Control>,
) -> Result<Open, CliError> {
    let refused = |what: &str| {
        Err(CliError::Usage(format!(
            "{what}: a recording that comes over a link can be read only once. Give this option on the sending side"
        )))
    };
    match () {
        _ if args.sources.len() > 1 => return refused("several recordings"),
        _ if args.plan => return refused("--plan"),
        _ if args.times() > 1 => return refused("--loop"),
        _ => {}
    }
    let link = listen(&resolve(at)?, &key(args)?)?;
    let name = format!("{WORD}{}", link.address());
    let mut err = io::stderr();
    let _ = writeln!(err, "onbeat: waiting at {name} for the side that sends");
    let halves = remote::meet(&link, None).map_err(failed)?;
    let control = control.clone();
    let stop = Box::new(move || control.is_stopping());
    let mut remote = Some(Remote::open(&name, halves, most, stop).map_err(failed)?);
    Ok(Box::new(move || match remote.take() {
        Some(remote) => Ok(Box::new(remote) as Box<dyn Source>),
        None => Err(onbeat_replay::item::SourceError {
            file: name.clone(),
            fault: "a recording that comes over a link can be read only once".into(),
        }),
    }))
}

#[derive(Serialize)]
struct Told<'a> {
    to: &'a str,
    items: u64,
    bytes: u64,
    stopped: bool,
    damage: &'a [String],
}

pub fn send(args: &Args, to: &str) -> Result<ExitStatus, CliError> {
    if args.to.len() > 1 || args.says_how() {
        return Err(CliError::Usage(
            "--to link: the receiving side decides where and when items go, and has the buffer. Give the options for playing and for the buffer on the receiving side".into(),
        ));
    }
    let (addresses, key) = (resolve(to)?, key(args)?);
    let opened = opener(args.sources.clone(), args.align);
    let mut chain = Chain::new(opened, args.choice()?).map_err(failed)?;
    let halves = meet(&addresses, &key, args.wait)?;
    keys::catch_signals();
    let mut progress = Progress::new("sending");
    let sent = remote::send(&mut chain, halves, &keys::was_interrupted, &mut |items| {
        progress.update(items, 0, 0)
    });
    drop(progress);
    let (sent, stopped) = match sent {
        Ok(sent) => (sent, false),
        Err(SendFault::Stopped(sent)) => (sent, true),
        Err(e) => return Err(failed(e)),
    };
    tell(args, to, &sent, stopped)?;
    Ok(match sent.items {
        0 if !stopped => ExitStatus::NothingFound,
        _ => ExitStatus::Success,
    })
}

fn tell(args: &Args, to: &str, sent: &Sent, stopped: bool) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    if args.json {
        let told = Told {
            to,
            items: sent.items,
            bytes: sent.bytes,
            stopped,
            damage: &sent.damage,
        };
        return term::write_json(&mut out, &told);
    }
    let line = match stopped {
        true => format!(
            "stopped after {} items. The receiver {WORD}{to} still plays the items that it has received",
            sent.items
        ),
        false => format!(
            "{} items sent, {} bytes in all; {WORD}{to} has received all items",
            sent.items, sent.bytes
        ),
    };
    let lines = [line].into_iter().chain(sent.damage.iter().cloned());
    for line in lines {
        writeln!(out, "{}", term::one_line(&line)).map_err(CliError::Stdout)?;
    }
    Ok(())
}
