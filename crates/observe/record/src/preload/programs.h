// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Compiles ../bpf/ros.h for a process instead of the kernel. The same programs make the same
// records, within the process that they record. Late processes, stolen time and lineage do not
// exist here, so their functions do nothing.
#pragma once

struct pt_regs {
	__u64 argument[6];
	__u32 probe;
};

#define ARG1(ctx) ((ctx)->argument[0])
#define ARG2(ctx) ((ctx)->argument[1])
#define ARG3(ctx) ((ctx)->argument[2])
#define ARG4(ctx) ((ctx)->argument[3])
#define ARG5(ctx) ((ctx)->argument[4])

#define PROBE(name) static __attribute__((unused)) int name(struct pt_regs *ctx)

static __always_inline __u64 bpf_ktime_get_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

// ---- records
#define BEGIN_FROM(name, owner, when, number)                                                      \
	({                                                                                         \
		struct record_##name *_r = begin(KIND_##name, sizeof(struct record_##name));       \
		if (_r) {                                                                          \
			_r->time_ns = (when);                                                      \
			_r->pid = (owner) >> 32;                                                   \
			_r->tid = (__u32)(owner);                                                  \
			_r->kind = KIND_##name;                                                    \
			_r->cpu = sched_getcpu();                                                  \
			_r->probe = (number);                                                      \
		}                                                                                  \
		_r;                                                                                \
	})
#define BEGIN(name, who) BEGIN_FROM(name, who, bpf_ktime_get_ns(), 0)
#define BEGIN_HIT_AT(name, who, when) BEGIN_FROM(name, who, when, ctx->probe)
#define BEGIN_HIT(name, who) BEGIN_HIT_AT(name, who, bpf_ktime_get_ns())
#define SUBMIT(r) submit(r)
#define SUBMIT_NOW(r) submit(r)

#define READ_TEXT(field, address)                                                                  \
	do {                                                                                       \
		const char *_text = (const char *)(address);                                       \
		size_t _length = _text ? strnlen(_text, TEXT_BYTES - 1) : 0;                       \
		memcpy(field, _text ? _text : "", _length);                                        \
		(field)[_length] = 0;                                                              \
	} while (0)

#define READ_GID(field, address) (void)bpf_probe_read_user(&(field), sizeof(field), (void *)(address))

// A null pointer reads as zeros. Other pointers are valid, because the called function uses them
// too.
static __always_inline int bpf_probe_read_user(void *to, __u32 bytes, const void *from)
{
	if (!from) {
		memset(to, 0, bytes);
		return -EFAULT;
	}
	memcpy(to, from, bytes);
	return 0;
}

// Reads through a pipe, for seccomp filters that refuse process_vm_readv. Returns the number of
// bytes, or -1 with errno.
static ssize_t read_through_pipe(void *to, __u32 bytes, const void *from)
{
	ssize_t done;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	done = write(ends[1], from, bytes);
	if (done == (ssize_t)bytes)
		done = read(ends[0], to, bytes);
	close(ends[0]);
	close(ends[1]);
	return done;
}

// Reads from an address that may be invalid. Fails if a plain read would end the process.
//
// This takes system calls. If they are refused, the record counts as lost. Only the QoS settings
// are read this way.
static int read_unsure(void *to, __u32 bytes, const void *from)
{
	struct iovec here = { to, bytes }, there = { (void *)from, bytes };
	int error = errno;
	ssize_t done = process_vm_readv(getpid(), &here, 1, &there, 1, 0);

	if (done < 0 && errno != EFAULT)
		done = read_through_pipe(to, bytes, from);
	if (done < 0 && errno != EFAULT)
		count_lost(KIND_endpoint_qos);
	errno = error;
	return done == (ssize_t)bytes ? 0 : -EFAULT;
}

// ---- values that ros.h keeps from a function's entry to its return
#define BPF_ANY 0
static char calls;

static __always_inline void bpf_map_update_elem(void *map, void *key, struct call *value, int flags)
{
	(void)map, (void)key, (void)flags;
	thread.call = *value;
	thread.has_call = true;
}

static __always_inline struct call *bpf_map_lookup_elem(void *map, void *key)
{
	(void)map, (void)key;
	return thread.has_call ? &thread.call : 0;
}

static __always_inline void bpf_map_delete_elem(void *map, void *key)
{
	(void)map, (void)key;
	thread.has_call = false;
}

// ---- processes and threads
#define THREAD_SEEN 1
#define THREAD_WAIT_SET 2
#define THREAD_IN_WAIT 16
#define THREAD_NEW_WAIT 32
#define have_regs false
static char threads;

static __always_inline __u8 *flag_of(void *map, __u32 id)
{
	(void)map, (void)id;
	return &thread.flags;
}

// Records the thread's CPU time at `now`. This takes a system call.
static __always_inline void read_clock(__u64 now)
{
	struct record_cpu_clock *r;
	struct timespec used;

	if (!onbeat_reads_clocks || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used))
		return;
	r = BEGIN_FROM(cpu_clock, thread.who, now, 0);
	if (r) {
		r->cpu_ns = used.tv_sec * 1000000000ULL + used.tv_nsec;
		SUBMIT(r);
	}
}

static void watch_thread(__u64 when)
{
	struct record_thread_seen *r = BEGIN_FROM(thread_seen, thread.who, when, 0);

	if (!r)
		return;
	SUBMIT(r);
	thread.flags |= THREAD_SEEN;
}

static __always_inline void mark_thread(__u64 pid_tgid)
{
	(void)pid_tgid;
	read_clock(bpf_ktime_get_ns());
	if (!(thread.flags & THREAD_SEEN))
		watch_thread(bpf_ktime_get_ns());
}

static __always_inline void mark_publisher(__u64 pid_tgid, __u64 now)
{
	(void)pid_tgid;
	if (!(thread.flags & THREAD_SEEN))
		watch_thread(now);
}

// Prepares a thread's first record: takes a ring, and reports a new process.
static __u8 join(void)
{
	struct file_head *file = __atomic_load_n(&process->file, __ATOMIC_ACQUIRE);
	struct record_process_seen *r;
	int error = errno;
	sigset_t signals;

	hold_signals(&signals);
	if (!file)
		file = make_file();
	if (file == REFUSED) {
		__atomic_fetch_add(&process->lost[0], 1, __ATOMIC_RELAXED);
		release_signals(&signals);
		errno = error;
		return 0;
	}
	thread.ring = 0;
	thread.bytes = 0;
	thread.flags = 0;
	thread.has_call = false;
	thread.who = (__u64)getpid() << 32 | (__u32)syscall(SYS_gettid);
	take_ring(file);
	thread.file = file;
	pass_on_losses(file);
	if (!__atomic_exchange_n(&process->reported, true, __ATOMIC_RELAXED)) {
		r = BEGIN(process_seen, thread.who);
		if (r) {
			r->late = 0;
			SUBMIT(r);
		}
	}
	release_signals(&signals);
	errno = error;
	return PROCESS_SEEN;
}

// Returns PROCESS_SEEN if this process is recorded, else 0.
static __always_inline __u8 observed(void)
{
	struct file_head *file;

	if (!process)
		return 0;
	file = __atomic_load_n(&process->file, __ATOMIC_ACQUIRE);
	if (file == REFUSED) {
		__atomic_fetch_add(&process->lost[0], 1, __ATOMIC_RELAXED);
		return 0;
	}
	if ((file && file == thread.file) || thread.busy != 1)
		return PROCESS_SEEN;
	return join();
}

#define ENTER()                                                                                    \
	__u8 flags = observed();                                                                   \
	__u64 pid_tgid = thread.who;                                                               \
	if (!flags)                                                                                \
	return 0
#define ENTER_TIMED()                                                                              \
	__u64 now = bpf_ktime_get_ns();                                                            \
	ENTER()

// ---- endpoints
// The third word of every public rmw endpoint struct is the name. The middleware has endpoints of
// its own that rcl did not create. Their names do not begin with a slash.
static __always_inline bool is_endpoint(__u64 pid_tgid, __u64 handle, __u32 endpoint, __u64 now)
{
	const char *name;

	(void)pid_tgid, (void)endpoint, (void)now;
	if (!handle)
		return false;
	name = *(const char **)(handle + 16);
	if (!name || name[0] != '/')
		return false;
	if (reads_often)
		read_clock(bpf_ktime_get_ns());
	return true;
}

static __always_inline bool reads(__u8 flags, __u64 pid_tgid, __u64 handle, __u32 endpoint)
{
	(void)flags;
	if (!(thread.flags & THREAD_SEEN) && !is_endpoint(pid_tgid, handle, endpoint, 0))
		return false;
	mark_thread(pid_tgid);
	return true;
}

#define know_endpoint(pid_tgid, handle, endpoint) ((void)0)
// The BPF programs read the kernel's account of the thread here. We read the thread's clock.
#define account_for(pid_tgid, now) read_clock(now)
#define mark_ros(pid_tgid) ((void)0)
#define lineage_end(pid_tgid) ((void)0)
#define lineage_trigger(pid_tgid, guard) ((void)0)
#define lineage_callback_start(pid_tgid, callback) ((void)0)
#define lineage_call(pid_tgid, root, timer) ((void)0)
#define lineage_take(pid_tgid, rmw, source_ns) ((void)0)
#define lineage_publish(pid_tgid, rmw, source_ns) ((void)0)
#define lineage_enqueue(pid_tgid, buffer, index) ((void)0)
#define lineage_dequeue(pid_tgid, buffer, index) ((void)0)
