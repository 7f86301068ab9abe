/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's types, cut down to the fields that are read here. libbpf finds the fields' real
 * places on the running kernel (CO-RE), so nothing else of a structure has to be known.
 */
#ifndef TAILSCOPE_TYPES_H
#define TAILSCOPE_TYPES_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <asm/ptrace.h>
#include <stdbool.h>

#define CORE __attribute__((preserve_access_index))

struct list_head;

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} CORE;

struct inode {
	__u16 i_mode;
} CORE;

struct file {
	struct inode *f_inode;
} CORE;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} CORE;

struct files_struct {
	struct fdtable *fdt;
} CORE;

/* CFS bandwidth: the time for which this group was throttled on this CPU, itself or through a
 * parent, grows in throttled_clock_pelt_time at each release (kernel/sched/fair.c). */
struct cfs_rq {
	int throttle_count;
	__u64 throttled_clock_pelt_time;
} CORE;

struct sched_entity {
	struct cfs_rq *cfs_rq;
	__u64 exec_start; /* the CPU's clock when its times were last brought up to it */
	__u64 sum_exec_runtime;
	__u64 prev_sum_exec_runtime; /* at the last switch-in */
} CORE;

struct task_struct {
	int pid;
	int tgid;
	unsigned int __state;
	unsigned int flags;
	unsigned int in_iowait : 1;
	struct sched_entity se;
	struct signal_struct *signal;
	struct files_struct *files;
	struct task_struct *group_leader;
	char comm[16];
} CORE;

struct sock;
struct msghdr;

struct socket {
	struct sock *sk;
} CORE;

struct bpf_iter_meta {
	struct seq_file *seq;
} CORE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

/* struct pt_regs as uapi has it is for the USDT helpers; this flavour of it is for task_pt_regs. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs___task {
	unsigned long di;
	unsigned long orig_ax;
} CORE;
#define SYSCALL_NR(regs) ((long)(regs)->orig_ax)
#define SYSCALL_ARG0(regs) ((regs)->di)
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs___task {
	__u64 orig_x0;
	__s32 syscallno;
} CORE;
#define SYSCALL_NR(regs) ((long)(regs)->syscallno)
#define SYSCALL_ARG0(regs) ((regs)->orig_x0)
#else
#error "no register layout for this architecture"
#endif

#endif
