//! The terms that both hosts of a channel must agree on, and the channels that each of them gets.

use super::error::LinksError;
use super::message::HEAD_BYTES;
use crate::interface::{Halves, Sizes};
use onbeat_flow::{Channel, Options, Policy};

/// The direction of a channel's items, seen from this host. A sending host has the producer.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Sending,
    Receiving,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Direction::Sending => "sending",
            Direction::Receiving => "receiving",
        })
    }
}

impl Direction {
    fn other(self) -> Direction {
        match self {
            Direction::Sending => Direction::Receiving,
            Direction::Receiving => Direction::Sending,
        }
    }

    pub(super) fn local_channel(
        self,
        name: &str,
        options: Options,
        hosts: usize,
    ) -> Result<Channel, LinksError> {
        let channel = name.to_string();
        if matches!(options.policy, Policy::Swap { .. }) {
            return Err(LinksError::Swap { channel });
        }
        let options = match self {
            Direction::Receiving => options,
            // A relay is one more consumer. It has items in use until its host has consumed them.
            Direction::Sending => Options {
                consumers: options.consumers + hosts,
                expected: options.expected.min(1) * hosts,
                borrowed: options.borrowed.max(credits(options.policy).unwrap_or(1)),
                ..options
            },
        };
        Channel::new(options).map_err(|reason| LinksError::Create { channel, reason })
    }
}

pub(super) fn credits(policy: Policy) -> Option<usize> {
    match policy {
        Policy::Credit { credits } => Some(credits),
        _ => None,
    }
}

const LEAST_BYTES: usize = 1024;
/// The largest number of messages in one direction that are sent and not consumed yet. With a
/// larger limit, a new item would only wait longer behind older ones.
const MOST_MESSAGES: usize = 4;

#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) name: String,
    pub(super) direction: Direction,
    pub(super) priority: u8,
    pub(super) options: Options,
}

impl Terms {
    pub(super) fn new(name: &str, direction: Direction, priority: u8, options: Options) -> Terms {
        let name = name.into();
        Terms {
            name,
            direction,
            priority,
            options,
        }
    }

    pub(super) fn sizes(&self) -> Sizes {
        let messages = match self.options.policy {
            Policy::Credit { credits } => credits.min(MOST_MESSAGES),
            _ => 1,
        };
        Sizes {
            credits: messages + 1,
            message_bytes: (self.options.payload_bytes + HEAD_BYTES).max(LEAST_BYTES),
            value_bytes: 0,
        }
    }

    fn lines(&self, direction: Direction) -> String {
        let Options {
            policy,
            payload_bytes,
            expected,
            item,
            ..
        } = self.options;
        let text = format!(
            "onbeat channels 2\nchannel {}\n{direction}\npriority {}\n{policy:?}\n\
             payloads of {payload_bytes} bytes\nitems of {item}\n{expected} consumers expected",
            self.name, self.priority
        );
        // Both sides cut at the same length.
        text.chars().take(LEAST_BYTES / 4).collect()
    }

    pub(super) fn exchange_and_compare(
        &self,
        halves: &mut Halves,
        deadline_ns: u64,
    ) -> Result<(), LinksError> {
        let silent = |reason| LinksError::Silent {
            channel: self.name.clone(),
            reason,
        };
        let ours = self.lines(self.direction);
        let fill = &mut |slot: &mut [u8]| slot.copy_from_slice(ours.as_bytes());
        let sent = halves.0.send(ours.len(), Some(deadline_ns), fill);
        sent.map_err(|e| match e {
            crate::interface::SendError::Ended(end) => silent(Some(end)),
            _ => silent(None),
        })?;
        let mut theirs: Option<String> = None;
        let take = &mut |_, bytes: &[u8]| {
            theirs = Some(String::from_utf8_lossy(&bytes[..bytes.len().min(LEAST_BYTES)]).into());
        };
        let came = halves.1.receive(Some(deadline_ns), take);
        came.map_err(|end| silent(Some(end)))?;
        self.compare(&theirs.ok_or(silent(None))?)
    }

    fn compare(&self, theirs: &str) -> Result<(), LinksError> {
        let expected = self.lines(self.direction.other());
        if theirs == expected {
            return Ok(());
        }
        let mut pairs = expected.lines().zip(theirs.lines());
        let (ours, theirs) = pairs
            .find(|(a, b)| a != b)
            .unwrap_or(("a channel", "no channel"));
        let both = ours == self.direction.other().to_string();
        Err(LinksError::Differs {
            channel: self.name.clone(),
            ours: if both {
                self.direction.to_string()
            } else {
                ours.into()
            },
            theirs: theirs.escape_default().to_string(),
        })
    }
}
