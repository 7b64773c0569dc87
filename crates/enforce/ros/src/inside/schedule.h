// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The slots of one output, read from the page that the owner writes: ../page.rs and ../schedule.rs
// in C. A test compares the results of both.
#pragma once

#define PAGE_BYTES 16384
#define PAGE_MAGIC 0x0400746165626e6fULL // "onbeat", 0, 4
#define MAX_OUTPUTS 16
#define MAX_SLOTS 16
#define MAX_CYCLE_NS 86400000000000ULL
#define MAX_TIME_NS (1LL << 61)
#define READ_TRIES 8

enum word {
	WORD_MAGIC,
	WORD_GENERATION,
	WORD_STATE,
	WORD_HEARTBEAT,
	WORD_CYCLE,
	WORD_ORIGIN,
	WORD_FROM,
	WORD_ORIGIN_FROM,
	WORD_ORIGIN_BEFORE,
	WORD_OUTPUTS,
	SLOTS_WORDS = 1 + 2 * MAX_SLOTS,
	OUTPUT_WORDS = 2 + 2 * SLOTS_WORDS,
};

enum page_state { SHAPE, PASS, SETTLE };

struct slots {
	__u64 earliest; // best case of the chain
	__u32 count;
	__u64 start[MAX_SLOTS], end[MAX_SLOTS];
};

struct schedule {
	__s64 cycle, origin;
	__s64 from; // executions released before use the slots `before`, if there are any
	struct slots now, before;
};

struct opening {
	__s64 cycle, start, end;
	__u32 slot;
};

struct due {
	__s64 cycle; // execution to which the item belongs
	struct opening opening;
	bool late, overslept;
};

static __u64 word(const __u64 *page, int index)
{
	return __atomic_load_n(&page[index], __ATOMIC_ACQUIRE);
}

// Reports whether the owner has been silent for two cycles.
static bool is_silent(const __u64 *page, __u64 now)
{
	__u64 beat = word(page, WORD_HEARTBEAT), cycle = word(page, WORD_CYCLE);

	return now > beat && now - beat > 2 * cycle;
}

// Reports whether the owner asks to pass all items at once, or has been silent for two cycles.
static bool passes(const __u64 *page, __u64 now)
{
	__u64 state = word(page, WORD_STATE), cycle = word(page, WORD_CYCLE);

	if ((state != SHAPE && state != SETTLE) || !cycle || cycle > MAX_CYCLE_NS)
		return true;
	return is_silent(page, now);
}

static bool read_slots(const __u64 *page, int base, __u64 earliest, __u64 cycle, struct slots *to)
{
	__u64 count = word(page, base);

	to->earliest = earliest < cycle ? earliest : cycle;
	to->count = count < MAX_SLOTS ? count : MAX_SLOTS;
	for (__u32 i = 0; i < to->count; i++) {
		__u64 start = word(page, base + 1 + 2 * i), end = word(page, base + 2 + 2 * i);

		to->start[i] = start;
		to->end[i] = end;
		if (start >= end || end - start > cycle || end > MAX_CYCLE_NS)
			return false;
	}
	return true;
}

// Reads the schedule that applies at `now`. Fails while the owner writes it, and if it is invalid.
static bool read_schedule(const __u64 *page, int output, __u64 now, struct schedule *to)
{
	int base = WORD_OUTPUTS + output * OUTPUT_WORDS;

	for (int tries = 0; tries < READ_TRIES; tries++) {
		__u64 generation = word(page, WORD_GENERATION), cycle = word(page, WORD_CYCLE);
		bool is_moving = now < word(page, WORD_ORIGIN_FROM), is_valid;

		to->cycle = cycle;
		to->origin = word(page, is_moving ? WORD_ORIGIN_BEFORE : WORD_ORIGIN);
		to->from = word(page, WORD_FROM);
		is_valid = cycle && cycle <= MAX_CYCLE_NS && to->origin > -MAX_TIME_NS &&
			   to->origin < MAX_TIME_NS && to->from > -MAX_TIME_NS &&
			   to->from < MAX_TIME_NS;
		is_valid &= read_slots(page, base + 1, word(page, base), cycle, &to->now);
		is_valid &= read_slots(page, base + 1 + SLOTS_WORDS,
				       word(page, base + 1 + 2 * SLOTS_WORDS), cycle, &to->before);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (!(generation & 1) && word(page, WORD_GENERATION) == generation)
			return is_valid && to->now.count;
	}
	return false;
}

static __s64 index_at(const struct schedule *s, __s64 at)
{
	__s64 since = at - s->origin, index = since / s->cycle;

	return since % s->cycle < 0 ? index - 1 : index;
}

static __s64 first_after(const struct schedule *s)
{
	return index_at(s, s->from + s->cycle / 2);
}

static __s64 cycle_of(const struct schedule *s, __s64 arrival)
{
	__s64 cycle = index_at(s, arrival - (__s64)s->now.earliest), first, before;

	if (!s->before.count)
		return cycle;
	first = first_after(s);
	if (cycle >= first)
		return cycle;
	before = index_at(s, arrival - (__s64)s->before.earliest);
	return before < first ? before : first - 1;
}

// Returns the execution that began at this time: the one with the nearest release.
static __s64 cycle_begun(const struct schedule *s, __s64 born)
{
	return index_at(s, born + s->cycle / 2);
}

static struct opening opening_of(const struct schedule *s, const struct slots *slots, __u32 slot,
				 __s64 cycle)
{
	__s64 release = s->origin + cycle * s->cycle;

	return (struct opening){ cycle, release + (__s64)slots->start[slot],
				 release + (__s64)slots->end[slot], slot };
}

// Finds the slot that is open at `now` or opens next, in the cycles [from, until).
static bool open_or_next(const struct schedule *s, const struct slots *slots, __s64 now, __s64 from,
			 __s64 until, struct opening *to)
{
	bool is_found = false;

	for (__u32 i = 0; i < slots->count; i++) {
		__s64 cycle = index_at(s, now - (__s64)slots->end[i]) + 1;
		struct opening one = opening_of(s, slots, i, cycle > from ? cycle : from);

		if (one.cycle < until && (!is_found || one.start < to->start)) {
			*to = one;
			is_found = true;
		}
	}
	return is_found;
}

static struct opening opening_at(const struct schedule *s, __s64 now, __s64 from)
{
	struct opening earlier, later = { from, now, now, 0 };
	__s64 first = from;

	if (s->before.count) {
		first = first_after(s);
		if (open_or_next(s, &s->before, now, from, first, &earlier)) {
			open_or_next(s, &s->now, now, from > first ? from : first, MAX_TIME_NS,
				     &later);
			return later.start < earlier.start ? later : earlier;
		}
	}
	open_or_next(s, &s->now, now, from > first ? from : first, MAX_TIME_NS, &later);
	return later;
}

// Returns the slot in which an item of an execution leaves. An item whose own slot passed while
// nothing ran here leaves at once, unless another slot is nearer.
static struct due due_at(const struct schedule *s, __s64 cycle, __s64 arrival, __s64 now)
{
	struct due due = { .cycle = cycle };
	const struct slots *own =
		s->before.count && cycle < first_after(s) ? &s->before : &s->now;
	struct opening last;

	due.opening = opening_at(s, now > arrival ? now : arrival, cycle);
	due.late = due.opening.cycle > cycle;
	if (!due.late)
		return due;
	last = opening_of(s, own, 0, cycle);
	for (__u32 i = 1; i < own->count; i++)
		if (own->end[i] >= own->end[last.slot])
			last = opening_of(s, own, i, cycle);
	due.overslept = arrival < last.end && last.end <= now &&
			now - last.end < due.opening.start - now;
	if (due.overslept)
		due.opening = last;
	return due;
}
