//! What sources give and sinks take: items of streams on one time axis.

/// Which stream of a source an item belongs to: its place in [`Source::streams`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// A stream of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The topic, or the CAN or network interface that was recorded.
    pub name: String,
    /// What its items are.
    pub kind: Kind,
}

/// What the items of a stream are, and how their bytes read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Serialised ROS 2 messages (CDR with its four bytes of encapsulation).
    Ros {
        /// Type of the topic, as `std_msgs/msg/String`.
        type_name: String,
        /// The recorded publishers' QoS, as the bag states it (YAML). `None`: it says nothing.
        qos: Option<String>,
    },
    /// CAN frames: `struct can_frame` (16 bytes) or `struct canfd_frame` (72 bytes) of Linux.
    Can,
    /// Packets as captured, from the first byte of the link layer on.
    Packets {
        /// `LINKTYPE_*` of the capture, as 1 for Ethernet.
        link_type: u32,
    },
}

/// When an item was recorded, and on which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Nanoseconds since 1970, on the recorder's clock.
    pub time_ns: i64,
    /// The item's stream.
    pub stream: StreamId,
}

/// A recording that is read from its beginning to its end, in the order of time.
pub trait Source: Send {
    /// All streams, known before the first item.
    fn streams(&self) -> &[Stream];
    /// Puts the next item's bytes into `payload`, which is cleared first. `None`: the recording's end.
    ///
    /// # Errors
    /// The recording cannot be read on. What could be read was given before.
    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError>;
    /// What was skipped because it is damaged, one sentence each. Empty: all was read.
    fn damage(&self) -> &[String];
}

/// A recording that cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {fault}")]
pub struct SourceError {
    /// The file.
    pub file: String,
    /// What is wrong with it, and the way out.
    pub fault: String,
}
