// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The programs for applications of plain DDS: Cyclone DDS through its C functions, Fast DDS through
// its C++ functions.
//
// They make the events of ROS 2: a writer is a publisher, a reader is a subscription, and a
// listener's function is a callback. The process is the node, which the recorder reports.
//
// ROS 2 uses the same libraries and is recorded one layer above, so its processes are left out.
#pragma once

// Endpoint kinds in the map `endpoints`, in addition to those of maps.h.
#define ENDPOINT_DDS_TOPIC 7
#define ENDPOINT_DDS_CONDITION 8
#define ENDPOINT_DDS_LISTENER 9

// The topics by their handle, with the names that ROS 2 uses for them.
struct dds_topic {
	char name[TEXT_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct endpoint_key);
	__type(value, struct dds_topic);
} dds_topics SEC(".maps");

// The initial value of an entry of `dds_topics`. It is never written.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dds_topic);
} dds_no_topic SEC(".maps");

// The reader of a condition, by the condition's handle.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct endpoint_key);
	__type(value, __u64);
} dds_conditions SEC(".maps");

// The reported functions of listeners, with the program of the process that was running then.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct endpoint_key);
	__type(value, __u64);
} dds_listeners SEC(".maps");

// The listener functions that a thread is in. There may be several, because a function may write a
// sample that another one takes at once.
#define DDS_DEPTH 4
struct dds_frame {
	__u64 reader;
	__u64 start_ns; // 0: the start has been reported
};

struct dds_frames {
	__u64 depth;
	struct dds_frame frame[DDS_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct dds_frames);
} dds_threads SEC(".maps");

// Returns whether ROS 2 uses the library in this process, and is recorded itself.
static __always_inline bool is_of_ros(__u64 pid_tgid)
{
	__u8 *p = flag_of(&processes, pid_tgid >> 32);

	return !p || (*p & PROCESS_ROS);
}

#define ENTER_DDS()                                                                                \
	if (is_of_ros(bpf_get_current_pid_tgid()))                                                 \
		return 0;                                                                          \
	ENTER()

// The key of a call within which the library may run a listener's function, which calls the library
// again.
#define OUTER(pid_tgid) ((pid_tgid) | 1ULL << 63)

// The entities of Cyclone DDS are 32-bit numbers, negative for an error.
#define CYCLONE 0
#define FAST 1

static __always_inline __u64 dds_handle(__u64 value, __u64 library)
{
	if (library == FAST)
		return value;
	return (__s32)value > 0 ? (__u32)value : 0;
}

// Returns the address of a topic's name in ROS 2: the topic /x is rt/x in DDS.
static __always_inline __u64 dds_name(__u64 address)
{
	char start[3] = {};

	bpf_probe_read_user(start, sizeof(start), (void *)address);
	return start[0] == 'r' && start[1] == 't' && start[2] == '/' ? address + 2 : address;
}

// The first word of a std::string points to its characters.
static __always_inline __u64 cpp_string(__u64 string)
{
	__u64 text = 0;

	bpf_probe_read_user(&text, sizeof(text), (void *)string);
	return text;
}

static __always_inline void keep_outer(__u64 pid_tgid, __u64 a, __u64 b, __u64 library)
{
	struct call call = { .argument = { a, b, library } };
	__u64 key = OUTER(pid_tgid);

	bpf_map_update_elem(&calls, &key, &call, BPF_ANY);
}

static __always_inline bool returned_outer(__u64 pid_tgid, struct call *out)
{
	struct call *call;
	__u64 key = OUTER(pid_tgid);

	call = bpf_map_lookup_elem(&calls, &key);
	if (!call)
		return false;
	*out = *call;
	bpf_map_delete_elem(&calls, &key);
	return true;
}

// ---- topics
// A program for a function that makes a topic with this name.
#define DDS_TOPIC(program, name, library)                                                          \
	PROBE(program)                                                                             \
	{                                                                                          \
		ENTER_DDS();                                                                       \
		count_hit(ctx);                                                                    \
		keep_outer(pid_tgid, name, 0, library);                                            \
		return 0;                                                                          \
	}

// dds_create_topic(participant, descriptor, name, qos, listener)
DDS_TOPIC(on_cyclone_topic, ARG3(ctx), CYCLONE)
// dds_create_topic_sertype(participant, name, type, qos, listener)
DDS_TOPIC(on_cyclone_topic_of_type, ARG2(ctx), CYCLONE)
// DomainParticipant::create_topic(this, const std::string &name, ...)
DDS_TOPIC(on_fast_topic, cpp_string(ARG2(ctx)), FAST)

PROBE(on_dds_topic_return)
{
	struct endpoint_key key = { .endpoint = ENDPOINT_DDS_TOPIC };
	struct dds_topic *topic;
	struct call call;
	__u32 zero = 0;

	ENTER_DDS();
	if (!returned_outer(pid_tgid, &call))
		return 0;
	key.handle = dds_handle(PT_REGS_RC(ctx), call.argument[2]);
	key.tgid = pid_tgid >> 32;
	topic = bpf_map_lookup_elem(&dds_no_topic, &zero);
	if (!key.handle || !topic)
		return 0;
	bpf_map_update_elem(&dds_topics, &key, topic, BPF_ANY);
	topic = bpf_map_lookup_elem(&dds_topics, &key);
	if (topic)
		READ_TEXT(topic->name, dds_name(call.argument[0]));
	return 0;
}

// ---- readers and writers
// A program for a function that makes a reader or writer. The topic is given by its handle, or by
// the address of its name.
#define DDS_ENDPOINT(program, topic, name, library)                                                \
	PROBE(program)                                                                             \
	{                                                                                          \
		ENTER_DDS();                                                                       \
		count_hit(ctx);                                                                    \
		keep_outer(pid_tgid, topic, name, library);                                        \
		return 0;                                                                          \
	}

// dds_create_reader(subscriber, topic, qos, listener), dds_create_writer(publisher, topic, ...)
DDS_ENDPOINT(on_cyclone_endpoint, (__u32)ARG2(ctx), 0, CYCLONE)
// Publisher::create_datawriter(this, Topic *, ...)
DDS_ENDPOINT(on_fast_writer, ARG2(ctx), 0, FAST)

// Fills a field with the topic's name from a kept call, or leaves it empty if the name is unknown.
// The recorder leaves such endpoints out and reports their number.
#define READ_TOPIC(field, call, pid_tgid)                                                          \
	do {                                                                                       \
		struct endpoint_key _key = { .handle = (call).argument[0],                         \
					     .tgid = (pid_tgid) >> 32,                             \
					     .endpoint = ENDPOINT_DDS_TOPIC };                     \
		struct dds_topic *_topic = bpf_map_lookup_elem(&dds_topics, &_key);                \
		if (_topic)                                                                        \
			bpf_probe_read_kernel(field, TEXT_BYTES, _topic->name);                    \
		else                                                                               \
			READ_TEXT(field, dds_name((call).argument[1]));                            \
	} while (0)

PROBE(on_dds_writer_return)
{
	struct call call;

	ENTER_DDS();
	if (!returned_outer(pid_tgid, &call))
		return 0;
	__u64 writer = dds_handle(PT_REGS_RC(ctx), call.argument[2]);
	if (!writer)
		return 0;
	// The thread may write later. Its waiting before that belongs to its executions.
	mark_publisher(pid_tgid, 0);
	struct record_publisher_init *r = BEGIN_HIT(publisher_init, pid_tgid);
	if (r) {
		r->publisher = writer;
		r->node = DDS_NODE;
		r->rmw = writer;
		r->depth = 0;
		READ_TOPIC(r->topic, call, pid_tgid);
		SUBMIT(r);
	}
	return 0;
}

PROBE(on_dds_reader_return)
{
	bool is_named = true;
	struct call call;

	ENTER_DDS();
	if (!returned_outer(pid_tgid, &call))
		return 0;
	__u64 reader = dds_handle(PT_REGS_RC(ctx), call.argument[2]);
	if (!reader)
		return 0;
	struct record_subscription_init *r = BEGIN_HIT(subscription_init, pid_tgid);
	if (r) {
		r->subscription = reader;
		r->node = DDS_NODE;
		r->rmw = reader;
		r->depth = 0;
		READ_TOPIC(r->topic, call, pid_tgid);
		is_named = r->topic[0];
		SUBMIT(r);
	}
	if (!is_named)
		return 0;
	struct record_subscription_object *o = BEGIN(subscription_object, pid_tgid);
	if (o) {
		o->subscription = reader;
		o->object = reader;
		SUBMIT(o);
	}
	struct record_subscription_callback *c = BEGIN(subscription_callback, pid_tgid);
	if (c) {
		c->object = reader;
		c->callback = reader;
		SUBMIT(c);
	}
	return 0;
}

// dds_delete(entity)
PROBE(on_cyclone_delete)
{
	ENTER_DDS();
	struct record_handle_fini *r = BEGIN_HIT(handle_fini, pid_tgid);
	if (r) {
		r->handle = (__u32)ARG1(ctx);
		SUBMIT(r);
	}
	return 0;
}

// Subscriber::delete_datareader(this, reader), Publisher::delete_datawriter(this, writer)
PROBE(on_fast_delete)
{
	ENTER_DDS();
	struct record_handle_fini *r = BEGIN_HIT(handle_fini, pid_tgid);
	if (r) {
		r->handle = ARG2(ctx);
		SUBMIT(r);
	}
	return 0;
}

// dds_create_readcondition(reader, mask), dds_create_querycondition(reader, mask, filter)
PROBE(on_cyclone_condition)
{
	ENTER_DDS();
	count_hit(ctx);
	keep_outer(pid_tgid, (__u32)ARG1(ctx), 0, CYCLONE);
	return 0;
}

PROBE(on_cyclone_condition_return)
{
	struct endpoint_key key = { .endpoint = ENDPOINT_DDS_CONDITION };
	struct call call;

	ENTER_DDS();
	if (!returned_outer(pid_tgid, &call))
		return 0;
	key.handle = dds_handle(PT_REGS_RC(ctx), CYCLONE);
	key.tgid = pid_tgid >> 32;
	if (key.handle)
		bpf_map_update_elem(&dds_conditions, &key, &call.argument[0], BPF_ANY);
	return 0;
}

// ---- listeners
// Reports a listener's function for new data, so that the recorder probes it before it can be
// called.
static __always_inline void dds_listens(struct pt_regs *ctx, __u64 pid_tgid, __u64 function,
					__u64 library)
{
	__u8 *p = flag_of(&processes, pid_tgid >> 32);
	struct endpoint_key key = { .handle = function,
				    .tgid = pid_tgid >> 32,
				    .endpoint = ENDPOINT_DDS_LISTENER };
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 program = BPF_CORE_READ(task, self_exec_id), *before;

	count_hit(ctx);
	if (!function || !p)
		return;
	// Many readers share one function. A function that this program has already reported needs no
	// second wait.
	before = bpf_map_lookup_elem(&dds_listeners, &key);
	if (before && *before == program)
		return;
	struct record_dds_listener *r = BEGIN(dds_listener, pid_tgid);
	if (!r)
		return;
	r->function = function;
	r->fast = library;
	r->stopped = stop_until_probed(*p);
	SUBMIT_NOW(r);
	bpf_map_update_elem(&dds_listeners, &key, &program, BPF_ANY);
}

// dds_lset_data_available(listener, function)
PROBE(on_cyclone_listener)
{
	ENTER_DDS();
	dds_listens(ctx, pid_tgid, ARG2(ctx), CYCLONE);
	return 0;
}

// on_data_available is the third entry of a listener's virtual table, after two destructors. The
// public class has had this order since Fast DDS 2.0.
#define ON_DATA_AVAILABLE 16

static __always_inline void fast_listens(struct pt_regs *ctx, __u64 pid_tgid, __u64 listener)
{
	__u64 table = 0, function = 0;

	if (!listener)
		return;
	bpf_probe_read_user(&table, sizeof(table), (void *)listener);
	bpf_probe_read_user(&function, sizeof(function), (void *)(table + ON_DATA_AVAILABLE));
	dds_listens(ctx, pid_tgid, function, FAST);
}

// DataReader::set_listener(this, listener)
PROBE(on_fast_set_listener)
{
	ENTER_DDS();
	fast_listens(ctx, pid_tgid, ARG2(ctx));
	return 0;
}

// DomainParticipant::create_subscriber(this, qos, listener, mask)
PROBE(on_fast_subscriber)
{
	ENTER_DDS();
	fast_listens(ctx, pid_tgid, ARG3(ctx));
	return 0;
}

// Subscriber::create_datareader(this, TopicDescription *, qos, listener, ...): a TopicDescription
// has its name after its virtual table pointer.
PROBE(on_fast_reader)
{
	ENTER_DDS();
	keep_outer(pid_tgid, 0, cpp_string(ARG2(ctx) + 8), FAST);
	fast_listens(ctx, pid_tgid, ARG4(ctx));
	return 0;
}

// Handles the begin of a listener's function. Its start is reported together with the first sample
// that it takes, which is its input.
static __always_inline int dds_callback(struct pt_regs *ctx, __u64 pid_tgid, __u64 reader)
{
	struct dds_frames none = {}, *frames;

	count_hit(ctx);
	mark_thread(pid_tgid);
	frames = bpf_map_lookup_elem(&dds_threads, &pid_tgid);
	if (!frames) {
		bpf_map_update_elem(&dds_threads, &pid_tgid, &none, BPF_ANY);
		frames = bpf_map_lookup_elem(&dds_threads, &pid_tgid);
	}
	if (!frames)
		return 0;
	if (frames->depth < DDS_DEPTH) {
		struct dds_frame *frame = &frames->frame[frames->depth & (DDS_DEPTH - 1)];

		frame->reader = reader;
		frame->start_ns = bpf_ktime_get_ns();
	}
	frames->depth += 1;
	return 0;
}

// on_data_available(reader, argument)
PROBE(on_cyclone_callback)
{
	ENTER_DDS();
	return dds_callback(ctx, pid_tgid, (__u32)ARG1(ctx));
}

// DataReaderListener::on_data_available(this, reader)
PROBE(on_fast_callback)
{
	ENTER_DDS();
	return dds_callback(ctx, pid_tgid, ARG2(ctx));
}

// Returns the listener's function that the thread is in, or 0 if there is none.
static __always_inline struct dds_frame *dds_frame(__u64 pid_tgid)
{
	struct dds_frames *frames = bpf_map_lookup_elem(&dds_threads, &pid_tgid);

	if (!frames || frames->depth == 0 || frames->depth > DDS_DEPTH)
		return 0;
	return &frames->frame[(frames->depth - 1) & (DDS_DEPTH - 1)];
}

static __always_inline void dds_start(__u64 pid_tgid, struct dds_frame *frame)
{
	struct record_callback_start *r = BEGIN_AT(callback_start, pid_tgid, frame->start_ns);

	if (r) {
		r->intra_process = 0;
		r->callback = frame->reader;
		SUBMIT(r);
	}
	frame->start_ns = 0;
}

PROBE(on_dds_callback_return)
{
	__u64 now = bpf_ktime_get_ns();
	struct dds_frames *frames;
	struct dds_frame *frame;

	ENTER_DDS();
	frames = bpf_map_lookup_elem(&dds_threads, &pid_tgid);
	frame = dds_frame(pid_tgid);
	if (frame) {
		if (frame->start_ns)
			dds_start(pid_tgid, frame);
		account_for(pid_tgid, now);
		struct record_callback_end *r = BEGIN_HIT_AT(callback_end, pid_tgid, now);
		if (r) {
			r->callback = frame->reader;
			SUBMIT(r);
		}
	}
	if (frames && frames->depth)
		frames->depth -= 1;
	return 0;
}

// ---- samples
// Notes that a thread writes.
static __always_inline void dds_writes(__u64 pid_tgid, __u64 now)
{
	struct dds_frame *frame = dds_frame(pid_tgid);

	// The function took nothing before, so its sample does not depend on an input.
	if (frame && frame->start_ns)
		dds_start(pid_tgid, frame);
	mark_publisher(pid_tgid, now);
}

// Reports a write. The library reads the time within the call, and only readers see it.
static __always_inline int dds_write(struct pt_regs *ctx, __u64 pid_tgid, __u64 writer, __u64 now)
{
	dds_writes(pid_tgid, now);
	struct record_publish_unstamped *r = BEGIN_HIT_AT(publish_unstamped, pid_tgid, now);
	if (r) {
		r->rmw = writer;
		r->message = 0;
		SUBMIT(r);
	}
	return 0;
}

// dds_write(writer, sample), dds_writecdr(writer, data), dds_writedispose(writer, sample)
PROBE(on_cyclone_write)
{
	__u64 now = bpf_ktime_get_ns();

	ENTER_DDS();
	return dds_write(ctx, pid_tgid, (__u32)ARG1(ctx), now);
}

// DataWriter::write(this, sample, ...)
PROBE(on_fast_write)
{
	__u64 now = bpf_ktime_get_ns();

	ENTER_DDS();
	return dds_write(ctx, pid_tgid, ARG1(ctx), now);
}

// dds_write_ts(writer, sample, time)
PROBE(on_cyclone_write_ts)
{
	__u64 now = bpf_ktime_get_ns();

	ENTER_DDS();
	dds_writes(pid_tgid, now);
	struct record_publish *r = BEGIN_HIT_AT(publish, pid_tgid, now);
	if (r) {
		r->rmw = (__u32)ARG1(ctx);
		r->message = 0;
		r->source_ns = ARG3(ctx);
		SUBMIT(r);
	}
	return 0;
}

// Reports a sample that was taken or read. The first one in a listener's function is the function's
// input.
static __always_inline void dds_took(__u64 pid_tgid, __u64 reader, __s64 source_ns, bool taken)
{
	struct dds_frame *frame = dds_frame(pid_tgid);
	bool is_input = frame && frame->start_ns && taken;
	__u64 when = is_input ? frame->start_ns : bpf_ktime_get_ns();

	// In a listener's function, an empty take means nothing.
	if (frame && !taken)
		return;
	if (is_input && frame->reader != reader) {
		dds_start(pid_tgid, frame);
		is_input = false;
	}
	struct record_take *r = BEGIN_AT(take, pid_tgid, when);
	if (r) {
		r->rmw = reader;
		r->message = 0;
		r->source_ns = source_ns;
		r->taken = taken;
		SUBMIT(r);
	}
	if (is_input)
		dds_start(pid_tgid, frame);
}

// The largest number of samples of one call that are reported.
#define SAMPLES_MAX 16
#define NOT_READ 2 // sample state: no call has returned the sample before

// dds_sample_info_t, public since Cyclone DDS 0.1: three states, whether the data is valid, and the
// time.
struct cyclone_info {
	__u32 state;
	__u32 view;
	__u32 instance;
	__u32 valid;
	__s64 source_ns;
	__u8 rest[40];
};

static __always_inline void keep_take(__u64 pid_tgid, __u64 reader, __u64 infos)
{
	struct call call = { .argument = { reader, infos } };

	bpf_map_update_elem(&calls, &pid_tgid, &call, BPF_ANY);
}

// dds_take(reader, samples, infos, ...), dds_read(...) and their variants
PROBE(on_cyclone_take)
{
	ENTER_DDS();
	count_hit(ctx);
	keep_take(pid_tgid, (__u32)ARG1(ctx), ARG3(ctx));
	return 0;
}

// dds_takecdr(reader, data, most, infos, mask), dds_readcdr(...)
PROBE(on_cyclone_take_cdr)
{
	ENTER_DDS();
	count_hit(ctx);
	keep_take(pid_tgid, (__u32)ARG1(ctx), ARG4(ctx));
	return 0;
}

PROBE(on_cyclone_take_return)
{
	struct endpoint_key key = { .endpoint = ENDPOINT_DDS_CONDITION };
	__s32 count = (__s32)PT_REGS_RC(ctx);
	struct cyclone_info info;
	bool is_taken = false;
	struct call call;
	__u64 reader, *of;

	ENTER_DDS();
	if (!returned_call(pid_tgid, &call))
		return 0;
	mark_thread(pid_tgid);
	reader = key.handle = call.argument[0];
	key.tgid = pid_tgid >> 32;
	of = bpf_map_lookup_elem(&dds_conditions, &key);
	if (of)
		reader = *of;
	for (int i = 0; i < SAMPLES_MAX; i++) {
		if (i >= count ||
		    bpf_probe_read_user(&info, sizeof(info),
					(void *)(call.argument[1] + i * sizeof(info))))
			break;
		if (!(info.valid & 0xff) || info.state != NOT_READ)
			continue;
		dds_took(pid_tgid, reader, info.source_ns, true);
		is_taken = true;
	}
	if (!is_taken)
		dds_took(pid_tgid, reader, 0, false);
	return 0;
}

// SampleInfo of Fast DDS is public. It begins with its state. The time follows after five counts,
// and whether the data is valid after two handles.
#define FAST_SECONDS 28
#define FAST_NANOSECONDS 36

static __always_inline bool fast_took(__u64 pid_tgid, __u64 reader, __u64 info)
{
	__u32 seconds = 0, nanoseconds = 0;
	__u16 state = 0;

	bpf_probe_read_user(&state, sizeof(state), (void *)info);
	bpf_probe_read_user(&seconds, sizeof(seconds), (void *)(info + FAST_SECONDS));
	bpf_probe_read_user(&nanoseconds, sizeof(nanoseconds), (void *)(info + FAST_NANOSECONDS));
	// A sample that only reports an instance's end also has a time. It counts, because it was written.
	if (state != NOT_READ || !seconds)
		return false;
	dds_took(pid_tgid, reader, seconds * 1000000000ULL + nanoseconds, true);
	return true;
}

// DataReader::take_next_sample(this, data, info), read_next_sample(...)
PROBE(on_fast_take_next)
{
	ENTER_DDS();
	count_hit(ctx);
	keep_take(pid_tgid, ARG1(ctx), ARG3(ctx));
	return 0;
}

PROBE(on_fast_take_next_return)
{
	struct call call;

	ENTER_DDS();
	if (!returned_call(pid_tgid, &call))
		return 0;
	mark_thread(pid_tgid);
	// RETCODE_OK
	if ((__u32)PT_REGS_RC(ctx) != 0 || !fast_took(pid_tgid, call.argument[0], call.argument[1]))
		dds_took(pid_tgid, call.argument[0], 0, false);
	return 0;
}

// DataReader::take(this, samples, infos, ...), read(...), take_instance(...)
PROBE(on_fast_take)
{
	ENTER_DDS();
	count_hit(ctx);
	keep_take(pid_tgid, ARG1(ctx), ARG3(ctx));
	return 0;
}

// LoanableCollection of Fast DDS is public: its virtual table pointer, capacity, length, and the
// addresses of its elements.
struct fast_sequence {
	__u64 table;
	__u32 capacity;
	__u32 length;
	__u64 elements;
};

PROBE(on_fast_take_return)
{
	struct fast_sequence infos = {};
	bool is_taken = false;
	struct call call;
	__u64 info = 0;

	ENTER_DDS();
	if (!returned_call(pid_tgid, &call))
		return 0;
	mark_thread(pid_tgid);
	if ((__u32)PT_REGS_RC(ctx) == 0)
		bpf_probe_read_user(&infos, sizeof(infos), (void *)call.argument[1]);
	for (__u32 i = 0; i < SAMPLES_MAX; i++) {
		if (i >= infos.length ||
		    bpf_probe_read_user(&info, sizeof(info), (void *)(infos.elements + i * 8)))
			break;
		is_taken |= fast_took(pid_tgid, call.argument[0], info);
	}
	if (!is_taken)
		dds_took(pid_tgid, call.argument[0], 0, false);
	return 0;
}

// ---- waiting
// dds_waitset_wait(...), WaitSet::wait(...), DataReader::wait_for_unread_message(...)
// The work on the last sample ends here.
PROBE(on_dds_wait)
{
	__u64 now = bpf_ktime_get_ns();

	ENTER_DDS();
	account_for(pid_tgid, now);
	mark_thread(pid_tgid);
	struct record_wait *r = BEGIN_HIT_AT(wait, pid_tgid, now);
	if (r)
		SUBMIT(r);
	return 0;
}
