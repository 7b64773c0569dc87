// What the owner gives to the programs, and what they tell it. The sizes and the order of fields are
// those of layout.rs.
#pragma once

#define MAX_SERVERS 128
#define MAX_CPUS 128
#define MAX_EVENTS 256
#define MAX_OF_CPU 32
#define BUCKETS 320

// Written by the owner before the start, and `origin_ns`, `next_table` while it runs.
struct control {
	u64 cycle_ns;
	u64 origin_ns;
	u64 servers;
	u64 is_soft;
	// Another table is to be used from the next round on: its number + 1.
	u64 next_table;
	// Told to the owner: why the kernel ended this scheduler, 0 while it runs.
	u64 exit_kind;
};

// Rounds of all CPUs: who comes to one first decides when it begins, and with which table.
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
	// By server: whether its slot is open when a round begins.
	u8 begins_open[MAX_SERVERS];
};

struct cpu {
	struct bpf_timer timer;
	u64 round;
	u64 base_ns;
	u32 table;
	// Next event + 1; 0: the begin of the round.
	u32 next;
	// Server + 1 of the thread that runs here; 0: none of ours.
	u32 running;
	u32 is_warm;
	// What the timer is set to.
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
	// Threads that began to run outside their slot, and were taken off at once.
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
