// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Settings and maps: the data that the programs share with the recorder or keep between hits.
#pragma once

// ---- settings, fixed when the programs are loaded
const volatile bool observe_all;      // every ROS 2 process, not only those marked
const volatile bool stop_on_load;     // suspend the command's processes until they are probed
const volatile bool switch_has_state; // sched_switch passes prev_state (Linux 5.18)
const volatile bool have_cookie;      // bpf_get_attach_cookie (Linux 5.15)
const volatile bool have_storage;     // task->bpf_storage marks observed threads (Linux 5.13)
const volatile bool have_delays;      // task->sched_info shows ready times (Linux 5.14)
const volatile bool have_regs;        // bpf_task_pt_regs (Linux 5.15)
const volatile bool have_steal;       // a hypervisor may take this machine's CPUs away
const volatile __s64 steal_distance;  // from a CPU's run queue to its struct kvm_steal_time
const volatile bool all_threads;      // scheduler events of all threads of observed processes
const volatile bool have_lineage;     // follow the execution that an item belongs to
const volatile bool have_context;     // preempt_count shows whether an interrupt runs
const volatile __s64 context_distance; // from a CPU's run queue to its preempt_count
const volatile __u64 wakeup_bytes;    // fill level at which the reader is woken
const volatile __u32 own_tgid;        // the recorder itself

// ---- the way to the recorder
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20); // the recorder sets the size
} ring SEC(".maps");

// The number of records lost because the ring buffer was full, by kind.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, KIND_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

// The number of hits without a record of their own, by the probe's number.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROBES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

// ---- processes and threads
// Each process id and thread id has one byte of flags. The JIT inlines an array lookup. A plain
// byte store needs no atomic instruction, which kernels before 5.12 lack.
#define IDS_PER_SLOT 64
#define ID_SLOTS (ID_COUNT / IDS_PER_SLOT)
struct id_slot {
	__u8 flags[IDS_PER_SLOT];
};

// Flags PROCESS_* of each process. The recorder maps this table to mark processes.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ID_SLOTS);
	__type(key, __u32);
	__type(value, struct id_slot);
} processes SEC(".maps");

// Is not 0 for each suspended process. The byte of id 0 is not 0 after a process was newly
// suspended. The recorder and its guard map this table, and only they clear the bytes that the
// programs set.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ID_SLOTS);
	__type(key, __u32);
	__type(value, struct id_slot);
} suspended SEC(".maps");

// Flags THREAD_* of each thread. A program that gates threads maps this table to see which threads
// wait.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ID_SLOTS);
	__type(key, __u32);
	__type(value, struct id_slot);
} threads SEC(".maps");

#define THREAD_SEEN 1     // runs callbacks or publishes, and was reported
#define THREAD_WAIT_SET 2 // its wait set was reported
#define THREAD_ASLEEP 4   // left its CPU to sleep
#define THREAD_BORN 8     // started by a thread with callbacks, or recorded with its whole process
#define THREAD_IN_WAIT 16 // called rcl_wait, and has run no callback since
#define THREAD_NEW_WAIT 32 // has not slept in rcl_wait yet

// Scheduler events are recorded of threads with one of these flags.
#define THREAD_SCHEDULED (THREAD_SEEN | THREAD_BORN)

// Returns the flags of a process or thread, or 0 if its id is out of range.
static __always_inline __u8 *flag_of(void *map, __u32 id)
{
	__u32 slot = id / IDS_PER_SLOT;
	struct id_slot *s = bpf_map_lookup_elem(map, &slot);

	return s ? &s->flags[id % IDS_PER_SLOT] : 0;
}

struct watched {
	__u64 run_delay; // sched_info's, when the thread went to sleep
	__u64 wait_stack; // stack pointer while the thread sleeps in rcl_wait
	__u32 waits_on;   // number of the CPU that the thread waits for, plus 1; 0: none
	bool has_cpu_time; // cpu_time_ns is set
	bool throttled;    // had used up its CPU time when it left its CPU
	__u64 cpu_time_ns; // CPU time at its last record of a switch from a CPU, or of a CPU time
	__u64 ready_ns;	   // when it began to wait for a CPU
	__u64 queue;	   // address of its queue then, or 0
	__u64 throttled_ns; // total time for which the queue had been throttled then
	__u64 withheld_ns;  // since when its own CPU time has been used up; 0: it is not
};

// The state of a CPU. While observed threads wait for it, `occupied` reports which thread has it.
// Its size is one cache line.
struct cpu {
	__u64 waiting;	 // number of observed threads that wait
	__u64 left;	 // number of records that may still be made
	__u64 stolen_ns; // stolen time up to its last report
	__u64 since_ns;	 // when the observed thread `running` got this CPU
	__u64 reported_ns;  // stolen time reported of that thread since then
	__s64 clock_offset; // CLOCK_MONOTONIC minus the run queue's clock; 0: unknown
	__u32 running;	    // observed thread that got this CPU by a recorded switch
	__u32 pad;
	__u64 exhausted_ns; // when the last record of the allowance was made
};

#define CPUS_MAX 1024
// Limits of the volume of `occupied`: records at the start of a wait, and further ones at the end of
// each interval in which nothing was recorded.
#define OCCUPIED_MAX 32
#define OCCUPIED_MORE 16
#define OCCUPIED_REST_NS 4000000

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS_MAX);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

// Returns 0 if the CPU's number is out of range.
static __always_inline struct cpu *cpu_of(__u32 number)
{
	return bpf_map_lookup_elem(&cpus, &number);
}

// The last reported name of a thread that is not observed.
struct bystander {
	__u64 reported_ns;
	__u64 comm[COMM_BYTES / 8]; // as words, for two comparisons
	__u32 tid;
	__u32 tgid;
};

// Threads with the same remainder share a place, which fits into one cache line. If three such
// threads take turns, one is reported each time.
#define BYSTANDER_PLACES 8192
struct bystander_place {
	struct bystander known[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BYSTANDER_PLACES);
	__type(key, __u32);
	__type(value, struct bystander_place);
} bystanders SEC(".maps");

// Has an entry for each thread whose scheduler events are recorded. The scheduler's probes get the
// task_struct, whose bpf_storage shows without a lookup that a thread is not observed.
#ifndef NO_KERNEL_BTF
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct watched);
} observed_tasks SEC(".maps");

static __always_inline struct task_struct *current_task(void)
{
	return bpf_get_current_task_btf();
}

// Returns the entry of a thread, or 0 if it has none.
static __always_inline struct watched *watched_of(struct task_struct *task)
{
	return have_storage ? bpf_task_storage_get(&observed_tasks, task, 0, 0) : 0;
}

// Makes the storage without which the scheduler's probes overlook a thread. Returns false if none
// can be allocated now.
static __always_inline bool has_storage(struct task_struct *task)
{
	return !have_storage || bpf_task_storage_get(&observed_tasks, task, 0,
						     BPF_LOCAL_STORAGE_GET_F_CREATE);
}

// Returns whether it is certain, without a lookup, that a thread is not observed.
static __always_inline bool is_foreign(struct task_struct *task)
{
	return have_storage && !task->bpf_storage;
}

static __always_inline void forget_task(__u32 tid)
{
	(void)tid; // the kernel frees the storage
}
#else
// Without BTF of the kernel there is no storage of tasks. The key is the thread's id.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct watched);
} observed_tasks SEC(".maps");

static __always_inline struct task_struct *current_task(void)
{
	return (void *)bpf_get_current_task();
}

static __always_inline struct watched *watched_of(struct task_struct *task)
{
	__u32 tid = GET(task, pid);

	return have_storage ? bpf_map_lookup_elem(&observed_tasks, &tid) : 0;
}

static __always_inline bool has_storage(struct task_struct *task)
{
	struct watched empty = {};
	__u32 tid = GET(task, pid);

	if (!have_storage || bpf_map_lookup_elem(&observed_tasks, &tid))
		return true;
	return !bpf_map_update_elem(&observed_tasks, &tid, &empty, BPF_ANY);
}

static __always_inline bool is_foreign(struct task_struct *task)
{
	(void)task;
	return false;
}

// Another thread may get the id.
static __always_inline void forget_task(__u32 tid)
{
	bpf_map_delete_elem(&observed_tasks, &tid);
}
#endif

// ---- endpoints and calls
// The key of an endpoint whose owner is known, or of a reported task of onbeat-flow.
struct endpoint_key {
	__u64 handle;
	__u32 tgid;
	__u32 endpoint; // enum endpoint, or ENDPOINT_FLOW_*
};

#define ENDPOINT_FLOW_CALLBACK 4
#define ENDPOINT_FLOW_TASK 5
#define ENDPOINT_LINK 6

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct endpoint_key);
	__type(value, __u8); // OWNER_*, or FLOW_* for an ENDPOINT_FLOW_CALLBACK
} endpoints SEC(".maps");

#define OWNER_APPLICATION 1
#define OWNER_MIDDLEWARE 2

// The endpoints of the application that were found in `endpoints` last. Each is one word, at a
// place that depends on its handle. This avoids looking at several cache lines of a hash table.
#define RECENT_PLACES 4096
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RECENT_PLACES);
	__type(key, __u32);
	__type(value, __u64);
} recent_endpoints SEC(".maps");

// Arguments kept from a function's entry to its return, by thread.
struct call {
	__u64 argument[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct call);
} calls SEC(".maps");

// ---- programs and libraries
// The link_map that on_dl_state read last, by process.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u64);
} link_tails SEC(".maps");

// Ancestors of a suspended process, with the time of the suspension. They may suspend themselves
// because of it.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} followers SEC(".maps");

// The mount namespaces whose dynamic linker was reported.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} mounts SEC(".maps");

// A program that was reported.
struct program {
	__u64 inode;
	__u64 device;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct program);
	__type(value, __u8);
} programs SEC(".maps");

// The distance from _dl_debug_state to _r_debug in each dynamic linker. The key is the probe's
// number, or without cookies the offset of _dl_debug_state in its page.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROBES_MAX);
	__type(key, __u32);
	__type(value, __s64);
} r_debug_distance SEC(".maps");

// A path that on_dl_state reads. It is too large for the stack.
struct path_buffer {
	char path[TEXT_BYTES + 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_buffer);
} path_buffers SEC(".maps");
