// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Reports libraries when the dynamic linker loads them.
#pragma once

// The public members at the start of glibc's struct link_map.
struct link_map {
	__u64 l_addr;
	__u64 l_name;
	__u64 l_ld;
	__u64 l_next;
};

// Suspends a process of the recorded command until the recorder has attached its probes. Returns 1
// if the process is suspended.
static __always_inline __u16 stop_until_probed(__u8 process_flags)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u8 *own = flag_of(&processes, own_tgid);

	if (!stop_on_load || !(process_flags & PROCESS_MARKED))
		return 0;
	// The recorder is ending and would not resume the process.
	if (!own || (*own & PROCESS_ENDING))
		return 0;
	if (is_job(task))
		return 0;
	expect_followers(task);
	if (bpf_send_signal(SIGSTOP))
		return 0;
	note_suspended(bpf_get_current_pid_tgid() >> 32);
	return 1;
}

// Reports that a process may have something new to probe. Returns false if the ring buffer is full.
static __always_inline bool report_library(__u64 pid_tgid, __u8 process_flags)
{
	struct record_library_loaded *r = BEGIN(library_loaded, pid_tgid);

	if (!r)
		return false;
	r->stopped = stop_until_probed(process_flags);
	SUBMIT_NOW(r);
	return true;
}

#define SEVEN(a, b, c, d, e, f, g)                                                                 \
	((__u64)(a) << 48 | (__u64)(b) << 40 | (__u64)(c) << 32 | (__u64)(d) << 24 |               \
	 (__u64)(e) << 16 | (__u64)(f) << 8 | (g))

// Returns whether the path in the buffer names a library that may be in the probe table. It is not
// inlined, so that the verifier checks it only once, and not once per link.
__attribute__((noinline)) int interesting(int length)
{
	__u32 zero = 0;
	__u64 last = 0; // the last seven bytes
	struct path_buffer *buffer = bpf_map_lookup_elem(&path_buffers, &zero);

	if (!buffer)
		return 0;
	for (int i = 0; i < TEXT_BYTES; i++) {
		if (i >= length)
			break;
		last = (last << 8 | (__u8)buffer->path[i]) & 0xffffffffffffff;
		if (last == SEVEN('/', 'l', 'i', 'b', 'r', 'c', 'l') ||
		    last == SEVEN('/', 'l', 'i', 'b', 'r', 'm', 'w') ||
		    last == SEVEN('/', 'l', 'i', 'b', 't', 'r', 'a') ||
		    last == SEVEN('/', 'l', 'i', 'b', 'd', 'd', 's') ||
		    last == SEVEN('/', 'l', 'i', 'b', 'f', 'a', 's'))
			return 1;
	}
	return 0;
}

#define LINKS_PER_HIT 48

// _dl_debug_state(): the dynamic linker calls it when its list of libraries has changed. The new
// libraries are then mapped, but their constructors have not run. Looks at the libraries that were
// added.
PROBE(on_dl_state)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tgid = pid_tgid >> 32, zero = 0;
	__u8 *p = flag_of(&processes, tgid);
	struct path_buffer *buffer = bpf_map_lookup_elem(&path_buffers, &zero);
	__u64 link = 0, *tail;
	bool found = false;

	if (!p || !buffer || tgid == own_tgid || (*p & PROCESS_OUTSIDE) ||
	    (!observe_all && !(*p & PROCESS_MARKED)))
		return 0;
	count_hit(ctx);
	tail = bpf_map_lookup_elem(&link_tails, &tgid);
	if (tail) {
		// Continues after the link that was read last.
		bpf_probe_read_user(&link, sizeof(link), (void *)(*tail + 24));
	} else {
		// Without cookies, the function's offset in its page identifies the linker.
		__u32 probe = have_cookie ? (__u32)bpf_get_attach_cookie(ctx)
					  : (__u32)PT_REGS_IP(ctx) & 0xfff;
		__s64 *distance = bpf_map_lookup_elem(&r_debug_distance, &probe);

		if (!distance)
			return 0;
		// struct r_debug has an int version, then the head of the list.
		bpf_probe_read_user(&link, sizeof(link), (void *)(PT_REGS_IP(ctx) + *distance + 8));
	}
	for (int i = 0; i < LINKS_PER_HIT; i++) {
		struct link_map map;
		long length;

		if (!link || bpf_probe_read_user(&map, sizeof(map), (void *)link))
			break;
		length = bpf_probe_read_user_str(buffer->path, TEXT_BYTES, (void *)map.l_name);
		if (length > 0 && interesting(length))
			found = true;
		bpf_map_update_elem(&link_tails, &tgid, &link, BPF_ANY);
		link = map.l_next;
	}
	// The report found no room, so the next hit looks at all libraries again.
	if (found && !report_library(pid_tgid, *p))
		bpf_map_delete_elem(&link_tails, &tgid);
	return 0;
}
