//! Simulates timers, executors, CPUs and the middleware, step by step.
use super::init::process_init;
use super::random::Random;
use super::system::{
    execute_kind, find, gid, handle, pid, Input,
    Output::{Publish, Request},
    Spec, CALLBACK, CLIENT, GUARD, IN, NODES, OUT, RMW_CLIENT, RMW_IN, RMW_OUT,
};
use super::{CPUS, MS, OFFSET_NS, START_NS};
use crate::event::{Event, EventKind};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

#[derive(Clone, Copy)]
pub(super) struct Work {
    callback: usize,
    /// The source time stamp of the item, or the due time of a timer.
    source_ns: i64,
    client: usize,
    sequence: i64,
}

pub(super) enum Step {
    Due { node: usize, callback: usize },
    Arrive { node: usize, work: Work, waker: u32 },
    Done { node: usize },
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Sleeping,
    Ready,
    Running,
}

struct Node {
    state: State,
    inbox: VecDeque<Work>,
    requests: i64,
    messages: u64,
}

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

pub(super) struct Simulation {
    random: Random,
    steps: BinaryHeap<Reverse<At<Step>>>,
    out: BinaryHeap<Reverse<At<Event>>>,
    count: u64,
    nodes: Vec<Node>,
    running: [Option<usize>; CPUS],
    ready: [VecDeque<usize>; CPUS],
    last: [u32; CPUS],
}

impl Simulation {
    pub(super) fn new(seed: u64) -> Simulation {
        let node = |_| Node {
            state: State::Sleeping,
            inbox: VecDeque::new(),
            requests: 0,
            messages: 0,
        };
        let mut simulation = Simulation {
            random: Random(seed),
            steps: BinaryHeap::new(),
            out: BinaryHeap::new(),
            count: 0,
            nodes: NODES.iter().map(node).collect(),
            running: [None; CPUS],
            ready: Default::default(),
            last: [0; CPUS],
        };
        simulation.begin();
        simulation
    }

    pub(super) fn next_step(&mut self) -> Option<(u64, Step)> {
        let Reverse(At(time_ns, _, step)) = self.steps.pop()?;
        Some((time_ns, step))
    }

    pub(super) fn next_event(&mut self, until_ns: u64) -> Option<Event> {
        let Reverse(At(time_ns, ..)) = self.out.peek()?;
        if *time_ns > until_ns {
            return None;
        }
        self.out.pop().map(|Reverse(At(_, _, event))| event)
    }

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

    pub(super) fn offset(&mut self, time_ns: u64) {
        let drift = (time_ns - START_NS) as i64 / 1_000_000 + self.random.below(200) as i64;
        let kind = EventKind::ClockOffset {
            realtime_minus_monotonic_ns: OFFSET_NS + drift,
        };
        self.raw(time_ns, 0, 0, kind);
    }

    fn begin(&mut self) {
        for (node, (_, _, callbacks)) in NODES.iter().enumerate() {
            let cpu = node % CPUS;
            for (callback, spec) in callbacks.iter().enumerate() {
                if let Input::Timer(_, phase) = spec.input {
                    let first_ns = START_NS + (100 + phase) * MS;
                    self.plan(first_ns, Step::Due { node, callback });
                }
            }
            let mut time_ns = START_NS + 3 * MS * node as u64;
            for kind in process_init(node, cpu) {
                time_ns += self.random.between(2_000, 40_000);
                self.emit(time_ns, cpu, node, kind);
            }
        }
    }

    pub(super) fn step(&mut self, time_ns: u64, step: Step) {
        match step {
            Step::Due { node, callback } => self.due(time_ns, node, callback),
            Step::Arrive { node, work, waker } => self.arrive(time_ns, node, work, waker),
            Step::Done { node } => self.done(time_ns, node),
        }
    }

    fn due(&mut self, time_ns: u64, node: usize, callback: usize) {
        if let Input::Timer(period, _) = NODES[node].2[callback].input {
            self.plan(time_ns + period * MS, Step::Due { node, callback });
        }
        let work = Work {
            callback,
            source_ns: time_ns as i64,
            client: 0,
            sequence: 0,
        };
        // The kernel's timer wakes the thread a little late.
        let late = self.random.between(3_000, 60_000);
        let step = Step::Arrive {
            node,
            work,
            waker: 0,
        };
        self.plan(time_ns + late, step);
    }

    fn arrive(&mut self, time_ns: u64, node: usize, work: Work, waker: u32) {
        self.nodes[node].inbox.push_back(work);
        if self.nodes[node].state == State::Sleeping {
            let cpu = node % CPUS;
            self.emit(time_ns, cpu, node, EventKind::Wake { waker_tid: waker });
            self.nodes[node].state = State::Ready;
            self.ready[cpu].push_back(node);
            self.dispatch(time_ns, cpu);
        }
    }

    fn done(&mut self, time_ns: u64, node: usize) {
        if !self.nodes[node].inbox.is_empty() {
            return self.serve(time_ns, node);
        }
        let cpu = node % CPUS;
        self.nodes[node].state = State::Sleeping;
        self.running[cpu] = None;
        let next_tid = self.ready[cpu].front().map_or(0, |n| pid(*n));
        let kind = EventKind::SwitchOut { next_tid, state: 1 };
        self.emit(time_ns, cpu, node, kind);
        self.last[cpu] = pid(node);
        self.dispatch(time_ns, cpu);
    }

    fn dispatch(&mut self, time_ns: u64, cpu: usize) {
        if self.running[cpu].is_some() {
            return;
        }
        let Some(node) = self.ready[cpu].pop_front() else {
            return;
        };
        self.running[cpu] = Some(node);
        self.nodes[node].state = State::Running;
        // A busy CPU switches at the same time as the other thread's switch out.
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

    fn serve(&mut self, start_ns: u64, node: usize) {
        let Some(work) = self.nodes[node].inbox.pop_front() else {
            return;
        };
        let (_, rclcpp, callbacks) = &NODES[node];
        let spec = &callbacks[work.callback];
        let cpu = node % CPUS;
        let mut t = start_ns;
        if *rclcpp {
            t = self.executor_begins(t, node, &work, spec);
        }
        t += self.random.between(2_000, 20_000);
        let take = self.take(node, &work, spec);
        self.emit(t, cpu, node, take);
        t += self.short();
        let callback = handle(node, CALLBACK, work.callback);
        self.bracket(
            t,
            node,
            spec,
            EventKind::CallbackStart {
                callback,
                intra_process: false,
            },
        );
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
        t += self.short();
        self.bracket(t, node, spec, EventKind::CallbackEnd { callback });
        if *rclcpp {
            t = self.executor_ends(t, node, spec);
        }
        t += self.random.between(10_000, 30_000);
        self.emit(t, cpu, node, EventKind::WaitSetInit);
        t += self.random.between(3_000, 15_000);
        self.emit(t, cpu, node, EventKind::Wait);
        t += self.short();
        self.plan(t, Step::Done { node });
    }

    fn short(&mut self) -> u64 {
        self.random.between(900, 6_000)
    }

    fn executor_begins(&mut self, mut t: u64, node: usize, work: &Work, spec: &Spec) -> u64 {
        let cpu = node % CPUS;
        t += self.random.between(4_000, 15_000);
        self.emit(t, cpu, node, EventKind::ExecutorNextReady);
        if matches!(spec.input, Input::Timer(..) | Input::Topic(_)) {
            t += self.short();
            let handle = handle(node, IN, work.callback);
            self.emit(t, cpu, node, EventKind::ExecutorExecute { handle });
        }
        t += self.short();
        let execute = execute_kind(&spec.input);
        self.emit(t, cpu, node, EventKind::ExecuteStart { execute });
        t
    }

    fn executor_ends(&mut self, mut t: u64, node: usize, spec: &Spec) -> u64 {
        let cpu = node % CPUS;
        t += self.short();
        let execute = execute_kind(&spec.input);
        self.emit(t, cpu, node, EventKind::ExecuteEnd { execute });
        t += self.short();
        self.emit(t, cpu, node, EventKind::ExecutorNextReady);
        t += self.short();
        let timeout_ns = -1;
        self.emit(t, cpu, node, EventKind::ExecutorWaitForWork { timeout_ns });
        t
    }

    /// Adds the event of the start or end of a callback. For a node of rclcpp this is the event
    /// `exact`, for a node of rclpy it is a trigger of a guard condition.
    fn bracket(&mut self, t: u64, node: usize, spec: &Spec, exact: EventKind) {
        let rclcpp = NODES[node].1;
        let guard = handle(node, GUARD, 0);
        let kind = match (rclcpp, &spec.input) {
            (false, _) => EventKind::GuardTrigger { guard },
            // In rclcpp, client callbacks have no trace points.
            (true, Input::Response) => return,
            (true, _) => exact,
        };
        self.emit(t, node % CPUS, node, kind);
    }

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

    /// Simulates a computation of about `exec_us` and returns its end. Now and then another thread
    /// preempts the computation.
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
