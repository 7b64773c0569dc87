//! The onbeat peer: channels across processes, within one, and in one thread; chains.
//!
//! It has these roles beside the common ones:
//!
//! ```text
//! role=chained                     the first task of a chain passes messages to the second
//! role=handover                    ten tasks as a chain, against the same work without one
//! role=pipeline variant=VARIANT    the perception pipeline: callbacks, inputs or chain
//! ```
mod chained;
mod pipeline;

use onbeat_flow::{Channel, Consumer, Options as ChannelOptions, Policy, Producer};
use onbeat_peers::protocol::Words;
use onbeat_peers::transport::{arrived, fill, serve, Options, Peer, Sample};
use onbeat_peers::{now_ns, or_die, sleep_until};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

const CREDITS: usize = 8;
/// The number of credits of a producer that sends without pause. The number is small, so that the
/// producer soon has to wait.
const CREDITS_OF_A_FLOOD: usize = 4;

struct Onbeat {
    within: bool,
    readers: usize,
    credits: usize,
    channels: Mutex<HashMap<String, Channel>>,
}

impl Onbeat {
    fn channel(&self, topic: &str, bytes: usize) -> Channel {
        let credits = self.credits;
        let options = ChannelOptions {
            consumers: self.readers,
            expected: self.readers,
            borrowed: 1,
            ..ChannelOptions::new(Policy::Credit { credits }, bytes)
        };
        if !self.within {
            return or_die(onbeat_link::channel(topic, options), "the channel");
        }
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = channels
            .entry(topic.to_string())
            .or_insert_with(|| or_die(Channel::new(options), "the channel"));
        channel.clone()
    }
}

impl Peer for Onbeat {
    type Writer = (Channel, Producer);
    type Reader = Consumer;

    fn writer(&self, topic: &str, bytes: usize) -> Self::Writer {
        let channel = self.channel(topic, bytes);
        let producer = or_die(channel.producer(), "the producer");
        (channel, producer)
    }

    fn reader(&self, topic: &str, bytes: usize) -> Consumer {
        or_die(self.channel(topic, bytes).consumer(), "the consumer")
    }

    fn matched(&self, writer: &Self::Writer, readers: usize) -> bool {
        writer.0.consumers().len() >= readers
    }

    fn send(&self, writer: &mut Self::Writer, sample: &Sample, bytes: usize) {
        let mut loan = or_die(writer.1.loan(bytes), "a loan");
        fill(&mut loan, sample);
        or_die(loan.send(), "sending");
    }

    fn receive(&self, reader: &mut Consumer, deadline_ns: Option<i64>) -> Option<Sample> {
        let item = match deadline_ns {
            None => reader.receive(),
            Some(ns) => or_die(reader.receive_until(Some(ns as u64)), "receiving"),
        };
        item.map(|item| arrived(&item))
    }

    fn give_back_at(&self, reader: &mut Consumer, at_ns: i64) -> Option<(i64, i64)> {
        let limit = now_ns().max(at_ns) as u64 + 2_000_000_000;
        let item = or_die(reader.receive_until(Some(limit)), "receiving")?;
        let sequence = arrived(&item).sequence;
        sleep_until(at_ns);
        let given_back_ns = now_ns();
        drop(item);
        Some((sequence, given_back_ns))
    }
}

fn main() {
    let words = Words::of_command_line();
    let mut options = Options::new(&words);
    match options.role.as_str() {
        "handover" => chained::hand_over(),
        "pipeline" => pipeline::serve(or_die(words.text("variant"), "settings")),
        "chained" => {
            options.role = "thread".into();
            serve(&chained::Chained::default(), &options);
        }
        role => {
            let waits = matches!(role, "slow" | "flood");
            let within = matches!(role, "thread" | "pair");
            let peer = Onbeat {
                within,
                readers: if within { 1 } else { options.readers },
                credits: if waits { CREDITS_OF_A_FLOOD } else { CREDITS },
                channels: Mutex::default(),
            };
            serve(&peer, &options);
        }
    }
}
