//! Links between processes of one machine: the interface layer over channels in shared memory.
//!
//! Two channels with credits carry the messages, and two with the latest value carry the values.
//! Neither side copies data. A key is not needed: only processes of the same user find the memory (see
//! the crate).

use crate::interface::{
    Backend, End, Halves, Incoming, Memory, Outgoing, Refusal, SendError, SetupError, Sizes,
};
use crate::status::{self, counted, Page};
use crate::{attach, channel, LinkError};
use onbeat_flow::clock::now_ns;
use onbeat_flow::events::LinkId;
use onbeat_flow::{
    AttachError, Channel, Consumer, LoanError, OnDeath, Options, Policy, Producer, ReceiveError,
};
use std::time::Duration;

const POLL_PERIOD: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy)]
enum Side {
    Listening,
    Connecting,
}

/// A backend that links two processes of one machine by shared memory. The processes find each
/// other by name.
#[derive(Debug, Clone)]
pub struct Shm {
    name: String,
    side: Side,
}

impl Shm {
    /// Makes the end to which another process connects with [`Shm::connect`]. Either process may
    /// start first.
    pub fn listen(name: &str) -> Shm {
        let (name, side) = (name.into(), Side::Listening);
        Shm { name, side }
    }

    /// Makes the end that connects to a process with [`Shm::listen`].
    pub fn connect(name: &str) -> Shm {
        let (name, side) = (name.into(), Side::Connecting);
        Shm { name, side }
    }

    fn channel(&self, kind: Kind, out: bool, sizes: Sizes) -> Result<Channel, SetupError> {
        let name = self.channel_name(kind, out);
        channel(&name, kind.options(sizes)).map_err(|e| match e {
            LinkError::Open { .. } => self
                .size_difference(out, sizes)
                .unwrap_or(SetupError::Channel(e)),
            other => SetupError::Channel(other),
        })
    }

    fn size_difference(&self, out: bool, ours: Sizes) -> Option<SetupError> {
        let of = |kind| attach(&self.channel_name(kind, out), None).ok();
        let messages = of(Kind::Messages)?;
        let Policy::Credit { credits } = messages.options().policy else {
            return None;
        };
        let theirs = Sizes {
            credits,
            message_bytes: messages.options().payload_bytes,
            value_bytes: of(Kind::Values).map_or(0, |c| c.options().payload_bytes),
        };
        (ours != theirs).then(|| self.refused(Refusal::Sizes { ours, theirs }))
    }

    fn channel_name(&self, kind: Kind, out: bool) -> String {
        let forth = matches!(self.side, Side::Listening) == out;
        let direction = if forth { "forth" } else { "back" };
        format!("{}/{direction}{}", self.name, kind.suffix())
    }

    fn refused(&self, reason: Refusal) -> SetupError {
        let peer = self.name.clone();
        SetupError::Refused { peer, reason }
    }

    fn not_attached(&self, reason: AttachError) -> SetupError {
        match reason {
            AttachError::SecondProducer | AttachError::Full { .. } => self.refused(Refusal::InUse),
            reason => SetupError::Attach {
                name: self.name.clone(),
                reason,
            },
        }
    }

    fn producer(&self, kind: Kind, sizes: Sizes) -> Result<Producer, SetupError> {
        let channel = self.channel(kind, true, sizes)?;
        channel.producer().map_err(|e| self.not_attached(e))
    }

    fn consumer(&self, kind: Kind, sizes: Sizes) -> Result<Consumer, SetupError> {
        let channel = self.channel(kind, false, sizes)?;
        channel.consumer().map_err(|e| self.not_attached(e))
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Messages,
    Values,
}

impl Kind {
    fn suffix(self) -> &'static str {
        match self {
            Kind::Messages => "",
            Kind::Values => ".value",
        }
    }

    fn options(self, sizes: Sizes) -> Options {
        let credits = sizes.credits;
        let options = match self {
            Kind::Messages => Options::new(Policy::Credit { credits }, sizes.message_bytes),
            Kind::Values => Options::new(Policy::Latest, sizes.value_bytes),
        };
        Options {
            consumers: 1,
            borrowed: 1,
            expected: matches!(self, Kind::Messages).into(),
            on_death: OnDeath::Fail,
            ..options
        }
    }
}

impl Backend for Shm {
    fn initialize(
        &self,
        sizes: Sizes,
        memory: Memory,
        deadline_ns: Option<u64>,
    ) -> Result<Halves, SetupError> {
        sizes.memory_bytes()?;
        let listens = matches!(self.side, Side::Listening);
        let page = Page::new(status::Backend::Shm, listens, &self.name, sizes);
        if !matches!(memory, Memory::Allot) {
            return Err(SetupError::OwnMemory);
        }
        let with_values = sizes.value_bytes > 0;
        // The messages' channels come last: a consumer of them shows the peer that the others are
        // there.
        let published = with_values.then(|| self.producer(Kind::Values, sizes));
        let values = with_values.then(|| self.consumer(Kind::Values, sizes));
        let (published, values) = (published.transpose()?, values.transpose()?);
        let messages = self.producer(Kind::Messages, sizes)?;
        let incoming = self.consumer(Kind::Messages, sizes)?;
        while messages.consumers() == 0 {
            if deadline_ns.is_some_and(|d| now_ns() >= d) {
                return Err(SetupError::NoPeer {
                    peer: self.name.clone(),
                    refused: None,
                });
            }
            std::thread::sleep(POLL_PERIOD);
        }
        let outgoing = ShmOutgoing {
            messages,
            values: published,
            sizes,
            next: 0,
        };
        let messages = incoming;
        let incoming = ShmIncoming { messages, values };
        let halves: Halves = (Box::new(outgoing), Box::new(incoming));
        Ok(counted(page, None, sizes, halves))
    }
}

struct ShmOutgoing {
    messages: Producer,
    values: Option<Producer>,
    sizes: Sizes,
    next: u64,
}

fn died() -> End {
    End::Gone {
        reason: "the peer's process has died".into(),
    }
}

fn not_sent(reason: onbeat_flow::SendError, credits: usize) -> SendError {
    match reason {
        onbeat_flow::SendError::ConsumerDied => died().into(),
        _ => SendError::NoCredit { credits },
    }
}

fn not_loaned(reason: LoanError, credits: usize) -> SendError {
    match reason {
        LoanError::TooLarge { asked, most } => SendError::TooLarge { asked, most },
        LoanError::Exhausted { .. } => SendError::NoCredit { credits },
    }
}

impl Outgoing for ShmOutgoing {
    fn send(
        &mut self,
        bytes: usize,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, SendError> {
        let credits = self.sizes.credits;
        let is_alone = self.messages.consumers() == 0;
        let mut loan = self
            .messages
            .loan(bytes)
            .map_err(|e| not_loaned(e, credits))?;
        if is_alone {
            // Nobody would receive this message. Its error says whether the last consumer died.
            let sent = loan.try_send().map_err(|refused| refused.reason);
            let is_dead = sent == Err(onbeat_flow::SendError::ConsumerDied);
            return Err(if is_dead { died() } else { End::Closed }.into());
        }
        fill(&mut loan);
        let sent = match deadline_ns {
            None => loan.send(),
            Some(deadline) => loan.send_until(deadline).map_err(|r| r.reason),
        };
        if let Err(reason) = sent {
            // A caller with a short deadline never reaches the channel's own check for dead peers.
            self.messages.check_consumers();
            return Err(not_sent(reason, credits));
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    fn publish(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), SendError> {
        let most = self.sizes.value_bytes;
        let too_large = SendError::TooLarge { asked: bytes, most };
        let values = self.values.as_mut().ok_or(too_large)?;
        let credits = self.sizes.credits;
        let mut loan = values.loan(bytes).map_err(|e| not_loaned(e, credits))?;
        fill(&mut loan);
        loan.send().map_err(|e| not_sent(e, credits))
    }

    fn unseen(&mut self) -> Option<LinkId> {
        self.messages.set_unseen();
        self.messages.link().cloned()
    }
}

struct ShmIncoming {
    messages: Consumer,
    values: Option<Consumer>,
}

impl Incoming for ShmIncoming {
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<bool, End> {
        let mut received = self.messages.receive_until(deadline_ns);
        if matches!(received, Ok(None)) && self.messages.is_orphaned() {
            // A caller with a short deadline never reaches the channel's own check for dead peers.
            // The peer may have sent before it died.
            received = self.messages.receive_until(Some(now_ns()));
            if matches!(received, Ok(None)) {
                return Err(died());
            }
        }
        match received {
            Ok(Some(item)) => {
                take(item.sequence(), &item);
                Ok(true)
            }
            Ok(None) if self.messages.is_over() => Err(End::Closed),
            // A caller with a short deadline never reaches the channel's own check for dead peers.
            Ok(None) if self.messages.is_orphaned() && self.messages.waiting() == 0 => Err(died()),
            Ok(None) => Ok(false),
            Err(ReceiveError::ProducerDied) => Err(died()),
            Err(_) => Err(End::Protocol {
                what: "data in the shared memory that is not a message of this link",
            }),
        }
    }

    fn read(
        &mut self,
        _deadline_ns: Option<u64>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, End> {
        let Some(values) = &mut self.values else {
            return Ok(false);
        };
        if self.messages.is_over() {
            return Err(End::Closed);
        }
        if values.is_orphaned() {
            return Err(died());
        }
        Ok(values.newest().map(|item| take(&item)).is_some())
    }

    fn unseen(&mut self) -> Option<LinkId> {
        self.messages.set_unseen();
        self.messages.link().cloned()
    }
}
