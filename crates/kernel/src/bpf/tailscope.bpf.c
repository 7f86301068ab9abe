/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The recorder's programs, one family a file. Each file says which kernels have its hooks and
 * what stands in where they don't; ../select.rs switches off what it can't attach.
 */
#include "meters.h"
#include "lifecycle.h"
#include "sched.h"
#include "interrupts.h"
#include "faults.h"
#include "sockets.h"
#include "connections.h"
#include "flows.h"
#include "tls.h"
#include "probes.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
