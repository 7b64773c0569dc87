// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The table of lineage, which says when the execution of each recent item began: ../lineage.rs in C.
// The owner sends its descriptor through a socket.
#pragma once

#include <linux/types.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LINEAGE_ENTRIES 8192UL
#define LINEAGE_SHIFT 51
#define LINEAGE_FACTOR 5700357409661599243ULL
#define LINEAGE_CHECK 7957702637012541039ULL
#define LINEAGE_WORDS 4
#define LINEAGE_BYTES (LINEAGE_ENTRIES * LINEAGE_WORDS * sizeof(__u64))

// Returns when the execution of an item began. Returns 0 if it is unknown.
static __s64 born_of(const __u64 *table, __u64 source)
{
	const __u64 *entry;
	__u64 found, born, check;

	if (!table)
		return 0;
	entry = table + (source * LINEAGE_FACTOR >> LINEAGE_SHIFT) * LINEAGE_WORDS;
	found = __atomic_load_n(&entry[0], __ATOMIC_RELAXED);
	born = __atomic_load_n(&entry[1], __ATOMIC_RELAXED);
	check = __atomic_load_n(&entry[2], __ATOMIC_RELAXED);
	return found == source && (found ^ born ^ LINEAGE_CHECK) == check && born <= (~0ULL >> 1) ?
		       born :
		       0;
}

// Connects to the owner, which sends the descriptor of the table. Returns a negative number if that
// is impossible.
static int ask_for_lineage(const char *directory)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/lineage", directory);

	if (length < 0 || length >= (int)sizeof(address.sun_path))
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		return -1;
	}
	return fd;
}

// Takes the table if the owner has sent it. Returns the socket while the table may still come.
static int take_lineage(int fd, const __u64 **table)
{
	char byte, control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };
	ssize_t length;
	struct cmsghdr *header;
	void *mapped;
	int sent;

	if (fd < 0)
		return fd;
	length = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return fd;
	header = length == 1 ? CMSG_FIRSTHDR(&message) : 0;
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
	    header->cmsg_len == CMSG_LEN(sizeof(int))) {
		memcpy(&sent, CMSG_DATA(header), sizeof(sent));
		mapped = mmap(0, LINEAGE_BYTES, PROT_READ, MAP_SHARED | MAP_POPULATE, sent, 0);
		if (mapped != MAP_FAILED)
			__atomic_store_n(table, mapped, __ATOMIC_RELEASE);
		close(sent);
	}
	close(fd);
	return -1;
}
