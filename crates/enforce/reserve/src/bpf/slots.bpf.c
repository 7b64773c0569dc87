// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
//
// Reservation servers as a sched_ext scheduler. A timer on each CPU opens and closes the slots of
// its servers. Each server has a queue, and a thread leaves the queue for the CPU only while its
// server's slot is open.
//
// Two rules hold here: no loop is unbounded, and a thread that is in no server never has to wait.
// When the process that holds the link ends, the kernel removes the scheduler, and its threads
// return to the fair class.
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#include "kernel.h"
#include "maps.h"
#include "queues.h"
#include "rounds.h"

// Threads are pinned to their server's CPU. Without this callback the kernel would put a waking
// thread on an idle CPU, past its server's queue.
SEC("struct_ops/slots_select_cpu")
s32 BPF_PROG(slots_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	(void)ctx, (void)p, (void)wake_flags;
	return prev_cpu;
}

SEC("struct_ops/slots_enqueue")
void BPF_PROG(slots_enqueue, struct task_struct *p, u64 enq_flags)
{
	(void)ctx;
	struct member *member = bpf_task_storage_get(&members, p, 0, 0);
	struct server *server = member ? server_of(member->server) : 0;

	if (!server) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DEFAULT, enq_flags);
		return;
	}
	bool open = is_open(server);
	bool rests = !open && is_soft();
	u64 queue = rests ? rest_queue(server->cpu) : server_queue(member->server);

	scx_bpf_dsq_insert(p, queue, slice_of(server, rests), enq_flags);
	if (open || rests)
		scx_bpf_kick_cpu(server->cpu, preempts(server, rests) ? SCX_KICK_PREEMPT : 0);
}

// Picks a thread of the highest-priority server whose slot is open. With soft gates, threads
// outside of their slots come after all others.
SEC("struct_ops/slots_dispatch")
void BPF_PROG(slots_dispatch, s32 at, struct task_struct *prev)
{
	(void)ctx;
	u32 cpu = at;
	struct order *order = bpf_map_lookup_elem(&orders, &cpu);

	(void)prev;
	if (!order)
		return;
	for (u32 i = 0; i < MAX_OF_CPU && i < order->count; i++) {
		struct server *server = server_of(order->server[i]);

		if (server && is_open(server) &&
		    scx_bpf_dsq_move_to_local(server_queue(order->server[i])))
			return;
	}
	if (is_soft())
		scx_bpf_dsq_move_to_local(rest_queue(cpu));
}

// Takes a thread off the CPU again if it was admitted, or its slot ended, between queue and CPU.
SEC("struct_ops/slots_running")
void BPF_PROG(slots_running, struct task_struct *p)
{
	(void)ctx;
	struct member *member = bpf_task_storage_get(&members, p, 0, 0);
	struct server *server = member ? server_of(member->server) : 0;
	struct cpu *cpu = server ? cpu_of(server->cpu) : 0;

	if (!cpu)
		return;
	cpu->running = member->server + 1;
	if (!is_open(server) && !is_soft()) {
		__sync_fetch_and_add(&server->strays, 1);
		scx_bpf_kick_cpu(server->cpu, SCX_KICK_PREEMPT);
	}
}

SEC("struct_ops/slots_stopping")
void BPF_PROG(slots_stopping, struct task_struct *p, bool runnable)
{
	(void)ctx;
	struct member *member = bpf_task_storage_get(&members, p, 0, 0);
	struct server *server = member ? server_of(member->server) : 0;
	struct cpu *cpu = server ? cpu_of(server->cpu) : 0;

	(void)runnable;
	if (cpu)
		cpu->running = 0;
}

// Another scheduling class takes the CPU. Threads that wait on the CPU's local queue return to
// their own queues, so that they do not run later, when their slot may be over.
SEC("struct_ops/slots_cpu_release")
void BPF_PROG(slots_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	(void)ctx, (void)cpu, (void)args;
	scx_bpf_reenqueue_local();
}

// A thread that a server's thread starts is in the same server, as it would be in the same cgroup
// with freezers.
SEC("struct_ops/slots_init_task")
s32 BPF_PROG(slots_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	(void)ctx;
	if (!args->fork)
		return 0;
	struct member *parent = bpf_task_storage_get(&members, bpf_get_current_task_btf(), 0, 0);

	if (parent) {
		struct member own = *parent;

		// If memory is short, the thread is in no server and does not wait for slots.
		bpf_task_storage_get(&members, p, &own, BPF_LOCAL_STORAGE_GET_F_CREATE);
	}
	return 0;
}

SEC("struct_ops.s/slots_init")
s32 BPF_PROG(slots_init)
{
	(void)ctx;
	s32 error = 0;

	for (u32 i = 0; i < MAX_SERVERS && !error; i++)
		error = scx_bpf_create_dsq(server_queue(i), -1);
	for (u32 i = 0; i < MAX_CPUS && !error; i++) {
		struct cpu *cpu = cpu_of(i);

		error = scx_bpf_create_dsq(rest_queue(i), -1);
		if (!cpu || error)
			continue;
		error = bpf_timer_init(&cpu->timer, &cpus, CLOCK_OF_TIMERS);
		if (!error)
			error = bpf_timer_set_callback(&cpu->timer, on_timer);
	}
	return error;
}

SEC("struct_ops/slots_exit")
void BPF_PROG(slots_exit, struct scx_exit_info *info)
{
	(void)ctx;
	struct control *c = the_control();

	if (c)
		c->exit_kind = info->kind;
}

// Starts the timer of the caller's CPU. The timer stays on that CPU.
SEC("syscall")
int start_timer(void *context)
{
	struct cpu *cpu = cpu_of(bpf_get_smp_processor_id());

	(void)context;
	return cpu ? bpf_timer_start(&cpu->timer, 0, BPF_TIMER_PINNED) : -1;
}

SEC(".struct_ops.link")
struct sched_ext_ops onbeat_slots = {
	.select_cpu = (void *)slots_select_cpu,
	.enqueue = (void *)slots_enqueue,
	.dispatch = (void *)slots_dispatch,
	.running = (void *)slots_running,
	.stopping = (void *)slots_stopping,
	.cpu_release = (void *)slots_cpu_release,
	.init_task = (void *)slots_init_task,
	.init = (void *)slots_init,
	.exit = (void *)slots_exit,
	// The scheduler only gets threads that ask for SCHED_EXT. Without ENQ_LAST the kernel would let
	// the last thread of a CPU run on after its slot.
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_LAST,
	.timeout_ms = 30000,
	.name = "onbeat",
};
