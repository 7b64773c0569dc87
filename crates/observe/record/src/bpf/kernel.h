// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The fields of kernel structs that the BPF programs read.
//
// CO-RE: when the programs are loaded, the field offsets come from the running kernel's BTF.
//
// A kernel without BTF of its own (/sys/kernel/btf/vmlinux) has neither tp_btf programs, whose arguments
// are pointers of known types, nor helpers that take such pointers. For these kernels the programs are
// compiled again with NO_KERNEL_BTF, as raw_tp programs that read every field with a helper.
#pragma once

#ifdef NO_KERNEL_BTF
#define TRACEPOINT(name) SEC("raw_tp/" #name)
// Reads a field of a kernel struct.
#define GET(from, field) BPF_CORE_READ(from, field)
#else
#define TRACEPOINT(name) SEC("tp_btf/" #name)
#define GET(from, field) ((from)->field)
#endif

struct atomic_counter {
	int counter;
} __attribute__((preserve_access_index));

struct signal_struct {
	struct atomic_counter live;
	void *pids[4]; // by PIDTYPE_*
} __attribute__((preserve_access_index));

#define PIDTYPE_PGID 2
#define PIDTYPE_SID 3

struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct mnt_namespace {
	struct ns_common ns;
} __attribute__((preserve_access_index));

struct nsproxy {
	struct mnt_namespace *mnt_ns;
} __attribute__((preserve_access_index));

struct super_block {
	__u32 s_dev;
} __attribute__((preserve_access_index));

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
} __attribute__((preserve_access_index));

struct file {
	struct inode *f_inode;
} __attribute__((preserve_access_index));

struct mm_struct {
	struct file *exe_file;
} __attribute__((preserve_access_index));

struct rq {
	__u64 clock;
	__u64 clock_task;
	__u64 prev_steal_time_rq;
} __attribute__((preserve_access_index));

struct cfs_rq {
	struct rq *rq;
	int throttle_count;
	__u64 throttled_clock_self_time;
} __attribute__((preserve_access_index));

struct sched_entity {
	struct cfs_rq *cfs_rq;
	__u64 exec_start;
	__u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct sched_dl_entity {
	unsigned int dl_throttled : 1;
	unsigned int dl_yielded : 1;
} __attribute__((preserve_access_index));

// Kernels without CONFIG_RT_GROUP_SCHED have no rt_rq in it.
struct rt_rq {
	int rt_throttled;
} __attribute__((preserve_access_index));

struct sched_rt_entity {
	struct rt_rq *rt_rq;
} __attribute__((preserve_access_index));

// A KVM host uses this struct to report stolen time to each CPU of its guest.
struct kvm_steal_time {
	__u64 steal;
} __attribute__((preserve_access_index));

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_queued;
} __attribute__((preserve_access_index));

struct task_struct {
	struct nsproxy *nsproxy;
	struct mm_struct *mm;
	unsigned int __state;
	int prio;
	unsigned int policy;
	int pid;
	int tgid;
	int wake_cpu;
	int on_rq;
	unsigned int flags;
	__u64 self_exec_id;
	struct task_struct *group_leader;
	char comm[16];
	struct task_struct *real_parent;
	struct signal_struct *signal;
	void *bpf_storage;
	struct sched_entity se;
	struct sched_rt_entity rt;
	struct sched_dl_entity dl;
	bool throttled; // Linux 6.18: waits for its control group's CPU time
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

struct sock_common {
	__u16 skc_num;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
	struct socket_alloc *sk_socket; // points to a struct socket, which a socket_alloc begins with
} __attribute__((preserve_access_index));

struct socket {
	struct sock *sk;
} __attribute__((preserve_access_index));

struct socket_alloc {
	struct inode vfs_inode;
} __attribute__((preserve_access_index));

struct bpf_iter__task_file {
	struct task_struct *task;
	struct file *file;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct task_struct *task;
} __attribute__((preserve_access_index));

struct task_struct___before_5_14 {
	long state;
} __attribute__((preserve_access_index));
