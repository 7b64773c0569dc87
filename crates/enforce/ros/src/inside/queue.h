// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The cycle of each item, and the slot in which it leaves: ../queue.rs and ../sequence.rs in C. A
// test compares the results of both.
#pragma once

#include "schedule.h"

#define STEADY_AFTER 8
#define MAX_LATE 3
#define WEIGHT 8
#define MAX_CYCLES_BACK (1 << 10)

// What is known of the items so far.
struct sequence {
	bool has_last;
	__s64 last;
	__u32 steady, late;
	__s64 usual, off;
};

struct waiting {
	__s64 arrival;
	__s64 born; // start of the execution; 0: unknown
	__s64 back; // cycles between the item's own and the one that its arrival suggests
	bool is_placed;
};

static __s64 distance(__s64 value)
{
	return value < 0 ? -value : value;
}

static void follow_item(struct sequence *sequence, __s64 cycle, __s64 after)
{
	if (sequence->has_last && sequence->last == cycle - 1) {
		__s64 off = after - sequence->usual;

		if (!sequence->steady) {
			sequence->usual = after;
			sequence->off = 0;
		} else {
			sequence->usual += off / WEIGHT;
			sequence->off += (distance(off) - sequence->off) / WEIGHT;
		}
		sequence->steady += sequence->steady < ~0U;
	} else {
		sequence->steady = 0;
	}
	sequence->late = 0;
	sequence->has_last = true;
	sequence->last = cycle;
}

static __s64 infer_cycle(struct sequence *sequence, __s64 cycle, __s64 after)
{
	bool is_missing = sequence->has_last && cycle == sequence->last + 2;
	bool is_early = after < sequence->usual + sequence->off;

	if (is_missing && sequence->steady >= STEADY_AFTER && sequence->late < MAX_LATE &&
	    is_early) {
		sequence->late++;
		sequence->last = cycle - 1;
		return cycle - 1;
	}
	follow_item(sequence, cycle, after);
	return cycle;
}

static void note_known(struct sequence *sequence, __s64 cycle, __s64 after)
{
	if (!sequence->has_last || cycle > sequence->last)
		follow_item(sequence, cycle, after);
}

// Finds the cycle of an item. Items must come in the order of their arrival.
static void place(const struct schedule *s, struct sequence *sequence, struct waiting *item)
{
	__s64 apparent = cycle_of(s, item->arrival), cycle, after;

	after = item->arrival - (s->origin + apparent * s->cycle);
	if (item->born > 0 && item->born <= item->arrival) {
		cycle = cycle_begun(s, item->born);
		if (apparent - cycle >= -1 && apparent - cycle < MAX_CYCLES_BACK) {
			note_known(sequence, cycle, after + (apparent - cycle) * s->cycle);
			item->is_placed = true;
			return;
		}
	}
	item->born = 0;
	item->back = apparent - infer_cycle(sequence, apparent, after);
	item->is_placed = true;
}

static struct due due_of(const struct schedule *s, const struct waiting *item, __s64 now)
{
	__s64 cycle = item->born ? cycle_begun(s, item->born) :
				   cycle_of(s, item->arrival) - item->back;

	return due_at(s, cycle, item->arrival, now);
}

// Returns the slot in which a throttled input leaves that waits at `now`: in a later cycle than
// the one before it.
static struct due due_of_input(const struct schedule *s, bool has_last, __s64 last, __s64 now)
{
	struct due due = { .opening = opening_at(s, now, -MAX_TIME_NS) };
	struct opening next;

	if (has_last) {
		next = opening_at(s, now, last + 1);
		// A new origin may have renumbered the cycles.
		if (next.start - now <= 2 * s->cycle)
			due.opening = next;
	}
	due.cycle = due.opening.cycle;
	return due;
}
