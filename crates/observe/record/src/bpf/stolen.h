// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Reports the CPU time that a hypervisor takes from a running thread.
#pragma once

// A shorter time is not reported.
#define STOLEN_MIN_NS 10000

// Returns the total time stolen from the CPU of `task`, as the host reports it. The kernel hides
// the addresses of its variables. But the variables of one CPU lie at fixed distances from one
// another.
static __always_inline __u64 stolen_so_far(struct task_struct *task)
{
	struct kvm_steal_time *clock;
	struct cfs_rq *queue;
	struct rq *rq;
	__u64 now = 0;

	if (!have_steal)
		return 0;
	queue = GET(task, se.cfs_rq);
	rq = queue ? GET(queue, rq) : 0;
	if (!rq)
		return 0;
	clock = (void *)((__u64)rq + steal_distance);
	bpf_core_read(&now, sizeof(now), &clock->steal);
	return now;
}

// Returns the total time stolen from the current CPU. This needs Linux 5.11.
static __always_inline __u64 stolen_now(void)
{
	if (!have_steal)
		return 0;
	return stolen_so_far(current_task());
}

// Reports the time stolen from a running thread since it got this CPU, or since the last call.
static __always_inline void report_stolen(struct cpu *cpu, __u64 who, __u64 stolen_ns,
					  __u64 time_ns)
{
	if (!have_steal)
		return;
	// Nothing is known of the time before this CPU's first switch to an observed thread.
	if (!cpu->stolen_ns)
		cpu->stolen_ns = stolen_ns;
	if (stolen_ns - cpu->stolen_ns < STOLEN_MIN_NS)
		return;
	struct record_stolen *r = BEGIN_AT(stolen, who, time_ns);
	if (r) {
		r->stolen_ns = stolen_ns - cpu->stolen_ns;
		SUBMIT(r);
	}
	cpu->reported_ns += stolen_ns - cpu->stolen_ns;
	cpu->stolen_ns = stolen_ns;
}
