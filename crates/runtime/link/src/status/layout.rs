//! The layout of a status page: words of 64 bits, then two texts, then the words of its steps.

use crate::interface::Sizes;
use crate::steps::{self, Place, Steps};

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const WORDS: usize = 64;
pub(crate) const TEXT_BYTES: usize = 254;
const MAGIC: u64 = u64::from_le_bytes(*b"onbeatLS");
const VERSION: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Word {
    Magic,
    Version,
    Backend,
    Listens,
    State,
    BegunNs,
    ChangedNs,
    Credits,
    MessageBytes,
    ValueBytes,
    Sent,
    SentBytes,
    SentNs,
    Received,
    ReceivedBytes,
    ReceivedNs,
    Published,
    Read,
    NoCredit,
    /// The number of messages that the peer has not consumed, plus 1. 0 means that the backend
    /// cannot report it.
    InFlight,
    Resumed,
    Refused,
    HasQos,
    /// The number of a channel's items that newer items replaced before they left the sending host,
    /// plus 1. 0 means that the link carries no channel.
    Lost,
    /// The rate that the end's port was given, bit/s; 0 without a port.
    PortGiven,
    /// The measured rate of the end's port, bit/s; 0 if it does not differ from the given one.
    PortMeasured,
    PortChunk,
    Qos = 32,
}

pub(crate) const HEAD: [(Word, u64); 2] = [(Word::Magic, MAGIC), (Word::Version, VERSION)];

pub(crate) const QOS_WORDS: usize = 12;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Text {
    Name = WORDS as isize * 8,
    Peer = WORDS as isize * 8 + 256,
}

// The areas of texts and steps do not overlap, and the last one ends within the page.
const _: () = {
    use steps::{CLASSES, RECENT, STEPS, WORST};
    assert!(Text::Peer as usize + 2 + TEXT_BYTES <= Place::Histogram as usize * 8);
    assert!(Place::Histogram as usize + STEPS * CLASSES <= Place::Worst as usize);
    assert!(Place::Worst as usize + WORST <= Place::Stalls as usize);
    assert!((Place::Stalls as usize) < Place::Recent as usize);
    assert!(Place::Recent as usize + RECENT <= PAGE_BYTES / 8);
};

/// The transport that connects the ends: shared memory, TCP or RDMA.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Shm,
    Tcp,
    Verbs,
}

impl Backend {
    const ALL: [Backend; 3] = [Backend::Shm, Backend::Tcp, Backend::Verbs];

    /// Returns the backend's name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Shm => "shm",
            Backend::Tcp => "tcp",
            Backend::Verbs => "verbs",
        }
    }
}

/// The state of a link.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The peer has not connected yet.
    Waiting,
    Connected,
    /// The connection is broken, and the ends will resume it.
    Broken,
    /// One of the ends has closed or is gone, so the link has ended.
    Ended,
}

impl State {
    const ALL: [State; 4] = [
        State::Waiting,
        State::Connected,
        State::Broken,
        State::Ended,
    ];

    /// Returns the state's name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Connected => "connected",
            State::Broken => "broken",
            State::Ended => "ended",
        }
    }
}

/// The traffic that a link has passed in one direction.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    pub messages: u64,
    pub bytes: u64,
    /// The time of the last message, ns of CLOCK_MONOTONIC; `None` before the first.
    pub last_ns: Option<u64>,
    pub values: u64,
}

/// The counts of a link's promises ([`crate::qos`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QosStatus {
    /// The counts in the order of their names in [`QosStatus::named`].
    counts: [u64; QOS_WORDS],
}

impl QosStatus {
    /// Returns each count with its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        const NAMES: [&str; QOS_WORDS] = [
            "sent",
            "sent_stale",
            "resent",
            "unacknowledged",
            "received",
            "received_stale",
            "corrupt",
            "doubled",
            "lost",
            "silences",
            "",
            "",
        ];
        let all = NAMES.into_iter().zip(self.counts);
        all.filter(|(name, _)| !name.is_empty())
    }
}

/// The settings that were in force on an end's port when its last message left.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortStatus {
    pub given_bits_per_second: u64,
    /// The measured rate, bit/s; `None` if it does not differ from the given one.
    pub measured_bits_per_second: Option<u64>,
    pub chunk_bytes: u64,
}

/// The content of an end's status page. Another process has written all of it: untrusted.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkStatus {
    pub backend: Backend,
    /// The peer connects to this end. If false, this end connects to the peer.
    pub listens: bool,
    pub name: String,
    /// The name or address of the peer; empty before the peer has connected.
    pub peer: String,
    pub state: State,
    /// Two times in ns of CLOCK_MONOTONIC: when this side of the link was created, and when its
    /// state last changed.
    pub since_ns: [u64; 2],
    pub sizes: Sizes,
    /// The traffic in the two directions: to the peer, and from the peer.
    pub passed: [Passed; 2],
    /// Two numbers: messages that the peer has not consumed, and sends that found no credit until
    /// their deadline. The first is `None` if the backend cannot report it.
    pub credit: (Option<u64>, u64),
    /// Two numbers: connections after the first, and refused handshakes.
    pub resumed_refused: [u64; 2],
    /// The number of a channel's items that newer items replaced before they left the sending host.
    /// `None` if the link carries no channel.
    pub lost: Option<u64>,
    /// The settings of the end's port. `None` if the end is not on a port or has not sent.
    pub port: Option<PortStatus>,
    /// The counts of the link's promises. `None` if the link has no promises.
    pub qos: Option<QosStatus>,
    /// The durations of the steps that the end's threads took. Only links over TCP record them.
    pub steps: Steps,
}

/// Decodes the bytes of a status page. Returns `None` if they are not a page of this version.
/// Accepts any bytes without a panic.
pub fn parse(bytes: &[u8]) -> Option<LinkStatus> {
    let page: &[u8; PAGE_BYTES] = bytes.try_into().ok()?;
    let at = |index: usize| {
        let word = page[index * 8..][..8].try_into();
        word.map_or(0, u64::from_le_bytes)
    };
    let word = |word: Word| at(word as usize);
    let small = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    if HEAD.iter().any(|(place, value)| word(*place) != *value) {
        return None;
    }
    let text = |place: Text| {
        let (length, text) = page[place as usize..][..256].split_at(2);
        let length = usize::from(u16::from_le_bytes([length[0], length[1]])).min(TEXT_BYTES);
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let passed = |[messages, bytes, last, values]: [Word; 4]| Passed {
        messages: word(messages),
        bytes: word(bytes),
        last_ns: Some(word(last)).filter(|ns| *ns > 0),
        values: word(values),
    };
    Some(LinkStatus {
        backend: *Backend::ALL.get(small(word(Word::Backend)))?,
        listens: word(Word::Listens) != 0,
        name: text(Text::Name),
        peer: text(Text::Peer),
        state: *State::ALL.get(small(word(Word::State)))?,
        since_ns: [word(Word::BegunNs), word(Word::ChangedNs)],
        sizes: Sizes {
            credits: small(word(Word::Credits)),
            message_bytes: small(word(Word::MessageBytes)),
            value_bytes: small(word(Word::ValueBytes)),
        },
        passed: [
            passed([Word::Sent, Word::SentBytes, Word::SentNs, Word::Published]),
            passed([
                Word::Received,
                Word::ReceivedBytes,
                Word::ReceivedNs,
                Word::Read,
            ]),
        ],
        credit: (word(Word::InFlight).checked_sub(1), word(Word::NoCredit)),
        resumed_refused: [word(Word::Resumed), word(Word::Refused)],
        port: (word(Word::PortGiven) != 0).then(|| PortStatus {
            given_bits_per_second: word(Word::PortGiven),
            measured_bits_per_second: Some(word(Word::PortMeasured)).filter(|rate| *rate > 0),
            chunk_bytes: word(Word::PortChunk),
        }),
        lost: word(Word::Lost).checked_sub(1),
        steps: steps::parse(at, word(Word::BegunNs)),
        qos: (word(Word::HasQos) != 0).then(|| QosStatus {
            counts: std::array::from_fn(|n| at(Word::Qos as usize + n)),
        }),
    })
}
