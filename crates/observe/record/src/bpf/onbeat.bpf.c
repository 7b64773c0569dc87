// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The kernel side of the recorder: each program turns one probe hit into one ring buffer record.
//
// These rules hold for all programs. They have no unbounded loop and never wait. No loss is silent:
// a record that finds the ring buffer full is counted by kind and CPU.
//
// To probe a function, describe its record in records.table, write the program in ros.h (often one
// COPY line), and name both in probes.rs.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <linux/types.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#include "kernel.h"
#include "records.h"
#include "maps.h"
#include "submit.h"
#include "cpu_time.h"
#include "observed.h"
#include "lineage.h"
#include "ros.h"
#include "flow.h"
#include "suspend.h"
#include "loader.h"
#include "dds.h"
#include "sched.h"
#include "sockets.h"
#include "types.h"
