//! Random events for property tests: events of a small system that works, and events of any kinds
//! in any order.

use onbeat_trace::{EndpointKind, Event, EventKind, ExecuteKind, UNSCHEDULED};
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub struct Round {
    /// The duration of each callback, in units of 10 us.
    pub run: [u16; 4],
    /// In this round, the node that joins two inputs gets its second input first.
    pub swapped: bool,
    pub lost: bool,
    pub preempted: bool,
}

pub fn round() -> impl Strategy<Value = Round> {
    (any::<[u8; 4]>(), any::<bool>(), any::<u8>(), any::<bool>()).prop_map(
        |(run, swapped, lost, preempted)| Round {
            run: run.map(|r| u16::from(r) + 1),
            swapped,
            lost: lost % 8 == 0,
            preempted,
        },
    )
}

struct Events {
    all: Vec<Event>,
    time_ns: u64,
    stamp: i64,
}

impl Events {
    fn at(&mut self, pid: u32, kind: EventKind) {
        self.all.push(Event {
            time_ns: self.time_ns,
            cpu: (pid % 4) as u16,
            pid,
            tid: pid,
            kind,
        });
    }

    fn after(&mut self, steps: u16, pid: u32, kind: EventKind) {
        self.time_ns += u64::from(steps) * 10_000;
        self.at(pid, kind);
    }

    fn publish(&mut self, steps: u16, pid: u32, rmw: u64) -> i64 {
        self.stamp += 1;
        let event = EventKind::Publish {
            rmw,
            message: 0,
            source_ns: Some(self.stamp),
        };
        self.after(steps, pid, event);
        self.stamp
    }

    fn start(&mut self, pid: u32, callback: u64) {
        let event = EventKind::CallbackStart {
            callback,
            intra_process: false,
        };
        self.after(1, pid, event);
    }

    fn end(&mut self, steps: u16, pid: u32, callback: u64) {
        self.after(steps, pid, EventKind::CallbackEnd { callback });
    }

    fn take(&mut self, steps: u16, pid: u32, rmw: u64, source_ns: i64) {
        let event = EventKind::Take {
            rmw,
            message: 0,
            source_ns,
            taken: true,
        };
        self.after(steps, pid, event);
    }
}

/// Returns the events of a system of three nodes. Node /a has a timer that publishes /t0 and /t1.
/// Node /b subscribes to both topics and publishes /out: once it has both messages if `kind` is 0,
/// and on each message if `kind` is 1. Node /c takes /out.
pub fn system(rounds: &[Round], kind: u8) -> Vec<Event> {
    let mut events = Events {
        all: Vec::new(),
        time_ns: 1,
        stamp: 0,
    };
    initialise(&mut events);
    for (i, round) in rounds.iter().enumerate() {
        events.time_ns = 10_000_000 * (i as u64 + 1);
        play(&mut events, round, kind);
    }
    events.all
}

fn initialise(events: &mut Events) {
    for (pid, name) in [(1, "a"), (2, "b"), (3, "c")] {
        let node = EventKind::NodeInit {
            node: 1,
            rmw: 1,
            name: name.into(),
            namespace: "/".into(),
        };
        events.at(pid, node);
    }
    events.time_ns = 2;
    for (pid, publisher, topic) in [(1, 0x10, "/t0"), (1, 0x11, "/t1"), (2, 0x10, "/out")] {
        let publisher = EventKind::PublisherInit {
            publisher,
            node: 1,
            rmw: publisher + 0x1000,
            topic: topic.into(),
            depth: 10,
        };
        events.at(pid, publisher);
    }
    let (timer, callback, node) = (0x50, 0x60, 1);
    let period_ns = 10_000_000;
    events.at(1, EventKind::TimerInit { timer, period_ns });
    events.at(1, EventKind::TimerCallback { timer, callback });
    events.at(1, EventKind::TimerNode { timer, node });
    for (pid, subscription, topic) in [(2, 0x20, "/t0"), (2, 0x21, "/t1"), (3, 0x20, "/out")] {
        let object = subscription + 0x100;
        let made = EventKind::SubscriptionInit {
            subscription,
            node: 1,
            rmw: subscription + 0x1000,
            topic: topic.into(),
            depth: 10,
        };
        let known = EventKind::SubscriptionObject {
            subscription,
            object,
        };
        let callback = EventKind::SubscriptionCallback {
            object,
            callback: subscription + 0x40,
        };
        for event in [made, known, callback] {
            events.at(pid, event);
        }
    }
}

fn play(events: &mut Events, r: &Round, kind: u8) {
    events.at(1, EventKind::TimerCall { timer: 0x50 });
    events.start(1, 0x60);
    if r.preempted {
        // The neighbours of the thread differ from run to run.
        let by = 100 + u32::from(r.run[0] % 3);
        let name = EventKind::Bystander {
            comm: format!("thread {}", by % 2).into(),
            process: format!("neighbour {by}").into(),
            kernel: false,
        };
        let out = EventKind::SwitchOut {
            next_tid: by,
            state: 0,
        };
        let back = EventKind::SwitchIn {
            prev_tid: by,
            priority: 120,
            policy: 0,
        };
        events.after(1, by, name);
        events.after(2, 1, out);
        events.after(4, 1, back);
    }
    let s0 = events.publish(r.run[0], 1, 0x1010);
    let s1 = events.publish(1, 1, 0x1011);
    events.end(1, 1, 0x60);
    let mut inputs = [(0x1020, s0, 0x60), (0x1021, s1, 0x61)];
    if r.swapped {
        inputs.reverse();
    }
    for (n, (rmw, source, callback)) in inputs.into_iter().enumerate() {
        events.take(2, 2, rmw, source);
        events.start(2, callback);
        let publishes = kind == 1 || n == 1;
        let out = publishes.then(|| events.publish(r.run[1 + n], 2, 0x1010));
        events.end(1, 2, callback);
        if let Some(source) = out.filter(|_| !r.lost) {
            events.take(1, 3, 0x1020, source);
            events.start(3, 0x60);
            events.end(r.run[3], 3, 0x60);
        }
    }
}

/// The values from which a random event is made. The values have small ranges, so that several
/// events refer to the same object.
struct Draw {
    b: [u8; 6],
    h: u64,
    g: u64,
    n: i64,
    yes: bool,
    name: &'static str,
    gid: [u8; 16],
    execute: ExecuteKind,
    endpoint: EndpointKind,
}

impl Draw {
    fn new(b: [u8; 6]) -> Draw {
        let of_four = usize::from(b[5] % 4);
        Draw {
            b,
            h: u64::from(b[1] % 4),
            g: u64::from(b[2] % 4),
            n: i64::from(b[3] % 5),
            yes: !b[4].is_multiple_of(4),
            name: ["a", "/b", "/rosout", "<c>"][of_four],
            gid: [b[2] % 3; 16],
            execute: [
                ExecuteKind::Timer,
                ExecuteKind::Subscription,
                ExecuteKind::Service,
                ExecuteKind::Client,
            ][of_four],
            endpoint: [
                EndpointKind::Publisher,
                EndpointKind::Subscription,
                EndpointKind::Service,
                EndpointKind::Client,
            ][of_four],
        }
    }
}

pub fn any_event() -> impl Strategy<Value = Event> {
    (0u64..60, 0u8..75, any::<[u8; 6]>()).prop_map(|(time, which, b)| {
        let d = Draw::new(b);
        let kind = match which {
            0..=17 => creation(which, &d),
            18 | 19 | 67..=73 => found(which, &d),
            20..=38 => data(which, &d),
            39..=55 => call(which, &d),
            _ => kernel(which, &d),
        };
        // Steps of up to two seconds let every time limit expire.
        let time_ns = time * 40_000_000;
        let pid = u32::from(b[4] % 3);
        Event {
            time_ns,
            cpu: u16::from(b[5]),
            pid,
            tid: pid + 10 * u32::from(b[3] % 2),
            kind,
        }
    })
}

fn creation(which: u8, d: &Draw) -> EventKind {
    match which {
        0 => EventKind::NodeInit {
            node: d.h,
            rmw: d.g,
            name: d.name.into(),
            namespace: "/".into(),
        },
        1 => EventKind::PublisherInit {
            publisher: d.h,
            node: d.g,
            rmw: d.h,
            topic: d.name.into(),
            depth: d.g,
        },
        2 => EventKind::SubscriptionInit {
            subscription: d.h,
            node: d.g,
            rmw: d.h,
            topic: d.name.into(),
            depth: d.g,
        },
        3 => EventKind::ServiceInit {
            service: d.h,
            node: d.g,
            rmw: d.h,
            name: d.name.into(),
        },
        4 => EventKind::ClientInit {
            client: d.h,
            node: d.g,
            rmw: d.h,
            name: d.name.into(),
        },
        5 => EventKind::ClientGid {
            rmw: d.h,
            gid: d.gid,
        },
        6 => EventKind::ClockInit { clock: d.h },
        7 => EventKind::TimerInit {
            timer: d.h,
            period_ns: d.n - 1,
        },
        8 => EventKind::TimerClock {
            timer: d.h,
            clock: d.g,
        },
        9 => EventKind::TimerNode {
            timer: d.h,
            node: d.g,
        },
        10 => EventKind::TimerCallback {
            timer: d.h,
            callback: d.g,
        },
        11 => EventKind::SubscriptionObject {
            subscription: d.h,
            object: d.g,
        },
        12 => EventKind::SubscriptionCallback {
            object: d.h,
            callback: d.g,
        },
        13 => EventKind::ServiceCallback {
            service: d.h,
            callback: d.g,
        },
        14 => EventKind::CallbackSymbol {
            callback: d.h,
            symbol: d.name.into(),
        },
        15 => EventKind::IntraBufferSubscription {
            ipb: d.h,
            object: d.g,
        },
        16 => EventKind::RingBufferIntraBuffer {
            buffer: d.h,
            ipb: d.g,
        },
        _ => EventKind::EndpointFound {
            endpoint: d.endpoint,
            rcl: d.h,
            rmw: d.g,
            name: d.name.into(),
        },
    }
}

fn found(which: u8, d: &Draw) -> EventKind {
    match which {
        18 => EventKind::NodeFound {
            node: d.h,
            name: d.name.into(),
        },
        19 if d.yes => EventKind::LinkInit {
            end: d.h,
            link: d.g,
            depth: d.n as u64 % 8,
            sends: d.b[2] < 128,
            name: d.name.into(),
        },
        19 => EventKind::HandleFini { handle: d.h },
        68 if d.yes => EventKind::EndpointQos {
            endpoint: d.endpoint,
            rcl: d.h,
            history: d.b[2] % 4,
            reliability: d.b[3] % 6,
            durability: d.b[4] % 6,
            liveliness: d.b[5] % 7,
            depth: d.n as u64 % 8,
            deadline_ns: d.g,
            lifespan_ns: 0,
            lease_ns: i64::MAX as u64,
        },
        68 => EventKind::EndpointNode {
            endpoint: d.endpoint,
            rcl: d.h,
            node: d.g,
        },
        69 => EventKind::TimerReset { timer: d.h },
        70 => EventKind::TimerPeriod {
            timer: d.h,
            period_ns: d.n - 1,
        },
        71 => EventKind::ClockKind {
            clock: d.h,
            time: d.b[2] % 4,
        },
        72 => EventKind::ClockOverride {
            clock: d.h,
            active: d.yes,
        },
        73 => EventKind::TimerCancel { timer: d.h },
        _ => EventKind::TimerFound { timer: d.h },
    }
}

fn data(which: u8, d: &Draw) -> EventKind {
    match which {
        20..=22 => EventKind::CallbackStart {
            callback: d.h,
            intra_process: d.yes,
        },
        23..=25 => EventKind::CallbackEnd { callback: d.h },
        26 | 27 => EventKind::TimerCall { timer: d.h },
        28..=30 => EventKind::Take {
            rmw: d.h,
            message: 0,
            source_ns: d.n,
            taken: d.yes,
        },
        31 => EventKind::IntraPublish {
            publisher: d.h,
            message: 0,
        },
        32 => EventKind::RingBufferEnqueue {
            buffer: d.h,
            index: d.g,
            overwritten: d.yes,
        },
        33 => EventKind::RingBufferDequeue {
            buffer: d.h,
            index: d.g,
        },
        34 => EventKind::RingBufferClear { buffer: d.h },
        35 => EventKind::RclPublish {
            publisher: d.h,
            message: 0,
        },
        _ => EventKind::Publish {
            rmw: d.h,
            message: 0,
            source_ns: d.yes.then_some(d.n),
        },
    }
}

fn call(which: u8, d: &Draw) -> EventKind {
    match which {
        39 | 40 => EventKind::RequestSend {
            rmw: d.h,
            sequence: d.n,
        },
        41 | 42 => EventKind::RequestTake {
            rmw: d.h,
            gid: d.gid,
            sequence: d.n,
            taken: d.yes,
        },
        43 | 44 => EventKind::ResponseSend {
            rmw: d.h,
            gid: d.gid,
            sequence: d.n,
            source_ns: d.yes.then_some(d.n),
        },
        45 | 46 => EventKind::ResponseTake {
            rmw: d.h,
            sequence: d.n,
            source_ns: d.n,
            taken: d.yes,
        },
        47 if d.yes => EventKind::SyncApproximate { filter: d.h },
        47 => EventKind::SyncInput { filter: d.h },
        48 => EventKind::ExecutorNextReady,
        49 => EventKind::ExecutorExecute { handle: d.h },
        50 => EventKind::ExecuteStart { execute: d.execute },
        51 => EventKind::ExecuteEnd { execute: d.execute },
        52 if d.yes => EventKind::LinkSend {
            end: d.h,
            number: d.n as u64 % 16,
        },
        52 => EventKind::WaitSetInit,
        53 if d.yes => EventKind::LinkReceive {
            end: d.h,
            number: d.n as u64 % 16,
        },
        53 => EventKind::Wait,
        _ => EventKind::GuardTrigger { guard: d.g + 1 },
    }
}

fn kernel(which: u8, d: &Draw) -> EventKind {
    match which {
        56 => EventKind::SwitchIn {
            prev_tid: 0,
            priority: d.b[1],
            policy: d.b[2],
        },
        57 if d.b[2] > 200 => EventKind::Occupied {
            prev_tid: if d.yes { u32::MAX } else { d.b[3].into() },
            last: d.b[4] > 128,
        },
        57 if d.b[2] > 190 => EventKind::Moved,
        57 if d.b[2] > 175 => EventKind::LockWait {
            lock: d.h,
            owner_tid: d.b[3].into(),
        },
        57 if d.b[2] > 150 => EventKind::Bystander {
            comm: d.name.into(),
            process: d.name.into(),
            kernel: d.yes,
        },
        57 => EventKind::SwitchOut {
            next_tid: 0,
            state: u16::from(d.b[1] % 2),
        },
        58 => EventKind::Wake { waker_tid: 0 },
        60 => EventKind::Woken { ready_ns: d.h },
        59 if d.yes => EventKind::CpuTime {
            used_ns: d.h,
            since_switch: d.b[1].is_multiple_of(2),
        },
        59 => EventKind::Stolen { stolen_ns: d.h },
        61 => EventKind::Fork {
            parent_pid: 1,
            parent_tid: 1,
            comm: d.name.into(),
        },
        62 => EventKind::Exec {
            comm: d.name.into(),
        },
        63 => EventKind::Exit,
        64 => EventKind::Process {
            command: d.name.into(),
            distribution: "x".into(),
            rmw: "y".into(),
            late: d.yes,
        },
        65 => EventKind::ClockOffset {
            realtime_minus_monotonic_ns: d.n,
        },
        74 => EventKind::Thread {
            comm: d.name.into(),
            policy: 0,
            // An imported trace may have no scheduler events of a thread.
            priority: if d.yes { UNSCHEDULED } else { 120 },
            cpus: 3,
        },
        _ => EventKind::Lost {
            probe: d.name.into(),
            count: 1,
        },
    }
}
