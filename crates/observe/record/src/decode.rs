//! Decodes a record of the ring buffer into an event of the trace or a message to the recorder.

use crate::calls;
use crate::records::{
    self, kind, CpuClock, DdsListener, Fields, Head, LibraryLoaded, LoaderSeen, ProcessSeen,
    SleepIn, UdpDrop, WokenIn,
};
use onbeat_trace::{Event, EventKind};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    Event(Event),
    Process {
        pid: u32,
        time_ns: u64,
        /// The process ran before its probes were in place, so earlier events are missing.
        late: bool,
    },
    Thread {
        pid: u32,
        tid: u32,
        time_ns: u64,
    },
    /// A process has loaded a library that may need probes. If `loader` is set, the record means
    /// something else: the process is the first one that onbeat has seen in its mount namespace.
    Library {
        pid: u32,
        loader: bool,
        /// The process is suspended by SIGSTOP and waits for SIGCONT.
        stopped: bool,
    },
    /// A process that uses DDS without ROS 2 has a listener. The listener's function for new data
    /// needs a probe.
    Listener {
        pid: u32,
        /// The address at which the listener's function for new data begins, in the process's
        /// memory.
        function: u64,
        fast: bool,
        stopped: bool,
    },
    /// A process has suspended itself because its child was suspended.
    Followed {
        pid: u32,
    },
    CpuClock {
        tid: u32,
        time_ns: u64,
        cpu: u16,
        pid: u32,
        cpu_ns: u64,
    },
    /// The kernel dropped datagrams, because a UDP socket had no room for them. `socket` is the
    /// socket's address and `inode` its number in /proc.
    UdpDrop {
        time_ns: u64,
        cpu: u16,
        socket: u64,
        inode: u64,
        port: u16,
        count: u32,
    },
    /// The handles in the wait set of a thread whose process ran before the recording began.
    WaitSet(WaitSet),
}

impl Decoded {
    /// Returns the time at which the record was made (CLOCK_MONOTONIC), or `None` if the record has
    /// no time.
    pub fn time_ns(&self) -> Option<u64> {
        match self {
            Decoded::Event(event) => Some(event.time_ns),
            Decoded::Process { time_ns, .. }
            | Decoded::Thread { time_ns, .. }
            | Decoded::CpuClock { time_ns, .. }
            | Decoded::UdpDrop { time_ns, .. } => Some(*time_ns),
            Decoded::WaitSet(set) => Some(set.time_ns),
            Decoded::Library { .. } | Decoded::Listener { .. } | Decoded::Followed { .. } => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitSet {
    pub pid: u32,
    pub tid: u32,
    pub time_ns: u64,
    pub subscriptions: Vec<u64>,
    pub timers: Vec<u64>,
    pub clients: Vec<u64>,
    pub services: Vec<u64>,
}

/// Returns the wake-up of a thread that a `WOKEN_IN` record reports together with the thread's
/// switch-in. Returns `None` for records of other kinds.
pub fn before(record: &[u8]) -> Option<Decoded> {
    let head = Head::read(record).filter(|head| head.kind == kind::WOKEN_IN)?;
    let ready_ns = WokenIn::read(Fields(record)).ready_ns;
    Some(event(&head, EventKind::Woken { ready_ns }))
}

fn event(head: &Head, kind: EventKind) -> Decoded {
    Decoded::Event(Event {
        time_ns: head.time_ns,
        cpu: head.cpu,
        pid: head.pid,
        tid: head.tid,
        kind,
    })
}

/// Decodes one record, except for the wake-up that [`before`] returns. Returns `None` if the record
/// contains only that wake-up, or if this version does not know the record's kind.
pub fn decode(record: &[u8]) -> Option<Decoded> {
    let head = Head::read(record)?;
    let fields = Fields(record);
    if let Some(kind) = records::event(head.kind, fields) {
        return Some(event(&head, kind));
    }
    let Head {
        time_ns,
        pid,
        tid,
        kind,
        cpu,
        ..
    } = head;
    match kind {
        kind::WOKEN_IN => {
            let woken = WokenIn::read(fields);
            let switch_in = EventKind::SwitchIn {
                prev_tid: woken.prev_tid,
                priority: woken.priority,
                policy: woken.policy,
            };
            Some(event(&head, switch_in))
        }
        kind::SLEEP_IN => {
            let call = calls::kind_of(SleepIn::read(fields).number);
            Some(event(&head, EventKind::Sleep { call }))
        }
        kind::PROCESS_SEEN => Some(Decoded::Process {
            pid,
            time_ns,
            late: ProcessSeen::read(fields).late,
        }),
        kind::THREAD_SEEN => Some(Decoded::Thread { pid, tid, time_ns }),
        kind::LIBRARY_LOADED => Some(Decoded::Library {
            pid,
            loader: false,
            stopped: LibraryLoaded::read(fields).stopped,
        }),
        kind::LOADER_SEEN => Some(Decoded::Library {
            pid,
            loader: true,
            stopped: LoaderSeen::read(fields).stopped,
        }),
        kind::DDS_LISTENER => {
            let listener = DdsListener::read(fields);
            Some(Decoded::Listener {
                pid,
                function: listener.function,
                fast: listener.fast,
                stopped: listener.stopped,
            })
        }
        kind::FOLLOWED => Some(Decoded::Followed { pid }),
        kind::CPU_CLOCK => Some(Decoded::CpuClock {
            tid,
            time_ns,
            cpu,
            pid,
            cpu_ns: CpuClock::read(fields).cpu_ns,
        }),
        kind::UDP_DROP => {
            let drop = UdpDrop::read(fields);
            Some(Decoded::UdpDrop {
                time_ns,
                cpu,
                socket: drop.socket,
                inode: drop.inode,
                port: drop.port,
                count: drop.count,
            })
        }
        kind::WAIT_SET => {
            let set = records::WaitSet::read(fields);
            Some(Decoded::WaitSet(WaitSet {
                pid,
                tid,
                time_ns,
                subscriptions: set.subscriptions,
                timers: set.timers,
                clients: set.clients,
                services: set.services,
            }))
        }
        // An rcl_init record shows that the process is not a late one. Its PROCESS_SEEN record says
        // so too.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::testing::record;
    use onbeat_trace::{CallKind, EventKind};

    fn humble_talker() -> Vec<Vec<u8>> {
        let number = |n: u64| n.to_le_bytes();
        vec![
            record(
                "node_init",
                &[
                    ("node", &number(1)),
                    ("rmw", &number(2)),
                    ("name", b"talker"),
                    ("namespace", b"/"),
                ],
            ),
            record(
                "publisher_init",
                &[
                    ("publisher", &number(3)),
                    ("node", &number(1)),
                    ("rmw", &number(4)),
                    ("depth", &number(10)),
                    ("topic", b"/chatter"),
                ],
            ),
            record(
                "timer_init",
                &[("timer", &number(5)), ("period_ns", &number(100_000_000))],
            ),
            record("timer_node", &[("timer", &number(5)), ("node", &number(1))]),
            record("callback_start", &[("callback", &number(6))]),
            record(
                "publish_unstamped",
                &[("rmw", &number(4)), ("message", &number(9))],
            ),
            record("callback_end", &[("callback", &number(6))]),
        ]
    }

    #[test]
    fn the_call_sequence_of_a_humble_talker_decodes_to_its_events() {
        let kinds: Vec<_> = humble_talker()
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
    fn short_and_unknown_records_are_decoded_without_a_panic() {
        let full = record("node_init", &[("name", b"n"), ("namespace", b"/")]);
        for length in 0..full.len() {
            let _ = decode(&full[..length]);
        }
        let endless = u64::MAX.to_le_bytes();
        let mut huge = record("wait_set", &[("timers", &endless)]);
        assert!(matches!(decode(&huge), Some(Decoded::WaitSet(w)) if w.timers.is_empty()));
        huge.truncate(600);
        assert!(matches!(decode(&huge), Some(Decoded::WaitSet(w)) if w.services.is_empty()));
        huge[16] = 0xff;
        assert_eq!(decode(&huge), None);
    }

    #[test]
    fn a_record_of_the_kind_woken_in_gives_two_events_a_wakeup_and_a_switch_in() {
        let fields: [(&str, &[u8]); 4] = [
            ("ready_ns", &300u64.to_le_bytes()),
            ("prev_tid", &9u32.to_le_bytes()),
            ("priority", &[120]),
            ("policy", &[1]),
        ];
        let record = record("woken_in", &fields);
        let kinds = [before(&record), decode(&record)].map(|d| match d {
            Some(Decoded::Event(e)) => e.kind,
            other => panic!("{other:?}"),
        });
        let switch_in = EventKind::SwitchIn {
            prev_tid: 9,
            priority: 120,
            policy: 1,
        };
        assert_eq!(kinds, [EventKind::Woken { ready_ns: 300 }, switch_in]);
        assert_eq!(before(&humble_talker()[0]), None);
    }

    #[test]
    fn a_record_of_the_kind_sleep_in_gives_the_kind_of_the_call() {
        for (number, call) in [(-1, CallKind::PageFault), (libc::SYS_fsync, CallKind::Sync)] {
            let decoded = decode(&record("sleep_in", &[("number", &number.to_le_bytes())]));
            let is_right =
                matches!(&decoded, Some(Decoded::Event(e)) if e.kind == EventKind::Sleep { call });
            assert!(is_right, "{decoded:?}");
        }
    }

    #[test]
    fn messages_to_the_recorder_decode_with_their_process_and_fields() {
        let process = record("process_seen", &[("late", &[1, 0])]);
        let expected = Decoded::Process {
            pid: 7,
            time_ns: 5_000,
            late: true,
        };
        assert_eq!(decode(&process), Some(expected));
        for (name, is_loader) in [("library_loaded", false), ("loader_seen", true)] {
            let message = record(name, &[("stopped", &[1, 0])]);
            let expected = Decoded::Library {
                pid: 7,
                loader: is_loader,
                stopped: true,
            };
            assert_eq!(decode(&message), Some(expected));
        }
        let followed = decode(&record("followed", &[]));
        assert_eq!(followed, Some(Decoded::Followed { pid: 7 }));
        let handles = [2u64, 11, 12].map(u64::to_le_bytes).concat();
        let set = record("wait_set", &[("clients", &handles)]);
        assert!(matches!(decode(&set), Some(Decoded::WaitSet(w)) if w.clients == [11, 12]));
    }
}
