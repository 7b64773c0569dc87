// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The layout of records in the ring buffer. The common head is here, the rest comes from
// records.table.
#pragma once

// The head has 22 bytes (HEAD_BYTES in layout.rs). A field of up to two bytes fits after it without
// padding.
#define RECORD_HEAD                                                                                \
	__u64 time_ns; /* CLOCK_MONOTONIC */                                                       \
	__u32 pid;                                                                                 \
	__u32 tid;                                                                                 \
	__u16 kind;                                                                                \
	__u16 cpu;                                                                                 \
	__u16 probe; /* number of the probe that was hit; 0: none */

#include "record_layout.h"
