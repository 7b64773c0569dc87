// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Lineage: when the execution of a chain began that an item belongs to. It is born where the chain's
// first callback starts (a root, named by whoever shapes the chain), goes with the thread through its
// callback, and with the item that the callback publishes, to the callback that takes it.
//
// A join (a synchroniser, a fusion) publishes in the callback of the input that comes last. What it
// publishes then belongs to the one execution whose input it has stored since it last published.
//
// Where more than one execution could have brought an item, or none is known, it has no lineage:
// nothing is guessed here. Tables are bounded, and what is old is overwritten.
#pragma once

// What begins an execution of a chain, or joins its inputs.
struct root_key {
	__u64 handle;
	__u32 tgid;
	__u32 kind; // ROOT_*, JOIN_*
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, struct root_key);
	__type(value, __u64); // JOIN_OUTPUT: what waits; of a join's input: the handle of its output
} roots SEC(".maps");

// Whose execution a thread is in.
struct bearer {
	__u64 born_ns; // when it began; 0: not known, or none
	__u64 guard;   // rclpy: the guard condition that was triggered before the callback
	__u32 inside;  // between callback_start and callback_end
	__u32 mixed;   // it has read items of several executions, or runs a callback in a callback
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192); // 1 if nobody wants lineage, as of the following two
	__type(key, __u64);
	__type(value, struct bearer);
} bearers SEC(".maps");

// Items on their way within a process.
struct ring_place {
	__u64 buffer;
	__u64 index;
	__u64 tgid;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct ring_place);
	__type(value, __u64);
} ring_lineage SEC(".maps");

// Items on their way between processes, by their source time stamp. Shapers map this table: it has one
// place for each hash, and `check` tells an entry that is just being overwritten.
struct lineage_entry {
	__u64 source_ns;
	__u64 born_ns;
	__u64 check;
	__u64 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LINEAGE_ENTRIES);
	__type(key, __u32);
	__type(value, struct lineage_entry);
} lineage SEC(".maps");

static __always_inline volatile struct lineage_entry *lineage_of(__u64 source_ns)
{
	__u32 place = (source_ns * LINEAGE_FACTOR) >> LINEAGE_SHIFT;

	return bpf_map_lookup_elem(&lineage, &place);
}

static __always_inline __u64 *root_of(__u64 pid_tgid, __u32 kind, __u64 handle)
{
	struct root_key key = { .handle = handle, .tgid = pid_tgid >> 32, .kind = kind };

	return bpf_map_lookup_elem(&roots, &key);
}

static __always_inline bool is_root(__u64 pid_tgid, __u32 kind, __u64 handle)
{
	return root_of(pid_tgid, kind, handle) != 0;
}

// The chain's input of a join comes with an execution that began at `born_ns` (0: not known), and may
// be stored until the other inputs are there. Plain loads and stores: a join's callbacks exclude one
// another, in a mutually exclusive group or by the join's own lock.
static __always_inline void join_store(__u64 pid_tgid, __u32 kind, __u64 handle, __u64 born_ns)
{
	__u64 *output = root_of(pid_tgid, kind, handle);
	volatile __u64 *waits = output ? root_of(pid_tgid, JOIN_OUTPUT, *output) : 0;
	__u64 had;

	if (!waits)
		return;
	had = *waits;
	if (had == WAITS_NONE)
		*waits = born_ns ?: WAITS_UNKNOWN;
	else if (had != born_ns)
		*waits = WAITS_SEVERAL;
}

// A publication by an execution that began at `born_ns` (0: of none). Returns when the execution began
// that the item belongs to: where another input was the last to come, the one whose input was stored.
static __always_inline __u64 join_publish(__u64 pid_tgid, __u64 rmw, __u64 born_ns)
{
	volatile __u64 *waits = root_of(pid_tgid, JOIN_OUTPUT, rmw);
	__u64 had;

	if (!waits)
		return born_ns;
	had = *waits;
	// Once several have waited, one may wait from now on (a queue). That none does is known again when
	// the chain's own input was the last to come.
	if (born_ns || had != WAITS_SEVERAL)
		*waits = WAITS_NONE;
	return born_ns || had <= WAITS_UNKNOWN ? born_ns : had;
}

// The thread reads an item of an execution that began at `born_ns`; 0: of none.
static __always_inline void bear(__u64 pid_tgid, __u64 born_ns)
{
	struct bearer *b = bpf_map_lookup_elem(&bearers, &pid_tgid);

	if (b && b->inside) {
		// What a callback reads while it runs makes its execution that one's, if it is none's yet.
		if (!born_ns || b->mixed || b->born_ns == born_ns)
			return;
		b->mixed = b->born_ns != 0;
		b->born_ns = b->mixed ? 0 : born_ns;
		return;
	}
	if (born_ns) {
		struct bearer new = { .born_ns = born_ns };
		bpf_map_update_elem(&bearers, &pid_tgid, &new, BPF_ANY);
	} else if (b) {
		bpf_map_delete_elem(&bearers, &pid_tgid);
	}
}

// A timer is called, or a callback starts on it.
static __always_inline void lineage_call(__u64 pid_tgid, __u32 kind, __u64 handle)
{
	if (have_lineage)
		bear(pid_tgid, is_root(pid_tgid, kind, handle) ? bpf_ktime_get_ns() : 0);
}

static __always_inline void lineage_take(__u64 pid_tgid, __u64 rmw, __u64 source_ns)
{
	volatile struct lineage_entry *e;
	__u64 source, born_ns = 0, check;

	if (!have_lineage)
		return;
	if (is_root(pid_tgid, ROOT_SUBSCRIPTION, rmw)) {
		born_ns = bpf_ktime_get_ns();
	} else {
		e = lineage_of(source_ns);
		if (e) {
			source = e->source_ns;
			born_ns = e->born_ns;
			check = e->check;
			if (source != source_ns || (source ^ born_ns ^ LINEAGE_CHECK) != check)
				born_ns = 0;
		}
	}
	bear(pid_tgid, born_ns);
	join_store(pid_tgid, JOIN_SUBSCRIPTION, rmw, born_ns);
}

static __always_inline void lineage_callback_start(__u64 pid_tgid, __u64 callback)
{
	struct bearer *b, new = { .inside = 1 };

	if (!have_lineage)
		return;
	b = bpf_map_lookup_elem(&bearers, &pid_tgid);
	if (b && b->inside) {
		b->born_ns = 0;
		b->mixed = 1;
		return;
	}
	if (is_root(pid_tgid, ROOT_CALLBACK, callback))
		new.born_ns = bpf_ktime_get_ns();
	else if (b)
		new.born_ns = b->born_ns;
	bpf_map_update_elem(&bearers, &pid_tgid, &new, BPF_ANY);
	join_store(pid_tgid, JOIN_CALLBACK, callback, new.born_ns);
}

// The callback has ended, or the thread waits for work.
static __always_inline void lineage_end(__u64 pid_tgid)
{
	if (have_lineage)
		bpf_map_delete_elem(&bearers, &pid_tgid);
}

// rclpy triggers its guard condition before a callback and after it.
static __always_inline void lineage_trigger(__u64 pid_tgid, __u64 guard)
{
	struct bearer *b;

	if (!have_lineage)
		return;
	b = bpf_map_lookup_elem(&bearers, &pid_tgid);
	if (!b || b->inside)
		return;
	if (!b->guard)
		b->guard = guard;
	else if (b->guard == guard)
		bpf_map_delete_elem(&bearers, &pid_tgid);
}

static __always_inline __u64 born_of(__u64 pid_tgid)
{
	struct bearer *b = bpf_map_lookup_elem(&bearers, &pid_tgid);

	return b ? b->born_ns : 0;
}

// Before the middleware has the item: whoever takes it finds its lineage.
static __always_inline void lineage_publish(__u64 pid_tgid, __u64 rmw, __u64 source_ns)
{
	volatile struct lineage_entry *e;
	__u64 born_ns;

	if (!have_lineage)
		return;
	born_ns = born_of(pid_tgid);
	if (is_root(pid_tgid, ROOT_PUBLISHER, rmw))
		born_ns = bpf_ktime_get_ns();
	else
		born_ns = join_publish(pid_tgid, rmw, born_ns);
	e = lineage_of(source_ns);
	if (!e)
		return;
	// Two items with one time stamp cannot be told apart.
	if (e->source_ns == source_ns && e->born_ns != born_ns)
		born_ns = 0;
	else if (!born_ns)
		return;
	e->source_ns = source_ns;
	e->born_ns = born_ns;
	e->check = source_ns ^ born_ns ^ LINEAGE_CHECK;
}

static __always_inline void lineage_enqueue(__u64 pid_tgid, __u64 buffer, __u64 index)
{
	struct ring_place place = { .buffer = buffer, .index = index, .tgid = pid_tgid >> 32 };
	__u64 born_ns;

	if (!have_lineage)
		return;
	born_ns = born_of(pid_tgid);
	if (born_ns)
		bpf_map_update_elem(&ring_lineage, &place, &born_ns, BPF_ANY);
	else
		bpf_map_delete_elem(&ring_lineage, &place);
}

static __always_inline void lineage_dequeue(__u64 pid_tgid, __u64 buffer, __u64 index)
{
	struct ring_place place = { .buffer = buffer, .index = index, .tgid = pid_tgid >> 32 };
	__u64 *born_ns;

	if (!have_lineage)
		return;
	born_ns = bpf_map_lookup_elem(&ring_lineage, &place);
	bear(pid_tgid, born_ns ? *born_ns : 0);
}
