// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Decides which processes, threads and endpoints are observed. Each is reported at its first hit
// or, if the ring buffer is full then, at the first hit that finds room.
#pragma once

// Returns the flags of the current process if it is observed, else 0. `now` is the time of a first
// hit; 0 stands for the current time.
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

// Notes that the current process uses ROS 2.
static __always_inline void mark_ros(__u64 pid_tgid)
{
	__u8 *p = flag_of(&processes, pid_tgid >> 32);

	if (p)
		*p |= PROCESS_ROS;
}

// Reports the current thread, and records its scheduler events from now on. `now` is the time of
// the report; 0 stands for the current time.
static __always_inline void watch_thread(__u8 *t, __u64 pid_tgid, __u64 now)
{
	// Without the storage this is tried again at the thread's next hit.
	if (have_storage && !has_storage(current_task()))
		return;
	if (have_storage && !(*t & THREAD_BORN))
		account_begins(current_task(), bpf_ktime_get_ns());
	struct record_thread_seen *r = BEGIN_AT(thread_seen, pid_tgid, AT(now));
	if (r) {
		*t |= THREAD_SEEN;
		SUBMIT(r);
	}
}

// Notes that the current thread runs callbacks. Its scheduler events are recorded from now on.
static __always_inline void mark_thread(__u64 pid_tgid)
{
	__u8 *t = flag_of(&threads, (__u32)pid_tgid);

	if (!t)
		return;
	if (*t & THREAD_IN_WAIT)
		*t &= ~(THREAD_IN_WAIT | THREAD_WAITS);
	if (*t & THREAD_SEEN)
		account_for(pid_tgid, bpf_ktime_get_ns());
	else
		watch_thread(t, pid_tgid, 0);
}

// Does the same for a thread that publishes or triggers at `now`, which may be a thread of the
// application's own. A thread started by a thread with callbacks is already recorded. It is not
// reported, because there may be a new one each time.
static __always_inline void mark_publisher(__u64 pid_tgid, __u64 now)
{
	__u8 *t = flag_of(&threads, (__u32)pid_tgid);

	if (t && !(*t & THREAD_SCHEDULED))
		watch_thread(t, pid_tgid, now);
}

// Returns the flags of a thread whose scheduler events are recorded, else 0.
static __always_inline __u8 *scheduled(struct task_struct *task)
{
	__u8 *f;

	if (is_foreign(task))
		return 0;
	f = flag_of(&threads, GET(task, pid));
	return f && (*f & THREAD_SCHEDULED) ? f : 0;
}

static __always_inline void know_endpoint(__u64 pid_tgid, __u64 handle, __u32 endpoint)
{
	struct endpoint_key key = { .handle = handle, .tgid = pid_tgid >> 32, .endpoint = endpoint };
	__u8 owner = OWNER_APPLICATION;

	bpf_map_update_elem(&endpoints, &key, &owner, BPF_ANY);
}

// Returns the word of an endpoint in recent_endpoints, and its place. Both together are its whole
// key. Returns 0 if no allocator would give such an address, because the key then does not fit.
static __always_inline __u64 recent_word(__u64 pid_tgid, __u64 handle, __u32 endpoint, __u32 *place)
{
	__u64 tgid = pid_tgid >> 32;

	if (!handle || handle % 16 || handle >> 56 || tgid >= ID_COUNT)
		return 0;
	*place = (handle / 16 ^ tgid) % RECENT_PLACES;
	return handle >> 16 << 24 | tgid << 2 | endpoint;
}

// Returns whether an endpoint belongs to the application. The middleware has endpoints of its own
// (for discovery) that rcl did not create.
//
// An unknown endpoint is reported with its name. This happens in a late process, or after other
// endpoints have taken its place in the table, which any process can fill. The name is the third
// word of every public rmw endpoint struct (implementation_identifier, data, topic_name or
// service_name). The middleware's own names do not start with a slash.
//
// `now` is the time of the report, at most that of the record that needs it. 0 stands for the
// current time.
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

// Does the same for an endpoint from which the thread reads, which shows that the thread runs
// callbacks. A thread known to run callbacks reads only the application's endpoints, so no lookup
// is needed.
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

// ---- the begin of a program in user space
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

// Reads the time first, into `now`. It is for calls that end a callback or a chain: after a long
// callback the caches are cold, and fetching the following data takes microseconds that belong to
// the recorder.
#define ENTER_TIMED()                                                                              \
	__u64 now = bpf_ktime_get_ns();                                                            \
	ENTER_AT(now)
