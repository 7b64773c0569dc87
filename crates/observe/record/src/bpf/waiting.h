// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Reports which thread has the CPU while an observed thread waits for it.
#pragma once

#define UNTOLD 0xffffffff     // in place of a thread id that is not reported
#define UNTOLD_MIN_NS 20000   // shorter waits make no such record
#define RENAME_NS 10000000000 // a name is reported again: old segments may be gone
#define PF_KTHREAD 0x00200000

#define READ_COMM(field, task)                                                                     \
	do {                                                                                       \
		(field)[0] = 0;                                                                    \
		bpf_probe_read_kernel_str(field, sizeof(field), (task)->comm);                     \
	} while (0)

// Notes that an observed thread waits for a CPU.
static __always_inline void start_waiting(struct watched *watched, __u32 number)
{
	struct cpu *cpu = cpu_of(number);

	if (!watched || !cpu)
		return;
	watched->waits_on = number + 1;
	cpu->left = OCCUPIED_MAX;
	__sync_fetch_and_add(&cpu->waiting, 1);
}

// Notes that the thread runs, or waits for another CPU.
static __always_inline void stop_waiting(struct watched *watched)
{
	struct cpu *cpu;

	if (!watched || !watched->waits_on)
		return;
	cpu = cpu_of(watched->waits_on - 1);
	watched->waits_on = 0;
	if (cpu)
		__sync_fetch_and_add(&cpu->waiting, -1);
}

// Returns whether the thread was last reported with these names, and not too long ago.
static __always_inline bool is_same(const struct bystander *a, const struct bystander *b)
{
	return a->tid == b->tid && a->tgid == b->tgid && a->comm[0] == b->comm[0] &&
	       a->comm[1] == b->comm[1] && b->reported_ns - a->reported_ns < RENAME_NS;
}

static __always_inline void read_name(__u64 *words, struct task_struct *task)
{
#ifdef NO_KERNEL_BTF
	bpf_probe_read_kernel(words, COMM_BYTES, task->comm);
#else
	words[0] = ((__u64 *)task->comm)[0];
	words[1] = ((__u64 *)task->comm)[1];
#endif
}

// Reports the name of a thread that is not observed. Two CPUs may write one place at the same time.
// A mix of both matches no thread, so the name is reported again.
static __always_inline void name_bystander(struct task_struct *task, __u64 now)
{
	struct bystander name = { .reported_ns = now, .tid = GET(task, pid), .tgid = GET(task, tgid) };
	__u32 index = name.tid % BYSTANDER_PLACES;
	struct bystander_place *place;
	bool second;

	if (!name.tid)
		return;
	read_name(name.comm, task);
	place = bpf_map_lookup_elem(&bystanders, &index);
	if (!place || is_same(&place->known[0], &name) || is_same(&place->known[1], &name))
		return;
	// A name replaces itself, or else the one that was reported earlier.
	second = place->known[0].tid != name.tid &&
		 (place->known[1].tid == name.tid ||
		  place->known[1].reported_ns < place->known[0].reported_ns);
	place->known[second] = name;
	struct record_bystander *r = BEGIN_AT(bystander, pid_tgid_of(task), now);
	if (r) {
		struct task_struct *leader = GET(task, group_leader);

		READ_COMM(r->comm, task);
		READ_COMM(r->process, leader);
		r->kernel = (GET(task, flags) & PF_KTHREAD) != 0;
		SUBMIT(r);
	}
}

static __always_inline void report_occupied(__u64 who, __u64 now, __u32 prev_tid, bool last)
{
	struct record_occupied *r = BEGIN_AT(occupied, who, now);

	if (r) {
		r->prev_tid = prev_tid;
		r->last = last;
		SUBMIT(r);
	}
}

// Records a switch between two threads that are not observed, while an observed one waits for this
// CPU.
static __always_inline void occupied(struct task_struct *prev, struct task_struct *next)
{
	struct cpu *cpu = cpu_of(bpf_get_smp_processor_id());
	__u64 now;

	if (!cpu || !cpu->waiting)
		return;
	now = bpf_ktime_get_ns();
	if (!cpu->left) {
		if (now - cpu->exhausted_ns < OCCUPIED_REST_NS)
			return;
		cpu->left = OCCUPIED_MORE;
	}
	cpu->left -= 1;
	if (!cpu->left)
		cpu->exhausted_ns = now;
	name_bystander(prev, now);
	name_bystander(next, now);
	report_occupied(pid_tgid_of(next), now, GET(prev, pid), !cpu->left);
}
