//! Finds what a target cannot hold: items that are left out, and parts of items that are not kept.

use super::frame::{Frame, BRS, ESI};
use super::Target;
use crate::item::{Details, Extras, Kind};
use crate::source::can;
use serde::Serialize;

/// The data that a conversion cannot keep, counted by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Losses(pub Vec<Loss>);

/// One kind of data that a conversion cannot keep, and its count.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// A noun phrase that names the loss and its reason.
    pub what: String,
    pub count: u64,
}

impl Losses {
    /// Adds `count` items or streams to a kind of loss.
    pub fn add(&mut self, what: &str, count: u64) {
        match self.0.iter_mut().find(|loss| loss.what == what) {
            Some(loss) => loss.count += count,
            None => self.0.push(Loss {
                what: what.to_owned(),
                count,
            }),
        }
    }
}

impl Losses {
    /// Adds the attachments and the metadata of a recording. No writer of onbeat writes them.
    pub fn add_extras(&mut self, extras: &Extras) {
        let attachments = extras.attachments.iter().map(|one| one.name.as_str());
        let metadata = extras.metadata.iter().map(|one| one.name.as_str());
        self.add_named("attachments", attachments);
        self.add_named("records of metadata", metadata);
        if extras.more_extras > 0 {
            let what = "more attachments and records of metadata not written";
            self.add(what, extras.more_extras);
        }
    }

    fn add_named<'n>(&mut self, what: &str, names: impl ExactSizeIterator<Item = &'n str>) {
        let count = names.len();
        if count == 0 {
            return;
        }
        let shown: Vec<_> = names.take(NAMES_SHOWN).collect();
        let more = match count - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = shown.join(", ");
        self.add(
            &format!("{what} not written, because conversions write only items ({names}{more})"),
            count as u64,
        );
    }
}

/// The number of attachments and of records of metadata whose names a loss states.
const NAMES_SHOWN: usize = 5;

/// Checks whether a target format can store an item.
pub(super) struct Check<'s> {
    target: Target,
    kind: &'s Kind,
    time_ns: i64,
}

const ROS: &str = "ROS 2 messages left out, because the format cannot store them";
const CAN: &str = "CAN frames left out, because the format can store only messages of ROS 2";
const PACKETS: &str = "packets left out, because the format cannot store their kind";
const EARLY: &str = "items left out, because their time is before 1970";
const UNKNOWN: &str =
    "CAN frames left out, because their bytes are not a CAN or CAN FD frame of Linux";
const IDENTIFIER: &str = "CAN frames left out, because their identifier has more bits than allowed";
const FD_REMOTE: &str =
    "remote frames left out, because they are marked as CAN FD, which has no remote frames";
const LONG: &str = "packets left out, because they have more than 65535 bytes";
const TIMES: &str = "times rounded down to microseconds";
const ERRORS: &str = "error frames written without their class and data";
const SENT_ERRORS: &str = "error frames written without their direction";
const FLAGS: &str = "CAN FD frames written without some of their flags (BRS and ESI are kept)";
const REMOTE_LENGTH: &str = "remote frames whose length code above 8 was not written";

impl Check<'_> {
    pub fn new(target: Target, kind: &Kind, time_ns: i64) -> Check<'_> {
        Check {
            target,
            kind,
            time_ns,
        }
    }

    /// Checks an item, and adds the data that the target cannot store to `losses`. Returns true if
    /// the item is written.
    pub fn item(&self, details: Details, payload: &[u8], losses: &mut Losses) -> bool {
        let left_out = match self.kind {
            Kind::Ros { .. } | Kind::Requests { .. } => ROS,
            Kind::Can => CAN,
            Kind::Packets { .. } | Kind::Unplayable { .. } => PACKETS,
        };
        let reason = match self.kind {
            _ if !self.target.holds(self.kind) => Some(left_out),
            _ if self.time_ns < 0 => Some(EARLY),
            Kind::Can => match Frame::of(payload) {
                Some(frame) => self.frame(&frame, details, losses),
                None => Some(UNKNOWN),
            },
            Kind::Packets { .. } => {
                let is_long = payload.len() > usize::from(u16::MAX);
                (self.target == Target::Blf && is_long).then_some(LONG)
            }
            _ => None,
        };
        if let Some(reason) = reason {
            losses.add(reason, 1);
        }
        reason.is_none()
    }

    /// Returns the reason why a frame is left out, or `None` if it is written. Adds the data that a
    /// written frame loses to `losses`.
    fn frame(&self, frame: &Frame, details: Details, losses: &mut Losses) -> Option<&'static str> {
        if self.target == Target::Pcapng {
            return None;
        }
        let is_text = matches!(self.target, Target::Candump | Target::Asc);
        let most = match self.target {
            // can-utils keeps identifiers of three digits up to fff as they are.
            Target::Candump => 0xfff,
            _ => 0x7ff,
        };
        let is_error = frame.is_error();
        if !is_error && !frame.is_extended() && frame.id() > most {
            return Some(IDENTIFIER);
        }
        if !is_error && frame.fd_flags.is_some() && frame.is_remote() {
            return Some(FD_REMOTE);
        }
        if is_text && self.time_ns % 1000 != 0 {
            losses.add(TIMES, 1);
        }
        if self.target == Target::Candump {
            if frame.fd_flags.is_some_and(|flags| flags > 0xf) {
                losses.add(FLAGS, 1);
            }
            return None;
        }
        if is_error {
            let is_plain = frame.word == can::ERROR
                && frame.fd_flags.is_none()
                && frame.data == [0; can::DATA];
            if !is_plain {
                losses.add(ERRORS, 1);
            }
            if details.is_sent {
                losses.add(SENT_ERRORS, 1);
            }
            return None;
        }
        if frame
            .fd_flags
            .is_some_and(|flags| flags & !(BRS | ESI) != 0)
        {
            losses.add(FLAGS, 1);
        }
        if self.target == Target::Asc && frame.is_remote() && frame.raw_length > 0 {
            losses.add(REMOTE_LENGTH, 1);
        }
        None
    }
}
