//! A channel of `onbeat-flow` between two hosts, with several consumers at the receiver:
//! `consumers=N`.

use crate::settings::{Settings, Stream};
use crate::ways::{self, Receive, Send};
use onbeat_flow::{Channel, Consumer, Medium, Options, Policy, Producer};
use onbeat_link::channels::Direction;
use onbeat_link::interface::Backend;
use onbeat_link::{Links, Tcp};
use onbeat_peers::die;
use std::sync::Mutex;

fn channel(settings: &Settings, stream: &Stream, tcp: Tcp) -> Result<(Links, Channel), String> {
    let direction = match settings.sends {
        true => Direction::Sending,
        false => Direction::Receiving,
    };
    // A stream has only one channel.
    let tcp = Mutex::new(Some(tcp));
    let links = Links::over(direction, move |_, _| {
        let tcp = tcp.lock().ok().and_then(|mut tcp| tcp.take());
        let tcp = tcp.unwrap_or_else(|| die("peer-link: a stream opened a second channel"));
        Ok(Box::new(tcp) as Box<dyn Backend>)
    });
    let policy = Policy::Credit {
        credits: settings.credits,
    };
    let expected = consumers(settings)?;
    let options = Options {
        expected,
        consumers: expected,
        borrowed: 1,
        ..Options::new(policy, stream.bytes)
    };
    let opened = links.channel(&format!("stream{}", stream.id), options);
    let opened = opened.map_err(|e| e.to_string())?;
    Ok((links, opened))
}

fn consumers(settings: &Settings) -> Result<usize, String> {
    match settings.words.text("consumers") {
        Ok(_) => settings.words.number("consumers"),
        Err(_) => Ok(1),
    }
}

struct Out {
    producer: Producer,
    _channel: (Links, Channel),
}

impl Send for Out {
    fn send(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        let Ok(mut loan) = self.producer.loan(bytes) else {
            return false;
        };
        fill(&mut loan);
        loan.send().is_ok()
    }
}

/// The consumers of one stream. Each consumer receives every message. Only the messages of the
/// first consumer are measured.
struct In {
    consumers: Vec<Consumer>,
    _channel: (Links, Channel),
}

impl Receive for In {
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> bool {
        let mut first = None;
        for consumer in &self.consumers {
            let Ok(Some(item)) = consumer.receive_until(None) else {
                return false;
            };
            match first {
                None => {
                    take(&item);
                    first = Some(item.sequence());
                }
                Some(sequence) if sequence == item.sequence() => {}
                Some(_) => die("peer-link: two consumers received different messages"),
            }
        }
        true
    }
}

pub fn sender(settings: &Settings, stream: &Stream) -> Result<Box<dyn Send>, String> {
    let channel = channel(settings, stream, ways::tcp(settings, stream)?)?;
    let producer = channel.1.producer().map_err(|e| e.to_string())?;
    Ok(Box::new(Out {
        producer,
        _channel: channel,
    }))
}

pub fn receiver(settings: &Settings, stream: &Stream) -> Result<Box<dyn Receive>, String> {
    let channel = channel(settings, stream, ways::tcp(settings, stream)?)?;
    let one = |_| channel.1.consumer().map_err(|e| e.to_string());
    let consumers = (0..consumers(settings)?)
        .map(one)
        .collect::<Result<_, _>>()?;
    Ok(Box::new(In {
        consumers,
        _channel: channel,
    }))
}
