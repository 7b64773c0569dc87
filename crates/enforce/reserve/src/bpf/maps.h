// The data that the owner and the programs exchange. The sizes and the order of fields must match
// layout.rs.
#pragma once

#define MAX_SERVERS 128
#define MAX_CPUS 128
#define MAX_EVENTS 256
#define MAX_OF_CPU 32
#define BUCKETS 320

// The owner writes it before the start, and `origin_ns` and `next_table` while the scheduler runs.
struct control {
	u64 cycle_ns;
	u64 origin_ns;
	u64 servers;
	u64 is_soft;
	// The number + 1 of the table for the next round, or 0 to keep the table.
	u64 next_table;
	// The kernel's reason for ending this scheduler, for the owner. It is 0 while the scheduler runs.
	u64 exit_kind;
};

// The rounds of all CPUs. The first CPU to reach a round decides when the round begins, and with
// which table.
struct rounds {
	struct bpf_spin_lock lock;
	u32 swaps;
	u64 number;
	u64 skipped;
	s64 behind_ns;
	u64 base_ns[4];
	u32 table[4];
};

struct event {
	u64 offset_ns;
	u32 server;
	u32 is_open;
};

// The events of one CPU in one of the two tables.
struct table {
	u64 gap_ns;
	u32 count;
	u32 unused;
	struct event events[MAX_EVENTS];
	// By server: 1 if its slot is open when a round begins, otherwise 0.
	u8 begins_open[MAX_SERVERS];
};

struct cpu {
	struct bpf_timer timer;
	u64 round;
	u64 base_ns;
	u32 table;
	// The next event + 1, or 0 at the beginning of the round.
	u32 next;
	// The server + 1 of the running thread, or 0 if no server's thread runs here.
	u32 running;
	u32 is_warm;
	// The instant that the timer is set to.
	u64 due_ns;
};

// The servers of a CPU, the highest priority first.
struct order {
	u32 count;
	u32 server[MAX_OF_CPU];
};

struct server {
	u32 cpu;
	u32 priority;
	u32 is_gated;
	u32 is_open;
	u64 ends;
	u64 working;
	// Counts threads that began to run outside of their slot and were taken off the CPU at once.
	u64 strays;
};

struct histogram {
	u64 sum_ns;
	u64 max_ns;
	u64 buckets[BUCKETS];
};

struct counters {
	struct histogram lateness;
	struct histogram opening;
	struct histogram closing;
};

struct member {
	u32 server;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rounds);
} rounds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_CPUS);
	__type(key, u32);
	__type(value, struct table);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct order);
} orders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVERS);
	__type(key, u32);
	__type(value, struct server);
} servers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct member);
} members SEC(".maps");
