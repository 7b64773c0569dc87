// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The programs for functions of ROS 2: one program per function, named in the table of probes.rs.
#pragma once

// ---- programs that only copy arguments into the fields of their record
#define COPY0(program, name)                                                                       \
	PROBE(program)                                                                             \
	{                                                                                          \
		ENTER();                                                                           \
		struct record_##name *r = BEGIN_HIT(name, pid_tgid);                               \
		if (r)                                                                             \
			SUBMIT(r);                                                                 \
		return 0;                                                                          \
	}

#define COPY1(program, name, field1)                                                               \
	PROBE(program)                                                                             \
	{                                                                                          \
		ENTER();                                                                           \
		struct record_##name *r = BEGIN_HIT(name, pid_tgid);                               \
		if (r) {                                                                           \
			r->field1 = ARG1(ctx);                                                     \
			SUBMIT(r);                                                                 \
		}                                                                                  \
		return 0;                                                                          \
	}

#define COPY2(program, name, field1, field2)                                                       \
	PROBE(program)                                                                             \
	{                                                                                          \
		ENTER();                                                                           \
		struct record_##name *r = BEGIN_HIT(name, pid_tgid);                               \
		if (r) {                                                                           \
			r->field1 = ARG1(ctx);                                                     \
			r->field2 = ARG2(ctx);                                                     \
			SUBMIT(r);                                                                 \
		}                                                                                  \
		return 0;                                                                          \
	}

// A program for a call that ends a callback. Time stolen before the call belongs to the callback.
// `fill` sets the fields of the record `r`. `first` runs before that.
#define ENDING(program, name, fill) ENDING_AFTER(program, (void)0, name, fill)
#define ENDING_AFTER(program, first, name, fill)                                                   \
	PROBE(program)                                                                             \
	{                                                                                          \
		ENTER_TIMED();                                                                     \
		first;                                                                             \
		account_for(pid_tgid, now);                                                        \
		struct record_##name *r = BEGIN_HIT_AT(name, pid_tgid, now);                       \
		if (r) {                                                                           \
			fill;                                                                      \
			SUBMIT(r);                                                                 \
		}                                                                                  \
		return 0;                                                                          \
	}

// ---- creation of entities
COPY1(on_fini, handle_fini, handle)
COPY2(on_timer_init, timer_init, timer, period_ns)
COPY2(on_timer_clock, timer_clock, timer, clock)
COPY1(on_timer_reset, timer_reset, timer)
COPY1(on_timer_cancel, timer_cancel, timer)
COPY2(on_timer_period, timer_period, timer, period_ns)
COPY2(on_timer_node, timer_node, timer, node)
COPY2(on_timer_callback, timer_callback, timer, callback)
COPY2(on_subscription_object, subscription_object, subscription, object)
COPY2(on_subscription_callback, subscription_callback, object, callback)
COPY2(on_service_callback, service_callback, service, callback)
COPY2(on_intra_buffer_subscription, intra_buffer_subscription, ipb, object)
COPY2(on_ring_buffer_intra_buffer, ring_buffer_intra_buffer, buffer, ipb)
COPY2(on_ring_buffer_init, ring_buffer_init, buffer, capacity)
COPY2(on_lifecycle_init, lifecycle_init, node, machine)

// rcl_init(...): before this call, a process makes no middleware entities.
PROBE(on_rcl_init)
{
	ENTER();
	mark_ros(pid_tgid);
	struct record_rcl_init *r = BEGIN_HIT(rcl_init, pid_tgid);
	if (r)
		SUBMIT(r);
	return 0;
}

// rcl_clock_init(type, clock, allocator)
PROBE(on_clock_init)
{
	ENTER();
	struct record_clock_kind *r = BEGIN_HIT(clock_kind, pid_tgid);
	if (r) {
		r->time = ARG1(ctx);
		r->clock = ARG2(ctx);
		SUBMIT(r);
	}
	return 0;
}

// rcl_enable_ros_time_override(clock), rcl_disable_ros_time_override(clock)
#define OVERRIDE(program, on)                                                                      \
	PROBE(program)                                                                             \
	{                                                                                          \
		ENTER();                                                                           \
		struct record_clock_override *r = BEGIN_HIT(clock_override, pid_tgid);             \
		if (r) {                                                                           \
			r->clock = ARG1(ctx);                                                      \
			r->active = on;                                                            \
			SUBMIT(r);                                                                 \
		}                                                                                  \
		return 0;                                                                          \
	}

OVERRIDE(on_clock_simulated, 1)
OVERRIDE(on_clock_real, 0)

// rcl_node_init(node, rmw, name, namespace)
PROBE(on_node_init)
{
	ENTER();
	struct record_node_init *r = BEGIN_HIT(node_init, pid_tgid);
	if (!r)
		return 0;
	r->node = ARG1(ctx);
	r->rmw = ARG2(ctx);
	READ_TEXT(r->name, ARG3(ctx));
	READ_TEXT(r->namespace, ARG4(ctx));
	SUBMIT(r);
	return 0;
}

// rmw_time_t and rmw_qos_profile_t are the same in all distributions.
struct rmw_time {
	__u64 sec;
	__u64 nsec;
};

struct rmw_qos {
	__u32 history;
	__u64 depth;
	__u32 reliability;
	__u32 durability;
	struct rmw_time deadline;
	struct rmw_time lifespan;
	__u32 liveliness;
	struct rmw_time lease;
};

#define QOS_MOST 5 // the largest value of these policies' enumerations

// An infinite duration becomes i64::MAX, as in rmw.
static __always_inline __u64 rmw_ns(const struct rmw_time *time)
{
	return time->sec < 9223372036ULL ? time->sec * 1000000000ULL + time->nsec
					 : 9223372036854775807ULL;
}

// Reports the requested QoS settings of a publisher or subscription. rcl's object points to its
// implementation, which begins with the options, which begin with the profile. This holds in all
// distributions, but no interface guarantees it. So the depth must equal the one that the
// tracepoint got.
static __always_inline void tell_qos(__u64 pid_tgid, __u16 endpoint, __u64 rcl, __u64 depth)
{
	struct rmw_qos qos = {};
	__u64 own = 0;

	if (read_unsure(&own, sizeof(own), (void *)rcl) ||
	    read_unsure(&qos, sizeof(qos), (void *)own))
		return;
	if (qos.depth != depth || qos.history > QOS_MOST || qos.reliability > QOS_MOST ||
	    qos.durability > QOS_MOST || qos.liveliness > QOS_MOST)
		return;
	struct record_endpoint_qos *r = BEGIN(endpoint_qos, pid_tgid);
	if (!r)
		return;
	r->rcl = rcl;
	r->depth = depth;
	r->deadline_ns = rmw_ns(&qos.deadline);
	r->lifespan_ns = rmw_ns(&qos.lifespan);
	r->lease_ns = rmw_ns(&qos.lease);
	r->endpoint = endpoint;
	r->history = qos.history;
	r->reliability = qos.reliability;
	r->durability = qos.durability;
	r->liveliness = qos.liveliness;
	SUBMIT(r);
}

// rcl_*_init(handle, node, rmw, name, depth): `own` and `label` are the record's fields for the
// handle and for the name. `more` reports further data.
#define ENDPOINT_INIT(program, name, which, own, label, set_depth, more)                                 \
	PROBE(program)                                                                             \
	{                                                                                          \
		ENTER();                                                                           \
		struct record_##name *r = BEGIN_HIT(name, pid_tgid);                               \
		/* Without a record, its first use reports its name. */                             \
		if (!r)                                                                            \
			return 0;                                                                  \
		know_endpoint(pid_tgid, ARG3(ctx), which);                                         \
		r->own = ARG1(ctx);                                                                \
		r->node = ARG2(ctx);                                                               \
		r->rmw = ARG3(ctx);                                                                \
		set_depth;                                                                         \
		READ_TEXT(r->label, ARG4(ctx));                                                    \
		SUBMIT(r);                                                                         \
		more;                                                                              \
		return 0;                                                                          \
	}
#define DEPTH r->depth = ARG5(ctx)
#define QOS(which) tell_qos(pid_tgid, which, ARG1(ctx), ARG5(ctx))
#define NOTHING (void)0

ENDPOINT_INIT(on_publisher_init, publisher_init, ENDPOINT_PUBLISHER, publisher, topic, DEPTH,
	      QOS(ENDPOINT_PUBLISHER))
ENDPOINT_INIT(on_subscription_init, subscription_init, ENDPOINT_SUBSCRIPTION, subscription, topic,
	      DEPTH, QOS(ENDPOINT_SUBSCRIPTION))
ENDPOINT_INIT(on_service_init, service_init, ENDPOINT_SERVICE, service, name, NOTHING, NOTHING)
ENDPOINT_INIT(on_client_init, client_init, ENDPOINT_CLIENT, client, name, NOTHING, NOTHING)

// ros_trace_rmw_*_init(rmw, gid)
#define GID_OF(program, name)                                                                      \
	PROBE(program)                                                                             \
	{                                                                                          \
		ENTER();                                                                           \
		struct record_##name *r = BEGIN_HIT(name, pid_tgid);                               \
		if (!r)                                                                            \
			return 0;                                                                  \
		r->rmw = ARG1(ctx);                                                                \
		READ_GID(r->gid, ARG2(ctx));                                                       \
		SUBMIT(r);                                                                         \
		return 0;                                                                          \
	}

GID_OF(on_publisher_gid, publisher_gid)
GID_OF(on_client_gid, client_gid)

// ros_trace_rclcpp_callback_register(callback, symbol)
PROBE(on_callback_symbol)
{
	ENTER();
	struct record_callback_symbol *r = BEGIN_HIT(callback_symbol, pid_tgid);
	if (!r)
		return 0;
	r->callback = ARG1(ctx);
	READ_TEXT(r->symbol, ARG2(ctx));
	SUBMIT(r);
	return 0;
}

// ros_trace_rcl_lifecycle_transition(machine, from, to)
PROBE(on_lifecycle_transition)
{
	ENTER();
	struct record_lifecycle_transition *r = BEGIN_HIT(lifecycle_transition, pid_tgid);
	if (!r)
		return 0;
	r->machine = ARG1(ctx);
	READ_TEXT(r->from, ARG2(ctx));
	READ_TEXT(r->to, ARG3(ctx));
	SUBMIT(r);
	return 0;
}

// ---- callbacks and executors
COPY0(on_executor_next_ready, executor_next_ready)
COPY1(on_executor_wait_for_work, executor_wait_for_work, timeout_ns)
COPY1(on_executor_execute, executor_execute, handle)
COPY1(on_sync_input, sync_input, filter)
COPY1(on_sync_approximate, sync_approximate, filter)
ENDING_AFTER(on_callback_end, lineage_end(pid_tgid), callback_end, r->callback = ARG1(ctx))
ENDING(on_wait_set_init, wait_set_init, (void)r)

// rcl_trigger_guard_condition(guard): the threads of rclpy's pool call this first.
PROBE(on_guard_trigger)
{
	ENTER_TIMED();
	account_for(pid_tgid, now);
	mark_publisher(pid_tgid, now);
	lineage_trigger(pid_tgid, ARG1(ctx));
	struct record_guard_trigger *r = BEGIN_HIT_AT(guard_trigger, pid_tgid, now);
	if (r) {
		r->guard = ARG1(ctx);
		SUBMIT(r);
	}
	return 0;
}

// ros_trace_callback_start(callback, is_intra_process)
PROBE(on_callback_start)
{
	ENTER();
	mark_thread(pid_tgid);
	lineage_callback_start(pid_tgid, ARG1(ctx));
	struct record_callback_start *r = BEGIN_HIT(callback_start, pid_tgid);
	if (r) {
		r->callback = ARG1(ctx);
		r->intra_process = ARG2(ctx) & 1;
		SUBMIT(r);
	}
	return 0;
}

// rcl_timer_call(timer)
PROBE(on_timer_call)
{
	ENTER();
	mark_thread(pid_tgid);
	lineage_call(pid_tgid, ROOT_TIMER, ARG1(ctx));
	struct record_timer_call *r = BEGIN_HIT(timer_call, pid_tgid);
	if (r) {
		r->timer = ARG1(ctx);
		SUBMIT(r);
	}
	return 0;
}

// rclcpp::Executor::execute_*
#define EXECUTE(program, name, which)                                                              \
	PROBE(program)                                                                             \
	{                                                                                          \
		ENTER();                                                                           \
		mark_thread(pid_tgid);                                                             \
		struct record_##name *r = BEGIN_HIT(name, pid_tgid);                               \
		if (r) {                                                                           \
			r->execute = which;                                                        \
			SUBMIT(r);                                                                 \
		}                                                                                  \
		return 0;                                                                          \
	}

EXECUTE(on_execute_client, execute_start, EXECUTE_CLIENT)
EXECUTE(on_execute_client_return, execute_end, EXECUTE_CLIENT)

// ---- messages
COPY1(on_ring_buffer_clear, ring_buffer_clear, buffer)

// ros_trace_rclcpp_ring_buffer_dequeue(buffer, index)
PROBE(on_ring_buffer_dequeue)
{
	ENTER();
	lineage_dequeue(pid_tgid, ARG1(ctx), ARG2(ctx));
	struct record_ring_buffer_dequeue *r = BEGIN_HIT(ring_buffer_dequeue, pid_tgid);
	if (r) {
		r->buffer = ARG1(ctx);
		r->index = ARG2(ctx);
		SUBMIT(r);
	}
	return 0;
}

// ros_trace_rclcpp_intra_publish(publisher, message)
PROBE(on_intra_publish)
{
	ENTER_TIMED();
	mark_publisher(pid_tgid, now);
	struct record_intra_publish *r = BEGIN_HIT_AT(intra_publish, pid_tgid, now);
	if (r) {
		r->publisher = ARG1(ctx);
		r->message = ARG2(ctx);
		SUBMIT(r);
	}
	return 0;
}

// ros_trace_rclcpp_ring_buffer_enqueue(buffer, index, size, overwritten)
PROBE(on_ring_buffer_enqueue)
{
	ENTER();
	lineage_enqueue(pid_tgid, ARG1(ctx), ARG2(ctx));
	struct record_ring_buffer_enqueue *r = BEGIN_HIT(ring_buffer_enqueue, pid_tgid);
	if (r) {
		r->buffer = ARG1(ctx);
		r->index = ARG2(ctx);
		r->overwritten = ARG4(ctx) & 1;
		SUBMIT(r);
	}
	return 0;
}

// ros_trace_rmw_take(rmw, message, source time stamp, taken)
PROBE(on_take)
{
	ENTER();
	if (!reads(flags, pid_tgid, ARG1(ctx), ENDPOINT_SUBSCRIPTION))
		return 0;
	if (ARG4(ctx) & 1)
		lineage_take(pid_tgid, ARG1(ctx), ARG3(ctx));
	struct record_take *r = BEGIN_HIT(take, pid_tgid);
	if (r) {
		r->rmw = ARG1(ctx);
		r->message = ARG2(ctx);
		r->source_ns = ARG3(ctx);
		r->taken = ARG4(ctx) & 1;
		SUBMIT(r);
	}
	return 0;
}

// ros_trace_rmw_publish(rmw, message, time stamp) since Jazzy
PROBE(on_publish)
{
	ENTER_TIMED();
	if (!is_endpoint(pid_tgid, ARG1(ctx), ENDPOINT_PUBLISHER, now))
		return 0;
	mark_publisher(pid_tgid, now);
	lineage_publish(pid_tgid, ARG1(ctx), ARG3(ctx));
	struct record_publish *r = BEGIN_HIT_AT(publish, pid_tgid, now);
	if (r) {
		r->rmw = ARG1(ctx);
		r->message = ARG2(ctx);
		r->source_ns = ARG3(ctx);
		SUBMIT(r);
	}
	return 0;
}

// rmw_publish(publisher, message, allocation): it is probed before Jazzy, because the tracepoint
// has no handle there.
PROBE(on_publish_unstamped)
{
	ENTER_TIMED();
	if (!is_endpoint(pid_tgid, ARG1(ctx), ENDPOINT_PUBLISHER, now))
		return 0;
	mark_publisher(pid_tgid, now);
	struct record_publish_unstamped *r = BEGIN_HIT_AT(publish_unstamped, pid_tgid, now);
	if (r) {
		r->rmw = ARG1(ctx);
		r->message = ARG2(ctx);
		SUBMIT(r);
	}
	return 0;
}

// ---- requests and responses
static __always_inline int request_send(struct pt_regs *ctx, __u64 pid_tgid, __u64 client,
					__s64 sequence)
{
	struct record_request_send *r = BEGIN_HIT(request_send, pid_tgid);
	if (r) {
		r->rmw = client;
		r->sequence = sequence;
		SUBMIT(r);
	}
	return 0;
}

static __always_inline int request_take(struct pt_regs *ctx, __u64 pid_tgid, __u64 service,
					__u64 gid_address, __s64 sequence, bool taken)
{
	struct record_request_take *r = BEGIN_HIT(request_take, pid_tgid);
	if (r) {
		r->rmw = service;
		r->sequence = sequence;
		READ_GID(r->gid, gid_address);
		r->taken = taken;
		SUBMIT(r);
	}
	return 0;
}

static __always_inline int response_take(struct pt_regs *ctx, __u64 pid_tgid, __u64 client,
					 __s64 sequence, __s64 source_ns, bool taken)
{
	struct record_response_take *r = BEGIN_HIT(response_take, pid_tgid);
	if (r) {
		r->rmw = client;
		r->sequence = sequence;
		r->source_ns = source_ns;
		r->taken = taken;
		SUBMIT(r);
	}
	return 0;
}

// ros_trace_rmw_send_request(client, request, sequence) since Kilted
PROBE(on_request_send)
{
	ENTER();
	if (!is_endpoint(pid_tgid, ARG1(ctx), ENDPOINT_CLIENT, 0))
		return 0;
	return request_send(ctx, pid_tgid, ARG1(ctx), ARG3(ctx));
}

// ros_trace_rmw_take_request(service, request, gid, sequence, taken) since Kilted
PROBE(on_request_take)
{
	ENTER();
	if (!reads(flags, pid_tgid, ARG1(ctx), ENDPOINT_SERVICE))
		return 0;
	return request_take(ctx, pid_tgid, ARG1(ctx), ARG3(ctx), ARG4(ctx), ARG5(ctx) & 1);
}

// ros_trace_rmw_send_response(service, response, gid, sequence, time stamp) since Kilted
PROBE(on_response_send)
{
	ENTER();
	if (!is_endpoint(pid_tgid, ARG1(ctx), ENDPOINT_SERVICE, 0))
		return 0;
	struct record_response_send *r = BEGIN_HIT(response_send, pid_tgid);
	if (!r)
		return 0;
	r->rmw = ARG1(ctx);
	r->sequence = ARG4(ctx);
	READ_GID(r->gid, ARG3(ctx));
	r->source_ns = ARG5(ctx);
	SUBMIT(r);
	return 0;
}

// ros_trace_rmw_take_response(client, response, sequence, source time stamp, taken) since Kilted
PROBE(on_response_take)
{
	ENTER();
	if (!reads(flags, pid_tgid, ARG1(ctx), ENDPOINT_CLIENT))
		return 0;
	return response_take(ctx, pid_tgid, ARG1(ctx), ARG3(ctx), ARG4(ctx), ARG5(ctx) & 1);
}

// ---- requests and responses before Kilted: the rmw functions themselves
// These functions write their results through pointers. The program at the entry keeps the
// pointers, and the program at the return reads the results. rmw_service_info_t is public ABI:
// source time stamp, received time stamp, writer guid (16 bytes), sequence number.
#define INFO_SOURCE_NS 0
#define INFO_GUID 16
#define INFO_SEQUENCE 32

static __always_inline int keep_call(__u64 pid_tgid, __u64 a, __u64 b, __u64 c)
{
	struct call call = { .argument = { a, b, c } };

	bpf_map_update_elem(&calls, &pid_tgid, &call, BPF_ANY);
	return 0;
}

static __always_inline bool returned_call(__u64 pid_tgid, struct call *out)
{
	struct call *call = bpf_map_lookup_elem(&calls, &pid_tgid);

	if (!call)
		return false;
	*out = *call;
	bpf_map_delete_elem(&calls, &pid_tgid);
	return true;
}

// ---- loaned messages: since Jazzy a tracepoint shows their publication, but none shows their take
// rmw_take_loaned_message_with_info(subscription, message **, taken *, info *, allocation)
// rmw_message_info_t begins with the source time stamp.
PROBE(on_rmw_take_loaned)
{
	ENTER();
	if (!reads(flags, pid_tgid, ARG1(ctx), ENDPOINT_SUBSCRIPTION))
		return 0;
	struct call call = { .argument = { ARG1(ctx), ARG2(ctx), ARG3(ctx), ARG4(ctx) } };

	bpf_map_update_elem(&calls, &pid_tgid, &call, BPF_ANY);
	return 0;
}

PROBE(on_rmw_take_loaned_return)
{
	struct call call;
	__s64 source_ns = 0;
	__u64 message = 0;
	bool taken = false;

	ENTER();
	if (!returned_call(pid_tgid, &call))
		return 0;
	bpf_probe_read_user(&message, sizeof(message), (void *)call.argument[1]);
	bpf_probe_read_user(&taken, sizeof(taken), (void *)call.argument[2]);
	bpf_probe_read_user(&source_ns, sizeof(source_ns), (void *)call.argument[3]);
	if (taken)
		lineage_take(pid_tgid, call.argument[0], source_ns);
	struct record_take *r = BEGIN_HIT(take, pid_tgid);
	if (r) {
		r->rmw = call.argument[0];
		r->message = message;
		r->source_ns = source_ns;
		r->taken = taken;
		SUBMIT(r);
	}
	return 0;
}

// rmw_send_request(client, request, sequence *)
PROBE(on_rmw_send_request)
{
	ENTER();
	if (!is_endpoint(pid_tgid, ARG1(ctx), ENDPOINT_CLIENT, 0))
		return 0;
	return keep_call(pid_tgid, ARG1(ctx), ARG3(ctx), 0);
}

PROBE(on_rmw_send_request_return)
{
	struct call call;
	__s64 sequence = 0;

	ENTER();
	if (!returned_call(pid_tgid, &call))
		return 0;
	bpf_probe_read_user(&sequence, sizeof(sequence), (void *)call.argument[1]);
	return request_send(ctx, pid_tgid, call.argument[0], sequence);
}

// rmw_take_request(service, info, request, taken *)
PROBE(on_rmw_take_request)
{
	ENTER();
	if (!reads(flags, pid_tgid, ARG1(ctx), ENDPOINT_SERVICE))
		return 0;
	return keep_call(pid_tgid, ARG1(ctx), ARG2(ctx), ARG4(ctx));
}

PROBE(on_rmw_take_request_return)
{
	struct call call;
	__s64 sequence = 0;
	bool taken = false;

	ENTER();
	if (!returned_call(pid_tgid, &call))
		return 0;
	__u64 info = call.argument[1];
	bpf_probe_read_user(&sequence, sizeof(sequence), (void *)(info + INFO_SEQUENCE));
	bpf_probe_read_user(&taken, sizeof(taken), (void *)call.argument[2]);
	return request_take(ctx, pid_tgid, call.argument[0], info + INFO_GUID, sequence, taken);
}

// rmw_send_response(service, request id, response); rmw_request_id_t: guid (16 bytes), sequence
PROBE(on_rmw_send_response)
{
	__s64 sequence = 0;

	ENTER();
	if (!is_endpoint(pid_tgid, ARG1(ctx), ENDPOINT_SERVICE, 0))
		return 0;
	struct record_response_send_unstamped *r = BEGIN_HIT(response_send_unstamped, pid_tgid);
	if (r) {
		bpf_probe_read_user(&sequence, sizeof(sequence), (void *)(ARG2(ctx) + 16));
		r->rmw = ARG1(ctx);
		r->sequence = sequence;
		READ_GID(r->gid, ARG2(ctx));
		SUBMIT(r);
	}
	return 0;
}

// rmw_take_response(client, info, response, taken *)
PROBE(on_rmw_take_response)
{
	ENTER();
	if (!reads(flags, pid_tgid, ARG1(ctx), ENDPOINT_CLIENT))
		return 0;
	return keep_call(pid_tgid, ARG1(ctx), ARG2(ctx), ARG4(ctx));
}

PROBE(on_rmw_take_response_return)
{
	struct call call;
	__s64 source_ns = 0, sequence = 0;
	bool taken = false;

	ENTER();
	if (!returned_call(pid_tgid, &call))
		return 0;
	__u64 info = call.argument[1];
	bpf_probe_read_user(&source_ns, sizeof(source_ns), (void *)(info + INFO_SOURCE_NS));
	bpf_probe_read_user(&sequence, sizeof(sequence), (void *)(info + INFO_SEQUENCE));
	bpf_probe_read_user(&taken, sizeof(taken), (void *)call.argument[2]);
	return response_take(ctx, pid_tgid, call.argument[0], sequence, source_ns, taken);
}

// ---- waiting
// The public start of rcl_wait_set_t: arrays with their sizes.
struct rcl_wait_set {
	__u64 subscriptions;
	__u64 size_of_subscriptions;
	__u64 guard_conditions;
	__u64 size_of_guard_conditions;
	__u64 timers;
	__u64 size_of_timers;
	__u64 clients;
	__u64 size_of_clients;
	__u64 services;
	__u64 size_of_services;
};

static __always_inline void copy_handles(struct handles *to, __u64 from, __u64 count)
{
	if (count > WAIT_SET_MAX)
		count = WAIT_SET_MAX;
	if (!from || count == 0 ||
	    bpf_probe_read_user(to->handle, count * sizeof(to->handle[0]), (void *)from))
		count = 0;
	to->count = count;
}

// rcl_wait(wait set, timeout)
PROBE(on_wait)
{
	ENTER();
	mark_thread(pid_tgid);
	lineage_end(pid_tgid);
	struct record_wait *r = BEGIN_HIT(wait, pid_tgid);
	if (r)
		SUBMIT(r);
	__u8 *t = flag_of(&threads, (__u32)pid_tgid);
	if (!t)
		return 0;
	if (have_regs)
		*t |= THREAD_IN_WAIT | THREAD_NEW_WAIT | THREAD_WAITER;
	// A thread's wait set in a late process leads to the names of its endpoints, and these to the
	// names of its nodes.
	struct rcl_wait_set set = {};
	if (!(flags & PROCESS_LATE) || (*t & THREAD_WAIT_SET))
		return 0;
	if (bpf_probe_read_user(&set, sizeof(set), (void *)ARG1(ctx)))
		return 0;
	struct record_wait_set *w = BEGIN(wait_set, pid_tgid);
	if (!w)
		return 0;
	*t |= THREAD_WAIT_SET;
	copy_handles(&w->subscriptions, set.subscriptions, set.size_of_subscriptions);
	copy_handles(&w->timers, set.timers, set.size_of_timers);
	copy_handles(&w->clients, set.clients, set.size_of_clients);
	copy_handles(&w->services, set.services, set.size_of_services);
	SUBMIT_NOW(w);
	return 0;
}
