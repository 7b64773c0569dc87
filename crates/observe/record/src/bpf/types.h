// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Checks the type information that a user gave for a kernel without BTF.
#pragma once

#ifdef NO_KERNEL_BTF
#define PRIORITIES 140 // MAX_PRIO
#define THREADS_MAX 4096 // of the recorder

// Returns the CPU time of the current task in us, or 0 if fields of it, read by the user's types, are
// not what helpers of the kernel say. The recorder runs this once, in its own process, and compares the
// time with its clock. It never attaches the program.
SEC("raw_tp/sched_switch")
int on_types_check(void *ctx __attribute__((unused)))
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	__u64 current = bpf_get_current_pid_tgid();
	__u32 live = BPF_CORE_READ(task, signal, live.counter);
	char real[COMM_BYTES] = {}, read[COMM_BYTES] = {};

	bpf_get_current_comm(real, sizeof(real));
	READ_COMM(read, task);
	for (int i = 0; i < COMM_BYTES && real[i]; i++) {
		if (real[i] != read[i])
			return 0;
	}
	if (pid_tgid_of(task) != current ||
	    BPF_CORE_READ(leader, pid) != (int)(current >> 32) ||
	    (__u32)BPF_CORE_READ(task, prio) >= PRIORITIES || !live || live > THREADS_MAX)
		return 0;
	return BPF_CORE_READ(task, se.sum_exec_runtime) / 1000;
}
#endif
