//! Where what stands in a page: words of 64 bits, then two texts.

use crate::interface::Sizes;

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Words before the texts.
pub(crate) const WORDS: usize = 64;
/// Bytes of a text, its length in two bytes before it.
pub(crate) const TEXT_BYTES: usize = 254;
const MAGIC: u64 = u64::from_le_bytes(*b"onbeatLS");
const VERSION: u64 = 1;

/// A word of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Word {
    Magic,
    Version,
    Backend,
    Listens,
    State,
    /// CLOCK_MONOTONIC, ns: when the end was made, and when its state changed last.
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
    /// Sends that found no credit until their deadline.
    NoCredit,
    /// Messages that the peer has not consumed, plus 1; 0 where the backend does not know.
    InFlight,
    Resumed,
    Refused,
    /// Not 0 if the numbers of `qos` count.
    HasQos,
    /// Items of a channel that newer ones replaced before they left, plus 1; 0 if it is no channel's.
    Lost,
    /// Of a port: the rate that it was given, that which was measured (0: none but that), bit/s; and
    /// bytes of a chunk. 0 if the end is on no port.
    PortGiven,
    PortMeasured,
    PortChunk,
    /// The first of the numbers of `qos`.
    Qos = 32,
}

/// The first word of a page, and what says how to read the others.
pub(crate) const HEAD: [(Word, u64); 2] = [(Word::Magic, MAGIC), (Word::Version, VERSION)];

/// Numbers of `qos` in a page.
pub(crate) const QOS_WORDS: usize = 12;

/// Where a text begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Text {
    Name = WORDS as isize * 8,
    Peer = WORDS as isize * 8 + 256,
}

/// What connects the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Shared memory.
    Shm,
    /// TCP.
    Tcp,
    /// RDMA.
    Verbs,
}

impl Backend {
    const ALL: [Backend; 3] = [Backend::Shm, Backend::Tcp, Backend::Verbs];

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Shm => "shm",
            Backend::Tcp => "tcp",
            Backend::Verbs => "verbs",
        }
    }
}

/// How a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No peer yet.
    Waiting,
    /// The peer is there.
    Connected,
    /// The connection is broken, and is to be resumed.
    Broken,
    /// One of the ends has closed, or is gone.
    Ended,
}

impl State {
    const ALL: [State; 4] = [
        State::Waiting,
        State::Connected,
        State::Broken,
        State::Ended,
    ];

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Connected => "connected",
            State::Broken => "broken",
            State::Ended => "ended",
        }
    }
}

/// What has passed in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Messages.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// When the last one passed, ns of CLOCK_MONOTONIC; `None` before the first.
    pub last_ns: Option<u64>,
    /// Values: published, or read.
    pub values: u64,
}

/// What was counted of the link's promises ([`crate::qos`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QosStatus {
    /// In the order of `qos`'s own counts.
    counts: [u64; QOS_WORDS],
}

impl QosStatus {
    /// Each number with its name.
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

/// What was in force on an end's port when its last message left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortStatus {
    /// The rate that the port was given, bit/s.
    pub given_bits_per_second: u64,
    /// The rate that was measured, bit/s, if it was found to be another one.
    pub measured_bits_per_second: Option<u64>,
    /// Bytes of a chunk's content.
    pub chunk_bytes: u64,
}

/// What a page says. Everything in it is what another process has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkStatus {
    /// What connects the ends.
    pub backend: Backend,
    /// Whether the peer connects to this end.
    pub listens: bool,
    /// Name or address of the link.
    pub name: String,
    /// Name or address of the peer; empty before there is one.
    pub peer: String,
    /// How the link is.
    pub state: State,
    /// Since when, ns of CLOCK_MONOTONIC: the end, and its state.
    pub since_ns: [u64; 2],
    /// What the ends have agreed on.
    pub sizes: Sizes,
    /// To the peer, and from it.
    pub passed: [Passed; 2],
    /// Credits: messages that the peer has not consumed, where the backend knows, and sends that
    /// found no credit until their deadline.
    pub credit: (Option<u64>, u64),
    /// Connections after the first, and handshakes that were refused.
    pub resumed_refused: [u64; 2],
    /// Of a channel between hosts: items that newer ones replaced before they left the sending host.
    pub lost: Option<u64>,
    /// Of the end's port, if it is on one and has sent.
    pub port: Option<PortStatus>,
    /// Of the link's promises, if there are any.
    pub qos: Option<QosStatus>,
}

/// What these bytes say; `None` if they are no page of this version. For any bytes.
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
        qos: (word(Word::HasQos) != 0).then(|| QosStatus {
            counts: std::array::from_fn(|n| at(Word::Qos as usize + n)),
        }),
    })
}
