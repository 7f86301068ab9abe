/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the hazard programs and their loader (Rust, generated from here) must agree on. */
#ifndef TAILSCOPE_HAZARD_SHARED_H
#define TAILSCOPE_HAZARD_SHARED_H

#include <linux/types.h>

#define HAZARD_SLOTS 64		 /* replicas */
#define HAZARD_RING_BYTES 262144 /* some 6,500 changes */

/* A process that is watched, and for which replica. */
struct hazard_process {
	__u32 slot;
	__u32 waiting; /* threads that wait for a CPU */
	__u32 stops;   /* its stops, counted */
	__u32 stopped; /* it was stopped already when it was looked at first */
};

/* A probe of the JVM, as its cookie says it: enum ts_hazard_kind, then a bit. */
#define HAZARD_COOKIE_KIND 0xff
#define HAZARD_COOKIE_END 0x100

#endif
