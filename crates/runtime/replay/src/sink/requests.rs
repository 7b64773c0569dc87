//! Sends recorded requests to the servers of their services. A thread of its own waits for the
//! responses, so that the player never waits for them.

use super::{Put, SinkError};
use crate::ledger::{histogram, lateness, Extent, Lateness};
use crate::requests::{self, Damaged, Event};
use hdrhistogram::Histogram;
use onbeat_ros::rcl::{Client, RclError, Responses, Unsent};
use onbeat_time::clock::monotonic_ns;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;
use std::time::Duration;

const THREAD: &str = "onbeat-answers";
/// The longest time in ns that the thread waits for responses before it looks for servers again.
const LOOK_NS: i64 = 20_000_000;
const MOST_PENDING: usize = 1 << 20;
const MOST_EARLY: usize = 1024;

/// The requests that were sent to one service, and its responses.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RequestFigures {
    pub service: String,
    pub sent: u64,
    pub answered: u64,
    /// The number of requests without a response five seconds after the end of the replay. If the
    /// user ended the replay, the limit is one second.
    pub unanswered: u64,
    /// The number of responses beyond the first to a request. If a service has several servers,
    /// each of them answers.
    pub additional_responses: u64,
    /// The number of requests that were not sent, because ROS 2 knew no server of the service.
    pub without_server: u64,
    /// The number of recorded requests without contents. onbeat cannot send them.
    pub without_contents: u64,
    /// The number of messages that are not service events, are incomplete, or do not match the
    /// service's type.
    pub damaged: u64,
    /// The distribution of the times from sending a request to its response, in ns.
    pub response_ns: Lateness,
    /// The reason why onbeat could not receive responses. `None` if it could.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

struct Service {
    client: Client,
    figures: RequestFigures,
}

#[derive(Default)]
struct State {
    has_server: AtomicBool,
    answered: AtomicU64,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    services: Vec<State>,
}

struct Sent {
    service: usize,
    number: i64,
    sent_ns: u64,
}

/// The clients of the services whose requests are replayed.
pub struct Clients {
    services: Vec<Service>,
    shared: Arc<Shared>,
    sent: mpsc::Sender<Sent>,
    collector: Option<JoinHandle<Vec<Row>>>,
}

impl Clients {
    /// Starts the thread that receives responses. `names` contains the name of each client's
    /// service, in the order of `clients`.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn start(
        clients: Vec<Client>,
        names: Vec<String>,
        responses: Responses,
    ) -> Result<Clients, SinkError> {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            services: names.iter().map(|_| State::default()).collect(),
        });
        let (sent, received) = mpsc::channel();
        let collector = Collector {
            rows: names.iter().map(|_| Row::default()).collect(),
            responses,
            received,
            shared: shared.clone(),
            looked_ns: 0,
        };
        let services = clients
            .into_iter()
            .zip(names)
            .map(|(client, service)| Service {
                client,
                figures: RequestFigures {
                    service,
                    ..RequestFigures::default()
                },
            });
        let services = services.collect();
        // The player has to know the servers before its first request.
        collector
            .look()
            .map_err(|e| SinkError::new("ros", e.to_string()))?;
        let thread = std::thread::Builder::new().name(THREAD.into());
        let collector = thread.spawn(move || collector.run()).map_err(|error| {
            SinkError::new(
                "ros",
                format!("cannot start a thread: {error}. End other programs, or raise ulimit -u"),
            )
        })?;
        Ok(Clients {
            services,
            shared,
            sent,
            collector: Some(collector),
        })
    }

    /// Sends the request that a service event contains. The middleware allocates memory for the
    /// request.
    ///
    /// # Errors
    /// Returns rcl's code if the middleware refuses the request. The caller may try again.
    pub fn put(&mut self, service: usize, event: &[u8]) -> Result<Put, i32> {
        let Service { client, figures } = &mut self.services[service];
        match requests::read(event) {
            Ok(Event::Request {
                has_contents: true, ..
            }) => {}
            Ok(Event::Request { .. }) => {
                figures.without_contents += 1;
                return Ok(Put::Unsuitable);
            }
            Ok(Event::Response) | Err(Damaged) => {
                figures.damaged += 1;
                return Ok(Put::Unsuitable);
            }
        }
        if !self.shared.services[service].has_server.load(Relaxed) {
            figures.without_server += 1;
            return Ok(Put::Unsuitable);
        }
        let sent_ns = monotonic_ns();
        match client.send(event) {
            Ok(number) => {
                figures.sent += 1;
                let sent = Sent {
                    service,
                    number,
                    sent_ns,
                };
                // Without the collector, the request counts as unanswered.
                let _ = self.sent.send(sent);
                Ok(Put::Left)
            }
            Err(Unsent::Damaged) => {
                figures.damaged += 1;
                Ok(Put::Unsuitable)
            }
            Err(Unsent::Refused(code)) => Err(code),
        }
    }

    /// Waits until all requests are answered, or until `deadline_ns` (CLOCK_MONOTONIC).
    pub fn settle(&self, deadline_ns: u64) {
        let is_open = |(service, state): (&Service, &State)| {
            state.answered.load(Acquire) < service.figures.sent
        };
        let is_over = || self.collector.as_ref().is_none_or(JoinHandle::is_finished);
        while self.services.iter().zip(&self.shared.services).any(is_open)
            && !is_over()
            && monotonic_ns() < deadline_ns
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(&mut self) -> Vec<Row> {
        self.shared.stop.store(true, Release);
        let collector = self.collector.take().map(JoinHandle::join);
        collector.and_then(Result::ok).unwrap_or_default()
    }

    /// Stops receiving responses, and returns the figures of each service.
    pub fn figures(&mut self) -> Vec<RequestFigures> {
        let rows = self.stop();
        let figures = self.services.iter().map(|service| service.figures.clone());
        let mut rows = rows.into_iter();
        figures
            .map(|mut figures| {
                let row = rows.next().unwrap_or_default();
                figures.answered = row.times.count;
                figures.unanswered = figures.sent.saturating_sub(figures.answered);
                figures.additional_responses = row.additional + row.early.len() as u64;
                figures.response_ns = lateness(&row.histogram, row.times);
                figures.fault = row.fault;
                figures
            })
            .collect()
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Collector {
    responses: Responses,
    received: mpsc::Receiver<Sent>,
    shared: Arc<Shared>,
    rows: Vec<Row>,
    looked_ns: u64,
}

impl Collector {
    fn run(mut self) -> Vec<Row> {
        loop {
            // This step still takes the responses that came before the stop.
            let stops = self.shared.stop.load(Acquire);
            if let Err(error) = self.step() {
                let fault = error.to_string();
                self.rows
                    .iter_mut()
                    .for_each(|row| row.fault = Some(fault.clone()));
                return self.rows;
            }
            if stops {
                return self.rows;
            }
        }
    }

    fn step(&mut self) -> Result<(), RclError> {
        self.responses.wait(LOOK_NS)?;
        for (service, row) in self.rows.iter_mut().enumerate() {
            while let Some(number) = self.responses.take(service)? {
                row.answer(number, monotonic_ns());
            }
        }
        while let Ok(sent) = self.received.try_recv() {
            self.rows[sent.service].send(sent.number, sent.sent_ns);
        }
        for (row, state) in self.rows.iter().zip(&self.shared.services) {
            state.answered.store(row.times.count, Release);
        }
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.looked_ns) < LOOK_NS as u64 {
            return Ok(());
        }
        self.looked_ns = now_ns;
        self.look()
    }

    fn look(&self) -> Result<(), RclError> {
        for (service, state) in self.shared.services.iter().enumerate() {
            let is_there = self.responses.has_server(service)?;
            state.has_server.store(is_there, Relaxed);
        }
        Ok(())
    }
}

/// The requests to one service that have no response yet, and the response times of the requests
/// that have one.
struct Row {
    pending: BTreeMap<i64, u64>,
    /// The responses that arrived before the player had reported the requests that they answer.
    early: VecDeque<(i64, u64)>,
    additional: u64,
    histogram: Histogram<u64>,
    times: Extent,
    fault: Option<String>,
}

impl Default for Row {
    fn default() -> Row {
        Row {
            pending: BTreeMap::new(),
            early: VecDeque::new(),
            additional: 0,
            histogram: histogram(),
            times: Extent::default(),
            fault: None,
        }
    }
}

impl Row {
    fn send(&mut self, number: i64, sent_ns: u64) {
        if let Some(at) = self.early.iter().position(|early| early.0 == number) {
            let answered_ns = self.early.remove(at).map_or(sent_ns, |early| early.1);
            self.add(answered_ns.saturating_sub(sent_ns));
            return;
        }
        self.pending.insert(number, sent_ns);
        if self.pending.len() > MOST_PENDING {
            self.pending.pop_first();
        }
    }

    fn answer(&mut self, number: i64, answered_ns: u64) {
        if let Some(sent_ns) = self.pending.remove(&number) {
            self.add(answered_ns.saturating_sub(sent_ns));
            return;
        }
        self.early.push_back((number, answered_ns));
        if self.early.len() > MOST_EARLY {
            self.early.pop_front();
            self.additional += 1;
        }
    }

    fn add(&mut self, response_ns: u64) {
        self.histogram.saturating_record(response_ns);
        self.times.add(response_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_matched_in_any_order_and_counted_once() {
        let mut row = Row::default();
        (1..=4).for_each(|number| row.send(number, 1000));
        row.answer(3, 1500);
        row.answer(1, 3000);
        // A second server.
        row.answer(1, 3100);
        // The response is faster than the report of the request.
        row.answer(5, 5200);
        row.send(5, 5000);
        let times = (row.times.count, row.times.min, row.times.max);
        assert_eq!(times, (3, 200, 2000));
        assert_eq!(row.pending.keys().copied().collect::<Vec<_>>(), [2, 4]);
        assert_eq!(row.early.len(), 1);
        for number in 0..2 * MOST_EARLY as i64 {
            row.answer(-number, 0);
        }
        assert_eq!(row.early.len(), MOST_EARLY);
        assert_eq!(row.additional, MOST_EARLY as u64 + 1);
    }
}
