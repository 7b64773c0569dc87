//! Computes the paper's key figures from the time stamps of each message.
//!
//! - *Delay*: from "sent by the producer" until processed by the consumer.
//! - *Loss*: messages of the input that were not processed.
//! - *Jitter*: "the maximum deviation in both directions from the output of the consumer node to
//!   the input trace". It is the largest minus the smallest difference between a message's output
//!   and its time in the trace.
//!
//! The paper has no formula for the jitter. Its values are 166 to 177 ms for any number of streams,
//! which is about the longest cycle of the trace. The definition above does not give such values.
//! The lab therefore also computes the *spread of cycles*: the longest minus the shortest time
//! between two outputs.

use crate::measure::stats::mean;

/// A message that the consumer has processed. Times are in ns of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Received {
    pub sequence: usize,
    pub sent_ns: i64,
    pub in_ns: i64,
    pub out_ns: i64,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Log {
    pub received: Vec<Received>,
    pub burned_ns: u64,
}

pub fn parse(text: &str, messages: usize) -> Result<Log, String> {
    let mut log = Log::default();
    let mut complete = false;
    for line in text.lines() {
        if let Some(burned) = line.strip_prefix("# burned_ns=") {
            log.burned_ns = burned.parse().map_err(|_| format!("line '{line}'"))?;
            complete = true;
            continue;
        }
        let n: Vec<i64> = line.split(',').filter_map(|v| v.parse().ok()).collect();
        match n[..] {
            [sequence, sent_ns, in_ns, out_ns]
                if (0..messages as i64).contains(&sequence)
                    && sent_ns <= in_ns
                    && in_ns <= out_ns =>
            {
                log.received.push(Received {
                    sequence: sequence as usize,
                    sent_ns,
                    in_ns,
                    out_ns,
                })
            }
            _ => return Err(format!("line '{line}'")),
        }
    }
    if complete {
        Ok(log)
    } else {
        Err("the file is incomplete".into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StreamKpis {
    pub messages: usize,
    pub processed: usize,
    /// The number of messages that the consumer processed for a second time or out of order.
    pub misplaced: usize,
    pub loss: f64,
    pub delay_us: f64,
    /// The jitter of the output in ms: the largest minus the smallest time from when a message was
    /// due in the input trace to when it was processed.
    pub jitter_ms: f64,
    pub cycles_ms: f64,
}

/// Computes the key figures of a stream. `due_ns` is the input trace: the due time of each message,
/// counted from `start_ns` (CLOCK_MONOTONIC).
pub fn of_stream(due_ns: &[u64], start_ns: i64, log: &Log) -> StreamKpis {
    let mut seen = vec![false; due_ns.len()];
    let (mut processed, mut misplaced, mut next) = (0, 0, 0);
    let mut delays = vec![];
    let mut deviation = Extremes::default();
    let mut cycles = Extremes::default();
    let mut before: Option<i64> = None;
    for r in &log.received {
        if seen[r.sequence] || r.sequence < next {
            misplaced += 1;
        }
        next = next.max(r.sequence + 1);
        if !seen[r.sequence] {
            seen[r.sequence] = true;
            processed += 1;
            delays.push((r.out_ns - r.sent_ns) as f64);
            deviation.add(r.out_ns - start_ns - due_ns[r.sequence] as i64);
        }
        if let Some(before) = before.replace(r.out_ns) {
            cycles.add(r.out_ns - before);
        }
    }
    let messages = due_ns.len();
    StreamKpis {
        messages,
        processed,
        misplaced,
        loss: (messages - processed) as f64 / messages.max(1) as f64 * 100.0,
        delay_us: mean(&delays) / 1e3,
        jitter_ms: deviation.spread() as f64 / 1e6,
        cycles_ms: cycles.spread() as f64 / 1e6,
    }
}

#[derive(Default)]
struct Extremes(Option<(i64, i64)>);

impl Extremes {
    fn add(&mut self, v: i64) {
        let (low, high) = self.0.unwrap_or((v, v));
        self.0 = Some((low.min(v), high.max(v)));
    }

    fn spread(&self) -> i64 {
        self.0.map_or(0, |(low, high)| high - low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: [u64; 4] = [1_000_000, 2_000_000, 2_100_000, 9_000_000];
    const START: i64 = 50_000_000;

    fn received(sequence: usize, sent: i64, out: i64) -> Received {
        let sent_ns = START + DUE[sequence] as i64 + sent;
        Received {
            sequence,
            sent_ns,
            in_ns: sent_ns + out / 2,
            out_ns: sent_ns + out,
        }
    }

    fn log(received: &[Received]) -> Log {
        Log {
            received: received.to_vec(),
            burned_ns: 0,
        }
    }

    #[test]
    fn delay_counts_from_sending_and_jitter_from_the_input_trace() {
        let log = log(&[
            received(0, 10_000, 20_000),
            received(1, 0, 30_000),
            received(2, 500_000, 40_000),
            received(3, 0, 10_000),
        ]);
        let k = of_stream(&DUE, START, &log);
        assert_eq!((k.processed, k.misplaced, k.loss), (4, 0, 0.0));
        assert_eq!(k.delay_us, 25.0);
        // Outputs are 30, 30, 540 and 10 us later than the trace.
        assert!((k.jitter_ms - 0.53).abs() < 1e-9, "{k:?}");
        // The times between outputs are 1.0, 0.61 and 6.37 ms.
        assert!((k.cycles_ms - 5.76).abs() < 1e-9, "{k:?}");
    }

    #[test]
    fn lost_repeated_and_reordered_messages_are_counted() {
        let (a, b, d) = (received(0, 0, 5), received(1, 0, 5), received(3, 0, 5));
        let k = of_stream(&DUE, START, &log(&[a, d]));
        assert_eq!((k.processed, k.misplaced, k.loss), (2, 0, 50.0));
        let k = of_stream(&DUE, START, &log(&[a, d, b, b]));
        assert_eq!((k.processed, k.misplaced, k.loss), (3, 2, 25.0));
        let nothing = of_stream(&DUE, START, &log(&[]));
        assert_eq!((nothing.loss, nothing.jitter_ms), (100.0, 0.0));
    }

    #[test]
    fn message_logs_are_parsed_and_wrong_ones_refused() {
        let read = parse("0,10,20,30\n2,11,21,31\n# burned_ns=77\n", 3).unwrap();
        assert_eq!((read.received.len(), read.burned_ns), (2, 77));
        assert_eq!(read.received[1].sequence, 2);
        for wrong in [
            "0,10,20,30\n",
            "3,10,20,30\n# burned_ns=0\n",
            "0,10,20\n# burned_ns=0\n",
            "0,30,20,10\n# burned_ns=0\n",
            "-1,10,20,30\n# burned_ns=0\n",
            "# burned_ns=x\n",
        ] {
            assert!(parse(wrong, 3).is_err(), "{wrong:?}");
        }
    }
}
