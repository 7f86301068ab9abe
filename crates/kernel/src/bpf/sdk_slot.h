/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The one argument of the SDK's probe. Where it is when the probe's instruction runs, the loader
 * read from the program's note and put into the cookie (`Argument` in signals/src/usdt.rs): libbpf
 * would read the file itself, which the measured process may change meanwhile.
 */
#ifndef TS_SDK_SLOT_H
#define TS_SDK_SLOT_H

enum sdk_argument {
	SDK_CONSTANT,
	SDK_REGISTER,
	SDK_MEMORY,
};

#define SDK_SIGNED 128

static __always_inline bool sdk_slot(struct pt_regs *ctx, long *slot)
{
	__u64 cookie = bpf_get_attach_cookie(ctx), value = 0;
	__u32 kind = cookie & 0xff, shift = cookie >> 8 & 63;
	__u64 at = cookie >> 16 & 0xffff;
	long number = (int)(cookie >> 32);

	if (kind == SDK_CONSTANT) {
		*slot = number;
		return true;
	}
	if (at > sizeof(*ctx) - sizeof(value) ||
	    bpf_probe_read_kernel(&value, sizeof(value), (void *)ctx + at))
		return false;
	if (kind == SDK_MEMORY &&
	    bpf_probe_read_user(&value, sizeof(value), (void *)(value + number)))
		return false;
	value <<= shift;
	*slot = cookie >> 8 & SDK_SIGNED ? (long)value >> shift : (long)(value >> shift);
	return true;
}

#endif
