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
//!
//! `../../../../README.md` describes settings, logs and the protocol.
mod burn;
mod control;
mod settings;
mod stream;

use burn::burn;
use control::{stopped, Control};
use onbeat_flow::clock::now_ns;
use onbeat_flow::{Channel, Consumer, Item, Loan, Producer, Refused, SendError, Waker};
use onbeat_peers::protocol;
use settings::Settings;
use std::process::ExitCode;
use stream::{Received, ReceivedLog, Stream};

const STOP_CHECK_NS: u64 = 1_000_000_000;

fn main() -> ExitCode {
    match run(&Settings::of_command_line()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("queues-onbeat: {e}");
            ExitCode::FAILURE
        }
    }
}

type Logs = Vec<Option<ReceivedLog>>;

type Result<T> = std::result::Result<T, String>;

fn run(settings: &Settings) -> Result<()> {
    let control = Control::new();
    let numbers = settings.streams()?;
    let streams = numbers
        .clone()
        .map(|k| Stream::read(settings, k))
        .collect::<Result<Vec<_>>>()?;
    let logs = match settings.text("role")? {
        "bare" => bare(&control, &streams)?,
        "chain" => chain(settings, &control, &streams)?,
        "both-shared" => shared(settings, &control, &streams)?,
        role => pairs(settings, role, &control, &streams)?,
    };
    for (k, log) in numbers.zip(logs) {
        if let Some(received) = log {
            received.write(settings, k)?;
        }
    }
    protocol::written();
    Ok(())
}

fn processed(logs: &Logs) -> usize {
    logs.iter().flatten().map(ReceivedLog::len).sum()
}

fn join<T>(threads: Vec<std::thread::ScopedJoinHandle<'_, Result<T>>>) -> Result<Vec<T>> {
    threads
        .into_iter()
        .map(|t| t.join().map_err(|_| "a thread panicked".to_string())?)
        .collect()
}

fn sleep_until(ns: u64) {
    onbeat_peers::sleep_until(ns as i64);
}

fn process(stream: &Stream, item: &Item<'_>, log: &mut ReceivedLog) -> Result<()> {
    let in_ns = now_ns();
    let sequence = item.sequence();
    let head: Option<[u8; 8]> = item.get(..8).and_then(|b| b.try_into().ok());
    if head.map(u64::from_le_bytes) != Some(sequence) {
        return Err(format!("the content of message {sequence} is damaged"));
    }
    let processing = stream
        .processing_ns
        .get(sequence as usize)
        .ok_or_else(|| format!("message {sequence} is not in the stream"))?;
    log.burned_ns += burn(*processing);
    log.add(Received {
        sequence,
        sent_ns: item.sent_ns(),
        in_ns,
        out_ns: now_ns(),
    });
    Ok(())
}

fn send(producer: &mut Producer, sequence: u64, content: &[u8]) -> Result<bool> {
    let mut loan = producer.loan(content.len()).map_err(|e| e.to_string())?;
    loan.copy_from_slice(content);
    loan[..8].copy_from_slice(&sequence.to_le_bytes());
    while !stopped() {
        match loan.send_until(now_ns() + STOP_CHECK_NS) {
            Ok(()) => return Ok(true),
            Err(Refused { reason, loan: back }) => loan = retry(reason, back)?,
        }
    }
    Ok(false)
}

/// Returns the loan if it can be sent later. Returns an error if it can never be sent.
fn retry(reason: SendError, loan: Loan<'_>) -> Result<Loan<'_>> {
    match reason {
        SendError::NoCredit { .. } | SendError::NotStarted { .. } => Ok(loan),
        SendError::ConsumerDied | SendError::Severed => Err(reason.to_string()),
    }
}

fn produce(mut producer: Producer, stream: &Stream, start_ns: u64, bytes: usize) -> Result<usize> {
    let content = vec![0x5a; bytes];
    let mut sent = 0;
    for (sequence, due_ns) in (0..).zip(&stream.due_ns) {
        sleep_until(start_ns + due_ns);
        if !send(&mut producer, sequence, &content)? {
            break;
        }
        sent += 1;
    }
    Ok(sent)
}

fn consume(consumer: &Consumer, stream: &Stream) -> Result<ReceivedLog> {
    let mut log = ReceivedLog::new(stream.due_ns.len());
    let mut check = now_ns() + STOP_CHECK_NS;
    loop {
        match consumer
            .receive_until(Some(check))
            .map_err(|e| e.to_string())?
        {
            Some(item) => {
                process(stream, &item, &mut log)?;
                if item.sequence() + 1 == stream.due_ns.len() as u64 {
                    return Ok(log);
                }
            }
            None if consumer.is_over() || stopped() => return Ok(log),
            None => check = now_ns() + STOP_CHECK_NS,
        }
    }
}

fn pairs(settings: &Settings, role: &str, control: &Control, streams: &[Stream]) -> Result<Logs> {
    let (sends, receives) = match role {
        "both" => (true, true),
        "send" => (true, false),
        "receive" => (false, true),
        _ => {
            return Err(format!(
                "role={role} is unknown. Use one of: both, both-shared, chain, send, receive, bare"
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
    control.run(|start_ns| {
        let mut messages = 0;
        std::thread::scope(|scope| {
            let mut threads = vec![];
            for ((producer, consumer), stream) in sides.into_iter().zip(streams) {
                let sends =
                    producer.map(|p| scope.spawn(move || produce(p, stream, start_ns, bytes)));
                let receives = consumer.map(|c| scope.spawn(move || consume(&c, stream)));
                threads.push((sends, receives));
            }
            for (sends, receives) in threads {
                messages += join(sends.into_iter().collect())?
                    .into_iter()
                    .sum::<usize>();
                logs.push(join(receives.into_iter().collect())?.pop());
            }
            Ok::<_, String>(())
        })?;
        Ok(messages + processed(&logs))
    })?;
    Ok(logs)
}

/// Opens the channel of a stream. The channel's memory is in this process for the role `both`,
/// otherwise in shared memory.
fn channel(settings: &Settings, role: &str, k: usize) -> Result<Channel> {
    let options = settings.options()?;
    if role == "both" {
        return Channel::new(options).map_err(|e| e.to_string());
    }
    let name = format!("{}/{k}", settings.text("name")?);
    onbeat_link::channel(&name, options).map_err(|e| e.to_string())
}

fn shared(settings: &Settings, control: &Control, streams: &[Stream]) -> Result<Logs> {
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
    control.run(|start_ns| {
        let (sent, received) = std::thread::scope(|scope| {
            let sends = scope.spawn(move || produce_all(&mut producers, &order, start_ns, bytes));
            let receives = scope.spawn(move || consume_all(&consumers, &waker, streams));
            (join(vec![sends]), join(vec![receives]))
        });
        logs = received?.into_iter().flatten().map(Some).collect();
        Ok(sent?.into_iter().sum::<usize>() + processed(&logs))
    })?;
    Ok(logs)
}

fn produce_all(
    producers: &mut [Producer],
    order: &[(u64, usize, u64)],
    start_ns: u64,
    bytes: usize,
) -> Result<usize> {
    let content = vec![0x5a; bytes];
    let mut sent = 0;
    for &(due_ns, k, sequence) in order {
        sleep_until(start_ns + due_ns);
        if !send(&mut producers[k], sequence, &content)? {
            break;
        }
        sent += 1;
    }
    Ok(sent)
}

fn consume_all(
    consumers: &[Consumer],
    waker: &Waker,
    streams: &[Stream],
) -> Result<Vec<ReceivedLog>> {
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
            waker.wait(Some(now_ns() + STOP_CHECK_NS), || {
                consumers
                    .iter()
                    .any(|c| c.stats().waiting > 0 || c.is_over())
            });
        }
    }
    Ok(logs)
}

fn chain(settings: &Settings, control: &Control, streams: &[Stream]) -> Result<Logs> {
    let content = vec![0x5a; settings.number("bytes")?];
    let mut sides = vec![];
    for k in settings.streams()? {
        let channel = channel(settings, "both", k)?;
        let consumer = channel.consumer().map_err(|e| e.to_string())?;
        sides.push((channel.producer().map_err(|e| e.to_string())?, consumer));
    }
    let mut logs: Logs = streams
        .iter()
        .map(|s| Some(ReceivedLog::new(s.due_ns.len())))
        .collect();
    control.run(|start_ns| {
        let mut next = vec![0; streams.len()];
        while !stopped() {
            let (now, mut wake_ns, mut idle) = (now_ns(), u64::MAX, true);
            for (k, stream) in streams.iter().enumerate() {
                let (producer, consumer) = &mut sides[k];
                while let Some(due_ns) = stream.due_ns.get(next[k]).map(|due| start_ns + due) {
                    if now < due_ns {
                        wake_ns = wake_ns.min(due_ns);
                        break;
                    }
                    if !try_send(producer, next[k] as u64, &content)? {
                        break;
                    }
                    next[k] += 1;
                }
                if let (Some(item), Some(log)) = (consumer.receive(), &mut logs[k]) {
                    process(stream, &item, log)?;
                    idle = false;
                }
            }
            // The thread is idle and nothing is due: all messages were sent and processed.
            match (idle, wake_ns) {
                (true, u64::MAX) => break,
                (true, wake_ns) => sleep_until(wake_ns),
                _ => {}
            }
        }
        Ok(next.iter().sum::<usize>() + processed(&logs))
    })?;
    Ok(logs)
}

fn try_send(producer: &mut Producer, sequence: u64, content: &[u8]) -> Result<bool> {
    let mut loan = producer.loan(content.len()).map_err(|e| e.to_string())?;
    loan.copy_from_slice(content);
    loan[..8].copy_from_slice(&sequence.to_le_bytes());
    match loan.try_send() {
        Ok(()) => Ok(true),
        Err(Refused { reason, loan }) => retry(reason, loan).map(|_| false),
    }
}

/// Processes the messages at their due times without a queue, to measure the cost of processing and
/// waiting alone.
fn bare(control: &Control, streams: &[Stream]) -> Result<Logs> {
    let mut logs = vec![];
    control.run(|start_ns| {
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
        logs = received.into_iter().map(Some).collect();
        Ok(processed(&logs))
    })?;
    Ok(logs)
}
