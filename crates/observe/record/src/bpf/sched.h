// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The programs for the kernel's tracepoints: the scheduling of observed threads, and the begin and
// end of processes.
#pragma once

#include "throttled.h"
#include "waiting.h"

#define TASK_INTERRUPTIBLE 1

// Returns the state in which `prev` leaves its CPU. 0 means that it stays runnable.
static __always_inline __u32 state_of(__u64 *ctx, struct task_struct *prev)
{
	// The thread was preempted on its way to sleep, so it stays runnable.
	if (ctx[0])
		return 0;
	if (switch_has_state)
		return (__u32)ctx[3] & 0xffff;
	if (bpf_core_field_exists(prev->__state))
		return GET(prev, __state) & 0xffff;
	return BPF_CORE_READ((struct task_struct___before_5_14 *)prev, state) & 0xffff;
}

// Returns how long a thread was ready that slept and now gets its CPU. Time in another CPU's queue
// is part of run_delay, and counts too.
static __always_inline __u64 ready_ns(struct task_struct *next, struct watched *before)
{
	struct rq *rq = queue_of(next);
	__u64 queued = GET(next, sched_info.last_queued), ready = 0;

	if (queued && rq)
		ready = GET(rq, clock) - queued;
	if (before)
		ready += GET(next, sched_info.run_delay) - before->run_delay;
	return ready;
}

// The user space registers of a thread that has entered the kernel. NUMBER_OF is the number of its
// system call, or -1 if it entered the kernel by an exception.
#if defined(__TARGET_ARCH_x86)
#define USER_REGS struct pt_regs
#define NUMBER_OF(regs) ((__s64)(regs)->orig_rax)
#define NUMBER_FUTEX 202
#else
// The kernel's own registers begin with these.
struct entry_regs {
	struct user_pt_regs user;
	__u64 orig_x0;
	__s32 number;
};
#define USER_REGS struct entry_regs
#define NUMBER_OF(regs) ((__s64)(regs)->number)
#define NUMBER_FUTEX 98
#endif
#define FUTEX_OPTIONS (128 | 256) // FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME
#define FUTEX_WAIT 0
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_LOCK_PI2 13
#define FUTEX_TID_MASK 0x3fffffff
#define MUTEX_CONTENDED 2 // futex value of glibc's mutex while threads wait for it

// The fields of glibc's mutex, from its futex on.
struct mutex {
	__u32 futex;
	__u32 count;
	__u32 owner;
	__u32 users; // threads that hold it, or wait on its condition variable
};

// Returns whether the current thread, with these registers, may sleep for a mutex.
//
// Sets `owner` to the thread that holds the mutex, if that is visible. Otherwise the thread may
// wait for something else with the same futex call. A wait with a timeout looks like that of a
// condition variable (FUTEX_WAIT_BITSET). Only the memory's content shows that it is a mutex.
static __always_inline bool needs_mutex(USER_REGS *regs, __u32 *owner)
{
	__u64 operation = PT_REGS_PARM2(regs) & ~(__u64)FUTEX_OPTIONS;
	bool is_contended = (__u32)PT_REGS_PARM3(regs) == MUTEX_CONTENDED;
	struct mutex mutex = {};

	if (NUMBER_OF(regs) != NUMBER_FUTEX ||
	    (operation == FUTEX_WAIT_BITSET && !is_contended))
		return false;
	bpf_probe_read_user(&mutex, sizeof(mutex), (void *)PT_REGS_PARM1(regs));
	switch (operation) {
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2:
		*owner = mutex.futex & FUTEX_TID_MASK;
		return true;
	case FUTEX_WAIT:
		*owner = is_contended ? mutex.owner : 0;
		return true;
	case FUTEX_WAIT_BITSET:
		if (!mutex.owner || mutex.owner > ID_COUNT || !mutex.users ||
		    mutex.users > ID_COUNT ||
		    mutex.owner == (__u32)bpf_get_current_pid_tgid())
			return false;
		*owner = mutex.owner;
		return true;
	}
	return false;
}

// Detects a thread that waits for work: it sleeps within rcl_wait, before its next callback.
//
// The thread's first interruptible sleep that needs no mutex is within rcl_wait. Later sleeps are
// too if the stack pointer is the same, for example after the freezer woke the thread. Waits after
// rcl_wait, such as for the interpreter's lock, have another stack pointer.
static __always_inline void sleeps_in_wait(USER_REGS *regs, bool may_be_work, __u8 *flags,
					   struct watched *watched)
{
	if (*flags & THREAD_NEW_WAIT) {
		if (!may_be_work)
			return;
		*flags &= ~THREAD_NEW_WAIT;
		watched->wait_stack = PT_REGS_SP(regs);
	}
	if (watched->wait_stack == PT_REGS_SP(regs))
		*flags |= THREAD_WAITS;
}

#ifndef NO_KERNEL_BTF
// Reports the mutex or else the call in which the current thread goes to sleep, or notes that it waits
// for work.
static __always_inline void sleeps(struct task_struct *task, __u64 now, __u32 state, __u8 *flags,
				   struct watched *watched)
{
	bool on_its_own = state & TASK_INTERRUPTIBLE, for_mutex;
	USER_REGS regs;
	__u32 owner = 0;

	if (bpf_probe_read_kernel(&regs, sizeof(regs), (void *)bpf_task_pt_regs(task)))
		return;
	for_mutex = needs_mutex(&regs, &owner);
	if (owner && on_its_own) {
		struct record_lock_wait *r = BEGIN_AT(lock_wait, pid_tgid_of(task), now);
		if (r) {
			r->lock = PT_REGS_PARM1(&regs);
			r->owner_tid = owner;
			SUBMIT(r);
		}
	}
	if (*flags & THREAD_IN_WAIT)
		sleeps_in_wait(&regs, !for_mutex && on_its_own, flags, watched);
	if ((owner && on_its_own) || !(*flags & THREAD_SEEN) || (*flags & THREAD_WAITS))
		return;
	struct record_sleep_in *r = BEGIN_AT(sleep_in, pid_tgid_of(task), now);
	if (r) {
		r->number = NUMBER_OF(&regs);
		SUBMIT(r);
	}
}
#endif

// Handles a thread that leaves its CPU.
static __always_inline void switch_out(__u64 *ctx, struct task_struct *prev, __u64 now,
				       __u32 next_tid, __u8 *flags)
{
	__u64 who = pid_tgid_of(prev);
	struct watched *watched;
	__u32 state = state_of(ctx, prev);

	watched = watched_of(prev);
	account_ends(prev, watched, who, now);
	stop_waiting(watched);
	if (!state && watched)
		loses_cpu(prev, watched, now);
	if (!state)
		start_waiting(watched, bpf_get_smp_processor_id());
	if (have_delays && state) {
		*flags |= THREAD_ASLEEP;
		if (watched) {
			watched->run_delay = GET(prev, sched_info.run_delay);
#ifndef NO_KERNEL_BTF // bpf_task_pt_regs needs it
			if (have_regs)
				sleeps(prev, now, state, flags, watched);
#endif
		}
	}
	struct record_switch_out *r = BEGIN_AT(switch_out, who, now);
	if (r) {
		r->next_tid = next_tid;
		r->state = state;
		SUBMIT(r);
		account_recorded(prev, watched);
	}
}

// Reports the wake-up of a thread that slept, and its switch to a CPU, in one record. `waited_on`
// has the meaning of waits_on.
static __always_inline void woken_in(struct task_struct *next, __u64 now, __u32 prev_tid,
				     __u32 waited_on, struct watched *watched)
{
	__u64 who = pid_tgid_of(next), ready = ready_ns(next, watched);

	if (prev_tid && ready > UNTOLD_MIN_NS && waited_on != bpf_get_smp_processor_id() + 1)
		report_occupied(who, now, UNTOLD, false);
	struct record_woken_in *r = BEGIN_AT(woken_in, who, now);
	if (r) {
		r->ready_ns = ready;
		r->prev_tid = prev_tid;
		r->priority = GET(next, prio);
		r->policy = GET(next, policy);
		SUBMIT(r);
	}
}

// Handles a thread that gets a CPU.
static __always_inline void switch_in(struct task_struct *next, __u64 now, __u32 prev_tid,
				      __u8 *flags)
{
	__u64 who = pid_tgid_of(next);
	struct watched *watched = watched_of(next);
	__u32 waited_on = watched ? watched->waits_on : 0;
	struct cpu *cpu = account_begins(next, now);

	if (cpu)
		measure_clock(cpu, next, now);
	stop_waiting(watched);
	if (watched)
		report_throttled(next, watched, who, now);
	if (*flags & THREAD_WAITS)
		*flags &= ~THREAD_WAITS;
	if (*flags & THREAD_ASLEEP) {
		*flags &= ~THREAD_ASLEEP;
		woken_in(next, now, prev_tid, waited_on, watched);
		return;
	}
	struct record_switch_in *r = BEGIN_AT(switch_in, who, now);
	if (r) {
		r->prev_tid = prev_tid;
		r->priority = GET(next, prio);
		r->policy = GET(next, policy);
		SUBMIT(r);
	}
}

TRACEPOINT(sched_switch)
int on_switch(__u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	__u8 *out = scheduled(prev), *in = scheduled(next);
	__u64 now;

	if (!out && !in) {
		occupied(prev, next);
		return 0;
	}
	now = bpf_ktime_get_ns();
	// A bystander takes the CPU from an observed thread, or keeps the CPU from one.
	if (!in)
		name_bystander(next, now);
	if (!out)
		name_bystander(prev, now);
	if (out)
		switch_out(ctx, prev, now, GET(next, pid), out);
	if (in)
		switch_in(next, now, GET(prev, pid), in);
	return 0;
}

// In an interrupt (a timer, an arriving message), the current thread is not the one that acts.
#define IN_INTERRUPT 0xff0100 // bits of preempt_count: NMI, interrupts, a running softirq

static __always_inline bool is_interrupted(void)
{
	struct task_struct *current = (void *)bpf_get_current_task();
	struct cfs_rq *queue = BPF_CORE_READ(current, se.cfs_rq);
	struct rq *rq = BPF_CORE_READ(queue, rq);
	int count = 0;

	if (!have_context || !rq ||
	    bpf_probe_read_kernel(&count, sizeof(count), (void *)((__u64)rq + context_distance)))
		return true;
	return count & IN_INTERRUPT;
}

// Returns the observed thread of the same process that wakes up `task`, or 0 if there is none.
static __always_inline __u32 waker_of(struct task_struct *task)
{
	__u64 current = bpf_get_current_pid_tgid();
	__u8 *w;

	if (current >> 32 != (__u32)GET(task, tgid) || (__u32)current == (__u32)GET(task, pid))
		return 0;
	w = flag_of(&threads, (__u32)current);
	if (!w || !(*w & THREAD_SCHEDULED) || is_interrupted())
		return 0;
	return (__u32)current;
}

// Reports which thread hands work to another one. If sched_info does not show how long a thread was
// ready, every wake-up of an observed thread is recorded.
TRACEPOINT(sched_waking)
int on_waking(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	__u32 waker;

	if (!scheduled(task))
		return 0;
	if (have_storage && bpf_core_field_exists(task->wake_cpu)) {
		struct watched *watched = watched_of(task);

		stop_waiting(watched);
		start_waiting(watched, GET(task, wake_cpu));
		if (watched)
			may_be_throttled(task, watched, bpf_ktime_get_ns());
	}
	waker = waker_of(task);
	if (!waker && have_delays)
		return 0;
	struct record_wake *r = BEGIN(wake, pid_tgid_of(task));
	if (r) {
		r->waker_tid = waker;
		SUBMIT(r);
	}
	return 0;
}

// Reports that an observed thread moves to the queue of another CPU while it waits.
TRACEPOINT(sched_migrate_task)
int on_migrate(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct watched *watched;
	__u32 left;

	if (!have_storage || !scheduled(task))
		return 0;
	watched = watched_of(task);
	if (!watched || !watched->waits_on)
		return 0;
	left = watched->waits_on - 1;
	stop_waiting(watched);
	start_waiting(watched, (__u32)ctx[1]);
	// During a wake-up, the thread is in no queue yet.
	if (!GET(task, on_rq))
		return 0;
	struct record_moved *r = BEGIN(moved, pid_tgid_of(task));
	if (r) {
		r->cpu = left;
		SUBMIT(r);
	}
	return 0;
}

// Reports the new name of an observed thread.
TRACEPOINT(task_rename)
int on_rename(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];

	if (!scheduled(task))
		return 0;
	struct record_bystander *r = BEGIN(bystander, pid_tgid_of(task));
	if (r) {
		struct task_struct *leader = GET(task, group_leader);

		r->comm[0] = 0;
		bpf_probe_read_kernel_str(r->comm, sizeof(r->comm), (void *)ctx[1]);
		READ_COMM(r->process, leader);
		r->kernel = false;
		SUBMIT(r);
	}
	return 0;
}

TRACEPOINT(sched_process_fork)
int on_fork(__u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	__u32 tgid = GET(parent, tgid), child_tgid = GET(child, tgid);
	__u8 *p = flag_of(&processes, tgid), *c;

	if (!p || !(*p & (PROCESS_MARKED | PROCESS_SEEN)))
		return 0;
	if (tgid != child_tgid) {
		c = flag_of(&processes, child_tgid);
		if (c)
			// A fork without exec continues with handles that its parent made.
			*c = (*p & (PROCESS_MARKED | PROCESS_ROS)) |
			     (*p & PROCESS_SEEN ? PROCESS_LATE : 0);
	}
	c = flag_of(&threads, GET(child, pid));
	if (c) {
		__u8 *maker = flag_of(&threads, GET(parent, pid));

		// A thread started by a thread with callbacks works for it, so its scheduler events are recorded
		// from the beginning.
		bool works = (all_threads && (*p & PROCESS_SEEN)) ||
			     (maker && (*maker & THREAD_SCHEDULED));

		*c = tgid == child_tgid && works && has_storage(child) ? THREAD_BORN : 0;
	}
	struct record_fork *r = BEGIN(fork, pid_tgid_of(child));
	if (r) {
		r->parent_pid = tgid;
		r->parent_tid = GET(parent, pid);
		READ_COMM(r->comm, child);
		SUBMIT(r);
	}
	return 0;
}

#ifndef NO_KERNEL_BTF
// Marks every thread of the processes seen so far. With `all_threads`, the recorder runs this for
// each new process.
SEC("iter/task")
int on_each_thread(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u8 *p, *t;

	if (!task || !task->mm)
		return 0;
	p = flag_of(&processes, task->tgid);
	t = flag_of(&threads, task->pid);
	if (p && t && (*p & PROCESS_SEEN) && !(*t & THREAD_SCHEDULED) && has_storage(task))
		*t |= THREAD_BORN;
	return 0;
}
#endif

// Reports the dynamic linker of a container's first program. Returns whether it made a report.
static __always_inline bool report_loader(struct task_struct *task, __u8 process_flags)
{
	struct nsproxy *nsproxy = GET(task, nsproxy);
	struct mnt_namespace *namespace = GET(nsproxy, mnt_ns);
	__u32 mount = GET(namespace, ns.inum);
	__u8 one = 1;

	if (bpf_map_lookup_elem(&mounts, &mount))
		return false;
	struct record_loader_seen *r = BEGIN(loader_seen, pid_tgid_of(task));
	if (r) {
		bpf_map_update_elem(&mounts, &mount, &one, BPF_ANY);
		r->stopped = stop_until_probed(process_flags);
		SUBMIT_NOW(r);
	}
	return r;
}

// Reports a program at its first start, because it may contain onbeat-flow. `reported` means that
// the recorder already visits the process. After a second report the recorder would resume the
// process twice. The second time may be too early for libraries that it has loaded since.
static __always_inline void report_program(struct task_struct *task, __u8 process_flags,
					   bool reported)
{
	struct inode *inode = BPF_CORE_READ(task, mm, exe_file, f_inode);
	struct program program = { .inode = BPF_CORE_READ(inode, i_ino),
				   .device = BPF_CORE_READ(inode, i_sb, s_dev) };
	__u8 one = 1;

	if (bpf_map_lookup_elem(&programs, &program))
		return;
	if (reported || report_library(pid_tgid_of(task), process_flags))
		bpf_map_update_elem(&programs, &program, &one, BPF_ANY);
}

TRACEPOINT(sched_process_exec)
int on_exec(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	__u32 tgid = GET(task, tgid);
	__u8 *p = flag_of(&processes, tgid);

	bpf_map_delete_elem(&link_tails, &tgid);
	if (!p)
		return 0;
	// The new program may be within the limits.
	if (*p & PROCESS_OUTSIDE)
		*p = 0;
	if (observe_all || (*p & PROCESS_MARKED)) {
		bool reported = report_loader(task, *p);

		if (tgid != own_tgid)
			report_program(task, *p, reported);
	}
	__u8 before = *p;
	// It is not known yet whether the new program uses ROS 2, or is late.
	*p &= PROCESS_MARKED;
	if (!(before & (PROCESS_MARKED | PROCESS_SEEN)))
		return 0;
	struct record_exec *r = BEGIN(exec, pid_tgid_of(task));
	if (r) {
		READ_COMM(r->comm, task);
		SUBMIT_NOW(r);
	}
	return 0;
}

TRACEPOINT(sched_process_exit)
int on_exit_task(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	__u32 tgid = GET(task, tgid), tid = GET(task, pid);
	__u8 *p = flag_of(&processes, tgid), *t = flag_of(&threads, tid);
	__u8 *stopped = flag_of(&suspended, tgid), flags = p ? *p : 0;
	struct signal_struct *signal;

	forget_task(tid);
	if (t)
		*t = 0;
	signal = GET(task, signal);
	if (GET(signal, live.counter) == 0) {
		if (p)
			*p = 0;
		if (stopped)
			*stopped = 0;
		bpf_map_delete_elem(&link_tails, &tgid);
		bpf_map_delete_elem(&followers, &tgid);
	}
	if (!(flags & (PROCESS_MARKED | PROCESS_SEEN)))
		return 0;
	struct record_exit *r = BEGIN(exit, ((__u64)tgid << 32) | tid);
	if (r)
		SUBMIT(r);
	return 0;
}
