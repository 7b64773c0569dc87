// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Which processes, threads and endpoints are observed; each is reported at its first hit, or where the ring
// buffer is full then, at the first one that finds room.
#pragma once

// The flags of the current process if it is observed, else 0. `now`: the time of a first hit;
// 0: the current one.
static __always_inline __u8 observed(__u64 pid_tgid, __u64 now)
{
	__u8 *p = flag_of(&processes, pid_tgid >> 32);
	__u8 flags;

	if (!p)
		return 0;
	flags = *p;
	if (flags & PROCESS_SEEN)
		return flags;
	if ((flags & PROCESS_OUTSIDE) || (!observe_all && !(flags & PROCESS_MARKED)))
		return 0;
	flags |= PROCESS_SEEN;
	struct record_process_seen *r = BEGIN_AT(process_seen, pid_tgid, AT(now));
	if (r) {
		*p = flags;
		r->late = (flags & PROCESS_LATE) != 0;
		SUBMIT_NOW(r);
	}
	return flags;
}

// The current process uses ROS 2.
static __always_inline void mark_ros(__u64 pid_tgid)
{
	__u8 *p = flag_of(&processes, pid_tgid >> 32);

	if (p)
		*p |= PROCESS_ROS;
}

// Makes the storage without which the scheduler's probes overlook a thread. False: there is none
// to be had now.
static __always_inline bool has_storage(struct task_struct *task)
{
	return !have_storage || bpf_task_storage_get(&observed_tasks, task, 0,
						     BPF_LOCAL_STORAGE_GET_F_CREATE);
}

// Records the current thread's scheduler events from now on, and reports it: it runs. `now`: the
// time of that report; 0: the current one.
static __always_inline void watch_thread(__u8 *t, __u64 pid_tgid, __u64 now)
{
	// Without its storage: try at its next hit.
	if (have_storage && !has_storage(bpf_get_current_task_btf()))
		return;
	if (!(*t & THREAD_BORN))
		report_stolen(pid_tgid, stolen_now(), 0);
	struct record_thread_seen *r = BEGIN_AT(thread_seen, pid_tgid, AT(now));
	if (r) {
		*t |= THREAD_SEEN;
		SUBMIT(r);
	}
}

// The current thread runs callbacks: record its scheduler events from now on.
static __always_inline void mark_thread(__u64 pid_tgid)
{
	__u8 *t = flag_of(&threads, (__u32)pid_tgid);

	if (!t)
		return;
	if (*t & THREAD_IN_WAIT)
		*t &= ~(THREAD_IN_WAIT | THREAD_WAITS);
	if (*t & THREAD_SEEN)
		report_stolen(pid_tgid, stolen_now(), bpf_ktime_get_ns());
	else
		watch_thread(t, pid_tgid, 0);
}

// The same for a thread that publishes or triggers, perhaps one of the application's own, at `now`.
// One that was made by a thread with callbacks is recorded already, and needs no report: there may
// be a new one each time.
static __always_inline void mark_publisher(__u64 pid_tgid, __u64 now)
{
	__u8 *t = flag_of(&threads, (__u32)pid_tgid);

	if (t && !(*t & THREAD_SCHEDULED))
		watch_thread(t, pid_tgid, now);
}

// The flags of a thread whose scheduler events are recorded, else 0.
static __always_inline __u8 *scheduled(struct task_struct *task)
{
	__u8 *f;

	if (have_storage && !task->bpf_storage)
		return 0;
	f = flag_of(&threads, task->pid);
	return f && (*f & THREAD_SCHEDULED) ? f : 0;
}

static __always_inline void know_endpoint(__u64 pid_tgid, __u64 handle, __u32 endpoint)
{
	struct endpoint_key key = { .handle = handle, .tgid = pid_tgid >> 32, .endpoint = endpoint };
	__u8 owner = OWNER_APPLICATION;

	bpf_map_update_elem(&endpoints, &key, &owner, BPF_ANY);
}

// The word of an endpoint in recent_endpoints, and its place: both together are its whole key. 0: it does
// not fit, because its address is none that an allocator gives.
static __always_inline __u64 recent_word(__u64 pid_tgid, __u64 handle, __u32 endpoint, __u32 *place)
{
	__u64 tgid = pid_tgid >> 32;

	if (!handle || handle % 16 || handle >> 56 || tgid >= ID_COUNT)
		return 0;
	*place = (handle / 16 ^ tgid) % RECENT_PLACES;
	return handle >> 16 << 24 | tgid << 2 | endpoint;
}

// Does this endpoint belong to the application? The middleware has endpoints of its own (for
// discovery) that never went through rcl. An unknown endpoint is reported with its name, the third
// word of every public rmw endpoint struct (implementation_identifier, data, topic_name or
// service_name): in a late process, and where others have taken its place in the table, which
// anybody can fill. The middleware's own names do not start with a slash.
// `now`: the time of that report, at most that of the record it is for; 0: the current time.
static __always_inline bool is_endpoint(__u64 pid_tgid, __u64 handle, __u32 endpoint, __u64 now)
{
	struct endpoint_key key = { .handle = handle, .tgid = pid_tgid >> 32, .endpoint = endpoint };
	__u64 name = 0, word, *recent = 0;
	__u8 *known, owner = OWNER_APPLICATION;
	char first = 0;
	__u32 place;

	word = recent_word(pid_tgid, handle, endpoint, &place);
	if (word)
		recent = bpf_map_lookup_elem(&recent_endpoints, &place);
	if (recent && *recent == word)
		return true;
	known = bpf_map_lookup_elem(&endpoints, &key);
	if (known && *known == OWNER_APPLICATION && recent)
		*recent = word;
	if (known)
		return *known == OWNER_APPLICATION;
	if (!handle)
		return false;
	bpf_probe_read_user(&name, sizeof(name), (void *)(handle + 16));
	bpf_probe_read_user(&first, sizeof(first), (void *)name);
	if (first != '/') {
		owner = OWNER_MIDDLEWARE;
		bpf_map_update_elem(&endpoints, &key, &owner, BPF_ANY);
		return false;
	}
	struct record_endpoint_found *r = BEGIN_AT(endpoint_found, pid_tgid, AT(now));
	if (!r)
		return true;
	bpf_map_update_elem(&endpoints, &key, &owner, BPF_ANY);
	r->endpoint = endpoint;
	r->rcl = 0;
	r->rmw = handle;
	READ_TEXT(r->name, name);
	SUBMIT(r);
	return true;
}

// The same for an endpoint that the thread reads from, which shows that it runs callbacks. A thread
// known to run callbacks reads only the application's endpoints: nothing needs to be looked up.
static __always_inline bool reads(__u8 flags, __u64 pid_tgid, __u64 handle, __u32 endpoint)
{
	__u8 *t = flag_of(&threads, (__u32)pid_tgid);

	if (!t)
		return false;
	if (((flags & PROCESS_LATE) || !(*t & THREAD_SEEN)) &&
	    !is_endpoint(pid_tgid, handle, endpoint, 0))
		return false;
	mark_thread(pid_tgid);
	return true;
}

// ---- how a program in user space begins
#define ARG1(ctx) ((__u64)PT_REGS_PARM1(ctx))
#define ARG2(ctx) ((__u64)PT_REGS_PARM2(ctx))
#define ARG3(ctx) ((__u64)PT_REGS_PARM3(ctx))
#define ARG4(ctx) ((__u64)PT_REGS_PARM4(ctx))
#define ARG5(ctx) ((__u64)PT_REGS_PARM5(ctx))

#define PROBE(name)                                                                                \
	SEC("uprobe")                                                                              \
	int name(struct pt_regs *ctx)

// Declares `pid_tgid` and `flags`, and returns if the process is not observed.
#define ENTER_AT(now)                                                                              \
	__u64 pid_tgid = bpf_get_current_pid_tgid();                                               \
	__u8 flags = observed(pid_tgid, now);                                                      \
	if (!flags)                                                                                \
	return 0
#define ENTER() ENTER_AT(0)

// For a call that ends a callback or a chain: reads the time first, into `now`. After a long
// callback nothing of what follows is in the caches, and fetching it takes microseconds that are
// the recorder's own.
#define ENTER_TIMED()                                                                              \
	__u64 now = bpf_ktime_get_ns();                                                            \
	ENTER_AT(now)
