// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Begins, fills and submits records, and counts lost records.
//
//	struct record_take *r = BEGIN_HIT(take, pid_tgid);
//	if (r) {
//		r->rmw = ARG1(ctx);
//		SUBMIT(r);
//	}
//
// A program must fill every field of its record, because the ring buffer's memory is not cleared.
#pragma once

static __always_inline void count_lost(__u32 kind)
{
	__u64 *n = bpf_map_lookup_elem(&lost, &kind);

	if (n)
		*n += 1;
}

// Counts a hit that makes no record of its own. The recorder counts the others.
static __always_inline void count_hit(void *ctx)
{
	if (have_cookie) {
		__u32 probe = (__u32)bpf_get_attach_cookie(ctx);
		__u64 *n = bpf_map_lookup_elem(&hits, &probe);

		if (n)
			*n += 1;
	}
}

// Returns the process and thread of a task, in the form of bpf_get_current_pid_tgid().
static __always_inline __u64 pid_tgid_of(struct task_struct *task)
{
	return ((__u64)GET(task, tgid) << 32) | (__u32)GET(task, pid);
}

static __always_inline __u64 wakeup_flag(void)
{
	return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >= wakeup_bytes ? BPF_RB_FORCE_WAKEUP
									   : BPF_RB_NO_WAKEUP;
}

// Reserves a record of records.table and fills its head. Returns 0 if the ring buffer is full. It
// is a macro, because bpf_ringbuf_reserve needs a constant size.
#define BEGIN_FROM(name, who, when, number)                                                        \
	({                                                                                         \
		struct record_##name *_r =                                                         \
			bpf_ringbuf_reserve(&ring, sizeof(struct record_##name), 0);               \
		if (_r) {                                                                          \
			_r->time_ns = (when);                                                      \
			_r->pid = (who) >> 32;                                                     \
			_r->tid = (__u32)(who);                                                    \
			_r->kind = KIND_##name;                                                    \
			_r->cpu = bpf_get_smp_processor_id();                                      \
			_r->probe = (number);                                                      \
		} else {                                                                           \
			count_lost(KIND_##name);                                                   \
		}                                                                                  \
		_r;                                                                                \
	})
#define BEGIN_AT(name, who, when) BEGIN_FROM(name, who, when, 0)
#define BEGIN(name, who) BEGIN_AT(name, who, bpf_ktime_get_ns())

// Does the same for the hit of a numbered probe, in a program with the argument `ctx`.
#define BEGIN_HIT_AT(name, who, when)                                                              \
	BEGIN_FROM(name, who, when, have_cookie ? (__u16)bpf_get_attach_cookie(ctx) : 0)
#define BEGIN_HIT(name, who) BEGIN_HIT_AT(name, who, bpf_ktime_get_ns())

// Returns `now` if it is not 0, or else the current time.
#define AT(now) ((now) ? (now) : bpf_ktime_get_ns())

// Reads a process's memory at an address that may be invalid.
#define read_unsure(to, bytes, from) bpf_probe_read_user(to, bytes, from)

// Fills a field of type text from a string in the process's memory.
#define READ_TEXT(field, address)                                                                  \
	do {                                                                                       \
		(field)[0] = 0;                                                                    \
		bpf_probe_read_user_str(field, TEXT_BYTES, (void *)(address));                     \
	} while (0)

// Fills a field of type gid from the process's memory.
#define READ_GID(field, address)                                                                   \
	do {                                                                                       \
		(field).half[0] = 0;                                                               \
		(field).half[1] = 0;                                                               \
		bpf_probe_read_user(&(field), sizeof(field), (void *)(address));                   \
	} while (0)

// An ordinary record waits until the recorder polls. Reading the fill level costs more than the
// rest of a submission, so only about one record in 64 does so.
#define SUBMIT(r)                                                                                  \
	bpf_ringbuf_submit(r, (r)->time_ns % 64 == 0 ? wakeup_flag() : BPF_RB_NO_WAKEUP)
// Wakes the recorder.
#define SUBMIT_NOW(r) bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP)
