//! Ring buffer records to events. The layout is that of the structs in `bpf/onbeat.bpf.c`.

use crate::kinds;
use onbeat_trace::{EndpointKind, Event, EventKind, ExecuteKind, Name};

/// Bytes of a record's head.
const HEAD: usize = 24;
/// Bytes of each name in a record.
const NAME: usize = 256;
/// Handles per category in a wait set record.
const WAIT_SET: usize = 64;

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// Something for the trace.
    Event(Event),
    /// First hit of a process; `late`: it was there before the probes.
    Process {
        /// Process.
        pid: u32,
        /// When.
        time_ns: u64,
        /// Started before its probes were in place.
        late: bool,
    },
    /// First hit of a thread that runs callbacks.
    Thread {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// When.
        time_ns: u64,
    },
    /// A process loaded a library that may want probes, or (`loader`) is the first one in its
    /// mount namespace; `stopped`: it waits for SIGCONT.
    Library {
        /// Process.
        pid: u32,
        /// Its dynamic linker may be a new one.
        loader: bool,
        /// Held with SIGSTOP.
        stopped: bool,
    },
    /// What a thread of a late process waits for.
    WaitSet(WaitSet),
}

/// Handles in an `rcl_wait_set_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitSet {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// When.
    pub time_ns: u64,
    /// `rcl_subscription_t *`
    pub subscriptions: Vec<u64>,
    /// `rcl_timer_t *`
    pub timers: Vec<u64>,
    /// `rcl_client_t *`
    pub clients: Vec<u64>,
    /// `rcl_service_t *`
    pub services: Vec<u64>,
}

/// Reads numbers and names behind a record's head; what is missing reads as zero or empty, so
/// that a short record cannot do harm.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn word(&self, index: usize) -> u64 {
        let at = index * 8;
        self.0.get(at..at + 8).map_or(0, |b| {
            u64::from_le_bytes(b.try_into().expect("eight bytes"))
        })
    }

    /// Name `index` behind `words` numbers.
    fn name(&self, words: usize, index: usize) -> Name {
        let at = words * 8 + index * NAME;
        let bytes = self
            .0
            .get(at..(at + NAME).min(self.0.len()))
            .unwrap_or_default();
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into()
    }

    fn gid(&self, index: usize) -> [u8; 16] {
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&self.word(index).to_le_bytes());
        gid[8..].copy_from_slice(&self.word(index + 1).to_le_bytes());
        gid
    }
}

/// The number of the probe whose hit made this record, if it was a numbered one.
pub fn probe_of(record: &[u8]) -> Option<u16> {
    let number = record.get(22..24)?;
    let number = u16::from_le_bytes(number.try_into().expect("two bytes"));
    (number != 0).then_some(number)
}

/// Decodes one record; `None` for a kind that this version does not know.
pub fn decode(record: &[u8]) -> Option<Decoded> {
    if record.len() < HEAD {
        return None;
    }
    let (head, body) = record.split_at(HEAD);
    let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let u16_at = |at: usize| u16::from_le_bytes(head[at..at + 2].try_into().expect("two bytes"));
    let time_ns = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
    let (pid, tid, kind, cpu, small) = (u32_at(8), u32_at(12), u16_at(16), u16_at(18), u16_at(20));
    let b = Body(body);
    let endpoint = |n: u16| match n {
        0 => EndpointKind::Publisher,
        1 => EndpointKind::Subscription,
        2 => EndpointKind::Service,
        _ => EndpointKind::Client,
    };
    let what = match kind {
        kinds::PROCESS_SEEN => {
            return Some(Decoded::Process {
                pid,
                time_ns,
                late: small != 0,
            })
        }
        kinds::THREAD_SEEN => return Some(Decoded::Thread { pid, tid, time_ns }),
        kinds::LIBRARY_LOADED => {
            return Some(Decoded::Library {
                pid,
                loader: false,
                stopped: small != 0,
            })
        }
        kinds::LOADER_SEEN => {
            return Some(Decoded::Library {
                pid,
                loader: true,
                stopped: small != 0,
            })
        }
        kinds::WAIT_SET => {
            let list = |category: usize| {
                let count = (b.word(category) as usize).min(WAIT_SET);
                (0..count)
                    .map(|i| b.word(4 + category * WAIT_SET + i))
                    .filter(|&h| h != 0)
                    .collect()
            };
            return Some(Decoded::WaitSet(WaitSet {
                pid,
                tid,
                time_ns,
                subscriptions: list(0),
                timers: list(1),
                clients: list(2),
                services: list(3),
            }));
        }
        // Only tells that the process is no late one, which PROCESS_SEEN says too.
        kinds::RCL_INIT => return None,
        kinds::NODE_INIT => EventKind::NodeInit {
            node: b.word(0),
            rmw: b.word(1),
            name: b.name(4, 0),
            namespace: b.name(4, 1),
        },
        kinds::PUBLISHER_INIT => EventKind::PublisherInit {
            publisher: b.word(0),
            node: b.word(1),
            rmw: b.word(2),
            depth: b.word(3),
            topic: b.name(4, 0),
        },
        kinds::SUBSCRIPTION_INIT => EventKind::SubscriptionInit {
            subscription: b.word(0),
            node: b.word(1),
            rmw: b.word(2),
            depth: b.word(3),
            topic: b.name(4, 0),
        },
        kinds::SERVICE_INIT => EventKind::ServiceInit {
            service: b.word(0),
            node: b.word(1),
            rmw: b.word(2),
            name: b.name(4, 0),
        },
        kinds::CLIENT_INIT => EventKind::ClientInit {
            client: b.word(0),
            node: b.word(1),
            rmw: b.word(2),
            name: b.name(4, 0),
        },
        kinds::PUBLISHER_GID => EventKind::PublisherGid {
            rmw: b.word(0),
            gid: b.gid(1),
        },
        kinds::SUBSCRIPTION_GID => EventKind::SubscriptionGid {
            rmw: b.word(0),
            gid: b.gid(1),
        },
        kinds::CLIENT_GID => EventKind::ClientGid {
            rmw: b.word(0),
            gid: b.gid(1),
        },
        kinds::CLOCK_INIT => EventKind::ClockInit { clock: b.word(0) },
        kinds::TIMER_INIT => EventKind::TimerInit {
            timer: b.word(0),
            period_ns: b.word(1) as i64,
        },
        kinds::TIMER_CLOCK => EventKind::TimerClock {
            timer: b.word(0),
            clock: b.word(1),
        },
        kinds::TIMER_NODE => EventKind::TimerNode {
            timer: b.word(0),
            node: b.word(1),
        },
        kinds::TIMER_CALLBACK => EventKind::TimerCallback {
            timer: b.word(0),
            callback: b.word(1),
        },
        kinds::SUBSCRIPTION_OBJECT => EventKind::SubscriptionObject {
            subscription: b.word(0),
            object: b.word(1),
        },
        kinds::SUBSCRIPTION_CALLBACK => EventKind::SubscriptionCallback {
            object: b.word(0),
            callback: b.word(1),
        },
        kinds::SERVICE_CALLBACK => EventKind::ServiceCallback {
            service: b.word(0),
            callback: b.word(1),
        },
        kinds::CALLBACK_SYMBOL => EventKind::CallbackSymbol {
            callback: b.word(0),
            symbol: b.name(4, 0),
        },
        kinds::INTRA_BUFFER_SUBSCRIPTION => EventKind::IntraBufferSubscription {
            ipb: b.word(0),
            object: b.word(1),
        },
        kinds::RING_BUFFER_INTRA_BUFFER => EventKind::RingBufferIntraBuffer {
            buffer: b.word(0),
            ipb: b.word(1),
        },
        kinds::RING_BUFFER_INIT => EventKind::RingBufferInit {
            buffer: b.word(0),
            capacity: b.word(1),
        },
        kinds::LIFECYCLE_INIT => EventKind::LifecycleInit {
            node: b.word(0),
            machine: b.word(1),
        },
        kinds::LIFECYCLE_TRANSITION => EventKind::LifecycleTransition {
            machine: b.word(0),
            from: b.name(4, 0),
            to: b.name(4, 1),
        },
        kinds::ENDPOINT_FOUND => EventKind::EndpointFound {
            endpoint: endpoint(small),
            rcl: b.word(0),
            rmw: b.word(1),
            name: b.name(4, 0),
        },
        kinds::CALLBACK_START => EventKind::CallbackStart {
            callback: b.word(0),
            intra_process: small != 0,
        },
        kinds::CALLBACK_END => EventKind::CallbackEnd {
            callback: b.word(0),
        },
        kinds::TIMER_CALL => EventKind::TimerCall { timer: b.word(0) },
        kinds::TAKE => EventKind::Take {
            rmw: b.word(0),
            message: b.word(1),
            source_ns: b.word(2) as i64,
            taken: small != 0,
        },
        kinds::INTRA_PUBLISH => EventKind::IntraPublish {
            publisher: b.word(0),
            message: b.word(1),
        },
        kinds::RING_BUFFER_ENQUEUE => EventKind::RingBufferEnqueue {
            buffer: b.word(0),
            index: b.word(1),
            overwritten: small != 0,
        },
        kinds::RING_BUFFER_DEQUEUE => EventKind::RingBufferDequeue {
            buffer: b.word(0),
            index: b.word(1),
        },
        kinds::RING_BUFFER_CLEAR => EventKind::RingBufferClear { buffer: b.word(0) },
        kinds::PUBLISH => EventKind::Publish {
            rmw: b.word(0),
            message: b.word(1),
            source_ns: Some(b.word(2) as i64),
        },
        kinds::PUBLISH_UNSTAMPED => EventKind::Publish {
            rmw: b.word(0),
            message: b.word(1),
            source_ns: None,
        },
        kinds::REQUEST_SEND => EventKind::RequestSend {
            rmw: b.word(0),
            sequence: b.word(1) as i64,
        },
        kinds::REQUEST_TAKE => EventKind::RequestTake {
            rmw: b.word(0),
            sequence: b.word(1) as i64,
            gid: b.gid(2),
            taken: small != 0,
        },
        kinds::RESPONSE_SEND => EventKind::ResponseSend {
            rmw: b.word(0),
            sequence: b.word(1) as i64,
            gid: b.gid(2),
            source_ns: Some(b.word(4) as i64),
        },
        kinds::RESPONSE_SEND_UNSTAMPED => EventKind::ResponseSend {
            rmw: b.word(0),
            sequence: b.word(1) as i64,
            gid: b.gid(2),
            source_ns: None,
        },
        kinds::RESPONSE_TAKE => EventKind::ResponseTake {
            rmw: b.word(0),
            sequence: b.word(1) as i64,
            source_ns: b.word(2) as i64,
            taken: small != 0,
        },
        kinds::HANDLE_FINI => EventKind::HandleFini { handle: b.word(0) },
        kinds::SYNC_INPUT => EventKind::SyncInput { filter: b.word(0) },
        kinds::EXECUTOR_NEXT_READY => EventKind::ExecutorNextReady,
        kinds::EXECUTOR_WAIT_FOR_WORK => EventKind::ExecutorWaitForWork {
            timeout_ns: b.word(0) as i64,
        },
        kinds::EXECUTOR_EXECUTE => EventKind::ExecutorExecute { handle: b.word(0) },
        kinds::EXECUTE_START | kinds::EXECUTE_END => {
            let execute = match small {
                0 => ExecuteKind::Timer,
                1 => ExecuteKind::Subscription,
                2 => ExecuteKind::Service,
                _ => ExecuteKind::Client,
            };
            if kind == kinds::EXECUTE_START {
                EventKind::ExecuteStart { execute }
            } else {
                EventKind::ExecuteEnd { execute }
            }
        }
        kinds::WAIT_SET_INIT => EventKind::WaitSetInit,
        kinds::WAIT => EventKind::Wait,
        kinds::GUARD_TRIGGER => EventKind::GuardTrigger { guard: b.word(0) },
        kinds::SWITCH_IN => EventKind::SwitchIn {
            prev_tid: b.word(0) as u32,
            priority: small as u8,
            policy: (small >> 8) as u8,
        },
        kinds::SWITCH_OUT => EventKind::SwitchOut {
            next_tid: b.word(0) as u32,
            state: small,
        },
        kinds::WAKE => EventKind::Wake {
            waker_tid: b.word(0) as u32,
        },
        kinds::FORK => EventKind::Fork {
            parent_pid: b.word(0) as u32,
            parent_tid: b.word(1) as u32,
            comm: b.name(4, 0),
        },
        kinds::EXEC => EventKind::Exec { comm: b.name(4, 0) },
        kinds::EXIT => EventKind::Exit,
        kinds::WOKEN => EventKind::Woken {
            ready_ns: b.word(0),
        },
        kinds::STOLEN => EventKind::Stolen {
            stolen_ns: b.word(0),
        },
        _ => return None,
    };
    Some(Decoded::Event(Event {
        time_ns,
        cpu,
        pid,
        tid,
        kind: what,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u16, small: u16, words: &[u64], names: &[&str]) -> Vec<u8> {
        let mut r = 5_000u64.to_le_bytes().to_vec();
        r.extend(7u32.to_le_bytes());
        r.extend(8u32.to_le_bytes());
        r.extend(kind.to_le_bytes());
        r.extend(1u16.to_le_bytes());
        r.extend(small.to_le_bytes());
        r.extend(3u16.to_le_bytes());
        words.iter().for_each(|w| r.extend(w.to_le_bytes()));
        for name in names {
            let mut buffer = [0u8; NAME];
            buffer[..name.len()].copy_from_slice(name.as_bytes());
            r.extend(buffer);
        }
        r
    }

    #[test]
    fn the_call_sequence_of_a_humble_talker_decodes_to_its_events() {
        let sequence = [
            record(kinds::NODE_INIT, 0, &[1, 2, 0, 0], &["talker", "/"]),
            record(kinds::PUBLISHER_INIT, 0, &[3, 1, 4, 10], &["/chatter", ""]),
            record(kinds::TIMER_INIT, 0, &[5, 100_000_000], &[]),
            record(kinds::TIMER_NODE, 0, &[5, 1], &[]),
            record(kinds::CALLBACK_START, 0, &[6], &[]),
            record(kinds::PUBLISH_UNSTAMPED, 0, &[4, 9], &[]),
            record(kinds::CALLBACK_END, 0, &[6], &[]),
        ];
        let kinds: Vec<_> = sequence
            .iter()
            .map(|r| match decode(r) {
                Some(Decoded::Event(e)) => {
                    assert_eq!((e.time_ns, e.pid, e.tid, e.cpu), (5_000, 7, 8, 1));
                    e.kind
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            kinds,
            [
                EventKind::NodeInit {
                    node: 1,
                    rmw: 2,
                    name: "talker".into(),
                    namespace: "/".into()
                },
                EventKind::PublisherInit {
                    publisher: 3,
                    node: 1,
                    rmw: 4,
                    topic: "/chatter".into(),
                    depth: 10
                },
                EventKind::TimerInit {
                    timer: 5,
                    period_ns: 100_000_000
                },
                EventKind::TimerNode { timer: 5, node: 1 },
                EventKind::CallbackStart {
                    callback: 6,
                    intra_process: false
                },
                EventKind::Publish {
                    rmw: 4,
                    message: 9,
                    source_ns: None
                },
                EventKind::CallbackEnd { callback: 6 },
            ]
        );
    }

    #[test]
    fn short_and_unknown_records_do_no_harm() {
        let full = record(kinds::NODE_INIT, 0, &[1, 2, 0, 0], &["n", "/"]);
        for length in 0..full.len() {
            let _ = decode(&full[..length]);
        }
        let mut huge = record(kinds::WAIT_SET, 0, &[u64::MAX; 4], &[]);
        assert!(matches!(decode(&huge), Some(Decoded::WaitSet(w)) if w.timers.is_empty()));
        huge[16] = 0xff;
        assert_eq!(decode(&huge), None);
    }
}
