// Kernel types that the programs use, each with only the fields that are used. The offsets of the
// fields, and the callbacks that exist, come from the BTF of the running kernel.
#pragma once

typedef __u8 u8;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

struct sched_ext_entity {
	u64 slice;
} __attribute__((preserve_access_index));

struct task_struct {
	s32 pid;
	struct sched_ext_entity scx;
} __attribute__((preserve_access_index));

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
} __attribute__((preserve_access_index));

struct scx_init_task_args {
	bool fork;
} __attribute__((preserve_access_index));

struct scx_cpu_release_args;

// The callbacks and settings that the scheduler sets. The kernel's type has more.
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

enum {
	SCX_OPS_ENQ_LAST = 1 << 1,
	SCX_OPS_SWITCH_PARTIAL = 1 << 3,
	SCX_KICK_PREEMPT = 1 << 1,
	BPF_TIMER_PINNED = 1 << 1,
	BPF_TIMER_ABSOLUTE = 1 << 0,
	CLOCK_OF_TIMERS = 1, // CLOCK_MONOTONIC
};

#define SCX_DSQ_GLOBAL ((1ULL << 63) | 1)
#define SCX_SLICE_DEFAULT 20000000ULL

extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
extern void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym;
extern bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
extern u32 scx_bpf_reenqueue_local(void) __ksym;
