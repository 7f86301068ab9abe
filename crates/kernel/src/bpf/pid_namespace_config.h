/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The PID namespace whose numbers the programs report; their loader (Rust) reads this file too. */
#ifndef TAILSCOPE_PID_NAMESPACE_CONFIG_H
#define TAILSCOPE_PID_NAMESPACE_CONFIG_H

#include <linux/types.h>

/* Set before loading. */
struct pid_namespace_config {
	__u32 level; /* how many namespaces are above it; 0: it is the initial one */
	__u32 inum;  /* the inode of /proc/self/ns/pid */
};

/* Set in the number of a task that the namespace does not show; the rest is the kernel's number,
 * which is below 2^22. */
#define PID_OUTSIDE (1u << 30)

/* What the iterator `list_processes` writes for each process of the namespace. */
struct process_numbers {
	__u32 kernel; /* in the initial namespace */
	__u32 shown;  /* in ours */
};

#endif
