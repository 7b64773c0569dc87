// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Notes suspended processes, and processes that suspend themselves because their child is
// suspended.
#pragma once

#define SIGSTOP 19

// A process that suspends itself within this time after a suspension does so because of it.
#define FOLLOW_NS 10000000000ULL

// Notes a suspended process. It runs after SIGSTOP was sent. A process that clears the note before
// it sends SIGCONT therefore misses no suspension.
static __always_inline void note_suspended(__u32 tgid)
{
	__u8 *s = flag_of(&suspended, tgid), *any = flag_of(&suspended, 0);

	if (s)
		*s = 1;
	if (any)
		*any = 1;
}

// Returns whether a process is a job of a shell with job control. Such a shell would see that its
// job has stopped, take the terminal back, and run its next command.
static __always_inline bool is_job(struct task_struct *task)
{
	struct signal_struct *own = BPF_CORE_READ(task, signal);
	struct signal_struct *shell = BPF_CORE_READ(task, real_parent, signal);

	return BPF_CORE_READ(own, pids[PIDTYPE_SID]) == BPF_CORE_READ(shell, pids[PIDTYPE_SID]) &&
	       BPF_CORE_READ(own, pids[PIDTYPE_PGID]) != BPF_CORE_READ(shell, pids[PIDTYPE_PGID]);
}

// Notes the parents of a suspended process. su, sudo and nsenter suspend themselves when their
// child is suspended, and only we would resume them. sudo has a process between itself and its
// child.
static __always_inline void expect_followers(struct task_struct *task)
{
	__u64 now = bpf_ktime_get_ns();

	for (int i = 0; i < 2; i++) {
		task = BPF_CORE_READ(task, real_parent);
		__u32 tgid = BPF_CORE_READ(task, tgid);
		__u8 *p = flag_of(&processes, tgid);

		if (!p || !(*p & PROCESS_MARKED) || tgid == own_tgid)
			break;
		bpf_map_update_elem(&followers, &tgid, &now, BPF_ANY);
	}
}

// Handles a SIGSTOP. A follower suspends itself, or its process group. If the recorder is in this
// group, the guard resumes it.
TRACEPOINT(signal_generate)
int on_signal(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[2];
	__u32 sender = bpf_get_current_pid_tgid() >> 32;
	__u64 *since;

	// An info of 0 or 1 means that the kernel sends the signal, perhaps for us.
	if ((__u32)ctx[0] != SIGSTOP || ctx[1] < 2 || !stop_on_load)
		return 0;
	since = bpf_map_lookup_elem(&followers, &sender);
	if (!since || bpf_ktime_get_ns() - *since > FOLLOW_NS)
		return 0;
	note_suspended(GET(task, tgid));
	expect_followers(task);
	struct record_followed *r = BEGIN(followed, pid_tgid_of(task));
	if (r)
		SUBMIT_NOW(r);
	return 0;
}
