//! Generates traces of a made-up but plausible ROS 2 system, of any length, in constant memory.
//!
//! Eight processes on four CPUs: half of them bracket their callbacks exactly (rclcpp), half show
//! only what rclpy shows. A simulation runs their timers, subscriptions, a service and its two
//! clients; threads wait for each other's CPU and are preempted now and then.
use crate::event::{Event, EventKind, ExecuteKind, Name};
use crate::manifest::{Manifest, ProcessInfo};
use crate::writer::{TraceWriteError, Writer};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const MS: u64 = 1_000_000;
/// When the made-up recording begins, CLOCK_MONOTONIC.
const START_NS: u64 = 1_000_000 * MS;
/// CLOCK_REALTIME minus CLOCK_MONOTONIC at that time.
const OFFSET_NS: i64 = 1_750_000_000_000_000_000;
const CPUS: usize = 4;

/// What starts a callback.
enum Input {
    /// Every so many ms, with this phase.
    Timer(u64, u64),
    Topic(&'static str),
    /// The service; there is only one.
    Service,
    /// A response of the service.
    Response,
}

/// What a callback does at its end.
#[derive(Clone, Copy)]
enum Output {
    Publish(&'static str),
    Request,
}

struct Spec {
    input: Input,
    /// Typical execution time.
    exec_us: u64,
    outputs: &'static [Output],
}

const fn spec(input: Input, exec_us: u64, outputs: &'static [Output]) -> Spec {
    Spec {
        input,
        exec_us,
        outputs,
    }
}

use Output::{Publish, Request};

/// Node name, whether it is rclcpp's, its callbacks.
const NODES: &[(&str, bool, &[Spec])] = &[
    (
        "lidar",
        true,
        &[spec(Input::Timer(10, 0), 300, &[Publish("/points")])],
    ),
    (
        "filter",
        false,
        &[spec(Input::Topic("/points"), 900, &[Publish("/filtered")])],
    ),
    (
        "locate",
        true,
        &[
            spec(Input::Topic("/filtered"), 1500, &[Publish("/pose")]),
            spec(Input::Topic("/map"), 200, &[]),
        ],
    ),
    (
        "control",
        false,
        &[
            spec(Input::Topic("/pose"), 250, &[Publish("/command")]),
            spec(Input::Timer(100, 3), 80, &[Request]),
            spec(Input::Response, 60, &[]),
        ],
    ),
    (
        "planner",
        true,
        &[
            spec(Input::Service, 700, &[]),
            spec(
                Input::Timer(50, 7),
                400,
                &[Publish("/map"), Publish("/goal")],
            ),
        ],
    ),
    (
        "camera",
        false,
        &[
            spec(Input::Timer(33, 1), 600, &[Publish("/image")]),
            spec(Input::Topic("/goal"), 90, &[]),
        ],
    ),
    (
        "detect",
        true,
        &[
            spec(Input::Topic("/image"), 4000, &[Publish("/objects")]),
            spec(Input::Topic("/points"), 700, &[]),
            spec(Input::Timer(200, 11), 100, &[Request]),
            spec(Input::Response, 50, &[]),
        ],
    ),
    (
        "drive",
        false,
        &[
            spec(Input::Topic("/command"), 120, &[]),
            spec(Input::Topic("/objects"), 350, &[]),
            spec(Input::Timer(20, 5), 100, &[Publish("/state")]),
            spec(Input::Timer(20, 9), 150, &[]),
        ],
    ),
];

/// What waits for a node's executor.
#[derive(Clone, Copy)]
struct Work {
    callback: usize,
    /// Source time stamp of the item; of a timer its due time.
    source_ns: i64,
    /// Request: which client (node), and which request of it.
    client: usize,
    sequence: i64,
}

/// What happens next in the simulation.
enum Step {
    /// A timer is due.
    Due { node: usize, callback: usize },
    /// An item arrives at a node.
    Arrive { node: usize, work: Work, waker: u32 },
    /// A node's executor has ended a callback.
    Done { node: usize },
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Sleeping,
    /// Has work, but not its CPU.
    Ready,
    Running,
}

struct Node {
    state: State,
    inbox: VecDeque<Work>,
    requests: i64,
    messages: u64,
}

struct Random(u64);

impl Random {
    /// splitmix64
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }
}

/// An entry of a queue ordered by time, then by order of creation.
struct At<T>(u64, u64, T);

impl<T> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl<T> Eq for At<T> {}
impl<T> PartialOrd for At<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for At<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

struct Simulation {
    random: Random,
    steps: BinaryHeap<Reverse<At<Step>>>,
    /// Events that may still be overtaken.
    out: BinaryHeap<Reverse<At<Event>>>,
    count: u64,
    nodes: Vec<Node>,
    /// Per CPU: who has it, who wants it, who had it last.
    running: [Option<usize>; CPUS],
    ready: [VecDeque<usize>; CPUS],
    last: [u32; CPUS],
}

/// Pushes `events` events into `writer` (which the caller then finishes with the manifest that is
/// returned). Equal seeds give equal traces.
pub fn generate(writer: &mut Writer, events: u64, seed: u64) -> Result<Manifest, TraceWriteError> {
    let mut simulation = Simulation {
        random: Random(seed),
        steps: BinaryHeap::new(),
        out: BinaryHeap::new(),
        count: 0,
        nodes: NODES
            .iter()
            .map(|_| Node {
                state: State::Sleeping,
                inbox: VecDeque::new(),
                requests: 0,
                messages: 0,
            })
            .collect(),
        running: [None; CPUS],
        ready: Default::default(),
        last: [0; CPUS],
    };
    simulation.begin();
    let mut left = events;
    let mut end_ns = START_NS;
    let mut next_offset_ns = START_NS;
    while left > 0 {
        let Some(Reverse(At(time_ns, _, step))) = simulation.steps.pop() else {
            break;
        };
        if time_ns >= next_offset_ns {
            simulation.offset(next_offset_ns);
            next_offset_ns += 1000 * MS;
        }
        // Nothing that is still to come can be earlier than this step.
        while left > 0 {
            match simulation.out.peek() {
                Some(Reverse(At(at, _, _))) if *at <= time_ns => {}
                _ => break,
            }
            if let Some(Reverse(At(_, _, event))) = simulation.out.pop() {
                end_ns = event.time_ns;
                writer.push(&event)?;
                left -= 1;
            }
        }
        simulation.step(time_ns, step);
    }
    Ok(Manifest {
        mode: "generated".to_string(),
        start_realtime_ns: START_NS.wrapping_add_signed(OFFSET_NS),
        start_monotonic_ns: START_NS,
        duration_ns: end_ns - START_NS,
        hostname: "generated".to_string(),
        recorder_version: env!("CARGO_PKG_VERSION").to_string(),
        distributions: vec!["kilted".to_string()],
        processes: NODES
            .iter()
            .enumerate()
            .map(|(number, (name, _, _))| ProcessInfo {
                pid: pid(number),
                command: format!("/opt/system/{name}"),
                distribution: "kilted".to_string(),
                rmw: "rmw_fastrtps_cpp".to_string(),
                late: false,
                nodes: vec![format!("/{name}")],
            })
            .collect(),
        ..Manifest::default()
    })
}

fn pid(node: usize) -> u32 {
    2000 + node as u32 * 7
}

/// The handle of something in a node: addresses as a heap would give them.
fn handle(node: usize, what: u64, number: usize) -> u64 {
    0x5500_0000_0000 + ((node as u64) << 32) + what * 0x4_0000 + number as u64 * 0x1c0
}

const NODE: u64 = 1;
const CLOCK: u64 = 2;
/// The rcl handle of a callback's input; `RMW_IN` is the middleware's, `CALLBACK` the function.
const IN: u64 = 3;
const RMW_IN: u64 = 4;
const CALLBACK: u64 = 5;
const OBJECT: u64 = 6;
const OUT: u64 = 7;
const RMW_OUT: u64 = 8;
const CLIENT: u64 = 9;
const RMW_CLIENT: u64 = 10;
const GUARD: u64 = 11;

fn gid(node: usize, what: u64, number: usize) -> [u8; 16] {
    let mut gid = *b"\x01\x0f\x3c\x9a\0\0\0\0\x01\0\0\0\0\0\x03\0";
    gid[4..8].copy_from_slice(&pid(node).to_le_bytes());
    gid[12] = what as u8;
    gid[13] = number as u8;
    gid
}

fn text(name: &str) -> Name {
    name.into()
}

impl Simulation {
    fn emit(&mut self, time_ns: u64, cpu: usize, node: usize, kind: EventKind) {
        self.raw(time_ns, cpu, pid(node), kind);
    }

    fn raw(&mut self, time_ns: u64, cpu: usize, pid: u32, kind: EventKind) {
        self.count += 1;
        let event = Event {
            time_ns,
            cpu: cpu as u16,
            pid,
            tid: pid,
            kind,
        };
        self.out.push(Reverse(At(time_ns, self.count, event)));
    }

    fn plan(&mut self, time_ns: u64, step: Step) {
        self.count += 1;
        self.steps.push(Reverse(At(time_ns, self.count, step)));
    }

    fn offset(&mut self, time_ns: u64) {
        let drift = (time_ns - START_NS) as i64 / 1_000_000 + self.random.below(200) as i64;
        let kind = EventKind::ClockOffset {
            realtime_minus_monotonic_ns: OFFSET_NS + drift,
        };
        self.raw(time_ns, 0, 0, kind);
    }

    /// Processes start and make their nodes.
    fn begin(&mut self) {
        for (number, (name, rclcpp, callbacks)) in NODES.iter().enumerate() {
            let cpu = number % CPUS;
            let mut time_ns = START_NS + 3 * MS * number as u64;
            let mut kinds = vec![
                EventKind::Process {
                    command: text(&format!("/opt/system/{name}")),
                    distribution: text("kilted"),
                    rmw: text("rmw_fastrtps_cpp"),
                    late: false,
                },
                EventKind::Thread {
                    comm: text(name),
                    policy: 0,
                    priority: 120,
                    cpus: 1 << cpu,
                },
                EventKind::NodeInit {
                    node: handle(number, NODE, 0),
                    rmw: handle(number, NODE, 1),
                    name: text(name),
                    namespace: text("/"),
                },
                EventKind::ClockInit {
                    clock: handle(number, CLOCK, 0),
                },
            ];
            for (index, callback) in callbacks.iter().enumerate() {
                callback_init(&mut kinds, number, index, &callback.input, *rclcpp);
                for (place, output) in callback.outputs.iter().enumerate() {
                    output_init(&mut kinds, number, index * 8 + place, *output);
                }
                if let Input::Timer(_, phase) = callback.input {
                    let first_ns = START_NS + (100 + phase) * MS;
                    self.plan(
                        first_ns,
                        Step::Due {
                            node: number,
                            callback: index,
                        },
                    );
                }
            }
            for kind in kinds {
                time_ns += self.random.between(2_000, 40_000);
                self.emit(time_ns, cpu, number, kind);
            }
        }
    }

    fn step(&mut self, time_ns: u64, step: Step) {
        match step {
            Step::Due { node, callback } => {
                if let Input::Timer(period, _) = NODES[node].2[callback].input {
                    self.plan(time_ns + period * MS, Step::Due { node, callback });
                }
                let work = Work {
                    callback,
                    source_ns: time_ns as i64,
                    client: 0,
                    sequence: 0,
                };
                // The kernel's timer wakes it a little late.
                let late = self.random.between(3_000, 60_000);
                let step = Step::Arrive {
                    node,
                    work,
                    waker: 0,
                };
                self.plan(time_ns + late, step);
            }
            Step::Arrive { node, work, waker } => {
                self.nodes[node].inbox.push_back(work);
                if self.nodes[node].state == State::Sleeping {
                    let cpu = node % CPUS;
                    self.emit(time_ns, cpu, node, EventKind::Wake { waker_tid: waker });
                    self.nodes[node].state = State::Ready;
                    self.ready[cpu].push_back(node);
                    self.dispatch(time_ns, cpu);
                }
            }
            Step::Done { node } => {
                if self.nodes[node].inbox.is_empty() {
                    let cpu = node % CPUS;
                    self.nodes[node].state = State::Sleeping;
                    self.running[cpu] = None;
                    let next_tid = self.ready[cpu].front().map_or(0, |n| pid(*n));
                    let kind = EventKind::SwitchOut { next_tid, state: 1 };
                    self.emit(time_ns, cpu, node, kind);
                    self.last[cpu] = pid(node);
                    self.dispatch(time_ns, cpu);
                } else {
                    self.serve(time_ns, node);
                }
            }
        }
    }

    /// Gives a free CPU to the next that wants it.
    fn dispatch(&mut self, time_ns: u64, cpu: usize) {
        if self.running[cpu].is_some() {
            return;
        }
        let Some(node) = self.ready[cpu].pop_front() else {
            return;
        };
        self.running[cpu] = Some(node);
        self.nodes[node].state = State::Running;
        // A CPU that was busy switches at the instant of the other's switch out.
        let idle = self.last[cpu] == 0 || self.random.below(4) > 0;
        let (prev_tid, delay) = if idle {
            (0, self.random.between(1_500, 9_000))
        } else {
            (self.last[cpu], 0)
        };
        let time_ns = time_ns + delay;
        let kind = EventKind::SwitchIn {
            prev_tid,
            priority: 120,
            policy: 0,
        };
        self.emit(time_ns, cpu, node, kind);
        self.serve(time_ns, node);
    }

    /// Runs the callback of a node's oldest item, and says when it will be done.
    fn serve(&mut self, start_ns: u64, node: usize) {
        let Some(work) = self.nodes[node].inbox.pop_front() else {
            return;
        };
        let (_, rclcpp, callbacks) = &NODES[node];
        let spec = &callbacks[work.callback];
        let cpu = node % CPUS;
        let mut t = start_ns;
        let short = |random: &mut Random| random.between(900, 6_000);

        if *rclcpp {
            t += self.random.between(4_000, 15_000);
            self.emit(t, cpu, node, EventKind::ExecutorNextReady);
            if matches!(spec.input, Input::Timer(..) | Input::Topic(_)) {
                t += short(&mut self.random);
                let handle = handle(node, IN, work.callback);
                self.emit(t, cpu, node, EventKind::ExecutorExecute { handle });
            }
            t += short(&mut self.random);
            let execute = execute_kind(&spec.input);
            self.emit(t, cpu, node, EventKind::ExecuteStart { execute });
        }
        t += self.random.between(2_000, 20_000);
        let take = self.take(node, &work, spec);
        self.emit(t, cpu, node, take);
        t += short(&mut self.random);
        let callback = handle(node, CALLBACK, work.callback);
        // Client callbacks have no trace calls in rclcpp.
        let exact = *rclcpp && !matches!(spec.input, Input::Response);
        if exact {
            let intra_process = false;
            let kind = EventKind::CallbackStart {
                callback,
                intra_process,
            };
            self.emit(t, cpu, node, kind);
        } else if !*rclcpp {
            let guard = handle(node, GUARD, 0);
            self.emit(t, cpu, node, EventKind::GuardTrigger { guard });
        }

        t = self.compute(t, cpu, node, spec.exec_us);
        if matches!(spec.input, Input::Service) {
            t = self.respond(t, cpu, node, &work);
        }
        for (place, output) in spec.outputs.iter().enumerate() {
            t = match output {
                Publish(topic) => self.publish(t, cpu, node, work.callback * 8 + place, topic),
                Request => self.request(t, cpu, node),
            };
        }

        t += short(&mut self.random);
        if exact {
            self.emit(t, cpu, node, EventKind::CallbackEnd { callback });
        } else if !*rclcpp {
            let guard = handle(node, GUARD, 0);
            self.emit(t, cpu, node, EventKind::GuardTrigger { guard });
        }
        if *rclcpp {
            t += short(&mut self.random);
            let execute = execute_kind(&spec.input);
            self.emit(t, cpu, node, EventKind::ExecuteEnd { execute });
            t += short(&mut self.random);
            self.emit(t, cpu, node, EventKind::ExecutorNextReady);
            t += short(&mut self.random);
            let timeout_ns = -1;
            self.emit(t, cpu, node, EventKind::ExecutorWaitForWork { timeout_ns });
        }
        t += self.random.between(10_000, 30_000);
        self.emit(t, cpu, node, EventKind::WaitSetInit);
        t += self.random.between(3_000, 15_000);
        self.emit(t, cpu, node, EventKind::Wait);
        t += short(&mut self.random);
        self.plan(t, Step::Done { node });
    }

    /// The event that shows what a callback was given.
    fn take(&mut self, node: usize, work: &Work, spec: &Spec) -> EventKind {
        let rmw = handle(node, RMW_IN, work.callback);
        let message = self.message(node);
        match spec.input {
            Input::Timer(..) => EventKind::TimerCall {
                timer: handle(node, IN, work.callback),
            },
            Input::Topic(_) => EventKind::Take {
                rmw,
                message,
                source_ns: work.source_ns,
                taken: true,
            },
            Input::Service => EventKind::RequestTake {
                rmw,
                gid: gid(work.client, CLIENT, 0),
                sequence: work.sequence,
                taken: true,
            },
            Input::Response => EventKind::ResponseTake {
                rmw: handle(node, RMW_CLIENT, 0),
                sequence: work.sequence,
                source_ns: work.source_ns,
                taken: true,
            },
        }
    }

    /// Computes; now and then another thread takes the CPU meanwhile.
    fn compute(&mut self, start_ns: u64, cpu: usize, node: usize, exec_us: u64) -> u64 {
        let exec_ns = exec_us * self.random.between(800, 1200);
        let exec_ns = if self.random.below(50) == 0 {
            exec_ns * 2
        } else {
            exec_ns
        };
        if self.random.below(20) > 0 {
            return start_ns + exec_ns;
        }
        let before = self.random.below(exec_ns);
        let mut t = start_ns + before;
        let next_tid = 901;
        let out = EventKind::SwitchOut { next_tid, state: 0 };
        self.emit(t, cpu, node, out);
        t += self.random.between(20_000, 400_000);
        let kind = EventKind::SwitchIn {
            prev_tid: next_tid,
            priority: 120,
            policy: 0,
        };
        self.emit(t, cpu, node, kind);
        t + exec_ns - before
    }

    fn publish(&mut self, t: u64, cpu: usize, node: usize, number: usize, topic: &str) -> u64 {
        let message = self.message(node);
        let t = t + self.random.between(2_000, 6_000);
        let publisher = handle(node, OUT, number);
        let kind = EventKind::RclPublish { publisher, message };
        self.emit(t, cpu, node, kind);
        let stamp = t + self.random.between(2_000, 6_000);
        let t = stamp + self.random.between(300, 900);
        let source_ns = real(stamp);
        let kind = EventKind::Publish {
            rmw: handle(node, RMW_OUT, number),
            message,
            source_ns: Some(source_ns),
        };
        self.emit(t, cpu, node, kind);
        for (target, (_, _, callbacks)) in NODES.iter().enumerate() {
            for (callback, spec) in callbacks.iter().enumerate() {
                if matches!(spec.input, Input::Topic(name) if name == topic) {
                    let work = Work {
                        callback,
                        source_ns,
                        client: 0,
                        sequence: 0,
                    };
                    self.send(t, node, target, work);
                }
            }
        }
        t + self.random.between(10_000, 40_000)
    }

    fn request(&mut self, t: u64, cpu: usize, node: usize) -> u64 {
        let t = t + self.random.between(5_000, 20_000);
        self.nodes[node].requests += 1;
        let sequence = self.nodes[node].requests;
        let rmw = handle(node, RMW_CLIENT, 0);
        self.emit(t, cpu, node, EventKind::RequestSend { rmw, sequence });
        if let Some((target, callback)) = find(None, |i| matches!(i, Input::Service)) {
            let work = Work {
                callback,
                source_ns: real(t),
                client: node,
                sequence,
            };
            self.send(t, node, target, work);
        }
        t + self.random.between(10_000, 40_000)
    }

    fn respond(&mut self, t: u64, cpu: usize, node: usize, work: &Work) -> u64 {
        let stamp = t + self.random.between(4_000, 12_000);
        let t = stamp + self.random.between(300, 900);
        let source_ns = real(stamp);
        let kind = EventKind::ResponseSend {
            rmw: handle(node, RMW_IN, work.callback),
            gid: gid(work.client, CLIENT, 0),
            sequence: work.sequence,
            source_ns: Some(source_ns),
        };
        self.emit(t, cpu, node, kind);
        let response = find(Some(work.client), |i| matches!(i, Input::Response));
        if let Some((target, callback)) = response {
            let work = Work {
                callback,
                source_ns,
                ..*work
            };
            self.send(t, node, target, work);
        }
        t
    }

    /// Delivers an item after the middleware's time.
    fn send(&mut self, t: u64, node: usize, target: usize, work: Work) {
        let transport = self.random.between(25_000, 150_000);
        // One of the sender's middleware threads wakes the receiver.
        let waker = pid(node) + 2;
        let step = Step::Arrive {
            node: target,
            work,
            waker,
        };
        self.plan(t + transport, step);
    }

    /// The address of a new message: allocators hand out the same few again and again.
    fn message(&mut self, node: usize) -> u64 {
        let message = &mut self.nodes[node].messages;
        *message += 1;
        0x7f10_0000_0000 + ((node as u64) << 28) + (*message % 5) * 0x90
    }
}

fn real(time_ns: u64) -> i64 {
    let drift = (time_ns - START_NS) as i64 / 1_000_000;
    time_ns as i64 + OFFSET_NS + drift
}

/// The first callback (of a node) with such an input.
fn find(node: Option<usize>, wanted: fn(&Input) -> bool) -> Option<(usize, usize)> {
    let nodes = NODES.iter().enumerate();
    let mut nodes = nodes.filter(|(number, _)| node.is_none_or(|n| n == *number));
    nodes.find_map(|(number, (_, _, callbacks))| {
        let callback = callbacks.iter().position(|c| wanted(&c.input))?;
        Some((number, callback))
    })
}

fn execute_kind(input: &Input) -> ExecuteKind {
    match input {
        Input::Timer(..) => ExecuteKind::Timer,
        Input::Topic(_) => ExecuteKind::Subscription,
        Input::Service => ExecuteKind::Service,
        Input::Response => ExecuteKind::Client,
    }
}

fn callback_init(
    kinds: &mut Vec<EventKind>,
    node: usize,
    index: usize,
    input: &Input,
    rclcpp: bool,
) {
    let own = handle(node, NODE, 0);
    let rcl = handle(node, IN, index);
    let rmw = handle(node, RMW_IN, index);
    let callback = handle(node, CALLBACK, index);
    match input {
        Input::Timer(period, _) => {
            kinds.push(EventKind::TimerClock {
                timer: rcl,
                clock: handle(node, CLOCK, 0),
            });
            kinds.push(EventKind::TimerInit {
                timer: rcl,
                period_ns: (period * MS) as i64,
            });
            if rclcpp {
                kinds.push(EventKind::TimerCallback {
                    timer: rcl,
                    callback,
                });
                kinds.push(EventKind::TimerNode {
                    timer: rcl,
                    node: own,
                });
            }
        }
        Input::Topic(topic) => {
            kinds.push(EventKind::SubscriptionGid {
                rmw,
                gid: gid(node, IN, index),
            });
            kinds.push(EventKind::SubscriptionInit {
                subscription: rcl,
                node: own,
                rmw,
                topic: text(topic),
                depth: 10,
            });
            if rclcpp {
                let object = handle(node, OBJECT, index);
                kinds.push(EventKind::SubscriptionObject {
                    subscription: rcl,
                    object,
                });
                kinds.push(EventKind::SubscriptionCallback { object, callback });
            }
        }
        Input::Service => {
            kinds.push(EventKind::ServiceInit {
                service: rcl,
                node: own,
                rmw,
                name: text("/plan"),
            });
            if rclcpp {
                kinds.push(EventKind::ServiceCallback {
                    service: rcl,
                    callback,
                });
            }
        }
        // Made together with the request.
        Input::Response => {}
    }
}

fn output_init(kinds: &mut Vec<EventKind>, node: usize, number: usize, output: Output) {
    let own = handle(node, NODE, 0);
    match output {
        Publish(topic) => {
            let rmw = handle(node, RMW_OUT, number);
            kinds.push(EventKind::PublisherGid {
                rmw,
                gid: gid(node, OUT, number),
            });
            kinds.push(EventKind::PublisherInit {
                publisher: handle(node, OUT, number),
                node: own,
                rmw,
                topic: text(topic),
                depth: 10,
            });
        }
        Request => {
            let rmw = handle(node, RMW_CLIENT, 0);
            kinds.push(EventKind::ClientGid {
                rmw,
                gid: gid(node, CLIENT, 0),
            });
            kinds.push(EventKind::ClientInit {
                client: handle(node, CLIENT, 0),
                node: own,
                rmw,
                name: text("/plan"),
            });
        }
    }
}
