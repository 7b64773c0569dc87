//! Quality of service of messages, as promises of an end, over any backend: checked, counted, and
//! reported as errors if wanted (thesis, 5.4.4).
//!
//! ```no_run
//! use onbeat_link::interface::{Backend, Memory, Sizes};
//! use onbeat_link::qos::OnBreach::{Fail, Warn};
//! use onbeat_link::{Qos, Shm};
//! use std::time::Duration;
//!
//! let ms = Duration::from_millis;
//! let link = Qos::new()
//!     .fresh_for(ms(50), Fail)         // no data older than 50 ms is handed over
//!     .checked(Warn)                   // CRC32C
//!     .receive_every(ms(20), Warn)     // deadline
//!     .around(Shm::listen("scans"));
//! let (mut outgoing, mut incoming) = link.initialize(Sizes::of_messages(1 << 20), Memory::Allot, None)?;
//! println!("{:?}", link.counts());
//! # Ok::<(), onbeat_link::interface::SetupError>(())
//! ```
//!
//! | promise | broken when | counted as |
//! |---|---|---|
//! | [`Qos::fresh_for`] | data is older than allowed, before it leaves or when it is handed over | `stale` |
//! | [`Qos::checked`] | a message arrives with changed bytes; it is never handed over | `corrupt` |
//! | [`Qos::send_every`] | nothing was sent for a period | `sent.late` |
//! | [`Qos::receive_every`] | nothing came for a period | `received.late` |
//! | [`Qos::acknowledged`] | the peer has not confirmed a message, however often it was sent | `unacknowledged` |
//! | [`Qos::alive_within`] | the peer gives no sign of life | `silences` |
//!
//! With [`OnBreach::Warn`] a breach is counted, and the message is handed over unless it is
//! corrupt. With [`OnBreach::Fail`] the call returns [`Breach`](crate::interface::Breach) instead;
//! the link stays usable.
//!
//! **Freshness without a common clock.** The rest of a message's age travels with it. Each hop
//! subtracts the time for which it held the message. `fresh` explains the method and its error.
//!
//! **Acknowledgement.** The peer confirms each message that arrived intact. A message without a
//! confirmation is sent again, and the peer takes it once. After the last attempt the message is
//! given up; it may have arrived nevertheless. With acknowledgement, or with signs of life, an end
//! has a thread. Messages are copied once where they arrive, and kept where they left if they may
//! be sent again. The backend below needs twice the credits and four more.
//!
//! Real-time: nothing is allocated after `initialize`.
//!
//! | module | job |
//! |---|---|
//! | `head` | the head before each message |
//! | [`fresh`] | how long a message was on its way |
//! | `pace` | deadlines |
//! | `counts` | counts of messages and breaches |
//! | `path` | the interface between the promises and a backend |
//! | `direct` | links without acknowledgement |
//! | `ends` | the two halves |
//! | `meet` | the exchange of terms before the first message |
//! | [`window`] | repetition of lost messages |
//! | `status` | the progress of an end |
//! | `shared` | the state that halves and thread share |
//! | `pump` | the thread |
//! | `assured` | links with acknowledgement |

mod assured;
mod counts;
mod direct;
mod ends;
pub mod fresh;
mod head;
mod meet;
mod pace;
mod path;
mod pump;
mod shared;
mod status;
pub mod window;

use crate::interface::{Backend, Halves, Memory, Refusal, SetupError, Sizes};
use assured::{AssuredIncoming, AssuredOutgoing, Thread};
use counts::Counters;
use direct::{DirectIncoming, DirectOutgoing};
use head::HEAD_BYTES;
use meet::{meet, Met, NotMet, Terms, TERMS_BYTES};
use onbeat_flow::events::EndEvents;
use path::{Receives, Sends};
use pump::Rhythm;
use shared::Shared;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use counts::{Counts, ReceivedCounts, SentCounts};
pub use ends::{QosIncoming, QosOutgoing};
use window::{Outbox, Retry, MOST_CREDITS};

type Ways = (Box<dyn Sends>, Box<dyn Receives>);

/// The bytes that a slot needs in addition to the message's size: for a head, and for the terms,
/// which both ends send first, even if the largest message is smaller than the terms.
const MORE_BYTES: usize = HEAD_BYTES + TERMS_BYTES;

/// The reaction of an end to a broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBreach {
    /// The end only counts the breach.
    Warn,
    /// The end counts the breach, and the call returns it as an error.
    Fail,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    value: u64,
    on_breach: OnBreach,
}

/// The quality of service of a link, as promises. Each end has its own promises: what it asserts
/// about its messages, and how it reacts if a promise is broken.
#[derive(Debug, Clone, Copy, Default)]
pub struct Qos {
    fresh_for: Option<Promise>,
    checked: Option<OnBreach>,
    send_every: Option<Promise>,
    receive_every: Option<Promise>,
    alive_within: Option<Promise>,
    acknowledged: Option<(Promise, u32)>,
}

fn promise(time: Duration, on_breach: OnBreach) -> Option<Promise> {
    let value = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    Some(Promise { value, on_breach })
}

impl Qos {
    /// Makes a quality of service without promises. The caller adds them.
    pub fn new() -> Qos {
        Qos::default()
    }

    /// Promises that messages and values of this end are fresh for `time` after the call that sends
    /// them. `on_breach` is the reaction of this end to stale data, sent or received. The age of
    /// values is checked when they are read.
    pub fn fresh_for(mut self, time: Duration, on_breach: OnBreach) -> Qos {
        self.fresh_for = promise(time, on_breach);
        self
    }

    /// Adds a check sum (CRC32C) to messages and values. The application never gets corrupt ones.
    pub fn checked(mut self, on_breach: OnBreach) -> Qos {
        self.checked = Some(on_breach);
        self
    }

    /// Promises that this end sends a message at least once in every period of that length.
    pub fn send_every(mut self, period: Duration, on_breach: OnBreach) -> Qos {
        self.send_every = promise(period, on_breach);
        self
    }

    /// Promises that a message arrives at least once in every period of that length.
    pub fn receive_every(mut self, period: Duration, on_breach: OnBreach) -> Qos {
        self.receive_every = promise(period, on_breach);
        self
    }

    /// Promises that the peer acknowledges each message within this time. A message without an
    /// acknowledgement is sent again up to `retries` times, each time after one to one and a half
    /// times `within`. With [`OnBreach::Fail`] the next send after a message was given up returns
    /// the error. Both ends must acknowledge. At most 64 credits are possible.
    pub fn acknowledged(mut self, within: Duration, retries: u32, on_breach: OnBreach) -> Qos {
        self.acknowledged = promise(within, on_breach).map(|p| (p, retries));
        self
    }

    /// Promises that the peer gives a sign of life within this time. With [`OnBreach::Fail`] sends
    /// fail while the peer is silent, and one receive fails each time that the peer falls silent.
    /// Both ends must ask for signs of life or acknowledge. At most 64 credits are possible.
    pub fn alive_within(mut self, time: Duration, on_breach: OnBreach) -> Qos {
        self.alive_within = promise(time, on_breach);
        self
    }

    fn answers(&self) -> bool {
        self.acknowledged.is_some() || self.alive_within.is_some()
    }

    /// Makes a backend whose links check these promises. The other end needs [`Qos`] too.
    pub fn around<B: Backend>(self, backend: B) -> QosLink<B> {
        QosLink {
            backend,
            qos: self,
            counters: Mutex::default(),
        }
    }

    fn fails(&self, promise: Option<Promise>) -> bool {
        promise.is_some_and(|p| p.on_breach == OnBreach::Fail)
    }

    fn on_corrupt(&self) -> OnBreach {
        self.checked.unwrap_or(OnBreach::Warn)
    }

    fn periods_ns(&self) -> [Option<u64>; 2] {
        [self.send_every, self.receive_every].map(|p| p.map(|p| p.value))
    }
}

/// A backend that checks the promises of a [`Qos`] about its messages, and counts broken promises.
#[derive(Debug)]
pub struct QosLink<B> {
    backend: B,
    qos: Qos,
    counters: Mutex<Option<Arc<Counters>>>,
}

impl<B: Backend> QosLink<B> {
    /// Returns the counts of the latest link. They start at 0 each time that the two ends connect.
    pub fn counts(&self) -> Counts {
        let counters = self.counters.lock();
        let counters = counters.unwrap_or_else(PoisonError::into_inner);
        counters.as_ref().map(|c| c.read()).unwrap_or_default()
    }

    /// Connects like [`Backend::initialize`]. In addition, the returned [`QosIncoming`] reports
    /// when received data becomes stale.
    ///
    /// # Errors
    /// The errors of [`Backend::initialize`].
    pub fn connect(
        &self,
        sizes: Sizes,
        memory: Memory,
        deadline_ns: Option<u64>,
    ) -> Result<(QosOutgoing, QosIncoming), SetupError> {
        let inner = self.inner_sizes(sizes)?;
        let halves = self.backend.initialize(inner, memory, deadline_ns);
        let mut halves = halves.map_err(|e| self.with_the_users_sizes(e))?;
        let counters = Arc::new(Counters::new(self.qos.periods_ns(), halves.0.page()));
        let terms = Terms {
            acknowledges: self.qos.answers(),
            silence_ns: self.qos.alive_within.map_or(0, |p| p.value),
        };
        let (sending, receiving) = self.events(&mut halves, sizes);
        let met = meet(&mut halves, terms, &counters, deadline_ns).map_err(not_met)?;
        let (outgoing, incoming) = match self.qos.answers() {
            false => self.direct(halves, met, &counters, sending),
            true => self.assured(sizes, halves, met, &counters, sending)?,
        };
        let ours = self.counters.lock();
        *ours.unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&counters));
        let outgoing = QosOutgoing {
            way: outgoing,
            qos: self.qos,
            sizes,
            counters: Arc::clone(&counters),
            reported_late: false,
        };
        let incoming = QosIncoming {
            way: incoming,
            qos: self.qos,
            counters,
            events: receiving,
            expires_ns: None,
            reported_late: false,
        };
        Ok((outgoing, incoming))
    }

    /// Makes recorders see the application's messages instead of the backend's. Recordings then
    /// lack terms, status and repeated messages.
    fn events(&self, halves: &mut Halves, sizes: Sizes) -> (EndEvents, EndEvents) {
        let (out, incoming) = (halves.0.unseen(), halves.1.unseen());
        let sending = out.map(|link| EndEvents::sending(&link, sizes.credits));
        let receiving = incoming.map(|link| EndEvents::receiving(&link, sizes.credits));
        (sending.unwrap_or_default(), receiving.unwrap_or_default())
    }

    fn direct(
        &self,
        (outgoing, incoming): Halves,
        met: Met,
        counters: &Arc<Counters>,
        events: EndEvents,
    ) -> Ways {
        let incoming = DirectIncoming {
            inner: incoming,
            next: 0,
            transit: met.transit,
            counters: Arc::clone(counters),
            on_corrupt: self.qos.on_corrupt(),
        };
        let outgoing = DirectOutgoing {
            inner: outgoing,
            events,
            next: 0,
        };
        (Box::new(outgoing), Box::new(incoming))
    }

    fn assured(
        &self,
        sizes: Sizes,
        halves: Halves,
        met: Met,
        counters: &Arc<Counters>,
        events: EndEvents,
    ) -> Result<Ways, SetupError> {
        let (promise, times) = self.qos.acknowledged.unzip();
        let retry = Retry {
            timeout_ns: promise.map(|p| p.value),
            times: times.unwrap_or(0),
        };
        let silence = met.theirs.map_or(0, |t| t.silence_ns);
        let rhythm = Rhythm {
            timeout_ns: retry.timeout_ns,
            beat_ns: (silence > 0).then_some(silence / 2),
            silence_ns: self.qos.alive_within.map(|p| p.value),
        };
        let (outbox, keeps) = (Outbox::new(sizes.credits, retry), retry.times > 0);
        let counters = Arc::clone(counters);
        let shared = Shared::new(sizes, counters, halves, outbox, met.transit, keeps);
        let shared = Arc::new(shared);
        let thread = Thread::start(Arc::clone(&shared), rhythm);
        let thread = thread.map_err(|source| SetupError::System {
            peer: "this end".into(),
            what: "start a thread",
            source,
        })?;
        let outgoing = AssuredOutgoing {
            shared: Arc::clone(&shared),
            events,
            fails_unacknowledged: self.qos.fails(promise),
            fails_silent: self.qos.fails(self.qos.alive_within),
            _thread: Arc::clone(&thread),
        };
        let incoming = AssuredIncoming {
            shared,
            on_corrupt: self.qos.on_corrupt(),
            fails_silent: self.qos.fails(self.qos.alive_within),
            _thread: thread,
        };
        Ok((Box::new(outgoing), Box::new(incoming)))
    }

    fn inner_sizes(&self, sizes: Sizes) -> Result<Sizes, SetupError> {
        sizes.memory_bytes()?;
        let most = (1 << 30) - MORE_BYTES;
        let credits = if self.qos.answers() {
            MOST_CREDITS
        } else {
            1024
        };
        for (what, value, most) in [
            ("`credits`", sizes.credits, credits),
            ("`message_bytes`", sizes.message_bytes, most),
            ("`value_bytes`", sizes.value_bytes, most),
        ] {
            if value > most {
                return Err(SetupError::Number { what, value, most });
            }
        }
        let with_head = |bytes| if bytes == 0 { 0 } else { bytes + HEAD_BYTES };
        Ok(Sizes {
            credits: match self.qos.answers() {
                false => sizes.credits,
                true => 2 * sizes.credits + 4,
            },
            message_bytes: sizes.message_bytes + MORE_BYTES,
            value_bytes: with_head(sizes.value_bytes),
        })
    }

    fn outer_sizes(&self, sizes: Sizes) -> Option<Sizes> {
        let outer = Sizes {
            credits: match self.qos.answers() {
                false => sizes.credits,
                true => sizes.credits.checked_sub(4)? / 2,
            },
            message_bytes: sizes.message_bytes.checked_sub(MORE_BYTES)?,
            value_bytes: sizes.value_bytes.saturating_sub(HEAD_BYTES),
        };
        let is_one = self.inner_sizes(outer).is_ok_and(|inner| inner == sizes);
        is_one.then_some(outer)
    }

    fn with_the_users_sizes(&self, error: SetupError) -> SetupError {
        let converted = |reason| match reason {
            Refusal::Sizes { ours, theirs } => {
                match (self.outer_sizes(ours), self.outer_sizes(theirs)) {
                    // The sizes differ only by the heads, so the other end has no promises.
                    (Some(same), _) if same == theirs => Refusal::Quality,
                    (Some(ours), Some(theirs)) => Refusal::Sizes { ours, theirs },
                    _ => Refusal::Quality,
                }
            }
            other => other,
        };
        match error {
            SetupError::Refused { peer, reason } => SetupError::Refused {
                peer,
                reason: converted(reason),
            },
            SetupError::NoPeer { peer, refused } => SetupError::NoPeer {
                peer,
                refused: refused.map(converted),
            },
            other => other,
        }
    }
}

fn not_met(reason: NotMet) -> SetupError {
    let peer = String::from("the other end");
    match reason {
        NotMet::Late => SetupError::NoPeer {
            peer,
            refused: None,
        },
        NotMet::Refused(reason) => SetupError::Refused { peer, reason },
    }
}

impl<B: Backend> Backend for QosLink<B> {
    fn memory_bytes(&self, sizes: Sizes) -> Result<usize, SetupError> {
        self.backend.memory_bytes(self.inner_sizes(sizes)?)
    }

    fn initialize(
        &self,
        sizes: Sizes,
        memory: Memory,
        deadline_ns: Option<u64>,
    ) -> Result<Halves, SetupError> {
        let (outgoing, incoming) = self.connect(sizes, memory, deadline_ns)?;
        Ok((Box::new(outgoing), Box::new(incoming)))
    }
}
