// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Who has the CPU while an observed thread waits for it.
#pragma once

#define UNTOLD 0xffffffff     // in place of a thread id: which one is not told
#define UNTOLD_MIN_NS 20000   // shorter waits are not worth a record that says so
#define RENAME_NS 10000000000 // a bystander's name is reported again: older segments may be gone
#define PF_KTHREAD 0x00200000

#define READ_COMM(field, task)                                                                     \
	do {                                                                                       \
		(field)[0] = 0;                                                                    \
		bpf_probe_read_kernel_str(field, sizeof(field), (task)->comm);                     \
	} while (0)

static __always_inline struct waiters *waiters_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&waiters, &cpu);
}

// An observed thread waits for this CPU.
static __always_inline void start_waiting(struct watched *watched, __u32 cpu)
{
	struct waiters *w = waiters_of(cpu);

	if (!watched || !w)
		return;
	watched->waits_on = cpu + 1;
	w->left = OCCUPIED_MAX;
	__sync_fetch_and_add(&w->count, 1);
}

// It does not any more: it runs, or waits elsewhere.
static __always_inline void stop_waiting(struct watched *watched)
{
	struct waiters *w;

	if (!watched || !watched->waits_on)
		return;
	w = waiters_of(watched->waits_on - 1);
	watched->waits_on = 0;
	if (w)
		__sync_fetch_and_add(&w->count, -1);
}

// Reports the name of a thread that is not observed.
static __always_inline void name_bystander(struct task_struct *task, __u64 now)
{
	__u32 tid = task->pid;
	struct bystander *known, name = {};

	if (!tid)
		return;
	name.reported_ns = now;
	name.tgid = task->tgid;
	bpf_probe_read_kernel_str(name.comm, sizeof(name.comm), task->comm);
	known = bpf_map_lookup_elem(&bystanders, &tid);
	if (known && now - known->reported_ns < RENAME_NS && known->tgid == name.tgid &&
	    known->comm[0] == name.comm[0] && known->comm[1] == name.comm[1])
		return;
	bpf_map_update_elem(&bystanders, &tid, &name, BPF_ANY);
	struct record_bystander *r = BEGIN_AT(bystander, pid_tgid_of(task), now);
	if (r) {
		READ_COMM(r->comm, task);
		READ_COMM(r->process, task->group_leader);
		r->kernel = (task->flags & PF_KTHREAD) != 0;
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

// A switch between two threads that are not observed: recorded while an observed one waits here.
static __always_inline void occupied(struct task_struct *prev, struct task_struct *next)
{
	struct waiters *w = waiters_of(bpf_get_smp_processor_id());
	__u64 now;

	if (!w || !w->count || !w->left)
		return;
	now = bpf_ktime_get_ns();
	w->left -= 1;
	name_bystander(prev, now);
	name_bystander(next, now);
	report_occupied(pid_tgid_of(next), now, prev->pid, !w->left);
}
