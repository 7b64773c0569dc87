// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The layout of the file that a process shares with the recorder: the file's head, the heads of its
// rings, and the rings. file.rs reads it.
#pragma once

#define FILE_MAGIC 0x31676e6972626e6fULL // "onbring1"
#define RINGS_MAX 1024			 // threads of a process that record at the same time
#define HEAD_BYTES 4096
#define RING_HEAD_BYTES 64
#define RINGS_AT (HEAD_BYTES + RINGS_MAX * RING_HEAD_BYTES)

struct file_head {
	__u64 magic; // written last
	__u32 pid;
	__u32 number; // of the file name PID.NUMBER
	__u64 pid_namespace; // inode of /proc/self/ns/pid
	__u64 ring_bytes;
	__u64 rings;		// number of rings used so far
	__u64 lost[KIND_COUNT]; // records that were not written, by kind
};

// A ring has one writer, the thread that owns it, and one reader. Positions only grow. The place of
// a position in the ring is its remainder by ring_bytes. A record is a word with its length, and
// then its bytes.
struct ring_head {
	__u64 written; // the owner's write position
	__u64 read[2]; // the recorder's read position: it writes both, the owner trusts equal ones
	__u32 owner;   // thread id; 0: free
	char pad[RING_HEAD_BYTES - 28];
};

_Static_assert(sizeof(struct file_head) <= HEAD_BYTES, "the head's room");
_Static_assert(sizeof(struct ring_head) == RING_HEAD_BYTES, "the ring's head");
