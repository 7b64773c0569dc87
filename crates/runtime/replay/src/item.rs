//! The items that sources produce and sinks play, in streams on one time axis.

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
    /// Packets as captured, from the first byte of the link layer on.
    Packets {
        /// The `LINKTYPE_*` number of the capture, for example 1 for Ethernet.
        link_type: u32,
    },
    /// Service events (CDR) whose requests are sent to the server of the service. The stream has the service's name.
    Requests {
        /// The type of the service, for example `std_srvs/srv/SetBool`.
        type_name: String,
    },
    /// Messages that no destination plays. `info` lists them, and a replay leaves them out.
    Unplayable {
        /// The message type as the recording names it, for example `my_msgs/Thing` of ROS 1.
        type_name: String,
        /// A sentence that says why the messages cannot be played.
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

/// The data that a recording has about an item, besides its time and its stream. The default is for a
/// recording without such data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// True if the host of the recorder sent the frame or packet. False if it received it, or if the
    /// recording does not say.
    pub is_sent: bool,
    /// The time at which the message was published, in ns since 1970.
    pub published_ns: Option<u64>,
    /// The number that the publisher gave to the message.
    pub sequence: Option<u32>,
}

/// A recording that is read from its beginning to its end, in the order of time.
pub trait Source: Send {
    /// Returns all streams. They are known before the first item is read, and do not change.
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
    /// Continues at the first item whose time is not before `to_ns`.
    ///
    /// # Errors
    /// Fails if the source cannot be read from another place.
    fn seek(&mut self, _to_ns: i64) -> Result<(), SourceError> {
        Err(SourceError {
            file: "the recording".into(),
            fault: "it can only be read forward".into(),
        })
    }
    /// Returns one sentence for each kind of damage that was skipped so far. Empty without damage.
    fn damage(&self) -> &[String];
    /// Returns the definition of a message type: the text of its `.msg` file, followed by those of the types
    /// in it. `None` if the recording does not have it.
    fn definition(&self, _type_name: &str) -> Option<String> {
        None
    }
}

/// The reason why a recording cannot be opened, or cannot be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {fault}")]
pub struct SourceError {
    /// The name of the recording's file, as messages show it.
    pub file: String,
    /// A sentence with the fault of the file, and the way out.
    pub fault: String,
}
