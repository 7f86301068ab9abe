/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A map of meters, as a process with the SDK has it mapped (sdk/c/tailscope_abi.h).
 */
#ifndef TAILSCOPE_METER_MAP_H
#define TAILSCOPE_METER_MAP_H

struct meter_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TS_METERS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct ts_meter));
};

#endif
