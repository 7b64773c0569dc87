// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Reports datagrams that the kernel drops, because a UDP socket of an observed process has no room for
// them.
//
// A drop happens in an interrupt, so the current process is not the socket's. The recorder has
// on_each_socket look for the process whose socket it is.
#pragma once

// Shortest time between two records of one socket. The later one counts the drops in between.
#define SOCKET_REST_NS 1000000
// Most records of sockets that are not known to be of an observed process, per CPU and interval.
#define FOREIGN_MOST 1000
#define FOREIGN_INTERVAL_NS 1000000000
#define ENOMEM 12 // the receive buffer is full

// A socket that dropped a datagram. The key of the map is its address.
struct dropper {
	__u64 inode;	      // tells this socket from a later one at the same address
	__u64 reported_ns;
	__u64 ignored_until_ns; // set by the recorder if the socket is not of an observed process
	__u32 count;	      // drops since the last record
	__u32 owner;	      // an observed process that has the socket, or 0
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct dropper);
} droppers SEC(".maps");

struct foreign_drops {
	__u64 since_ns; // beginning of the interval
	__u64 count;	// records in it
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct foreign_drops);
} foreign_drops SEC(".maps");

// Returns whether this CPU may still make a record of a socket that may be of any process.
static __always_inline bool may_report_foreign(__u64 now)
{
	__u32 zero = 0;
	struct foreign_drops *drops = bpf_map_lookup_elem(&foreign_drops, &zero);

	if (!drops)
		return false;
	if (now - drops->since_ns > FOREIGN_INTERVAL_NS) {
		drops->since_ns = now;
		drops->count = 0;
	}
	drops->count += 1;
	return drops->count <= FOREIGN_MOST;
}

// Returns the entry of a socket. A socket without an entry gets one.
static __always_inline struct dropper *dropper_of(__u64 socket, __u64 inode)
{
	struct dropper first = { .inode = inode }, *known;

	known = bpf_map_lookup_elem(&droppers, &socket);
	if (known && known->inode == inode)
		return known;
	bpf_map_update_elem(&droppers, &socket, &first, BPF_ANY);
	return bpf_map_lookup_elem(&droppers, &socket);
}

TRACEPOINT(udp_fail_queue_rcv_skb)
int on_udp_drop(__u64 *ctx)
{
	struct sock *sock = (void *)ctx[1];
	struct socket_alloc *socket = BPF_CORE_READ((struct sock *)sock, sk_socket);
	__u64 address = (__u64)sock, now = bpf_ktime_get_ns();
	struct dropper *dropper;
	__u32 count;

	// A socket that its process has closed has no struct socket any more.
	if (!socket || (int)ctx[0] != -ENOMEM)
		return 0;
	dropper = dropper_of(address, BPF_CORE_READ(socket, vfs_inode.i_ino));
	if (!dropper || now < dropper->ignored_until_ns)
		return 0;
	__sync_fetch_and_add(&dropper->count, 1);
	if (now - dropper->reported_ns < SOCKET_REST_NS)
		return 0;
	if (!dropper->owner && !may_report_foreign(now))
		return 0;
	struct record_udp_drop *r = BEGIN_AT(udp_drop, (__u64)0, now);
	if (r) {
		r->socket = address;
		r->inode = dropper->inode;
		r->port = BPF_CORE_READ((struct sock *)sock, __sk_common.skc_num);
		// Another CPU may count meanwhile.
		count = dropper->count;
		__sync_fetch_and_add(&dropper->count, -count);
		r->count = count;
		SUBMIT(r);
		dropper->reported_ns = now;
	}
	return 0;
}

#ifndef NO_KERNEL_BTF
// Notes which observed process has a socket that dropped a datagram. The recorder runs this for all
// files of all tasks.
SEC("iter/task_file")
int on_each_socket(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct dropper *dropper;
	struct socket *socket;
	__u64 address;
	__u8 *p;

	if (!task || !file)
		return 0;
	p = flag_of(&processes, task->tgid);
	if (!p || !(*p & PROCESS_SEEN))
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	address = (__u64)socket->sk;
	dropper = bpf_map_lookup_elem(&droppers, &address);
	if (dropper)
		dropper->owner = task->tgid;
	return 0;
}
#endif
