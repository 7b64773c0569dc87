// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Programs for tasks of onbeat-flow (its module probe.rs), and for ends of links and channels (its
// module channel/events.rs).
//
// A task is reported as a node, its period as a timer, and its inputs as subscriptions. The names
// are reachable from the handles, so the recorder may start later than the task.
#pragma once

struct flow_task {
	__u64 name;
	__u64 executor;
	__u64 topic;
	__u64 period_ns;
};

struct flow_callback {
	__u64 task;
	__u64 source; // topic; 0: time
	__u64 kind; // FLOW_INPUT_*
};

// Kinds of inputs (InputKind of probe.rs).
#define FLOW_INPUT_JOINED 1 // the task waits for other inputs too
#define FLOW_INPUT_FED 2    // from outside of the executor: recorded when the task receives it

// Reasons for which a task runs.
#define FLOW_DATA 1
#define FLOW_TIME 2
#define FLOW_JOINED 3
#define FLOW_FED 4

// These functions return whether all their records found room in the ring buffer.
static __always_inline bool flow_task_found(__u64 pid_tgid, __u64 handle, struct flow_task *task)
{
	bool told = true;
	struct record_node_init *n = BEGIN(node_init, pid_tgid);

	if (n) {
		n->node = handle;
		n->rmw = 0;
		READ_TEXT(n->name, task->name);
		READ_TEXT(n->namespace, task->executor);
		SUBMIT(n);
	} else {
		told = false;
	}
	struct record_publisher_init *p = BEGIN(publisher_init, pid_tgid);
	if (p) {
		p->publisher = handle;
		p->node = handle;
		p->rmw = handle;
		p->depth = 0;
		READ_TEXT(p->topic, task->topic);
		SUBMIT(p);
	} else {
		told = false;
	}
	return told;
}

static __always_inline bool flow_input_found(__u64 pid_tgid, __u64 handle, __u64 task, __u64 topic)
{
	bool told = true;
	struct record_subscription_init *s = BEGIN(subscription_init, pid_tgid);

	if (s) {
		s->subscription = handle;
		s->node = task;
		s->rmw = handle;
		s->depth = 0;
		READ_TEXT(s->topic, topic);
		SUBMIT(s);
	} else {
		told = false;
	}
	struct record_subscription_object *o = BEGIN(subscription_object, pid_tgid);
	if (o) {
		o->subscription = handle;
		o->object = handle;
		SUBMIT(o);
	} else {
		told = false;
	}
	struct record_subscription_callback *c = BEGIN(subscription_callback, pid_tgid);
	if (c) {
		c->object = handle;
		c->callback = handle;
		SUBMIT(c);
	} else {
		told = false;
	}
	return told;
}

static __always_inline bool flow_timer_found(__u64 pid_tgid, __u64 handle, __u64 task,
					     __u64 period_ns)
{
	bool told = true;
	struct record_timer_init *t = BEGIN(timer_init, pid_tgid);

	if (t) {
		t->timer = handle;
		t->period_ns = period_ns;
		SUBMIT(t);
	} else {
		told = false;
	}
	struct record_timer_node *n = BEGIN(timer_node, pid_tgid);
	if (n) {
		n->timer = handle;
		n->node = task;
		SUBMIT(n);
	} else {
		told = false;
	}
	struct record_timer_callback *c = BEGIN(timer_callback, pid_tgid);
	if (c) {
		c->timer = handle;
		c->callback = handle;
		SUBMIT(c);
	} else {
		told = false;
	}
	return told;
}

// Reports a callback. At a task's first callback it also reports the task. Returns FLOW_*, or 0 if
// the memory cannot be read. It is not inlined, so that the verifier checks it only once.
__attribute__((noinline)) int flow_describe(__u64 pid_tgid, __u64 handle)
{
	struct endpoint_key key = { .tgid = pid_tgid >> 32 };
	struct flow_callback callback = {};
	struct flow_task task = {};
	bool told;
	__u8 value;

	if (bpf_probe_read_user(&callback, sizeof(callback), (void *)handle) ||
	    bpf_probe_read_user(&task, sizeof(task), (void *)callback.task))
		return 0;
	key.handle = callback.task;
	key.endpoint = ENDPOINT_FLOW_TASK;
	if (!bpf_map_lookup_elem(&endpoints, &key)) {
		value = OWNER_APPLICATION;
		if (flow_task_found(pid_tgid, callback.task, &task))
			bpf_map_update_elem(&endpoints, &key, &value, BPF_ANY);
	}
	if (!callback.source)
		value = FLOW_TIME;
	else if (callback.kind == FLOW_INPUT_FED)
		value = FLOW_FED;
	else
		value = callback.kind == FLOW_INPUT_JOINED ? FLOW_JOINED : FLOW_DATA;
	key.handle = handle;
	key.endpoint = ENDPOINT_FLOW_CALLBACK;
	if (callback.source)
		told = flow_input_found(pid_tgid, handle, callback.task, callback.source);
	else
		told = flow_timer_found(pid_tgid, handle, callback.task, task.period_ns);
	if (told)
		bpf_map_update_elem(&endpoints, &key, &value, BPF_ANY);
	return value;
}

// Item numbers are unique within a process. Together with the process id they are unique in the
// recording.
static __always_inline __u64 flow_stamp(__u64 pid_tgid, __u64 sequence)
{
	return (pid_tgid >> 32) << 40 | (sequence & 0xffffffffff);
}

// onbeat_flow_task_init(callback): the address now belongs to a new callback. A timer is reported
// at its first call, because its releases are counted from there.
PROBE(on_flow_task_init)
{
	ENTER();
	struct endpoint_key key = { .handle = ARG1(ctx), .tgid = pid_tgid >> 32,
				    .endpoint = ENDPOINT_FLOW_CALLBACK };
	struct flow_callback callback = {};

	count_hit(ctx);
	bpf_map_delete_elem(&endpoints, &key);
	if (bpf_probe_read_user(&callback, sizeof(callback), (void *)ARG1(ctx)))
		return 0;
	if (callback.source) {
		flow_describe(pid_tgid, ARG1(ctx));
		return 0;
	}
	// The timer is the first callback of a new task.
	key.handle = callback.task;
	key.endpoint = ENDPOINT_FLOW_TASK;
	bpf_map_delete_elem(&endpoints, &key);
	return 0;
}

// onbeat_flow_task_start(callback, sequence)
PROBE(on_flow_task_start)
{
	ENTER();
	struct endpoint_key key = { .handle = ARG1(ctx), .tgid = pid_tgid >> 32,
				    .endpoint = ENDPOINT_FLOW_CALLBACK };
	__u8 *known = bpf_map_lookup_elem(&endpoints, &key);
	int value = known ? *known : flow_describe(pid_tgid, ARG1(ctx));

	mark_thread(pid_tgid);
	if (value == FLOW_TIME) {
		struct record_timer_call *t = BEGIN(timer_call, pid_tgid);
		if (t) {
			t->timer = ARG1(ctx);
			SUBMIT(t);
		}
	} else if (value != FLOW_FED) {
		struct record_take *t = BEGIN(take, pid_tgid);
		if (t) {
			t->taken = 1;
			t->rmw = ARG1(ctx);
			t->message = 0;
			t->source_ns = flow_stamp(pid_tgid, ARG2(ctx));
			SUBMIT(t);
		}
	}
	struct record_callback_start *r = BEGIN_HIT(callback_start, pid_tgid);
	if (r) {
		r->intra_process = 0;
		r->callback = ARG1(ctx);
		SUBMIT(r);
	}
	if (value == FLOW_JOINED) {
		struct record_sync_input *s = BEGIN(sync_input, pid_tgid);
		if (s) {
			// The callback's first word is its task.
			bpf_probe_read_user(&s->filter, sizeof(s->filter), (void *)ARG1(ctx));
			SUBMIT(s);
		}
	}
	return 0;
}

// onbeat_flow_task_end(callback)
ENDING(on_flow_task_end, callback_end, r->callback = ARG1(ctx))

// onbeat_flow_publish(task, sequence)
PROBE(on_flow_publish)
{
	ENTER();
	struct endpoint_key key = { .handle = ARG1(ctx), .tgid = pid_tgid >> 32,
				    .endpoint = ENDPOINT_FLOW_TASK };

	// A task is unknown only if this execution began before the probes were in place.
	if (!bpf_map_lookup_elem(&endpoints, &key))
		return 0;
	struct record_publish *r = BEGIN_HIT(publish, pid_tgid);
	if (r) {
		r->rmw = ARG1(ctx);
		r->message = 0;
		r->source_ns = flow_stamp(pid_tgid, ARG2(ctx));
		SUBMIT(r);
	}
	return 0;
}

struct link_end {
	__u64 link;
	__u64 name;
	__u64 depth;
	__u64 sends;
};

// Reports an end of a link. It is not inlined, so that the verifier checks it only once.
__attribute__((noinline)) int link_describe(__u64 pid_tgid, __u64 handle)
{
	struct endpoint_key key = { .handle = handle, .tgid = pid_tgid >> 32,
				    .endpoint = ENDPOINT_LINK };
	struct link_end end = {};
	__u8 value = OWNER_APPLICATION;

	if (bpf_probe_read_user(&end, sizeof(end), (void *)handle))
		return 0;
	struct record_link_init *r = BEGIN(link_init, pid_tgid);
	if (r) {
		bpf_map_update_elem(&endpoints, &key, &value, BPF_ANY);
		r->end = handle;
		r->link = end.link;
		r->depth = end.depth;
		r->sends = end.sends & 1;
		READ_TEXT(r->name, end.name);
		SUBMIT(r);
	}
	return 1;
}

static __always_inline void link_find(__u64 pid_tgid, __u64 handle)
{
	struct endpoint_key key = { .handle = handle, .tgid = pid_tgid >> 32,
				    .endpoint = ENDPOINT_LINK };

	if (!bpf_map_lookup_elem(&endpoints, &key))
		link_describe(pid_tgid, handle);
}

// onbeat_link_init(end): the address now belongs to a new end.
PROBE(on_link_init)
{
	ENTER();
	count_hit(ctx);
	link_describe(pid_tgid, ARG1(ctx));
	return 0;
}

// onbeat_link_fini(end)
PROBE(on_link_fini)
{
	ENTER();
	struct endpoint_key key = { .handle = ARG1(ctx), .tgid = pid_tgid >> 32,
				    .endpoint = ENDPOINT_LINK };

	// An end that was never reported needs no report of its end.
	if (bpf_map_delete_elem(&endpoints, &key))
		return 0;
	struct record_handle_fini *r = BEGIN_HIT(handle_fini, pid_tgid);
	if (r) {
		r->handle = ARG1(ctx);
		SUBMIT(r);
	}
	return 0;
}

// onbeat_link_send(end, number)
PROBE(on_link_send)
{
	ENTER();
	mark_thread(pid_tgid);
	link_find(pid_tgid, ARG1(ctx));
	struct record_link_send *r = BEGIN_HIT(link_send, pid_tgid);
	if (r) {
		r->end = ARG1(ctx);
		r->number = ARG2(ctx);
		SUBMIT(r);
	}
	return 0;
}

// onbeat_link_receive(end, number)
PROBE(on_link_receive)
{
	ENTER();
	link_find(pid_tgid, ARG1(ctx));
	struct record_link_receive *r = BEGIN_HIT(link_receive, pid_tgid);
	if (r) {
		r->end = ARG1(ctx);
		r->number = ARG2(ctx);
		SUBMIT(r);
	}
	return 0;
}
