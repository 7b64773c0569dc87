// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The kernel side of the recorder: each program turns one probe hit into one ring buffer record.
//
// Rules for everything here: no unbounded loop, nothing that can wait, and nothing is lost
// silently: a record that finds the ring buffer full is counted by kind and CPU.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <linux/types.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum kind {
#define KIND(name, number) K_##name = number,
#include "kinds.h"
#undef KIND
	K_COUNT = 96,
};

// ---- settings, fixed at load time
const volatile bool observe_all;       // every ROS 2 process, not only those marked
const volatile bool stop_on_load;      // hold a process of the command until probes are in place
const volatile bool switch_has_state;  // sched_switch passes prev_state (Linux 5.18)
const volatile bool have_cookie;       // bpf_get_attach_cookie (Linux 5.15)
const volatile bool have_storage;      // task->bpf_storage tells observed threads (Linux 5.13)
const volatile bool have_delays;       // task->sched_info tells how long it was ready (Linux 5.14)
const volatile bool have_steal;        // a hypervisor may take this machine's CPUs away
const volatile __s64 steal_distance;   // from a CPU's run queue to its struct kvm_steal_time
const volatile __u64 wakeup_bytes;     // wake the reader from this fill level on
const volatile __u32 own_tgid;         // the recorder itself

// ---- the few fields of kernel structs that we read (CO-RE: offsets come from the kernel's BTF)
struct atomic_counter {
	int counter;
} __attribute__((preserve_access_index));

struct signal_struct {
	struct atomic_counter live;
} __attribute__((preserve_access_index));

struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct mnt_namespace {
	struct ns_common ns;
} __attribute__((preserve_access_index));

struct nsproxy {
	struct mnt_namespace *mnt_ns;
} __attribute__((preserve_access_index));

struct super_block {
	__u32 s_dev;
} __attribute__((preserve_access_index));

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
} __attribute__((preserve_access_index));

struct file {
	struct inode *f_inode;
} __attribute__((preserve_access_index));

struct mm_struct {
	struct file *exe_file;
} __attribute__((preserve_access_index));

struct rq {
	__u64 clock;
} __attribute__((preserve_access_index));

struct cfs_rq {
	struct rq *rq;
} __attribute__((preserve_access_index));

struct sched_entity {
	struct cfs_rq *cfs_rq;
} __attribute__((preserve_access_index));

// What a KVM host tells each CPU of its guest.
struct kvm_steal_time {
	__u64 steal;
} __attribute__((preserve_access_index));

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_queued;
} __attribute__((preserve_access_index));

struct task_struct {
	struct nsproxy *nsproxy;
	struct mm_struct *mm;
	unsigned int __state;
	int prio;
	unsigned int policy;
	int pid;
	int tgid;
	char comm[16];
	struct signal_struct *signal;
	void *bpf_storage;
	struct sched_entity se;
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

struct task_struct___before_5_14 {
	long state;
} __attribute__((preserve_access_index));

// ---- records
#define NAME_MAX_BYTES 256

struct record {
	__u64 time_ns;
	__u32 pid;
	__u32 tid;
	__u16 kind;
	__u16 cpu;
	__u16 small;
	__u16 probe; // number of the probe that was hit; 0 where there is none
};

struct record1 {
	struct record head;
	__u64 a[1];
};

struct record2 {
	struct record head;
	__u64 a[2];
};

struct record3 {
	struct record head;
	__u64 a[3];
};

struct record4 {
	struct record head;
	__u64 a[4];
};

struct record5 {
	struct record head;
	__u64 a[5];
};

struct record_names {
	struct record head;
	__u64 a[4];
	char name[2][NAME_MAX_BYTES];
};

#define WAIT_SET_MAX 64
struct record_wait_set {
	struct record head;
	__u64 counts[4];
	__u64 subscriptions[WAIT_SET_MAX];
	__u64 timers[WAIT_SET_MAX];
	__u64 clients[WAIT_SET_MAX];
	__u64 services[WAIT_SET_MAX];
};

// ---- maps
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20); // set by the recorder
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, K_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

#define PROBES_MAX 1024
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROBES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

// One byte for each process and thread id: an array lookup is inlined by the JIT, and a plain
// byte store needs no atomic instruction (which kernels before 5.12 lack).
#define IDS_PER_SLOT 64
#define ID_SLOTS (4194304 / IDS_PER_SLOT)
struct id_slot {
	__u8 flags[IDS_PER_SLOT];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); // the recorder marks processes in it
	__uint(max_entries, ID_SLOTS);
	__type(key, __u32);
	__type(value, struct id_slot);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ID_SLOTS);
	__type(key, __u32);
	__type(value, struct id_slot);
} threads SEC(".maps");

// Made for each thread that runs callbacks, so that the scheduler's probes see from the
// task_struct, which they have in hand, that they need not look further.
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64); // sched_info.run_delay when it went to sleep
} observed_tasks SEC(".maps");

// Stolen time of each CPU, as far as it was reported.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} stolen_before SEC(".maps");

#define P_MARKED 1 // named by the user, or of the command's tree
#define P_SEEN 2   // its first hit was reported
#define P_LATE 4   // was there before its probes (the recorder knows): recover names

#define T_SEEN 1      // runs callbacks: scheduler events are recorded
#define T_WAIT_SET 2  // its wait set was reported
#define T_ASLEEP 4    // left its CPU to wait for something

// Endpoints of late processes whose name was reported.
struct endpoint_key {
	__u64 handle;
	__u32 tgid;
	__u32 endpoint;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct endpoint_key);
	__type(value, __u8);
} endpoints SEC(".maps");

// Arguments kept from a function's entry to its return.
struct call {
	__u64 a[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct call);
} calls SEC(".maps");

// Last link_map of each process that was looked at by on_dl_state.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u64);
} link_tails SEC(".maps");

// Mount namespaces whose dynamic linker the recorder was told of.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} mounts SEC(".maps");

// Programs that the recorder was told of.
struct program {
	__u64 inode;
	__u64 device;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct program);
	__type(value, __u8);
} programs SEC(".maps");

// Distance from _dl_debug_state to _r_debug in each dynamic linker, by cookie, or by its place in its page.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROBES_MAX);
	__type(key, __u32);
	__type(value, __s64);
} r_debug_distance SEC(".maps");

// ---- helpers
static __always_inline __u8 *flag_of(void *map, __u32 id)
{
	__u32 slot = id / IDS_PER_SLOT;
	struct id_slot *s = bpf_map_lookup_elem(map, &slot);

	return s ? &s->flags[id % IDS_PER_SLOT] : 0;
}

static __always_inline void count_lost(__u32 kind)
{
	__u64 *n = bpf_map_lookup_elem(&lost, &kind);

	if (n)
		*n += 1;
}

// Counts a hit that makes no record of its own; the recorder counts the others.
static __always_inline void count_hit(void *ctx)
{
	if (have_cookie) {
		__u32 probe = (__u32)bpf_get_attach_cookie(ctx);
		__u64 *n = bpf_map_lookup_elem(&hits, &probe);

		if (n)
			*n += 1;
	}
}

static __always_inline __u64 wakeup_flag(void)
{
	return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >= wakeup_bytes ? BPF_RB_FORCE_WAKEUP
									   : BPF_RB_NO_WAKEUP;
}

// bpf_ringbuf_reserve wants a constant size, so this is a macro.
#define BEGIN_AT(record_type, record_kind, who, when)                                                      \
	({                                                                                         \
		struct record_type *_r = bpf_ringbuf_reserve(&ring, sizeof(struct record_type), 0); \
		if (_r) {                                                                          \
			_r->head.time_ns = (when);                                                 \
			_r->head.pid = (who) >> 32;                                                \
			_r->head.tid = (__u32)(who);                                               \
			_r->head.kind = (record_kind);                                             \
			_r->head.cpu = bpf_get_smp_processor_id();                                 \
			_r->head.small = 0;                                                        \
			_r->head.probe = 0;                                                        \
		} else {                                                                           \
			count_lost(record_kind);                                                   \
		}                                                                                  \
		_r;                                                                                \
	})

#define BEGIN(record_type, record_kind, who)                                                       \
	BEGIN_AT(record_type, record_kind, who, bpf_ktime_get_ns())

// The same for the hit of a numbered probe.
#define BEGIN_HIT_AT(record_type, record_kind, who, when)                                          \
	({                                                                                         \
		struct record_type *_h = BEGIN_AT(record_type, record_kind, who, when);            \
		if (_h)                                                                            \
			_h->head.probe = have_cookie ? (__u16)bpf_get_attach_cookie(ctx) : 0;      \
		_h;                                                                                \
	})
#define BEGIN_HIT(record_type, record_kind, who)                                                   \
	BEGIN_HIT_AT(record_type, record_kind, who, bpf_ktime_get_ns())

// Ordinary records wait for the recorder to come by. Asking for the fill level costs more than the
// rest of a submission, so only about one record in 64 asks.
#define SUBMIT(r)                                                                                  \
	bpf_ringbuf_submit(r, (r)->head.time_ns % 64 == 0 ? wakeup_flag() : BPF_RB_NO_WAKEUP)
#define SUBMIT_NOW(r) bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP)

// The time that was read already, if it was.
#define AT(now) ((now) ? (now) : bpf_ktime_get_ns())

// Is the current process observed? Reports it at its first hit, with the time `now` if that is not 0.
static __always_inline __u8 observed(__u32 kind, __u64 pid_tgid, __u64 now)
{
	__u8 *p = flag_of(&processes, pid_tgid >> 32);
	__u8 flags;

	if (!p)
		return 0;
	flags = *p;
	if (flags & P_SEEN)
		return flags;
	if (!observe_all && !(flags & P_MARKED))
		return 0;
	flags |= P_SEEN;
	*p = flags;
	struct record1 *r = BEGIN_AT(record1, K_PROCESS_SEEN, pid_tgid, AT(now));
	if (r) {
		r->head.small = (flags & P_LATE) != 0;
		r->a[0] = kind;
		SUBMIT_NOW(r);
	}
	return flags;
}

// Less is not worth a record.
#define STOLEN_MIN_NS 10000

// Time stolen so far from the CPU on which this task is, as its host tells. The kernel may not
// tell addresses of its variables, but a CPU's variables lie at fixed distances from one another.
static __always_inline __u64 stolen_so_far(struct task_struct *task)
{
	struct kvm_steal_time *clock;
	struct cfs_rq *queue;
	__u64 now = 0;

	if (!have_steal)
		return 0;
	queue = task->se.cfs_rq;
	if (!queue || !queue->rq)
		return 0;
	clock = (void *)((__u64)queue->rq + steal_distance);
	bpf_core_read(&now, sizeof(now), &clock->steal);
	return now;
}

// The same of the CPU on which we are (bpf_get_current_task_btf: Linux 5.11).
static __always_inline __u64 stolen_now(void)
{
	if (!have_steal)
		return 0;
	return stolen_so_far(bpf_get_current_task_btf());
}

// Reports what was stolen from a running thread since it got this CPU, or since the last call.
// `time_ns`: 0 if it gets the CPU only now. The report must come before what ends the time in
// which it was stolen.
static __always_inline void report_stolen(__u64 who, __u64 stolen_ns, __u64 time_ns)
{
	__u32 zero = 0;
	__u64 *before;

	if (!have_steal)
		return;
	before = bpf_map_lookup_elem(&stolen_before, &zero);
	if (!before)
		return;
	if (!time_ns || !*before) {
		*before = stolen_ns;
		return;
	}
	if (stolen_ns - *before < STOLEN_MIN_NS)
		return;
	struct record1 *r = BEGIN_AT(record1, K_STOLEN, who, time_ns);
	if (r) {
		r->a[0] = stolen_ns - *before;
		SUBMIT(r);
	}
	*before = stolen_ns;
}

// The current thread runs callbacks: record its scheduler events from now on.
static __always_inline void mark_thread(__u64 pid_tgid)
{
	__u8 *t = flag_of(&threads, (__u32)pid_tgid);

	if (!t)
		return;
	if (*t & T_SEEN) {
		report_stolen(pid_tgid, stolen_now(), bpf_ktime_get_ns());
		return;
	}
	// Without its storage the thread would be overlooked: better luck at its next hit.
	if (have_storage && !bpf_task_storage_get(&observed_tasks, bpf_get_current_task_btf(), 0,
						  BPF_LOCAL_STORAGE_GET_F_CREATE))
		return;
	*t |= T_SEEN;
	report_stolen(pid_tgid, stolen_now(), 0);
	struct record1 *r = BEGIN(record1, K_THREAD_SEEN, pid_tgid);
	if (r) {
		r->a[0] = 0;
		SUBMIT(r);
	}
}

// The flags of a thread whose scheduler events are recorded, else 0.
static __always_inline __u8 *scheduled(struct task_struct *task)
{
	__u8 *f;

	if (have_storage && !task->bpf_storage)
		return 0;
	f = flag_of(&threads, task->pid);
	return f && (*f & T_SEEN) ? f : 0;
}

#define E_OWN 1      // the application's
#define E_INTERNAL 2 // the middleware's

enum endpoint { E_PUBLISHER, E_SUBSCRIPTION, E_SERVICE, E_CLIENT, E_FLOW_CALLBACK, E_FLOW_TASK };

static __always_inline void know_endpoint(__u64 pid_tgid, __u64 handle, __u32 endpoint)
{
	struct endpoint_key key = { .handle = handle, .tgid = pid_tgid >> 32, .endpoint = endpoint };
	__u8 own = E_OWN;

	bpf_map_update_elem(&endpoints, &key, &own, BPF_ANY);
}

// Is this an endpoint of the application? The middleware has some of its own (for discovery),
// which never went through rcl. In a late process an unknown endpoint is reported with its
// name, which is the third word of every public rmw endpoint struct
// (implementation_identifier, data, topic_name or service_name); the middleware's own names do
// not start with a slash. `now`: the time of that report, which must not be later than what it is for;
// 0: the current one.
static __always_inline bool is_endpoint(__u8 flags, __u64 pid_tgid, __u64 handle,
					     __u32 endpoint, __u64 now)
{
	struct endpoint_key key = { .handle = handle, .tgid = pid_tgid >> 32, .endpoint = endpoint };
	__u8 *known = bpf_map_lookup_elem(&endpoints, &key), value = E_OWN;
	char first = 0;
	__u64 name = 0;

	if (known)
		return *known == E_OWN;
	if (!(flags & P_LATE) || !handle)
		return false;
	bpf_probe_read_user(&name, sizeof(name), (void *)(handle + 16));
	bpf_probe_read_user(&first, sizeof(first), (void *)name);
	if (first != '/')
		value = E_INTERNAL;
	bpf_map_update_elem(&endpoints, &key, &value, BPF_ANY);
	if (value == E_INTERNAL)
		return false;
	struct record_names *r = BEGIN_AT(record_names, K_ENDPOINT_FOUND, pid_tgid, AT(now));
	if (!r)
		return true;
	r->head.small = endpoint;
	r->a[0] = 0;
	r->a[1] = handle;
	r->name[0][0] = 0;
	r->name[1][0] = 0;
	bpf_probe_read_user_str(r->name[0], NAME_MAX_BYTES, (void *)name);
	SUBMIT(r);
	return true;
}

// The same for what is read, which makes the thread one that runs callbacks. On such a thread only
// the application's endpoints are read, so that there is nothing to look up.
static __always_inline bool reads(__u8 flags, __u64 pid_tgid, __u64 handle, __u32 endpoint)
{
	__u8 *t = flag_of(&threads, (__u32)pid_tgid);

	if (!t)
		return false;
	if (((flags & P_LATE) || !(*t & T_SEEN)) &&
	    !is_endpoint(flags, pid_tgid, handle, endpoint, 0))
		return false;
	mark_thread(pid_tgid);
	return true;
}

#define ARG1(ctx) ((__u64)PT_REGS_PARM1(ctx))
#define ARG2(ctx) ((__u64)PT_REGS_PARM2(ctx))
#define ARG3(ctx) ((__u64)PT_REGS_PARM3(ctx))
#define ARG4(ctx) ((__u64)PT_REGS_PARM4(ctx))
#define ARG5(ctx) ((__u64)PT_REGS_PARM5(ctx))

#define PROBE(name)                                                                                \
	SEC("uprobe")                                                                              \
	int name(struct pt_regs *ctx)

#define ENTER_AT(kind, now)                                                                        \
	__u64 pid_tgid = bpf_get_current_pid_tgid();                                               \
	__u8 flags = observed(kind, pid_tgid, now);                                                \
	if (!flags)                                                                                \
	return 0
#define ENTER(kind)                                                                                \
	ENTER_AT(kind, 0)

// For what ends a callback or a chain: the time of the call. After a long callback nothing of what
// follows is in the caches, and fetching it takes microseconds that are the recorder's own.
#define ENTER_TIMED(kind)                                                                          \
	__u64 now = bpf_ktime_get_ns();                                                            \
	ENTER_AT(kind, now)

// Probes that only copy arguments.
#define PLAIN0(name, kind)                                                                         \
	PROBE(name)                                                                                \
	{                                                                                          \
		ENTER(kind);                                                                       \
		struct record1 *r = BEGIN_HIT(record1, kind, pid_tgid);                                \
		if (r) {                                                                           \
			r->a[0] = 0;                                                               \
			SUBMIT(r);                                                                 \
		}                                                                                  \
		return 0;                                                                          \
	}

#define PLAIN1(name, kind)                                                                         \
	PROBE(name)                                                                                \
	{                                                                                          \
		ENTER(kind);                                                                       \
		struct record1 *r = BEGIN_HIT(record1, kind, pid_tgid);                                \
		if (r) {                                                                           \
			r->a[0] = ARG1(ctx);                                                       \
			SUBMIT(r);                                                                 \
		}                                                                                  \
		return 0;                                                                          \
	}

#define PLAIN2(name, kind)                                                                         \
	PROBE(name)                                                                                \
	{                                                                                          \
		ENTER(kind);                                                                       \
		struct record2 *r = BEGIN_HIT(record2, kind, pid_tgid);                                \
		if (r) {                                                                           \
			r->a[0] = ARG1(ctx);                                                       \
			r->a[1] = ARG2(ctx);                                                       \
			SUBMIT(r);                                                                 \
		}                                                                                  \
		return 0;                                                                          \
	}

// ---- initialisation
PLAIN1(on_rcl_init, K_RCL_INIT)
PLAIN1(on_fini, K_HANDLE_FINI)
PLAIN2(on_timer_init, K_TIMER_INIT)
PLAIN2(on_timer_clock, K_TIMER_CLOCK)
PLAIN2(on_timer_node, K_TIMER_NODE)
PLAIN2(on_timer_callback, K_TIMER_CALLBACK)
PLAIN2(on_subscription_object, K_SUBSCRIPTION_OBJECT)
PLAIN2(on_subscription_callback, K_SUBSCRIPTION_CALLBACK)
PLAIN2(on_service_callback, K_SERVICE_CALLBACK)
PLAIN2(on_intra_buffer_subscription, K_INTRA_BUFFER_SUBSCRIPTION)
PLAIN2(on_ring_buffer_intra_buffer, K_RING_BUFFER_INTRA_BUFFER)
PLAIN2(on_ring_buffer_init, K_RING_BUFFER_INIT)
PLAIN2(on_lifecycle_init, K_LIFECYCLE_INIT)

// rcl_clock_init(type, clock, allocator)
PROBE(on_clock_init)
{
	ENTER(K_CLOCK_INIT);
	struct record1 *r = BEGIN_HIT(record1, K_CLOCK_INIT, pid_tgid);
	if (r) {
		r->a[0] = ARG2(ctx);
		SUBMIT(r);
	}
	return 0;
}

// rcl_node_init(node, rmw, name, namespace)
PROBE(on_node_init)
{
	ENTER(K_NODE_INIT);
	struct record_names *r = BEGIN_HIT(record_names, K_NODE_INIT, pid_tgid);
	if (!r)
		return 0;
	r->a[0] = ARG1(ctx);
	r->a[1] = ARG2(ctx);
	r->name[0][0] = 0;
	r->name[1][0] = 0;
	bpf_probe_read_user_str(r->name[0], NAME_MAX_BYTES, (void *)ARG3(ctx));
	bpf_probe_read_user_str(r->name[1], NAME_MAX_BYTES, (void *)ARG4(ctx));
	SUBMIT(r);
	return 0;
}

static __always_inline int endpoint_init(struct pt_regs *ctx, __u32 kind, __u32 endpoint, bool depth)
{
	ENTER(kind);
	struct record_names *r = BEGIN_HIT(record_names, kind, pid_tgid);

	know_endpoint(pid_tgid, ARG3(ctx), endpoint);
	if (!r)
		return 0;
	r->a[0] = ARG1(ctx);
	r->a[1] = ARG2(ctx);
	r->a[2] = ARG3(ctx);
	r->a[3] = depth ? ARG5(ctx) : 0;
	r->name[0][0] = 0;
	r->name[1][0] = 0;
	bpf_probe_read_user_str(r->name[0], NAME_MAX_BYTES, (void *)ARG4(ctx));
	SUBMIT(r);
	return 0;
}

PROBE(on_publisher_init) { return endpoint_init(ctx, K_PUBLISHER_INIT, E_PUBLISHER, true); }
PROBE(on_subscription_init)
{
	return endpoint_init(ctx, K_SUBSCRIPTION_INIT, E_SUBSCRIPTION, true);
}
PROBE(on_service_init) { return endpoint_init(ctx, K_SERVICE_INIT, E_SERVICE, false); }
PROBE(on_client_init) { return endpoint_init(ctx, K_CLIENT_INIT, E_CLIENT, false); }

static __always_inline int gid(struct pt_regs *ctx, __u32 kind)
{
	ENTER(kind);
	struct record3 *r = BEGIN_HIT(record3, kind, pid_tgid);
	if (!r)
		return 0;
	r->a[0] = ARG1(ctx);
	r->a[1] = 0;
	r->a[2] = 0;
	bpf_probe_read_user(&r->a[1], 16, (void *)ARG2(ctx));
	SUBMIT(r);
	return 0;
}

PROBE(on_publisher_gid) { return gid(ctx, K_PUBLISHER_GID); }
PROBE(on_subscription_gid) { return gid(ctx, K_SUBSCRIPTION_GID); }
PROBE(on_client_gid) { return gid(ctx, K_CLIENT_GID); }

// (callback, symbol)
PROBE(on_callback_symbol)
{
	ENTER(K_CALLBACK_SYMBOL);
	struct record_names *r = BEGIN_HIT(record_names, K_CALLBACK_SYMBOL, pid_tgid);
	if (!r)
		return 0;
	r->a[0] = ARG1(ctx);
	r->name[0][0] = 0;
	r->name[1][0] = 0;
	bpf_probe_read_user_str(r->name[0], NAME_MAX_BYTES, (void *)ARG2(ctx));
	SUBMIT(r);
	return 0;
}

// (machine, from, to)
PROBE(on_lifecycle_transition)
{
	ENTER(K_LIFECYCLE_TRANSITION);
	struct record_names *r = BEGIN_HIT(record_names, K_LIFECYCLE_TRANSITION, pid_tgid);
	if (!r)
		return 0;
	r->a[0] = ARG1(ctx);
	r->name[0][0] = 0;
	r->name[1][0] = 0;
	bpf_probe_read_user_str(r->name[0], NAME_MAX_BYTES, (void *)ARG2(ctx));
	bpf_probe_read_user_str(r->name[1], NAME_MAX_BYTES, (void *)ARG3(ctx));
	SUBMIT(r);
	return 0;
}

// ---- run time
PLAIN1(on_ring_buffer_clear, K_RING_BUFFER_CLEAR)
PLAIN1(on_executor_wait_for_work, K_EXECUTOR_WAIT_FOR_WORK)
PLAIN1(on_executor_execute, K_EXECUTOR_EXECUTE)
PLAIN1(on_sync_input, K_SYNC_INPUT)
PLAIN2(on_intra_publish, K_INTRA_PUBLISH)
PLAIN2(on_ring_buffer_dequeue, K_RING_BUFFER_DEQUEUE)
PLAIN0(on_executor_next_ready, K_EXECUTOR_NEXT_READY)

// What ends a bracket: what was stolen before belongs to it.
#define ENDING1(name, kind)                                                                        \
	PROBE(name)                                                                                \
	{                                                                                          \
		ENTER_TIMED(kind);                                                                 \
		report_stolen(pid_tgid, stolen_now(), now);           \
		struct record1 *r = BEGIN_HIT_AT(record1, kind, pid_tgid, now);                    \
		if (r) {                                                                           \
			r->a[0] = ARG1(ctx);                                                       \
			SUBMIT(r);                                                                 \
		}                                                                                  \
		return 0;                                                                          \
	}

ENDING1(on_callback_end, K_CALLBACK_END)
ENDING1(on_guard_trigger, K_GUARD_TRIGGER)
ENDING1(on_wait_set_init, K_WAIT_SET_INIT)

// (callback, is_intra_process)
PROBE(on_callback_start)
{
	ENTER(K_CALLBACK_START);
	mark_thread(pid_tgid);
	struct record1 *r = BEGIN_HIT(record1, K_CALLBACK_START, pid_tgid);
	if (r) {
		r->head.small = ARG2(ctx) & 1;
		r->a[0] = ARG1(ctx);
		SUBMIT(r);
	}
	return 0;
}

PROBE(on_timer_call)
{
	ENTER(K_TIMER_CALL);
	mark_thread(pid_tgid);
	struct record1 *r = BEGIN_HIT(record1, K_TIMER_CALL, pid_tgid);
	if (r) {
		r->a[0] = ARG1(ctx);
		SUBMIT(r);
	}
	return 0;
}

// ros_trace_rmw_take(rmw, message, source time stamp, taken)
PROBE(on_take)
{
	ENTER(K_TAKE);
	if (!reads(flags, pid_tgid, ARG1(ctx), E_SUBSCRIPTION))
		return 0;
	struct record3 *r = BEGIN_HIT(record3, K_TAKE, pid_tgid);
	if (r) {
		r->head.small = ARG4(ctx) & 1;
		r->a[0] = ARG1(ctx);
		r->a[1] = ARG2(ctx);
		r->a[2] = ARG3(ctx);
		SUBMIT(r);
	}
	return 0;
}

// ros_trace_rmw_publish(rmw, message, time stamp) since Jazzy
PROBE(on_publish)
{
	ENTER_TIMED(K_PUBLISH);
	if (!is_endpoint(flags, pid_tgid, ARG1(ctx), E_PUBLISHER, now))
		return 0;
	struct record3 *r = BEGIN_HIT_AT(record3, K_PUBLISH, pid_tgid, now);
	if (r) {
		r->a[0] = ARG1(ctx);
		r->a[1] = ARG2(ctx);
		r->a[2] = ARG3(ctx);
		SUBMIT(r);
	}
	return 0;
}

// rmw_publish(publisher, message, allocation) itself: before Jazzy the trace point has no handle
PROBE(on_publish_unstamped)
{
	ENTER_TIMED(K_PUBLISH_UNSTAMPED);
	if (!is_endpoint(flags, pid_tgid, ARG1(ctx), E_PUBLISHER, now))
		return 0;
	struct record2 *r = BEGIN_HIT_AT(record2, K_PUBLISH_UNSTAMPED, pid_tgid, now);
	if (r) {
		r->a[0] = ARG1(ctx);
		r->a[1] = ARG2(ctx);
		SUBMIT(r);
	}
	return 0;
}

// (buffer, index, size, overwritten)
PROBE(on_ring_buffer_enqueue)
{
	ENTER(K_RING_BUFFER_ENQUEUE);
	struct record2 *r = BEGIN_HIT(record2, K_RING_BUFFER_ENQUEUE, pid_tgid);
	if (r) {
		r->head.small = ARG4(ctx) & 1;
		r->a[0] = ARG1(ctx);
		r->a[1] = ARG2(ctx);
		SUBMIT(r);
	}
	return 0;
}

static __always_inline int request_send(struct pt_regs *ctx, __u64 pid_tgid, __u64 client, __s64 sequence)
{
	struct record2 *r = BEGIN_HIT(record2, K_REQUEST_SEND, pid_tgid);
	if (r) {
		r->a[0] = client;
		r->a[1] = sequence;
		SUBMIT(r);
	}
	return 0;
}

static __always_inline int request_take(struct pt_regs *ctx, __u64 pid_tgid, __u64 service, __u64 gid_address,
					__s64 sequence, bool taken)
{
	struct record4 *r = BEGIN_HIT(record4, K_REQUEST_TAKE, pid_tgid);
	if (r) {
		r->head.small = taken;
		r->a[0] = service;
		r->a[1] = sequence;
		r->a[2] = 0;
		r->a[3] = 0;
		bpf_probe_read_user(&r->a[2], 16, (void *)gid_address);
		SUBMIT(r);
	}
	return 0;
}

static __always_inline int response_take(struct pt_regs *ctx, __u64 pid_tgid, __u64 client, __s64 sequence,
					 __s64 source_ns, bool taken)
{
	struct record3 *r = BEGIN_HIT(record3, K_RESPONSE_TAKE, pid_tgid);
	if (r) {
		r->head.small = taken;
		r->a[0] = client;
		r->a[1] = sequence;
		r->a[2] = source_ns;
		SUBMIT(r);
	}
	return 0;
}

// ros_trace_rmw_send_request(client, request, sequence) since Kilted
PROBE(on_request_send)
{
	ENTER(K_REQUEST_SEND);
	if (!is_endpoint(flags, pid_tgid, ARG1(ctx), E_CLIENT, 0))
		return 0;
	return request_send(ctx, pid_tgid, ARG1(ctx), ARG3(ctx));
}

// ros_trace_rmw_take_request(service, request, gid, sequence, taken) since Kilted
PROBE(on_request_take)
{
	ENTER(K_REQUEST_TAKE);
	if (!reads(flags, pid_tgid, ARG1(ctx), E_SERVICE))
		return 0;
	return request_take(ctx, pid_tgid, ARG1(ctx), ARG3(ctx), ARG4(ctx), ARG5(ctx) & 1);
}

// ros_trace_rmw_send_response(service, response, gid, sequence, time stamp) since Kilted
PROBE(on_response_send)
{
	ENTER(K_RESPONSE_SEND);
	if (!is_endpoint(flags, pid_tgid, ARG1(ctx), E_SERVICE, 0))
		return 0;
	struct record5 *r = BEGIN_HIT(record5, K_RESPONSE_SEND, pid_tgid);
	if (!r)
		return 0;
	r->a[0] = ARG1(ctx);
	r->a[1] = ARG4(ctx);
	r->a[2] = 0;
	r->a[3] = 0;
	bpf_probe_read_user(&r->a[2], 16, (void *)ARG3(ctx));
	r->a[4] = ARG5(ctx);
	SUBMIT(r);
	return 0;
}

// ros_trace_rmw_take_response(client, response, sequence, source time stamp, taken) since Kilted
PROBE(on_response_take)
{
	ENTER(K_RESPONSE_TAKE);
	if (!reads(flags, pid_tgid, ARG1(ctx), E_CLIENT))
		return 0;
	return response_take(ctx, pid_tgid, ARG1(ctx), ARG3(ctx), ARG4(ctx), ARG5(ctx) & 1);
}

// Before Kilted: the rmw functions themselves. Their results are written through pointers, so
// they are kept at entry and read at the return. rmw_service_info_t is public ABI:
// source time stamp, received time stamp, writer guid (16 bytes), sequence number.
static __always_inline int keep_call(__u64 pid_tgid, __u64 a, __u64 b, __u64 c)
{
	struct call call = { .a = { a, b, c } };

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

// rmw_send_request(client, request, sequence *)
PROBE(on_rmw_send_request)
{
	ENTER(K_REQUEST_SEND);
	if (!is_endpoint(flags, pid_tgid, ARG1(ctx), E_CLIENT, 0))
		return 0;
	return keep_call(pid_tgid, ARG1(ctx), ARG3(ctx), 0);
}

PROBE(on_rmw_send_request_return)
{
	struct call call;
	__s64 sequence = 0;

	ENTER(K_REQUEST_SEND);
	if (!returned_call(pid_tgid, &call))
		return 0;
	bpf_probe_read_user(&sequence, sizeof(sequence), (void *)call.a[1]);
	return request_send(ctx, pid_tgid, call.a[0], sequence);
}

// rmw_take_request(service, info, request, taken *)
PROBE(on_rmw_take_request)
{
	ENTER(K_REQUEST_TAKE);
	if (!reads(flags, pid_tgid, ARG1(ctx), E_SERVICE))
		return 0;
	return keep_call(pid_tgid, ARG1(ctx), ARG2(ctx), ARG4(ctx));
}

PROBE(on_rmw_take_request_return)
{
	struct call call;
	__s64 sequence = 0;
	bool taken = false;

	ENTER(K_REQUEST_TAKE);
	if (!returned_call(pid_tgid, &call))
		return 0;
	bpf_probe_read_user(&sequence, sizeof(sequence), (void *)(call.a[1] + 32));
	bpf_probe_read_user(&taken, sizeof(taken), (void *)call.a[2]);
	return request_take(ctx, pid_tgid, call.a[0], call.a[1] + 16, sequence, taken);
}

// rmw_send_response(service, request id, response); rmw_request_id_t: guid (16 bytes), sequence
PROBE(on_rmw_send_response)
{
	__s64 sequence = 0;

	ENTER(K_RESPONSE_SEND_UNSTAMPED);
	if (!is_endpoint(flags, pid_tgid, ARG1(ctx), E_SERVICE, 0))
		return 0;
	struct record4 *r = BEGIN_HIT(record4, K_RESPONSE_SEND_UNSTAMPED, pid_tgid);
	if (r) {
		bpf_probe_read_user(&sequence, sizeof(sequence), (void *)(ARG2(ctx) + 16));
		r->a[0] = ARG1(ctx);
		r->a[1] = sequence;
		r->a[2] = 0;
		r->a[3] = 0;
		bpf_probe_read_user(&r->a[2], 16, (void *)ARG2(ctx));
		SUBMIT(r);
	}
	return 0;
}

// rmw_take_response(client, info, response, taken *)
PROBE(on_rmw_take_response)
{
	ENTER(K_RESPONSE_TAKE);
	if (!reads(flags, pid_tgid, ARG1(ctx), E_CLIENT))
		return 0;
	return keep_call(pid_tgid, ARG1(ctx), ARG2(ctx), ARG4(ctx));
}

PROBE(on_rmw_take_response_return)
{
	struct call call;
	__s64 source_ns = 0, sequence = 0;
	bool taken = false;

	ENTER(K_RESPONSE_TAKE);
	if (!returned_call(pid_tgid, &call))
		return 0;
	bpf_probe_read_user(&source_ns, sizeof(source_ns), (void *)call.a[1]);
	bpf_probe_read_user(&sequence, sizeof(sequence), (void *)(call.a[1] + 32));
	bpf_probe_read_user(&taken, sizeof(taken), (void *)call.a[2]);
	return response_take(ctx, pid_tgid, call.a[0], sequence, source_ns, taken);
}

// rclcpp::Executor::execute_*: which one is in `small` (ExecuteKind)
static __always_inline int execute(struct pt_regs *ctx, __u32 kind, __u32 which)
{
	ENTER(kind);
	mark_thread(pid_tgid);
	struct record1 *r = BEGIN_HIT(record1, kind, pid_tgid);
	if (r) {
		r->head.small = which;
		r->a[0] = 0;
		SUBMIT(r);
	}
	return 0;
}

PROBE(on_execute_client) { return execute(ctx, K_EXECUTE_START, 3); }
PROBE(on_execute_client_return) { return execute(ctx, K_EXECUTE_END, 3); }

// ---- tasks of onbeat-flow (its probe.rs): a task is a node, time its timer, what it gets something
// from its subscriptions. Names stand behind the handles, so that it does not matter who came first.
struct flow_task {
	__u64 name;
	__u64 executor;
	__u64 topic;
	__u64 period_ns;
};

struct flow_callback {
	__u64 task;
	__u64 source; // topic; 0: time
	__u64 joined; // the task waits for others besides
};

#define FLOW_DATA 1
#define FLOW_TIME 2
#define FLOW_JOINED 3

static __always_inline void flow_name(__u64 pid_tgid, __u32 kind, __u64 a, __u64 b, __u64 c,
				      __u64 name, __u64 second)
{
	struct record_names *r = BEGIN(record_names, kind, pid_tgid);

	if (!r)
		return;
	r->a[0] = a;
	r->a[1] = b;
	r->a[2] = c;
	r->a[3] = 0;
	r->name[0][0] = 0;
	r->name[1][0] = 0;
	bpf_probe_read_user_str(r->name[0], NAME_MAX_BYTES, (void *)name);
	if (second)
		bpf_probe_read_user_str(r->name[1], NAME_MAX_BYTES, (void *)second);
	SUBMIT(r);
}

static __always_inline void flow_pair(__u64 pid_tgid, __u32 kind, __u64 a, __u64 b)
{
	struct record2 *r = BEGIN(record2, kind, pid_tgid);

	if (r) {
		r->a[0] = a;
		r->a[1] = b;
		SUBMIT(r);
	}
}

// Tells who this is. A function of its own, so that the verifier looks at it once.
__attribute__((noinline)) int flow_describe(__u64 pid_tgid, __u64 handle)
{
	struct endpoint_key key = { .tgid = pid_tgid >> 32 };
	struct flow_callback callback = {};
	struct flow_task task = {};
	__u8 value;

	if (bpf_probe_read_user(&callback, sizeof(callback), (void *)handle) ||
	    bpf_probe_read_user(&task, sizeof(task), (void *)callback.task))
		return 0;
	key.handle = callback.task;
	key.endpoint = E_FLOW_TASK;
	if (!bpf_map_lookup_elem(&endpoints, &key)) {
		value = E_OWN;
		bpf_map_update_elem(&endpoints, &key, &value, BPF_ANY);
		flow_name(pid_tgid, K_NODE_INIT, callback.task, 0, 0, task.name, task.executor);
		flow_name(pid_tgid, K_PUBLISHER_INIT, callback.task, callback.task, callback.task,
			  task.topic, 0);
	}
	value = !callback.source ? FLOW_TIME : callback.joined ? FLOW_JOINED : FLOW_DATA;
	key.handle = handle;
	key.endpoint = E_FLOW_CALLBACK;
	bpf_map_update_elem(&endpoints, &key, &value, BPF_ANY);
	if (callback.source) {
		flow_name(pid_tgid, K_SUBSCRIPTION_INIT, handle, callback.task, handle,
			  callback.source, 0);
		flow_pair(pid_tgid, K_SUBSCRIPTION_OBJECT, handle, handle);
		flow_pair(pid_tgid, K_SUBSCRIPTION_CALLBACK, handle, handle);
	} else {
		flow_pair(pid_tgid, K_TIMER_INIT, handle, task.period_ns);
		flow_pair(pid_tgid, K_TIMER_NODE, handle, callback.task);
		flow_pair(pid_tgid, K_TIMER_CALLBACK, handle, handle);
	}
	return value;
}

// Numbers of items are unique in a process: with its id they are in the recording.
static __always_inline __u64 flow_stamp(__u64 pid_tgid, __u64 sequence)
{
	return (pid_tgid >> 32) << 40 | (sequence & 0xffffffffff);
}

// onbeat_flow_task_init(callback): whoever was at this address has gone. A timer is told with its first
// call, from which its releases are counted.
PROBE(on_flow_task_init)
{
	ENTER(K_NODE_INIT);
	struct endpoint_key key = { .handle = ARG1(ctx), .tgid = pid_tgid >> 32,
				    .endpoint = E_FLOW_CALLBACK };
	struct flow_callback callback = {};

	count_hit(ctx);
	bpf_map_delete_elem(&endpoints, &key);
	if (bpf_probe_read_user(&callback, sizeof(callback), (void *)ARG1(ctx)))
		return 0;
	if (callback.source) {
		flow_describe(pid_tgid, ARG1(ctx));
		return 0;
	}
	// Time comes first when a task is made.
	key.handle = callback.task;
	key.endpoint = E_FLOW_TASK;
	bpf_map_delete_elem(&endpoints, &key);
	return 0;
}

// onbeat_flow_task_start(callback, sequence)
PROBE(on_flow_task_start)
{
	ENTER(K_CALLBACK_START);
	struct endpoint_key key = { .handle = ARG1(ctx), .tgid = pid_tgid >> 32,
				    .endpoint = E_FLOW_CALLBACK };
	__u8 *known = bpf_map_lookup_elem(&endpoints, &key);
	int value = known ? *known : flow_describe(pid_tgid, ARG1(ctx));

	mark_thread(pid_tgid);
	if (value == FLOW_TIME) {
		struct record1 *t = BEGIN(record1, K_TIMER_CALL, pid_tgid);
		if (t) {
			t->a[0] = ARG1(ctx);
			SUBMIT(t);
		}
	} else {
		struct record3 *t = BEGIN(record3, K_TAKE, pid_tgid);
		if (t) {
			t->head.small = 1;
			t->a[0] = ARG1(ctx);
			t->a[1] = 0;
			t->a[2] = flow_stamp(pid_tgid, ARG2(ctx));
			SUBMIT(t);
		}
	}
	struct record1 *r = BEGIN_HIT(record1, K_CALLBACK_START, pid_tgid);
	if (r) {
		r->a[0] = ARG1(ctx);
		SUBMIT(r);
	}
	if (value == FLOW_JOINED) {
		struct record1 *s = BEGIN(record1, K_SYNC_INPUT, pid_tgid);
		if (s) {
			// Its task, which is the first word.
			bpf_probe_read_user(&s->a[0], sizeof(s->a[0]), (void *)ARG1(ctx));
			SUBMIT(s);
		}
	}
	return 0;
}

// onbeat_flow_task_end(callback)
ENDING1(on_flow_task_end, K_CALLBACK_END)

// onbeat_flow_publish(task, sequence)
PROBE(on_flow_publish)
{
	ENTER(K_PUBLISH);
	struct endpoint_key key = { .handle = ARG1(ctx), .tgid = pid_tgid >> 32,
				    .endpoint = E_FLOW_TASK };

	// Unknown only if its execution began before the probes were there.
	if (!bpf_map_lookup_elem(&endpoints, &key))
		return 0;
	struct record3 *r = BEGIN_HIT(record3, K_PUBLISH, pid_tgid);
	if (r) {
		r->a[0] = ARG1(ctx);
		r->a[1] = 0;
		r->a[2] = flow_stamp(pid_tgid, ARG2(ctx));
		SUBMIT(r);
	}
	return 0;
}

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

static __always_inline __u64 copy_handles(__u64 *to, __u64 from, __u64 count)
{
	if (count > WAIT_SET_MAX)
		count = WAIT_SET_MAX;
	if (!from || count == 0)
		return 0;
	if (bpf_probe_read_user(to, count * sizeof(*to), (void *)from))
		return 0;
	return count;
}

// rcl_wait(wait set, timeout)
PROBE(on_wait)
{
	ENTER(K_WAIT);
	mark_thread(pid_tgid);
	struct record1 *r = BEGIN_HIT(record1, K_WAIT, pid_tgid);
	if (r) {
		r->a[0] = 0;
		SUBMIT(r);
	}
	if (!(flags & P_LATE))
		return 0;
	// What a late process's thread waits for tells its endpoints, and from them its nodes.
	__u8 *t = flag_of(&threads, (__u32)pid_tgid);
	struct rcl_wait_set set = {};
	if (!t || (*t & T_WAIT_SET))
		return 0;
	if (bpf_probe_read_user(&set, sizeof(set), (void *)ARG1(ctx)))
		return 0;
	struct record_wait_set *w = BEGIN(record_wait_set, K_WAIT_SET, pid_tgid);
	if (!w)
		return 0;
	*t |= T_WAIT_SET;
	w->counts[0] = copy_handles(w->subscriptions, set.subscriptions, set.size_of_subscriptions);
	w->counts[1] = copy_handles(w->timers, set.timers, set.size_of_timers);
	w->counts[2] = copy_handles(w->clients, set.clients, set.size_of_clients);
	w->counts[3] = copy_handles(w->services, set.services, set.size_of_services);
	SUBMIT_NOW(w);
	return 0;
}

// ---- libraries as they are loaded

// glibc's struct link_map starts with these public members.
struct link_map {
	__u64 l_addr;
	__u64 l_name;
	__u64 l_ld;
	__u64 l_next;
};

struct path_buffer {
	char path[NAME_MAX_BYTES + 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_buffer);
} path_buffers SEC(".maps");

#define SEVEN(a, b, c, d, e, f, g)                                                                 \
	((__u64)(a) << 48 | (__u64)(b) << 40 | (__u64)(c) << 32 | (__u64)(d) << 24 | (__u64)(e) << 16 | \
	 (__u64)(f) << 8 | (g))

// Is the path in the buffer that of a library whose name starts like one in the probe table?
// A function of its own, so that the verifier looks at it once and not once per link.
__attribute__((noinline)) int interesting(int length)
{
	__u32 zero = 0;
	__u64 last = 0; // the seven bytes read last
	struct path_buffer *buffer = bpf_map_lookup_elem(&path_buffers, &zero);

	if (!buffer)
		return 0;
	for (int i = 0; i < NAME_MAX_BYTES; i++) {
		if (i >= length)
			break;
		last = (last << 8 | (__u8)buffer->path[i]) & 0xffffffffffffff;
		if (last == SEVEN('/', 'l', 'i', 'b', 'r', 'c', 'l') ||
		    last == SEVEN('/', 'l', 'i', 'b', 'r', 'm', 'w') ||
		    last == SEVEN('/', 'l', 'i', 'b', 't', 'r', 'a'))
			return 1;
	}
	return 0;
}

#define LINKS_PER_HIT 48

// _dl_debug_state(): the dynamic linker calls it when its list of libraries has changed, after
// mapping and before constructors run. Looks at the libraries that were added.
PROBE(on_dl_state)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tgid = pid_tgid >> 32, zero = 0;
	__u8 *p = flag_of(&processes, tgid);
	struct path_buffer *buffer = bpf_map_lookup_elem(&path_buffers, &zero);
	__u64 link = 0, *tail;
	bool found = false;

	if (!p || !buffer || tgid == own_tgid || (!observe_all && !(*p & P_MARKED)))
		return 0;
	count_hit(ctx);
	tail = bpf_map_lookup_elem(&link_tails, &tgid);
	if (tail) {
		// Continue behind the last link we saw.
		bpf_probe_read_user(&link, sizeof(link), (void *)(*tail + 24));
	} else {
		// Without cookies its place within its page tells one loader from another.
		__u32 probe = have_cookie ? (__u32)bpf_get_attach_cookie(ctx)
					  : (__u32)PT_REGS_IP(ctx) & 0xfff;
		__s64 *distance = bpf_map_lookup_elem(&r_debug_distance, &probe);

		if (!distance)
			return 0;
		// struct r_debug: int version, then the head of the list.
		bpf_probe_read_user(&link, sizeof(link), (void *)(PT_REGS_IP(ctx) + *distance + 8));
	}
	for (int i = 0; i < LINKS_PER_HIT; i++) {
		struct link_map map;
		long length;

		if (!link || bpf_probe_read_user(&map, sizeof(map), (void *)link))
			break;
		length = bpf_probe_read_user_str(buffer->path, NAME_MAX_BYTES, (void *)map.l_name);
		if (length > 0 && interesting(length))
			found = true;
		bpf_map_update_elem(&link_tails, &tgid, &link, BPF_ANY);
		link = map.l_next;
	}
	if (!found)
		return 0;
	struct record1 *r = BEGIN(record1, K_LIBRARY_LOADED, pid_tgid);
	if (!r)
		return 0;
	r->a[0] = 0;
	if (stop_on_load && (*p & P_MARKED)) {
		// The recorder lets it continue once the probes are in place.
		r->head.small = bpf_send_signal(19 /* SIGSTOP */) == 0;
	}
	SUBMIT_NOW(r);
	return 0;
}

// ---- kernel
// Why `prev` leaves its CPU: 0 when it stays runnable.
static __always_inline __u32 state_of(__u64 *ctx, struct task_struct *prev)
{
	// Preempted while on its way to sleep: it stays runnable.
	if (ctx[0])
		return 0;
	if (switch_has_state)
		return (__u32)ctx[3] & 0xffff;
	if (bpf_core_field_exists(prev->__state))
		return prev->__state & 0xffff;
	return BPF_CORE_READ((struct task_struct___before_5_14 *)prev, state) & 0xffff;
}

// How long a thread that slept and gets its CPU now was ready. Waiting in another CPU's queue
// before counts too, which is in run_delay already.
static __always_inline __u64 ready_ns(struct task_struct *next)
{
	struct cfs_rq *queue = next->se.cfs_rq;
	__u64 queued = next->sched_info.last_queued, ready = 0, *before;

	if (queued && queue && queue->rq)
		ready = queue->rq->clock - queued;
	before = bpf_task_storage_get(&observed_tasks, next, 0, 0);
	if (before)
		ready += next->sched_info.run_delay - *before;
	return ready;
}

// A thread leaves its CPU.
static __always_inline void switch_out(__u64 *ctx, struct task_struct *prev, __u64 now,
				       __u32 next_tid, __u8 *flags)
{
	__u64 who = ((__u64)prev->tgid << 32) | (__u32)prev->pid, *delay;
	__u32 state = state_of(ctx, prev);

	report_stolen(who, stolen_so_far(prev), now);
	if (have_delays && state) {
		*flags |= T_ASLEEP;
		delay = bpf_task_storage_get(&observed_tasks, prev, 0, 0);
		if (delay)
			*delay = prev->sched_info.run_delay;
	}
	struct record1 *r = BEGIN_AT(record1, K_SWITCH_OUT, who, now);
	if (r) {
		r->head.small = state;
		r->a[0] = next_tid;
		SUBMIT(r);
	}
}

// A thread gets a CPU.
static __always_inline void switch_in(struct task_struct *next, __u64 now, __u32 prev_tid,
				      __u8 *flags)
{
	__u64 who = ((__u64)next->tgid << 32) | (__u32)next->pid;

	report_stolen(who, stolen_so_far(next), 0);
	if (*flags & T_ASLEEP) {
		*flags &= ~T_ASLEEP;
		struct record1 *w = BEGIN_AT(record1, K_WOKEN, who, now);
		if (w) {
			w->a[0] = ready_ns(next);
			SUBMIT(w);
		}
	}
	struct record1 *r = BEGIN_AT(record1, K_SWITCH_IN, who, now);
	if (r) {
		r->head.small = (next->prio & 0xff) | (next->policy & 0xff) << 8;
		r->a[0] = prev_tid;
		SUBMIT(r);
	}
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	__u8 *out = scheduled(prev), *in = scheduled(next);
	__u64 now;

	if (!out && !in)
		return 0;
	now = bpf_ktime_get_ns();
	if (out)
		switch_out(ctx, prev, now, next->pid, out);
	if (in)
		switch_in(next, now, prev->pid, in);
	return 0;
}

// Only where sched_info does not tell how long a thread was ready.
SEC("tp_btf/sched_waking")
int on_waking(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];

	if (!scheduled(task))
		return 0;
	struct record1 *r =
		BEGIN(record1, K_WAKE, ((__u64)task->tgid << 32) | (__u32)task->pid);
	if (r) {
		r->a[0] = (__u32)bpf_get_current_pid_tgid();
		SUBMIT(r);
	}
	return 0;
}

static __always_inline void task_name(struct record_names *r, struct task_struct *task)
{
	r->name[0][0] = 0;
	r->name[1][0] = 0;
	bpf_probe_read_kernel_str(r->name[0], sizeof(task->comm), task->comm);
}

SEC("tp_btf/sched_process_fork")
int on_fork(__u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	__u8 *p = flag_of(&processes, parent->tgid), *c;

	if (!p || !(*p & (P_MARKED | P_SEEN)))
		return 0;
	if (parent->tgid != child->tgid) {
		c = flag_of(&processes, child->tgid);
		if (c)
			// A fork without exec goes on with handles that were made by its parent.
			*c = (*p & P_MARKED) | (*p & P_SEEN ? P_LATE : 0);
	}
	c = flag_of(&threads, child->pid);
	if (c)
		*c = 0;
	struct record_names *r =
		BEGIN(record_names, K_FORK, ((__u64)child->tgid << 32) | (__u32)child->pid);
	if (r) {
		r->a[0] = parent->tgid;
		r->a[1] = parent->pid;
		task_name(r, child);
		SUBMIT(r);
	}
	return 0;
}

SEC("tp_btf/sched_process_exec")
int on_exec(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	__u32 tgid = task->tgid, mount = task->nsproxy->mnt_ns->ns.inum;
	__u8 *p = flag_of(&processes, tgid), one = 1;

	bpf_map_delete_elem(&link_tails, &tgid);
	// A container's first program brings a dynamic linker of its own.
	if (p && (observe_all || (*p & P_MARKED)) && !bpf_map_lookup_elem(&mounts, &mount)) {
		bpf_map_update_elem(&mounts, &mount, &one, BPF_ANY);
		struct record1 *m = BEGIN(record1, K_LOADER_SEEN, ((__u64)tgid << 32) | (__u32)task->pid);
		if (m) {
			m->a[0] = 0;
			if (stop_on_load && (*p & P_MARKED))
				m->head.small = bpf_send_signal(19 /* SIGSTOP */) == 0;
			SUBMIT_NOW(m);
		}
	}
	// A program that was not started before may hold onbeat-flow.
	if (p && tgid != own_tgid && (observe_all || (*p & P_MARKED))) {
		struct inode *inode = BPF_CORE_READ(task, mm, exe_file, f_inode);
		struct program program = { .inode = BPF_CORE_READ(inode, i_ino),
					   .device = BPF_CORE_READ(inode, i_sb, s_dev) };
		if (!bpf_map_lookup_elem(&programs, &program)) {
			bpf_map_update_elem(&programs, &program, &one, BPF_ANY);
			struct record1 *m = BEGIN(record1, K_LIBRARY_LOADED,
						  ((__u64)tgid << 32) | (__u32)task->pid);
			if (m) {
				m->a[0] = 0;
				if (stop_on_load && (*p & P_MARKED))
					m->head.small = bpf_send_signal(19 /* SIGSTOP */) == 0;
				SUBMIT_NOW(m);
			}
		}
	}
	if (!p || !(*p & (P_MARKED | P_SEEN)))
		return 0;
	// A new program: its ROS 2, if it has one, has yet to show itself.
	*p &= P_MARKED;
	struct record_names *r = BEGIN(record_names, K_EXEC, ((__u64)tgid << 32) | (__u32)task->pid);
	if (r) {
		r->a[0] = 0;
		task_name(r, task);
		SUBMIT_NOW(r);
	}
	return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit_task(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	__u32 tgid = task->tgid, tid = task->pid;
	__u8 *p = flag_of(&processes, tgid), *t = flag_of(&threads, tid);
	__u8 flags = p ? *p : 0;

	if (t)
		*t = 0;
	if (task->signal->live.counter == 0) {
		if (p)
			*p = 0;
		bpf_map_delete_elem(&link_tails, &tgid);
	}
	if (!(flags & (P_MARKED | P_SEEN)))
		return 0;
	struct record1 *r = BEGIN(record1, K_EXIT, ((__u64)tgid << 32) | tid);
	if (r) {
		r->a[0] = 0;
		SUBMIT(r);
	}
	return 0;
}
