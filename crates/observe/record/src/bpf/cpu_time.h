// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Reports the CPU time of threads as the kernel accounts it, where the records of switches would
// give another time: the kernel does not report every switch, and a host takes time away.
#pragma once

#include "stolen.h"

// A smaller difference is not reported.
#define CPU_TIME_MIN_NS 10000
// A clock's offset that seems to grow by more than this per switch is a delay of the reading.
#define OFFSET_STEP_NS 200

static __always_inline struct rq *queue_of(struct task_struct *task)
{
	struct cfs_rq *queue = GET(task, se.cfs_rq);

	return queue ? GET(queue, rq) : 0;
}

// Updates the distance between CLOCK_MONOTONIC and the clock of this CPU's run queue. `task` is on
// this CPU, and its switch has just updated that clock. A reading is late at times, and never early.
static __always_inline void measure_clock(struct cpu *cpu, struct task_struct *task, __u64 now)
{
	struct rq *rq = queue_of(task);
	__s64 offset;

	if (!rq)
		return;
	offset = now - GET(rq, clock);
	if (!cpu->clock_offset || offset < cpu->clock_offset + OFFSET_STEP_NS)
		cpu->clock_offset = offset;
	else
		cpu->clock_offset += OFFSET_STEP_NS;
}

// Returns the CPU time of the current thread at `now`, or 0 if it cannot be told. The kernel's sum
// is some milliseconds old. Since then the thread had the CPU, except for stolen time.
static __always_inline __u64 cpu_time_now(struct cpu *cpu, struct task_struct *task, __u64 now)
{
	struct rq *rq = queue_of(task);
	__u64 sum = GET(task, se.sum_exec_runtime);
	__s64 since_start, since_update, stolen = 0;

	if (!rq || !cpu->clock_offset)
		return 0;
	since_start = GET(rq, clock_task) - GET(task, se.exec_start);
	since_update = now - GET(rq, clock) - cpu->clock_offset;
	if (have_steal && bpf_core_field_exists(rq->prev_steal_time_rq))
		stolen = stolen_so_far(task) - GET(rq, prev_steal_time_rq);
	if (since_start > 0)
		sum += since_start;
	if (since_update > 0)
		sum += stolen > 0 && stolen < since_update ? since_update - stolen : since_update;
	return sum;
}

// Reports the CPU time of `task`, whose account is `watched`, since its last record of a switch from
// a CPU or of a CPU time.
static __always_inline void report_cpu_time(struct watched *watched, __u64 who, __u64 now,
					    __u64 cpu_time_ns)
{
	if (!watched->has_cpu_time)
		return;
	struct record_cpu_time *r = BEGIN_AT(cpu_time, who, now);
	if (r) {
		r->used_ns = cpu_time_ns - watched->cpu_time_ns;
		r->since_switch = 1;
		SUBMIT(r);
		watched->cpu_time_ns = cpu_time_ns;
	}
}

// Reports the CPU time of the current thread if the switch that gave it this CPU was not reported.
// Returns whether it was not.
static __always_inline bool report_missed_switch(struct cpu *cpu, __u64 who, __u64 now)
{
	struct task_struct *task;
	struct watched *watched;
	__u64 cpu_time_ns;

	if (!have_storage || cpu->running == (__u32)who)
		return false;
	cpu->running = who;
	cpu->since_ns = now;
	cpu->reported_ns = 0;
	task = current_task();
	watched = watched_of(task);
	cpu_time_ns = watched ? cpu_time_now(cpu, task, now) : 0;
	if (cpu_time_ns)
		report_cpu_time(watched, who, now, cpu_time_ns);
	return true;
}

// Accounts for the current thread up to `now`, where a callback begins or ends: reports the time
// that a host has stolen from it, or its CPU time if a switch is missing. The caller must call this
// before the record that ends the interval.
static __always_inline void account_for(__u64 who, __u64 now)
{
	struct cpu *cpu = cpu_of(bpf_get_smp_processor_id());
	__u64 stolen_ns = stolen_now();

	if (!cpu)
		return;
	if (report_missed_switch(cpu, who, now))
		cpu->stolen_ns = stolen_ns;
	else
		report_stolen(cpu, who, stolen_ns, now);
}

// Begins the account of an observed thread that has this CPU.
static __always_inline struct cpu *account_begins(struct task_struct *task, __u64 now)
{
	struct cpu *cpu = cpu_of(bpf_get_smp_processor_id());

	if (!cpu)
		return 0;
	cpu->running = GET(task, pid);
	cpu->since_ns = now;
	cpu->reported_ns = 0;
	cpu->stolen_ns = stolen_so_far(task);
	return cpu;
}

// Accounts for an observed thread that leaves this CPU. Its kernel account is up to date here.
static __always_inline void account_ends(struct task_struct *task, struct watched *watched,
					 __u64 who, __u64 now)
{
	struct cpu *cpu = cpu_of(bpf_get_smp_processor_id());
	bool missed;
	__s64 difference;

	if (!cpu)
		return;
	missed = cpu->running != (__u32)who;
	cpu->running = 0;
	measure_clock(cpu, task, now);
	if (!missed)
		report_stolen(cpu, who, stolen_so_far(task), now);
	if (!watched)
		return;
	difference = (now - cpu->since_ns - cpu->reported_ns) -
		     (GET(task, se.sum_exec_runtime) - watched->cpu_time_ns);
	if (missed || difference > CPU_TIME_MIN_NS || difference < -CPU_TIME_MIN_NS)
		report_cpu_time(watched, who, now, GET(task, se.sum_exec_runtime));
}

// Keeps the kernel's account of a thread whose switch from its CPU was recorded.
static __always_inline void account_recorded(struct task_struct *task, struct watched *watched)
{
	if (!watched)
		return;
	watched->cpu_time_ns = GET(task, se.sum_exec_runtime);
	watched->has_cpu_time = true;
}
