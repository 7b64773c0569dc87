//! The items that sources produce and sinks play, in streams on one time axis.

use serde::Serialize;
use std::collections::BTreeMap;

/// The number of a stream: its index in [`Source::streams`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// A stream of a recording: the items of one topic, CAN interface or network interface.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The name of the recorded topic, CAN interface or network interface.
    pub name: String,
    pub kind: Kind,
}

/// The kind of an item, which defines how its bytes are read.
#[allow(missing_docs)] // the names say what they are
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Serialised ROS 2 messages (CDR with its four bytes of encapsulation).
    Ros {
        /// The message type of the topic, for example `std_msgs/msg/String`.
        type_name: String,
        /// The QoS of the recorded publishers, as YAML in the bag. `None` if the bag states no QoS.
        qos: Option<String>,
    },
    /// CAN frames: `struct can_frame` (16 bytes) or `struct canfd_frame` (72 bytes) of Linux.
    Can,
    /// Network packets as captured, from the first byte of the link layer on.
    Packets {
        /// The `LINKTYPE_*` number of the capture, for example 1 for Ethernet.
        link_type: u32,
    },
    /// Service events (CDR). onbeat sends their requests to the service's server. The stream has
    /// the name of the service.
    Requests { type_name: String },
    /// Messages that no destination can play. The command `info` lists them, and a replay leaves
    /// them out.
    Unplayable {
        /// The message type as the recording names it, for example `my_msgs/Thing` of ROS 1.
        type_name: String,
        /// The encoding of the messages as the recording names it, for example `json`. `None` if
        /// the recording does not name it.
        encoding: Option<String>,
        reason: String,
    },
}

/// The recorded time and the stream of an item.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The recorded time in ns since 1970, on the recorder's clock.
    pub time_ns: i64,
    pub stream: StreamId,
}

/// The data about an item that a recording stores besides its time and stream. The default is for a
/// recording that stores no such data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// True if the recorder's host sent the frame or packet. False if the host received it, or if
    /// the recording does not say.
    pub is_sent: bool,
    /// The time at which the message was published, in ns since 1970. `None` if the recording does
    /// not state it.
    pub published_ns: Option<u64>,
    /// The sequence number of the message from its publisher. `None` if the recording does not
    /// state it.
    pub sequence: Option<u32>,
}

/// The attachments and the metadata of a recording. The lists are limited, so a file cannot make
/// this value large.
#[allow(missing_docs)] // the names say what they are
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Extras {
    pub attachments: Vec<Attachment>,
    pub metadata: Vec<Metadata>,
    /// The number of attachments and records of metadata beyond the limit of the lists.
    pub more_extras: u64,
}

/// A file that is attached to a recording.
#[allow(missing_docs)] // the names say what they are
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attachment {
    pub name: String,
    /// The media type, for example `image/png`. `None` if the recording does not state it.
    pub media_type: Option<String>,
    /// The size of the attached file. `None` if the recording does not state it.
    pub bytes: Option<u64>,
    /// The recorded time in ns since 1970. `None` if the recording does not state it.
    pub time_ns: Option<i64>,
}

/// A record of data about a recording: keys with values.
#[allow(missing_docs)] // the names say what they are
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Metadata {
    pub name: String,
    /// The values by key. A long value ends with `...` behind its first 200 characters.
    pub values: BTreeMap<String, String>,
}

/// A recording that is read from its beginning to its end, in the order of recorded time.
pub trait Source: Send {
    /// Returns all streams of the recording. They are known before the first item is read, and do
    /// not change.
    fn streams(&self) -> &[Stream];
    /// Clears `payload` and fills it with the next item. Returns `None` at the end of the
    /// recording.
    ///
    /// # Errors
    /// Fails if the recording cannot be read further. All readable items were returned before.
    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError>;
    /// Returns the details of the item that [`Source::next`] returned last.
    fn details(&self) -> Details {
        Details::default()
    }
    /// Continues at the first item whose recorded time is not before `to_ns`.
    ///
    /// # Errors
    /// Fails if the source can only be read from its beginning.
    fn seek(&mut self, _to_ns: i64) -> Result<(), SourceError> {
        Err(SourceError {
            file: "the recording".into(),
            fault: "this recording can only be read forward".into(),
        })
    }
    /// Returns one sentence for each kind of damage that was skipped so far. The list is empty if
    /// there was no damage.
    fn damage(&self) -> &[String];
    /// Returns the largest time in ns by which an item is earlier than an item before it in the
    /// recording, or 0. [`Source::next`] has sorted these items.
    fn back_ns(&self) -> u64 {
        0
    }
    /// Returns the definition of a message type: the text of its `.msg` file, followed by the texts
    /// of the types that it uses. Returns `None` if the recording does not contain the definition.
    fn definition(&self, _type_name: &str) -> Option<String> {
        None
    }
    /// Returns the encoding in which the recording stores the items of a stream, for example
    /// `ros1`. Returns `None` if it is the encoding in which [`Source::next`] returns them.
    fn encoding(&self, _stream: StreamId) -> Option<&str> {
        None
    }
    /// Returns the attachments and the metadata of the recording, as far as the source has read
    /// them.
    fn extras(&self) -> Extras {
        Extras::default()
    }
}

/// The reason why a recording cannot be opened, or cannot be read to its end.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, thiserror::Error)]
#[error("{file}: {fault}")]
pub struct SourceError {
    pub file: String,
    /// A sentence with the fault of the file, and with the way out.
    pub fault: String,
}
