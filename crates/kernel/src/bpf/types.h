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

/* Which way a hot program mostly goes: the compiler keeps that way's instructions together. */
#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

#define CORE __attribute__((preserve_access_index))

struct list_head;

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} CORE;

struct super_block {
	__u32 s_dev;
} CORE;

struct inode {
	__u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
} CORE;

struct file {
	struct inode *f_inode;
} CORE;

struct linux_binprm {
	struct file *file;
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

/* A function that a uretprobe will see return (include/linux/uprobes.h). */
struct return_instance {
	unsigned long stack; /* the stack pointer at its entry */
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
} CORE;

struct uprobe_task {
	struct return_instance *return_instances; /* the innermost first */
} CORE;

struct task_struct {
	struct uprobe_task *utask;
	int pid;
	int tgid;
	unsigned int __state;
	unsigned int flags;
	unsigned long jobctl;
	int wake_cpu; /* on which it ran last */
	int prio;     /* of real-time threads below MAX_RT_PRIO */
	unsigned int in_iowait : 1;
	unsigned int frozen : 1;
	unsigned int in_memstall : 1;
	struct task_struct *parent;
	struct sched_entity se;
	struct signal_struct *signal;
	struct files_struct *files;
	struct task_struct *group_leader;
	char comm[16];
} CORE;

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	__u16 skc_dport; /* as on the wire */
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} CORE;

struct sk_buff {
	struct sock *sk;
	unsigned int len;
	__u16 transport_header;
	unsigned char *head;
	unsigned char *data;
} CORE;

struct sk_buff_head {
	struct sk_buff *prev;
	__u32 qlen;
} CORE;

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	__u8 sk_userlocks : 4;
	__u32 sk_max_ack_backlog;
	int sk_forward_alloc;
	struct sk_buff_head sk_receive_queue;
	struct {
		int owned; /* by a task, in a system call */
	} CORE sk_lock;
	struct socket *sk_socket;
} CORE;

struct msghdr;

struct socket {
	struct sock *sk;
} CORE;

struct unix_address;

struct unix_sock {
	struct unix_address *addr;
} CORE;

struct inet_bind_bucket {
	signed char fastreuse;
} CORE;

struct inet_connection_sock {
	struct inet_bind_bucket *icsk_bind_hash;
} CORE;

struct tcp_rack {
	__u64 mstamp; /* when the latest acknowledged data left, CLOCK_MONOTONIC, µs; 0: no SACK */
} CORE;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct tcp_rack rack;
	__u64 tcp_clock_cache; /* when TCP read the clock last, CLOCK_MONOTONIC */
	__u64 tcp_wstamp_ns;   /* when the latest packet left, also without data, CLOCK_MONOTONIC */
	__u32 snd_wnd;
	__u32 mss_cache;
	__u32 snd_cwnd;
	__u32 copied_seq;
	__u32 rcv_nxt;
	__u32 write_seq;
	__u8 nonagle : 4;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 packets_out;
} CORE;

struct bpf_iter_meta {
	struct seq_file *seq;
} CORE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
} CORE;

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
} CORE;

/* struct pt_regs as uapi has it is for the USDT helpers; this flavour of it is for task_pt_regs. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs___task {
	unsigned long r10;
	unsigned long r8;
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long orig_ax;
	unsigned long bp;
	unsigned long ip;
	unsigned long sp;
} CORE;
#define SYSCALL_NR(regs) ((long)(regs)->orig_ax)
#define SYSCALL_ARG0(regs) ((regs)->di)
#define SYSCALL_ARG1(regs) ((regs)->si)
#define SYSCALL_ARG2(regs) ((regs)->dx)
#define SYSCALL_ARG3(regs) ((regs)->r10)
#define SYSCALL_ARG4(regs) ((regs)->r8)
#define USER_IP(regs) ((regs)->ip)
#define USER_SP(regs) ((regs)->sp)
#define USER_FP(regs) ((regs)->bp)
#define USER_LR(regs) 0
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs___task {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 orig_x0;
	__s32 syscallno;
} CORE;
#define SYSCALL_NR(regs) ((long)(regs)->syscallno)
#define SYSCALL_ARG0(regs) ((regs)->orig_x0)
#define SYSCALL_ARG1(regs) ((regs)->regs[1])
#define SYSCALL_ARG2(regs) ((regs)->regs[2])
#define SYSCALL_ARG3(regs) ((regs)->regs[3])
#define SYSCALL_ARG4(regs) ((regs)->regs[4])
#define USER_IP(regs) ((regs)->pc)
#define USER_SP(regs) ((regs)->sp)
#define USER_FP(regs) ((regs)->regs[29])
#define USER_LR(regs) ((regs)->regs[30])
#else
#error "no register layout for this architecture"
#endif

#endif
