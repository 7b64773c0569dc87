// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Lineage: the start time of the chain execution that an item belongs to.
//
// It begins where the chain's first callback starts, which is a root that the shaper names. It
// follows the thread through the callback. Then it follows the published item to the callback that
// takes the item.
//
// A join (a synchroniser, a fusion) publishes in the callback of its last input. The published item
// belongs to the one execution whose input the join has stored since its last publication.
//
// If several executions, or no known one, may have led to an item, the item has no lineage. Nothing
// is guessed here. Tables are bounded, and old entries are overwritten.
#pragma once

// The key of a handle that begins a chain's executions, or joins its inputs.
struct root_key {
	__u64 handle;
	__u32 tgid;
	__u32 kind; // ROOT_*, JOIN_*
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, struct root_key);
	__type(value, __u64); // JOIN_OUTPUT: WAITS_* or the stored begin; JOIN_*: its output's handle
} roots SEC(".maps");

// The execution that a thread is in.
struct bearer {
	__u64 born_ns; // begin of the execution; 0: unknown, or none
	__u64 guard;   // rclpy: the guard condition that was triggered before the callback
	__u32 inside;  // 1 between callback_start and callback_end
	__u32 mixed;   // 1 if it read items of several executions, or nests callbacks
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192); // 1 without lineage, like the next two maps
	__type(key, __u64);
	__type(value, struct bearer);
} bearers SEC(".maps");

// The place of an item on its way within a process.
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

// Items on their way between processes, by their source time stamp. Shapers map this table. Each
// hash has one place, and `check` shows whether an entry is being overwritten.
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

// Notes that a join has taken the chain's input of an execution that began at `born_ns` (0:
// unknown). The join may store the input until the others arrive. Plain loads and stores suffice: a
// join's callbacks exclude one another, by a mutually exclusive group or the join's own lock.
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

// Handles a publication in an execution that began at `born_ns` (0: none). Returns the start of the
// execution that the item belongs to. If another input came last, this is the execution whose input
// was stored.
static __always_inline __u64 join_publish(__u64 pid_tgid, __u64 rmw, __u64 born_ns)
{
	volatile __u64 *waits = root_of(pid_tgid, JOIN_OUTPUT, rmw);
	__u64 had;

	if (!waits)
		return born_ns;
	had = *waits;
	// After several executions have waited, one may still wait (a queue). Only when the chain's own
	// input comes last is it certain again that none waits.
	if (born_ns || had != WAITS_SEVERAL)
		*waits = WAITS_NONE;
	return born_ns || had <= WAITS_UNKNOWN ? born_ns : had;
}

// Notes that the thread reads an item of an execution that began at `born_ns` (0: none).
static __always_inline void bear(__u64 pid_tgid, __u64 born_ns)
{
	struct bearer *b = bpf_map_lookup_elem(&bearers, &pid_tgid);

	if (b && b->inside) {
		// A running callback that has no execution yet joins the execution of the item that it reads.
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

// Notes that a timer is called, or that a callback starts on a timer.
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

// Notes that the callback has ended, or that the thread waits for work.
static __always_inline void lineage_end(__u64 pid_tgid)
{
	if (have_lineage)
		bpf_map_delete_elem(&bearers, &pid_tgid);
}

// rclpy triggers its guard condition before and after a callback.
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

// Runs before the middleware has the item, so that each taker finds the item's lineage.
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
	// Two items with the same time stamp cannot be distinguished.
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
