//! onbeat's part in the `queues` experiment: producers and consumers on onbeat's channels.
//!
//! ```text
//! queues-onbeat role=both ...          all streams in one process, two threads for each
//! queues-onbeat role=both-shared ...   all streams in one process, one thread for all producers
//!                                      and one for all consumers
//! queues-onbeat role=chain ...         all streams on one thread
//! queues-onbeat role=send|receive ...  one side of each stream, channels in shared memory
//! queues-onbeat role=bare ...          no queue: the thread that waits for a message processes it
//! ```
//! Settings, logs and the words on the pipes are described in `queues-common/peer.hpp`.
mod clock;
mod control;
mod settings;
mod stream;

use clock::{burn, now_ns, sleep_until};
use control::{stopped, Control};
use onbeat_flow::{Channel, Consumer, Item, Loan, Producer, Refused, SendError, Waker};
use settings::Settings;
use std::process::ExitCode;
use stream::{Received, ReceivedLog, SentLog, Stream};

/// How often a side that waits looks whether it is to stop.
const LOOK_NS: u64 = 1_000_000_000;

fn main() -> ExitCode {
    match run(&Settings::new(std::env::args().skip(1))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("queues-onbeat: {e}");
            ExitCode::FAILURE
        }
    }
}

/// What is logged about one stream; a side that is not here logs nothing.
#[derive(Default)]
struct Logs {
    sent: Option<SentLog>,
    received: Option<ReceivedLog>,
}

fn run(settings: &Settings) -> Result<(), String> {
    let control = Control::new();
    let numbers = settings.streams()?;
    let streams = numbers
        .clone()
        .map(|k| Stream::read(settings, k))
        .collect::<Result<Vec<_>, _>>()?;
    let logs = match settings.text("role")? {
        "bare" => bare(&control, &streams)?,
        "chain" => chain(settings, &control, &streams)?,
        "both-shared" => shared(settings, &control, &streams)?,
        role => pairs(settings, role, &control, &streams)?,
    };
    for (k, log) in numbers.zip(logs) {
        if let Some(sent) = log.sent {
            sent.write(settings, k)?;
        }
        if let Some(received) = log.received {
            received.write(settings, k)?;
        }
    }
    Ok(())
}

/// Says "ready", waits for the start, does the work, says "done", and waits for the end.
fn between(control: &Control, work: impl FnOnce(u64) -> Result<(), String>) -> Result<(), String> {
    control.say("ready")?;
    let Some(start_ns) = control.wait_start() else {
        return Ok(());
    };
    work(start_ns)?;
    control.say("done")?;
    control.wait_stop();
    Ok(())
}

/// Takes the results of threads.
fn join<T>(
    threads: Vec<std::thread::ScopedJoinHandle<'_, Result<T, String>>>,
) -> Result<Vec<T>, String> {
    threads
        .into_iter()
        .map(|t| t.join().map_err(|_| "a thread panicked".to_string())?)
        .collect()
}

/// Process one message.
fn process(stream: &Stream, item: &Item<'_>, log: &mut ReceivedLog) -> Result<(), String> {
    let in_ns = now_ns();
    let sequence = item.sequence();
    let head: Option<[u8; 8]> = item.get(..8).and_then(|b| b.try_into().ok());
    if head.map(u64::from_le_bytes) != Some(sequence) {
        return Err(format!("message {sequence} is not what was sent"));
    }
    let processing = stream
        .processing_ns
        .get(sequence as usize)
        .ok_or_else(|| format!("message {sequence} was never sent"))?;
    log.burned_ns += burn(*processing);
    log.add(Received {
        sequence,
        sent_ns: item.sent_ns(),
        in_ns,
        out_ns: now_ns(),
    });
    Ok(())
}

/// Sends one message; returns whether it was sent.
fn send(producer: &mut Producer, sequence: u64, content: &[u8]) -> Result<bool, String> {
    let mut loan = producer.loan(content.len()).map_err(|e| e.to_string())?;
    loan.copy_from_slice(content);
    loan[..8].copy_from_slice(&sequence.to_le_bytes());
    while !stopped() {
        match loan.send_until(now_ns() + LOOK_NS) {
            Ok(()) => return Ok(true),
            Err(Refused { reason, loan: back }) => loan = still(reason, back)?,
        }
    }
    Ok(false)
}

/// An item that could not be sent yet; an error if it never can.
fn still(reason: SendError, loan: Loan<'_>) -> Result<Loan<'_>, String> {
    match reason {
        SendError::NoCredit { .. } | SendError::NotStarted { .. } => Ok(loan),
        SendError::ConsumerDied => Err(reason.to_string()),
    }
}

/// The producer of one stream. Its end is the channel's.
fn produce(
    mut producer: Producer,
    stream: &Stream,
    start_ns: u64,
    bytes: usize,
) -> Result<SentLog, String> {
    let content = vec![0x5a; bytes];
    let mut log = SentLog::new(stream.due_ns.len());
    for (sequence, due_ns) in (0..).zip(&stream.due_ns) {
        sleep_until(start_ns + due_ns);
        log.add(now_ns());
        if !send(&mut producer, sequence, &content)? {
            break;
        }
    }
    Ok(log)
}

/// The consumer of one stream.
fn consume(consumer: &Consumer, stream: &Stream) -> Result<ReceivedLog, String> {
    let mut log = ReceivedLog::new(stream.due_ns.len());
    let mut look = now_ns() + LOOK_NS;
    loop {
        match consumer
            .receive_until(Some(look))
            .map_err(|e| e.to_string())?
        {
            Some(item) => {
                process(stream, &item, &mut log)?;
                if item.sequence() + 1 == stream.due_ns.len() as u64 {
                    return Ok(log);
                }
            }
            None if consumer.is_over() || stopped() => return Ok(log),
            None => look = now_ns() + LOOK_NS,
        }
    }
}

/// A thread for each side of each stream.
fn pairs(
    settings: &Settings,
    role: &str,
    control: &Control,
    streams: &[Stream],
) -> Result<Vec<Logs>, String> {
    let (sends, receives) = match role {
        "both" => (true, true),
        "send" => (true, false),
        "receive" => (false, true),
        _ => {
            return Err(format!(
                "role={role} is none of both, both-shared, chain, send, receive, bare"
            ))
        }
    };
    let bytes = settings.number("bytes")?;
    let mut sides: Vec<(Option<Producer>, Option<Consumer>)> = vec![];
    for k in settings.streams()? {
        let channel = channel(settings, role, k)?;
        let consumer = receives.then(|| channel.consumer()).transpose();
        let producer = sends.then(|| channel.producer()).transpose();
        sides.push((
            producer.map_err(|e| e.to_string())?,
            consumer.map_err(|e| e.to_string())?,
        ));
    }
    let mut logs = vec![];
    between(control, |start_ns| {
        logs = std::thread::scope(|scope| {
            let mut threads = vec![];
            for ((producer, consumer), stream) in sides.into_iter().zip(streams) {
                let sent =
                    producer.map(|p| scope.spawn(move || produce(p, stream, start_ns, bytes)));
                let received = consumer.map(|c| scope.spawn(move || consume(&c, stream)));
                threads.push((sent, received));
            }
            threads
                .into_iter()
                .map(|(sent, received)| {
                    Ok(Logs {
                        sent: join(sent.into_iter().collect())?.pop(),
                        received: join(received.into_iter().collect())?.pop(),
                    })
                })
                .collect::<Result<Vec<_>, String>>()
        })?;
        Ok(())
    })?;
    Ok(logs)
}

/// The channel of a stream: within this process, or in memory that the other side shares.
fn channel(settings: &Settings, role: &str, k: usize) -> Result<Channel, String> {
    let options = settings.options()?;
    if role == "both" {
        return Channel::new(options).map_err(|e| e.to_string());
    }
    let name = format!("{}/{k}", settings.text("name")?);
    onbeat_link::channel(&name, options).map_err(|e| e.to_string())
}

/// One thread for all producers and one for all consumers, which sleeps at one place.
fn shared(settings: &Settings, control: &Control, streams: &[Stream]) -> Result<Vec<Logs>, String> {
    let bytes = settings.number("bytes")?;
    let waker = Waker::new();
    let (mut producers, mut consumers) = (vec![], vec![]);
    for k in settings.streams()? {
        let channel = channel(settings, "both", k)?;
        consumers.push(channel.consumer_on(&waker).map_err(|e| e.to_string())?);
        producers.push(channel.producer().map_err(|e| e.to_string())?);
    }
    let mut order: Vec<(u64, usize, u64)> = vec![];
    for (k, stream) in streams.iter().enumerate() {
        order.extend((0..).zip(&stream.due_ns).map(|(i, due)| (*due, k, i)));
    }
    order.sort_unstable();
    let mut logs = vec![];
    between(control, |start_ns| {
        let (sent, received) = std::thread::scope(|scope| {
            let sent = scope.spawn(move || {
                let content = vec![0x5a; bytes];
                let mut logs: Vec<_> = streams
                    .iter()
                    .map(|s| SentLog::new(s.due_ns.len()))
                    .collect();
                for (due_ns, k, sequence) in order {
                    sleep_until(start_ns + due_ns);
                    logs[k].add(now_ns());
                    if !send(&mut producers[k], sequence, &content)? {
                        break;
                    }
                }
                Ok(logs)
            });
            let received = scope.spawn(move || consume_all(&consumers, &waker, streams));
            (join(vec![sent]), join(vec![received]))
        });
        let (sent, received) = (sent?.pop(), received?.pop());
        logs = sent
            .into_iter()
            .flatten()
            .zip(received.into_iter().flatten())
            .map(|(s, r)| Logs {
                sent: Some(s),
                received: Some(r),
            })
            .collect();
        Ok(())
    })?;
    Ok(logs)
}

/// All consumers on one thread, one message of each in turn.
fn consume_all(
    consumers: &[Consumer],
    waker: &Waker,
    streams: &[Stream],
) -> Result<Vec<ReceivedLog>, String> {
    let mut logs: Vec<_> = streams
        .iter()
        .map(|s| ReceivedLog::new(s.due_ns.len()))
        .collect();
    let mut left: u64 = streams.iter().map(|s| s.due_ns.len() as u64).sum();
    while left > 0 {
        let mut idle = true;
        for ((consumer, stream), log) in consumers.iter().zip(streams).zip(&mut logs) {
            if let Some(item) = consumer.receive() {
                process(stream, &item, log)?;
                left -= 1;
                idle = false;
            }
        }
        if idle {
            if stopped() || consumers.iter().all(Consumer::is_over) {
                break;
            }
            waker.wait(Some(now_ns() + LOOK_NS), || {
                consumers
                    .iter()
                    .any(|c| c.stats().waiting > 0 || c.is_over())
            });
        }
    }
    Ok(logs)
}

/// Producers and consumers in turn on one thread: what is due is sent, what was sent is processed.
fn chain(settings: &Settings, control: &Control, streams: &[Stream]) -> Result<Vec<Logs>, String> {
    let content = vec![0x5a; settings.number("bytes")?];
    let mut sides = vec![];
    for k in settings.streams()? {
        let channel = channel(settings, "both", k)?;
        let consumer = channel.consumer().map_err(|e| e.to_string())?;
        sides.push((channel.producer().map_err(|e| e.to_string())?, consumer));
    }
    let mut logs: Vec<_> = streams
        .iter()
        .map(|s| {
            (
                SentLog::new(s.due_ns.len()),
                ReceivedLog::new(s.due_ns.len()),
            )
        })
        .collect();
    between(control, |start_ns| {
        let mut next = vec![0; streams.len()];
        while !stopped() {
            let (now, mut wake_ns, mut idle) = (now_ns(), u64::MAX, true);
            for (k, stream) in streams.iter().enumerate() {
                let ((producer, consumer), (sent, received)) = (&mut sides[k], &mut logs[k]);
                while let Some(due_ns) = stream.due_ns.get(next[k]).map(|due| start_ns + due) {
                    if now < due_ns {
                        wake_ns = wake_ns.min(due_ns);
                        break;
                    }
                    if !try_send(producer, next[k] as u64, &content)? {
                        break;
                    }
                    sent.add(now);
                    next[k] += 1;
                }
                if let Some(item) = consumer.receive() {
                    process(stream, &item, received)?;
                    idle = false;
                }
            }
            // Idle with nothing due: all was sent and processed.
            match (idle, wake_ns) {
                (true, u64::MAX) => break,
                (true, wake_ns) => sleep_until(wake_ns),
                _ => {}
            }
        }
        Ok(())
    })?;
    let logs = logs.into_iter().map(|(sent, received)| Logs {
        sent: Some(sent),
        received: Some(received),
    });
    Ok(logs.collect())
}

/// Sends one message if it is possible now; returns whether it was.
fn try_send(producer: &mut Producer, sequence: u64, content: &[u8]) -> Result<bool, String> {
    let mut loan = producer.loan(content.len()).map_err(|e| e.to_string())?;
    loan.copy_from_slice(content);
    loan[..8].copy_from_slice(&sequence.to_le_bytes());
    match loan.try_send() {
        Ok(()) => Ok(true),
        Err(Refused { reason, loan }) => still(reason, loan).map(|_| false),
    }
}

/// No queue: what the processing costs with the waiting for its messages.
fn bare(control: &Control, streams: &[Stream]) -> Result<Vec<Logs>, String> {
    let mut logs = vec![];
    between(control, |start_ns| {
        let received = std::thread::scope(|scope| {
            let threads = streams.iter().map(|stream| {
                scope.spawn(move || {
                    let mut log = ReceivedLog::new(stream.due_ns.len());
                    let messages = (0..).zip(stream.due_ns.iter().zip(&stream.processing_ns));
                    for (sequence, (due_ns, processing_ns)) in messages {
                        sleep_until(start_ns + due_ns);
                        if stopped() {
                            break;
                        }
                        let begun = now_ns();
                        log.burned_ns += burn(*processing_ns);
                        log.add(Received {
                            sequence,
                            sent_ns: begun,
                            in_ns: begun,
                            out_ns: now_ns(),
                        });
                    }
                    Ok(log)
                })
            });
            join(threads.collect())
        })?;
        logs = received
            .into_iter()
            .map(|r| Logs {
                sent: None,
                received: Some(r),
            })
            .collect();
        Ok(())
    })?;
    Ok(logs)
}
