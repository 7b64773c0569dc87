//! A harness for unit tests of the trackers. It reads events as text and prints the results as
//! text. Times are in µs.

use super::entities::{EntityKind, HandleKind};
use super::events::{Owner, SpanEvent};
use super::ids::{EntityId, ProcessIndex};
use super::{Synth, SynthOptions};
use crate::mode_rules::ModeId;
use onbeat_document::schema::{Run, DEFAULT_MODE};

pub(super) struct Harness {
    pub(super) synth: Synth,
}

impl Harness {
    pub(super) fn new(trace: &str) -> Self {
        Self::with(trace, |_| {})
    }

    pub(super) fn with(trace: &str, set: impl FnOnce(&mut SynthOptions)) -> Self {
        let mut options = SynthOptions::new(Run {
            host: String::new(),
            boot: String::new(),
            id: "r".into(),
            mode: DEFAULT_MODE.into(),
            distribution: Vec::new(),
            start: 1,
            duration_ns: 0,
            lost: Default::default(),
            events: 0,
        });
        set(&mut options);
        let mut harness = Harness {
            synth: Synth::new(options),
        };
        harness.push(trace);
        harness
    }

    pub(super) fn push(&mut self, trace: &str) {
        for event in onbeat_trace::text::parse(trace).expect("a trace") {
            self.synth.push(&event);
        }
    }

    pub(super) fn entity(&self, pid: u32, kind: HandleKind, address: u64) -> Option<EntityId> {
        let p = self.process(pid);
        self.synth.cx.entities.handle(p, kind, address)
    }

    pub(super) fn process(&self, pid: u32) -> ProcessIndex {
        let processes = &self.synth.cx.entities.processes;
        processes.known(pid).expect("a process")
    }

    pub(super) fn node(&self, pid: u32, address: u64) -> Option<String> {
        let entities = &self.synth.cx.entities;
        let node = entities.node_of_handle(self.process(pid), address)?;
        Some(entities.node_id(node))
    }

    pub(super) fn span_events(&self) -> Vec<String> {
        let delivered = self.synth.delivered.iter();
        delivered.map(|event| self.line(event)).collect()
    }

    /// Returns each edge as `from -> to: published/taken/lost/overwritten`, in the order of
    /// creation.
    pub(super) fn edges(&self) -> Vec<String> {
        let ids = self.synth.callback_ids();
        let id = |v: crate::index::VertexId| ids[v.index()].as_deref().unwrap_or("?");
        let edges = self.synth.flow.graph.edges.iter();
        let line = |e: &super::flow::EdgeData| {
            let of_mode = e.figures.get(ModeId::default()).cloned();
            let f = of_mode.unwrap_or_default();
            let counts = [f.published, f.taken, f.lost, f.overwritten];
            let counts = counts.map(|n| n.to_string()).join("/");
            format!("{} -> {}: {counts}", id(e.from), id(e.to))
        };
        edges.map(line).collect()
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let notes = self.synth.cx.notes.iter();
        notes.map(|(note, n)| format!("{note:?} {n}")).collect()
    }

    fn name(&self, e: EntityId) -> String {
        let it = self.synth.cx.entities.get(e);
        let name = self.synth.cx.entities.names.text(it.name());
        match it.kind() {
            EntityKind::Timer => "timer".into(),
            EntityKind::Subscription => format!("subscription({name})"),
            EntityKind::Service => format!("service({name})"),
            EntityKind::Client => format!("client({name})"),
            EntityKind::Publisher => name.into(),
            EntityKind::Task => format!("task({name})"),
        }
    }

    fn line(&self, event: &SpanEvent) -> String {
        let us = |ns: u64| ns / 1000;
        let owner = |owner: Owner| match owner {
            Owner::Instance(i) => format!("#{}", i.index()),
            Owner::Outside => "nobody".into(),
            Owner::Hidden => "a hidden callback".into(),
            Owner::Ambiguous => "one of several".into(),
            Owner::Undecided(d) => format!("?{}", d.0),
        };
        match *event {
            SpanEvent::Begin(b) => {
                let (i, name) = (b.instance.index(), self.name(b.entity));
                format!("{} begin #{i} {name}", us(b.start))
            }
            SpanEvent::End(e) => {
                let (i, exec) = (e.instance.index(), us(e.spent.exec_ns));
                format!("{} end #{i} {:?} exec {exec}", us(e.time), e.how)
            }
            SpanEvent::OwnInput(i) => {
                let (name, n) = (self.name(i.entity), i.instance.index());
                format!("{} own input {name} of #{n}", us(i.time))
            }
            SpanEvent::Continue {
                instance,
                client,
                time,
            } => {
                let (i, c) = (instance.index(), client.index());
                format!("{} #{i} goes on after #{c}", us(time))
            }
            SpanEvent::HandOver {
                work,
                instance,
                time,
            } => format!("{} #{} hands work {}", us(time), instance.index(), work.0),
            SpanEvent::NotHanded { work } => format!("work {} is none", work.0),
            SpanEvent::Hand { instance, time, .. } => {
                format!("{} #{} hands on", us(time), instance.index())
            }
            SpanEvent::InputDone { instance, time } => {
                format!("{} input done #{}", us(time), instance.index())
            }
            SpanEvent::Decided { decision, owner: o } => {
                format!("decided ?{} {}", decision.0, owner(o))
            }
            SpanEvent::Publish(p) => {
                let name = self.name(p.publisher);
                format!("{} publish {name} by {}", us(p.time), owner(p.owner))
            }
            SpanEvent::EndHold(e) => {
                format!("{} {:?} {}", us(e.time), e.how, self.name(e.publisher))
            }
            SpanEvent::PublishReturned { time, .. } => format!("{} returned", us(time)),
            SpanEvent::Enqueue(e) => {
                let name = self.name(e.subscription);
                format!("{} enqueue {name} by {}", us(e.time), owner(e.owner))
            }
            SpanEvent::Clear { subscription } => format!("clear {}", self.name(subscription)),
            SpanEvent::Request(r) => {
                let name = self.name(r.client);
                format!("{} request {name} by {}", us(r.time), owner(r.owner))
            }
            SpanEvent::Response(r) => {
                format!("{} response {}", us(r.time), self.name(r.service))
            }
            SpanEvent::ReadOnly { subscription, .. } => {
                format!("read only {}", self.name(subscription))
            }
            SpanEvent::Synchronise { instance, time, .. } => {
                format!("{} synchronise #{}", us(time), instance.index())
            }
        }
    }
}

/// A recording of two processes. Process 10 is `/talker`: it has an rclcpp timer of 10 ms (callback
/// 0x60) and a publisher of `/t` (rmw 0x1010). Process 20 is `/listener`: it has a subscription to
/// `/t` (rmw 0x1020, callback 0x60) with a queue of 2.
pub(super) const PAIR: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=talker
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/t
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=listener
1ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/t depth=2
1ms cpu1 20/20 subscription_object subscription=0x20 object=0x25
1ms cpu1 20/20 subscription_callback object=0x25 callback=0x60
";

pub(super) fn talk(t: u64) -> String {
    format!(
        "{t}us cpu0 10/10 timer_call timer=0x50
{t}us cpu0 10/10 callback_start callback=0x60
{t}us cpu0 10/10 publish rmw=0x1010 source_ns={t}us
{}us cpu0 10/10 callback_end callback=0x60
",
        t + 100
    )
}

pub(super) fn listen(t: u64, source: u64) -> String {
    format!(
        "{t}us cpu1 20/20 take rmw=0x1020 source_ns={source}us
{t}us cpu1 20/20 callback_start callback=0x60
{}us cpu1 20/20 callback_end callback=0x60
",
        t + 100
    )
}
