// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Reports for how long the scheduler withheld the CPU from an observed thread, because the thread or
// its control group had used up its CPU time.
#pragma once

// A shorter time is not reported.
#define THROTTLED_MIN_NS 20000
#define POLICY_FIFO 1
#define POLICY_RR 2
#define POLICY_DEADLINE 6

// Returns the total time for which a queue was throttled while threads were ready in it (Linux 6.6).
static __always_inline __u64 throttled_so_far(struct cfs_rq *queue)
{
	if (!queue || !bpf_core_field_exists(queue->throttled_clock_self_time))
		return 0;
	return GET(queue, throttled_clock_self_time);
}

// Returns whether a real-time or deadline thread has used up its CPU time. Its queue keeps no account
// of such times. A deadline thread that yields gives its CPU time up.
static __always_inline bool has_used_up(struct task_struct *task)
{
	struct rt_rq *queue;

	switch (GET(task, policy)) {
	case POLICY_DEADLINE:
		return BPF_CORE_READ_BITFIELD_PROBED(&task->dl, dl_throttled) &&
		       !BPF_CORE_READ_BITFIELD_PROBED(&task->dl, dl_yielded);
	case POLICY_FIFO:
	case POLICY_RR:
		if (!bpf_core_field_exists(task->rt.rt_rq))
			return false;
		queue = GET(task, rt.rt_rq);
		return queue && GET(queue, rt_throttled);
	}
	return false;
}

// Notes that an observed thread is ready from now on, without a CPU.
static __always_inline void may_be_throttled(struct task_struct *task, struct watched *watched,
					     __u64 now)
{
	struct cfs_rq *queue = GET(task, se.cfs_rq);

	watched->ready_ns = now;
	watched->queue = (__u64)queue;
	watched->throttled_ns = throttled_so_far(queue);
}

// Does the same for a thread that leaves its CPU although it is ready.
static __always_inline void loses_cpu(struct task_struct *task, struct watched *watched, __u64 now)
{
	struct cfs_rq *queue = GET(task, se.cfs_rq);

	may_be_throttled(task, watched, now);
	watched->withheld_ns = has_used_up(task) ? now : 0;
	if (bpf_core_field_exists(task->throttled))
		watched->throttled = GET(task, throttled);
	else
		watched->throttled = queue && bpf_core_field_exists(queue->throttle_count) &&
				     GET(queue, throttle_count) > 0;
}

// Reports the throttled time of a thread that gets a CPU.
static __always_inline void report_throttled(struct task_struct *task, struct watched *watched,
					     __u64 who, __u64 now)
{
	struct cfs_rq *queue;
	bool first = watched->throttled;
	__u64 ns = 0;

	if (watched->withheld_ns) {
		ns = now - watched->withheld_ns;
		first = true;
	} else if (watched->queue) {
		queue = GET(task, se.cfs_rq);
		// A queue of another CPU has an account of its own.
		if (watched->queue == (__u64)queue)
			ns = throttled_so_far(queue) - watched->throttled_ns;
	}
	// The account grows at once by the whole time for which the queue was throttled.
	if (ns > now - watched->ready_ns)
		ns = now - watched->ready_ns;
	watched->queue = 0;
	watched->withheld_ns = 0;
	watched->throttled = false;
	if (ns < THROTTLED_MIN_NS)
		return;
	struct record_throttled *r = BEGIN_AT(throttled, who, now);
	if (r) {
		r->throttled_ns = ns;
		r->first = first;
		SUBMIT(r);
	}
}
