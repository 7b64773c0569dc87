// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The time before a slot at which the thread wakes up: the lead of onbeat_time in C. A test compares
// the results of both.
#pragma once

#include <linux/types.h>

#define LEAD_DELAYS 128
#define FIRST_LEAD_NS 100000ULL
#define MIN_LEAD_NS 50000ULL
#define MAX_LEAD_NS 500000ULL

struct lead {
	__u32 delays[LEAD_DELAYS];
	__u32 count; // of the delays that are known
	__u32 next;  // place of the next delay
	__u64 ns;
};

// Records how late the thread woke up. The lead then covers 99 % of the last 128 delays: all of them
// except the longest one, which counts until 100 delays are known.
static void record_delay(struct lead *lead, __u64 delay)
{
	__u32 longest = 0, second = 0;

	lead->delays[lead->next] = delay < ~0U ? delay : ~0U;
	lead->next = (lead->next + 1) % LEAD_DELAYS;
	if (lead->count < LEAD_DELAYS)
		lead->count++;
	for (__u32 i = 0; i < lead->count; i++) {
		__u32 each = lead->delays[i];

		if (each >= longest) {
			second = longest;
			longest = each;
		} else if (each > second) {
			second = each;
		}
	}
	lead->ns = lead->count < 100 ? longest : second;
	if (lead->ns < MIN_LEAD_NS)
		lead->ns = MIN_LEAD_NS;
	if (lead->ns > MAX_LEAD_NS)
		lead->ns = MAX_LEAD_NS;
}
