//! Follows items: which callback takes whose data, and the callbacks, edges and chains that follow
//! from this.
//!
//! [`Flow`] receives [`SpanEvent`]s in order and keeps only what is in flight.

mod actions;
mod callers;
mod cuts;
mod deferred;
mod ended;
mod ends;
mod forget;
mod graph;
mod handed;
mod instances;
mod lineage;
mod links;
mod made;
mod naming;
mod policies;
mod polls;
mod replays;
mod rings;
mod seen;
mod services;
mod shaped;
mod synchronisers;
mod topics;

pub(crate) use graph::{EdgeData, Graph, Measured, Route, Use, Vertex};
pub(crate) use naming::Ids;
pub(crate) use synchronisers::{Group, Groups, Joined, Member, Output, Part};

use super::events::SpanEvent;
use super::ids::{EntityId, InstanceId};
use super::observe::Observer;
use super::Context;
use crate::detail::Details;
use crate::index::NameId;
use crate::links::Link;
use crate::outcomes::Outcomes;
use callers::Callers;
use cuts::Cuts;
use deferred::Deferred;
use handed::HandedWork;
use instances::Instances;
use lineage::Lineage;
use links::Links;
use made::Made;
use onbeat_document::stated::StatedJunction;
use polls::Polls;
use rings::Rings;
use services::Services;
use shaped::HeldItems;
use topics::Topics;

#[derive(Debug, Clone)]
pub(crate) struct Flow {
    pub(crate) graph: Graph,
    pub(crate) lineage: Lineage,
    instances: Instances,
    pub(crate) ways: Ways,
    callers: Callers,
    pub(crate) groups: Groups,
    stated_junctions: Vec<StatedJunction>,
    cuts: Cuts,
    deferred: Deferred,
    pub(crate) observer: Observer,
    pub(crate) details: Option<Details>,
    pub(crate) outcomes: Option<Outcomes>,
    now: u64,
}

/// The ways on which data goes from callback to callback. Each field contains the data of one kind
/// of way.
#[derive(Debug, Clone)]
pub(crate) struct Ways {
    topics: Topics,
    held: HeldItems,
    rings: Rings,
    pub(crate) services: Services,
    links: Links,
    handed: HandedWork,
    made: Made,
    polls: Polls,
}

/// The age in ns from which on an item that no callback has taken counts as lost when the recording
/// ends.
const LOST_AFTER_NS: u64 = 1_000_000_000;

impl Flow {
    pub(crate) fn memory(&self) -> NameId {
        self.ways.links.memory
    }

    /// Creates a flow without data. `ids` are the vertex ids that an earlier pass over the same
    /// events found. `memory` is the topic name of the edges through a node's memory. Chains begin
    /// at sources, and at the topics in `inputs`.
    pub(crate) fn new(
        links: Vec<Link>,
        ids: Vec<Option<String>>,
        memory: NameId,
        inputs: impl Iterator<Item = NameId>,
    ) -> Self {
        Flow {
            graph: Graph::default(),
            lineage: Lineage::new(inputs),
            instances: Instances::default(),
            ways: Ways {
                topics: Topics::default(),
                held: HeldItems::default(),
                rings: Rings::default(),
                services: Services::default(),
                links: Links::new(links, ids, memory),
                handed: HandedWork::default(),
                made: Made::default(),
                polls: Polls::default(),
            },
            callers: Callers::default(),
            groups: Groups::default(),
            stated_junctions: Vec::new(),
            cuts: Cuts::default(),
            deferred: Deferred::default(),
            observer: Observer::default(),
            details: None,
            outcomes: None,
            now: 0,
        }
    }

    pub(crate) fn ignore(&mut self, topics: Vec<NameId>) {
        self.lineage.ignored = topics;
    }

    pub(crate) fn state_junctions(&mut self, junctions: Vec<StatedJunction>) {
        self.stated_junctions = junctions;
    }

    /// Sets the sampled offset CLOCK_REALTIME minus CLOCK_MONOTONIC, in ns. Returns true if
    /// somebody has set the machine's clock since the last sample.
    pub(crate) fn set_offset(&mut self, offset: i64, time: u64) -> bool {
        self.ways.topics.set_offset(offset, time)
    }

    pub(crate) fn input_counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.lineage.inputs.counts()
    }

    pub(crate) fn take_ended(&mut self) -> Option<InstanceId> {
        self.instances.take_ended()
    }

    fn apply(&mut self, cx: &mut Context, event: &SpanEvent) {
        match event {
            SpanEvent::Begin(begin) => self.begin(cx, begin),
            SpanEvent::End(end) => self.end(cx, end),
            SpanEvent::OwnInput(input) => self.own_input(cx, input),
            SpanEvent::Continue {
                instance,
                client,
                time,
            } => self.continue_by(*instance, *client, *time),
            SpanEvent::HandOver {
                work,
                instance,
                time,
            } => self.hand_work(*work, *instance, *time),
            SpanEvent::NotHanded { work } => self.drop_work(*work),
            SpanEvent::InputDone { instance, time } => self.input_done(*instance, *time),
            SpanEvent::Decided { .. } => {}
            SpanEvent::Publish(publication) => {
                self.action_publish(cx, publication);
                self.publish(cx, publication);
            }
            SpanEvent::EndHold(end) => self.end_hold(cx, end),
            SpanEvent::PublishReturned { publisher, time } => {
                self.ways.topics.returned(*publisher, *time);
            }
            SpanEvent::Hand {
                instance,
                hand,
                time,
            } => self.hand(*instance, *hand, *time),
            SpanEvent::Enqueue(enqueue) => self.enqueue(cx, enqueue),
            SpanEvent::Clear { subscription } => self.clear_ring(cx, *subscription),
            SpanEvent::Request(request) => self.request(cx, request),
            SpanEvent::Response(response) => self.respond(cx, response),
            SpanEvent::ReadOnly {
                subscription,
                source_ns,
            } => {
                self.take(cx, *subscription, *source_ns, false);
            }
            SpanEvent::Synchronise {
                instance,
                filter,
                approximate,
                time,
            } => self.hand_over(*instance, (*filter, *approximate), *time),
        }
    }

    pub(crate) fn forget(&mut self, cx: &Context, e: EntityId) {
        self.free_topics(cx, e);
    }

    pub(crate) fn gone(&mut self, cx: &Context, e: EntityId) {
        self.clear_ring(cx, e);
        self.subscription_ended(cx, e);
    }

    pub(crate) fn settle(&mut self, cx: &mut Context, now: u64) {
        self.drain(cx, true);
        let is_old = |time: u64| now.saturating_sub(time) > LOST_AFTER_NS;
        self.settle_topics(cx, is_old);
        self.settle_rings(cx);
        self.settle_services(cx, is_old);
    }
}
