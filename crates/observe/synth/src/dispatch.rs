//! Passes each event to the trackers that it concerns. The handlers here make no decisions about
//! the model.

use super::entities::HandleKind;
use super::events::{Input, MadeBy, Response};
use super::ids::{EntityId, ProcessIndex, ThreadIndex};
use super::notes::Note;
use super::Synth;
use onbeat_document::schema::qos::of_codes;
use onbeat_trace::{EndpointKind, Event, EventKind, ExecuteKind, UNSCHEDULED, UNTOLD};

#[derive(Debug, Clone, Copy)]
struct At {
    thread: ThreadIndex,
    process: ProcessIndex,
    time: u64,
    cpu: u16,
}

/// Reports whether the recorder made this event from the memory of a process that already ran (late
/// attach). The thread that the event names may then be asleep.
fn is_found(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::NodeFound { .. }
            | EventKind::EndpointFound { .. }
            | EventKind::EndpointNode { .. }
            | EventKind::TimerFound { .. }
    )
}

impl Synth {
    /// Passes an event to those parts of the synthesis that it concerns. `time` is not before the
    /// time of any earlier event.
    pub(super) fn dispatch(&mut self, event: &Event, time: u64) {
        match event.kind {
            EventKind::SwitchIn { .. }
            | EventKind::SwitchOut { .. }
            | EventKind::Wake { .. }
            | EventKind::Woken { .. }
            | EventKind::Stolen { .. }
            | EventKind::Moved
            | EventKind::CpuTime { .. } => self.on_scheduler(event, time),
            EventKind::Fork { .. }
            | EventKind::Exec { .. }
            | EventKind::Exit
            | EventKind::Process { .. }
            | EventKind::Thread { .. } => self.on_thread_life(event, time),
            EventKind::Occupied { prev_tid, last } => {
                let causes = &mut self.cx.causes;
                let next = if last { UNTOLD } else { event.tid };
                match prev_tid {
                    UNTOLD => causes.mark_unrecorded(event.cpu, event.tid),
                    _ => causes.record_switch(event.cpu, time, prev_tid, next),
                }
            }
            EventKind::Bystander {
                ref comm,
                ref process,
                kernel,
            } => {
                let entities = &mut self.cx.entities;
                let names = (entities.names.intern(process), entities.names.intern(comm));
                let known = entities.processes.known(event.pid).is_some();
                let who = (event.pid, event.tid);
                self.cx.causes.name_bystander(who, names, (kernel, known));
            }
            // The switch event that follows has the time.
            EventKind::LockWait { .. } => {
                let ti = self.thread(event, time);
                self.spans.needs_mutex(ti);
            }
            // Only explanations need these.
            EventKind::Sleep { .. }
            | EventKind::Throttled { .. }
            | EventKind::SocketDrop { .. } => {}
            EventKind::ClockOffset {
                realtime_minus_monotonic_ns: offset,
            } => {
                if self.flow.set_offset(offset, time) {
                    self.cx.entities.clock_stepped();
                    self.cx.notes.count(Note::ClockStep, 1);
                }
            }
            EventKind::Lost { ref probe, count } => {
                let mode = self.flow.graph.switches.last();
                let lost = self.recording.lost.of(mode);
                *lost.entry(probe.to_string()).or_insert(0) += count;
                if &**probe == "timer_reset" {
                    self.cx.entities.resets_lost();
                }
            }
            _ => {
                let thread = self.thread(event, time);
                let at = At {
                    thread,
                    process: self.spans.process_of(thread),
                    time,
                    cpu: event.cpu,
                };
                if !is_found(&event.kind) {
                    self.spans.acted(thread, (time, event.cpu));
                }
                let entities = &mut self.cx.entities;
                if entities.process(at.process).is_left_out() {
                    return;
                }
                let names = entities.names.count();
                self.on_thread_event(event, at);
                let entities = &mut self.cx.entities;
                if entities.names.count() > names {
                    entities.processes.count_created(at.process, 1);
                }
            }
        }
    }

    fn thread(&mut self, event: &Event, time: u64) -> ThreadIndex {
        let ti = self.spans.thread(&mut self.cx, event.pid, event.tid, time);
        // If the thread id belonged to another process, that thread has just ended.
        self.deliver();
        ti
    }

    fn on_scheduler(&mut self, event: &Event, time: u64) {
        let ti = self.thread(event, time);
        match event.kind {
            EventKind::SwitchIn {
                prev_tid,
                priority,
                policy,
            } => {
                let when = (time, event.cpu);
                self.spans.waited(&mut self.cx, ti, when, prev_tid);
                self.spans.switch_in(ti, when, (priority, policy));
            }
            EventKind::SwitchOut { state, next_tid } => {
                let when = (time, event.cpu);
                self.spans.leaves(&mut self.cx, ti, when, (state, next_tid));
                self.spans.switch_out(ti, time, state == 0);
            }
            EventKind::Moved => self.spans.moved(&self.cx, ti, time, event.cpu),
            EventKind::Wake { waker_tid } => self.spans.wake(ti, time, waker_tid),
            EventKind::Woken { ready_ns } => self.spans.wake(ti, time.saturating_sub(ready_ns), 0),
            EventKind::Stolen { stolen_ns } => {
                self.spans.stolen(ti, time, stolen_ns);
                self.cx.notes.count(Note::Stolen, stolen_ns);
            }
            EventKind::CpuTime {
                used_ns,
                since_switch,
            } => self.spans.cpu_time(ti, time, used_ns, since_switch),
            _ => {}
        }
    }

    fn on_thread_life(&mut self, event: &Event, time: u64) {
        let (pid, tid) = (event.pid, event.tid);
        match event.kind {
            EventKind::Fork {
                parent_pid,
                parent_tid,
                ref comm,
            } => {
                if parent_pid != pid && self.cx.entities.processes.known(pid).is_some() {
                    // The process id is reused, and the end of the earlier process is missing in
                    // the recording.
                    self.end_process(pid, time);
                } else {
                    self.end_thread(tid, time);
                }
                let ti = self.describe(event, time, comm, None);
                let by = if parent_pid == pid { parent_tid } else { 0 };
                self.spans.created(ti, time, by);
            }
            EventKind::Exec { ref comm } => {
                self.end_process(pid, time);
                let _ = self.describe(event, time, comm, None);
            }
            EventKind::Exit if pid == tid => self.end_process(pid, time),
            EventKind::Exit => self.end_thread(tid, time),
            EventKind::Process {
                ref command, late, ..
            } => {
                let p = self.cx.entities.processes.get_or_insert(pid);
                let command = self.cx.entities.names.intern(command);
                let process = self.cx.entities.process_mut(p);
                (process.command, process.late) = (Some(command), late);
                process.unseen_calls = late;
            }
            EventKind::Thread {
                ref comm,
                policy,
                priority,
                ..
            } => {
                if priority == UNSCHEDULED {
                    let ti = self.describe(event, time, comm, None);
                    self.spans.unwatched(ti);
                } else {
                    let ti = self.describe(event, time, comm, Some((policy, priority)));
                    self.spans.watched(ti, time);
                }
            }
            _ => {}
        }
    }

    fn describe(
        &mut self,
        event: &Event,
        time: u64,
        comm: &str,
        scheduling: Option<(u8, u8)>,
    ) -> ThreadIndex {
        let comm = self.cx.entities.names.intern(comm);
        let ti = self.thread(event, time);
        self.spans.describe(ti, comm, scheduling);
        self.cx.causes.name_observed((event.pid, event.tid), comm);
        ti
    }

    fn end_thread(&mut self, tid: u32, time: u64) {
        self.spans.end_tid(&mut self.cx, tid, time);
        self.deliver();
    }

    fn end_process(&mut self, pid: u32, time: u64) {
        if let Some(p) = self.cx.entities.processes.known(pid) {
            self.spans.end_process(&mut self.cx, pid, p, time);
            self.deliver();
            self.cx.entities.end_process(pid);
        }
    }

    fn on_thread_event(&mut self, event: &Event, at: At) {
        match event.kind {
            EventKind::NodeInit { .. }
            | EventKind::NodeFound { .. }
            | EventKind::PublisherInit { .. }
            | EventKind::SubscriptionInit { .. }
            | EventKind::ServiceInit { .. }
            | EventKind::ClientInit { .. }
            | EventKind::ClientGid { .. }
            | EventKind::EndpointFound { .. }
            | EventKind::EndpointNode { .. }
            | EventKind::EndpointQos { .. }
            | EventKind::LinkInit { .. }
            | EventKind::HandleFini { .. } => self.on_endpoint(event, at),
            EventKind::ClockInit { .. }
            | EventKind::ClockKind { .. }
            | EventKind::ClockOverride { .. }
            | EventKind::TimerClock { .. }
            | EventKind::TimerInit { .. }
            | EventKind::TimerFound { .. }
            | EventKind::TimerNode { .. }
            | EventKind::TimerReset { .. }
            | EventKind::TimerCancel { .. }
            | EventKind::TimerPeriod { .. } => self.on_timer(event, at),
            EventKind::TimerCallback { .. }
            | EventKind::ServiceCallback { .. }
            | EventKind::SubscriptionObject { .. }
            | EventKind::SubscriptionCallback { .. }
            | EventKind::CallbackSymbol { .. }
            | EventKind::IntraBufferSubscription { .. }
            | EventKind::RingBufferIntraBuffer { .. } => self.on_same_entity(event, at),
            EventKind::PublisherGid { .. }
            | EventKind::SubscriptionGid { .. }
            | EventKind::RingBufferInit { .. }
            | EventKind::LifecycleInit { .. }
            | EventKind::LifecycleTransition { .. } => {}
            EventKind::CallbackStart { .. }
            | EventKind::CallbackEnd { .. }
            | EventKind::ExecutorNextReady
            | EventKind::ExecutorWaitForWork { .. }
            | EventKind::ExecutorExecute { .. }
            | EventKind::ExecuteStart { .. }
            | EventKind::ExecuteEnd { .. }
            | EventKind::WaitSetInit
            | EventKind::Wait
            | EventKind::GuardTrigger { .. } => self.on_executor(event, at),
            EventKind::TimerCall { .. }
            | EventKind::Take { .. }
            | EventKind::RequestTake { .. }
            | EventKind::ResponseTake { .. }
            | EventKind::RingBufferDequeue { .. } => self.on_input(event, at),
            EventKind::LinkSend { .. } | EventKind::LinkReceive { .. } => {
                self.on_link_item(event, at)
            }
            EventKind::IntraPublish { .. }
            | EventKind::RingBufferEnqueue { .. }
            | EventKind::RingBufferClear { .. }
            | EventKind::RclPublish { .. }
            | EventKind::Publish { .. }
            | EventKind::RequestSend { .. }
            | EventKind::ResponseSend { .. }
            | EventKind::SyncInput { .. }
            | EventKind::SyncApproximate { .. } => self.on_output(event, at),
            // `dispatch` has handled these events.
            EventKind::SwitchIn { .. }
            | EventKind::SwitchOut { .. }
            | EventKind::Wake { .. }
            | EventKind::Woken { .. }
            | EventKind::Stolen { .. }
            | EventKind::CpuTime { .. }
            | EventKind::Fork { .. }
            | EventKind::Exec { .. }
            | EventKind::Exit
            | EventKind::Process { .. }
            | EventKind::Thread { .. }
            | EventKind::Occupied { .. }
            | EventKind::Moved
            | EventKind::Bystander { .. }
            | EventKind::LockWait { .. }
            | EventKind::Sleep { .. }
            | EventKind::Throttled { .. }
            | EventKind::SocketDrop { .. }
            | EventKind::ClockOffset { .. }
            | EventKind::Lost { .. } => {}
        }
    }

    fn on_endpoint(&mut self, event: &Event, at: At) {
        let (p, entities) = (at.process, &mut self.cx.entities);
        match event.kind {
            EventKind::NodeInit {
                node,
                ref name,
                ref namespace,
                ..
            } => {
                let creation = self.spans.creation(at.thread);
                entities.node_init(p, creation, node, namespace, name);
            }
            EventKind::NodeFound { node, ref name } => {
                entities.node_found(p, node, name);
                if let Some(guess) = entities.guessed_node(p) {
                    self.flow.rehome(guess, entities.nodes.settled(guess));
                }
            }
            EventKind::EndpointNode {
                endpoint,
                rcl,
                node,
            } => entities.endpoint_node(p, endpoint, rcl, node),
            EventKind::EndpointQos { .. } => self.on_endpoint_qos(&event.kind, p),
            EventKind::PublisherInit { .. }
            | EventKind::SubscriptionInit { .. }
            | EventKind::ServiceInit { .. }
            | EventKind::ClientInit { .. } => {
                self.spans.makes_endpoint(at.thread);
                self.on_endpoint_init(&event.kind, p);
            }
            EventKind::ClientGid { rmw, gid } => {
                if let Some(client) = entities.client_gid(p, rmw, gid) {
                    self.flow.announce(&mut self.cx, gid, client);
                }
            }
            EventKind::EndpointFound {
                endpoint,
                rcl,
                rmw,
                ref name,
            } => entities.endpoint_found(p, endpoint, [rcl, rmw], name),
            EventKind::LinkInit {
                end,
                link,
                depth,
                sends,
                ref name,
            } => entities.link_init(p, end, (link, depth, sends), name),
            EventKind::HandleFini { handle } => entities.fini(p, handle),
            _ => {}
        }
    }

    fn on_endpoint_init(&mut self, event: &EventKind, p: ProcessIndex) {
        match *event {
            EventKind::PublisherInit {
                publisher: rcl,
                node,
                rmw,
                ref topic,
                depth,
            } => self.endpoint_init(p, EndpointKind::Publisher, [rcl, rmw, node], topic, depth),
            EventKind::SubscriptionInit {
                subscription: rcl,
                node,
                rmw,
                ref topic,
                depth,
            } => self.endpoint_init(
                p,
                EndpointKind::Subscription,
                [rcl, rmw, node],
                topic,
                depth,
            ),
            EventKind::ServiceInit {
                service: rcl,
                node,
                rmw,
                ref name,
            } => self.endpoint_init(p, EndpointKind::Service, [rcl, rmw, node], name, 0),
            EventKind::ClientInit {
                client: rcl,
                node,
                rmw,
                ref name,
            } => self.endpoint_init(p, EndpointKind::Client, [rcl, rmw, node], name, 0),
            _ => {}
        }
    }

    fn on_endpoint_qos(&mut self, event: &EventKind, p: ProcessIndex) {
        let &EventKind::EndpointQos {
            endpoint,
            rcl,
            history,
            reliability,
            durability,
            liveliness,
            depth,
            deadline_ns,
            lifespan_ns,
            lease_ns,
        } = event
        else {
            return;
        };
        let codes = [history, reliability, durability, liveliness];
        let times = [deadline_ns, lifespan_ns, lease_ns];
        if let Some(qos) = of_codes(codes, depth, times) {
            self.cx.entities.endpoint_qos(p, endpoint, rcl, qos);
        }
    }

    fn endpoint_init(
        &mut self,
        p: ProcessIndex,
        kind: EndpointKind,
        handles: [u64; 3],
        name: &str,
        depth: u64,
    ) {
        let entities = &mut self.cx.entities;
        let e = entities.endpoint_init(p, kind, handles, name, depth);
        if kind == EndpointKind::Client {
            if let Some(gid) = entities.announced_gid(p, handles[1]) {
                self.flow.announce(&mut self.cx, gid, e);
            }
        }
    }

    fn on_timer(&mut self, event: &Event, at: At) {
        let (p, entities) = (at.process, &mut self.cx.entities);
        let creation = self.spans.creation(at.thread);
        match event.kind {
            EventKind::ClockInit { clock } => entities.clock_init(p, creation, clock, None),
            EventKind::ClockKind { clock, time } => {
                entities.clock_init(p, creation, clock, Some(time));
            }
            EventKind::ClockOverride { clock, active } => entities.clock_override(p, clock, active),
            EventKind::TimerClock { timer, clock } => {
                entities.timer_clock(p, creation, timer, clock, at.time);
            }
            EventKind::TimerInit { timer, period_ns } => {
                entities.timer_init(p, creation, timer, period_ns, at.time);
            }
            EventKind::TimerFound { timer } => {
                entities.timer_found(p, timer);
            }
            EventKind::TimerNode { timer, node } => entities.timer_node(p, timer, node),
            EventKind::TimerReset { timer } => entities.timer_reset(p, timer, at.time),
            EventKind::TimerCancel { timer } => entities.timer_cancel(p, timer),
            EventKind::TimerPeriod { timer, period_ns } => {
                if let Some(e) = entities.timer_period(p, timer, period_ns) {
                    let vertex = self.flow.vertex(&mut self.cx, e);
                    self.cx.notes.count(Note::PeriodChanged(vertex), 1);
                }
            }
            _ => {}
        }
    }

    fn on_same_entity(&mut self, event: &Event, at: At) {
        let (p, entities) = (at.process, &mut self.cx.entities);
        match event.kind {
            EventKind::TimerCallback { timer, callback } => {
                entities.set_callback(p, callback, HandleKind::Timer, timer);
            }
            EventKind::ServiceCallback { service, callback } => {
                entities.set_callback(p, callback, HandleKind::RclService, service);
            }
            EventKind::SubscriptionObject {
                subscription,
                object,
            } => entities.subscription_object(p, subscription, object),
            EventKind::SubscriptionCallback { object, callback } => {
                entities.subscription_callback(p, object, callback);
            }
            EventKind::CallbackSymbol {
                callback,
                ref symbol,
            } => {
                if let Some((e, symbol)) = entities.callback_symbol(p, callback, symbol) {
                    self.flow.set_symbol(&self.cx, e, symbol);
                }
            }
            EventKind::IntraBufferSubscription { ipb, object } => {
                entities.intra_buffer(p, ipb, object);
            }
            EventKind::RingBufferIntraBuffer { buffer, ipb } => {
                entities.ring_intra_buffer(p, buffer, ipb);
            }
            _ => {}
        }
    }

    fn on_executor(&mut self, event: &Event, at: At) {
        let (spans, cx) = (&mut self.spans, &mut self.cx);
        let (ti, time) = (at.thread, at.time);
        match event.kind {
            EventKind::CallbackStart { callback, .. } => {
                spans.callback_start(cx, ti, time, at.cpu, callback);
            }
            EventKind::CallbackEnd { callback } => spans.callback_end(cx, ti, time, callback),
            EventKind::ExecutorNextReady => {
                spans.next_ready(cx, ti, time);
                spans.unseen_work(cx, ti, time);
            }
            EventKind::ExecutorWaitForWork { .. } => spans.next_ready(cx, ti, time),
            EventKind::ExecutorExecute { .. } => spans.execute(cx, ti, time),
            EventKind::ExecuteStart { execute } => {
                spans.execute_start(cx, ti, time, execute == ExecuteKind::Client);
            }
            EventKind::ExecuteEnd { .. } => spans.execute_end(cx, ti, time),
            EventKind::WaitSetInit => spans.wait_set(cx, ti, time),
            EventKind::Wait => spans.wait(cx, ti, time),
            EventKind::GuardTrigger { guard } => spans.trigger(cx, ti, time, guard),
            _ => {}
        }
    }

    fn on_input(&mut self, event: &Event, at: At) {
        let (ti, time) = (at.thread, at.time);
        if let EventKind::RingBufferDequeue { buffer, index } = event.kind {
            self.cx.entities.process_mut(at.process).rings.used = true;
            let when = (time, at.cpu);
            self.spans.dequeue(&mut self.cx, ti, when, buffer, index);
            return;
        }
        let e = self.taken_from(event, at);
        let together = e.is_some_and(|e| self.spans.is_together(&self.cx, ti, e));
        if !together {
            let is_take = matches!(event.kind, EventKind::Take { .. });
            self.spans.next_input(&mut self.cx, (ti, time), is_take);
        }
        match event.kind {
            EventKind::TimerCall { timer } => {
                let e = self.cx.entities.timer_found(at.process, timer);
                // rcl refuses to call a cancelled timer, so no callback follows.
                if !self.cx.entities.is_cancelled(e) {
                    self.read(at, Some(e), Input::Timer);
                }
            }
            EventKind::Take {
                source_ns,
                taken: true,
                ..
            } => self.read(at, e, Input::Message { source_ns }),
            EventKind::RequestTake {
                gid,
                sequence,
                taken: true,
                ..
            } => {
                let input = Input::Request {
                    gid,
                    sequence,
                    at: time,
                };
                self.read(at, e, input);
            }
            EventKind::ResponseTake {
                sequence,
                source_ns,
                taken: true,
                ..
            } => {
                // Earlier events may depend on what is now known of clients.
                self.deliver();
                if let Some(e) = e {
                    let flow = &mut self.flow;
                    flow.answer_read(&mut self.cx, e, sequence, source_ns, time);
                }
                if self.is_unasked(at, e, sequence) {
                    self.cx.notes.count(Note::Unasked, 1);
                    self.spans.goes_on_unseen(ti);
                } else {
                    self.read(at, e, Input::Response { sequence, at: time });
                }
            }
            _ => {}
        }
    }

    /// Late attach: reports whether a response belongs to no recorded request. Either the request
    /// is older than the recording, or its sender is a callback that began before the recording.
    ///
    /// In rclpy, the code that waited for this response then continues, but its callback is
    /// unknown.
    fn is_unasked(&self, at: At, client: Option<EntityId>, sequence: i64) -> bool {
        self.cx.entities.process(at.process).late
            && !self.spans.runs_rclcpp(at.thread)
            && client.is_some_and(|e| {
                self.cx.entities.get(e).asked_unseen(sequence)
                    || self.spans.is_asked_by_nobody(at.thread, e, sequence)
            })
    }

    fn taken_from(&self, event: &Event, at: At) -> Option<EntityId> {
        match event.kind {
            EventKind::Take {
                rmw, taken: true, ..
            } => self.handle(at, HandleKind::RmwSubscription, rmw),
            EventKind::RequestTake {
                rmw, taken: true, ..
            } => self.handle(at, HandleKind::RmwService, rmw),
            EventKind::ResponseTake {
                rmw, taken: true, ..
            } => self.handle(at, HandleKind::RmwClient, rmw),
            _ => None,
        }
    }

    fn handle(&self, at: At, kind: HandleKind, address: u64) -> Option<EntityId> {
        self.cx.entities.handle(at.process, kind, address)
    }

    fn read(&mut self, at: At, e: Option<EntityId>, input: Input) {
        match e {
            Some(e) => {
                let when = (at.time, at.cpu);
                self.spans.read(&mut self.cx, at.thread, when, e, input);
            }
            None => self.cx.notes.count(Note::UnknownHandle, 1),
        }
    }

    fn on_output(&mut self, event: &Event, at: At) {
        let (ti, time, p) = (at.thread, at.time, at.process);
        match event.kind {
            EventKind::IntraPublish { publisher, .. } => {
                let e = self.handle(at, HandleKind::RclPublisher, publisher);
                self.spans.intra_publish(ti, e, time);
            }
            EventKind::RingBufferEnqueue { buffer, index, .. } => {
                self.cx.entities.process_mut(p).rings.used = true;
                let e = self.cx.entities.ring_buffer(p, buffer);
                let e = e.filter(|&e| !self.gets_name(at, e));
                let e = e.unwrap_or_else(|| self.ring_found(at, buffer));
                self.spans.enqueue(&mut self.cx, ti, time, e, index);
            }
            EventKind::RingBufferClear { buffer } => {
                if let Some(e) = self.cx.entities.ring_buffer(p, buffer) {
                    self.spans.clear(e);
                }
            }
            EventKind::RclPublish { publisher, message } => {
                self.spans.rcl_publish(ti, publisher, message);
            }
            EventKind::Publish {
                rmw,
                message,
                source_ns,
            } => {
                let publisher = self.publisher(at, rmw, message);
                if let Some(e) = self.kept_or_counted(publisher) {
                    let publish = (e, message, source_ns);
                    self.spans.publish(&mut self.cx, ti, time, publish);
                }
            }
            EventKind::RequestSend { rmw, sequence } => {
                let client = self.handle(at, HandleKind::RmwClient, rmw);
                if let Some(e) = self.kept_or_counted(client) {
                    self.cx.entities.get_mut(e).asks(sequence);
                    self.spans.request(&mut self.cx, ti, time, e, sequence);
                }
            }
            EventKind::ResponseSend {
                rmw,
                gid,
                sequence,
                source_ns,
            } => {
                let service = self.handle(at, HandleKind::RmwService, rmw);
                if let Some(service) = self.kept_or_counted(service) {
                    let response = Response {
                        service,
                        gid,
                        sequence,
                        time,
                        made_by: MadeBy::Service,
                    };
                    self.flow.answered(&self.cx, &response, source_ns);
                    self.spans.respond(&mut self.cx, ti, response);
                }
            }
            EventKind::SyncInput { filter } => {
                self.spans.synchronise(&self.cx, ti, time, (filter, false));
            }
            EventKind::SyncApproximate { filter } => {
                self.spans.synchronise(&self.cx, ti, time, (filter, true));
            }
            _ => {}
        }
    }

    fn on_link_item(&mut self, event: &Event, at: At) {
        let (ti, time) = (at.thread, at.time);
        match event.kind {
            EventKind::LinkSend { end, number } => {
                let end = self.handle(at, HandleKind::RmwPublisher, end);
                if let Some(e) = self.kept_or_counted(end) {
                    let item = self.cx.entities.get(e).link_item(number);
                    let publish = (e, 0, Some(item));
                    self.spans.publish(&mut self.cx, ti, time, publish);
                }
            }
            EventKind::LinkReceive { end, number } => {
                let end = self.handle(at, HandleKind::RmwSubscription, end);
                if let Some(e) = self.kept_or_counted(end) {
                    let item = self.cx.entities.get(e).link_item(number);
                    self.spans.receive(&mut self.cx, ti, time, e, item);
                }
            }
            _ => {}
        }
    }

    /// Late attach: reports whether the ring buffer `e` has no known topic yet and gets one now.
    /// The buffer gets a topic if the thread that puts an item into the buffer also publishes on a
    /// topic.
    fn gets_name(&self, at: At, e: EntityId) -> bool {
        let entities = &self.cx.entities;
        let publisher = self.spans.intra_publisher(at.thread);
        let named = publisher.is_some_and(|e| entities.get(e).name().is_some());
        named && entities.is_nameless(at.process, e)
    }

    /// Late attach: creates the entity of a ring buffer whose creation was not recorded. Called
    /// when the recording first shows the buffer because an item is put into it.
    fn ring_found(&mut self, at: At, buffer: u64) -> EntityId {
        let publisher = self.spans.intra_publisher(at.thread);
        let entities = &mut self.cx.entities;
        let topic = publisher.and_then(|e| entities.get(e).name());
        let e = entities.ring_found(at.process, buffer, topic);
        let vertex = self.flow.vertex(&mut self.cx, e);
        let note = match topic {
            Some(_) => Note::RingFound(vertex),
            None => Note::RingName(vertex),
        };
        self.cx.notes.count(note, 1);
        e
    }

    /// Returns the publisher of a message, found by the handle `rmw`. If that handle is unknown,
    /// returns the publisher of the thread's last `rcl_publish` of this message.
    fn publisher(&self, at: At, rmw: u64, message: u64) -> Option<EntityId> {
        let by_rmw = self.handle(at, HandleKind::RmwPublisher, rmw);
        by_rmw.or_else(|| {
            let rcl = self.spans.last_rcl_publish(at.thread, message)?;
            self.handle(at, HandleKind::RclPublisher, rcl)
        })
    }

    pub(super) fn published_topic(
        &mut self,
        event: &Event,
        time: u64,
        rmw: u64,
        message: u64,
    ) -> Option<String> {
        let thread = self.thread(event, time);
        let at = At {
            thread,
            process: self.spans.process_of(thread),
            time,
            cpu: event.cpu,
        };
        let publisher = self.publisher(at, rmw, message)?;
        let name = self.cx.entities.get(publisher).name()?;
        Some(self.cx.entities.names.get(name).to_string())
    }

    fn kept_or_counted(&mut self, e: Option<EntityId>) -> Option<EntityId> {
        if e.is_none() {
            self.cx.notes.count(Note::UnknownHandle, 1);
        }
        e.filter(|&e| !self.cx.entities.is_hidden(e))
    }
}
