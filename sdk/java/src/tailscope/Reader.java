// SPDX-License-Identifier: MIT
package tailscope;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Machine code that reads a thread's counters, at its begin, and behind it the handler for the case
 * that user space may not read them.
 *
 * <p>{@code int read(pages, page_bytes, count, to)} follows perf's page of each event (struct
 * perf_event_mmap_page: lock at 8, index at 12, offset at 16, time_enabled at 24, time_running at
 * 32, pmc_width at 48, time_offset at 56), as tailscope_counters.h does in C. It returns what {@link
 * Registers} says; {@code to} is laid out as {@link Counted} says.
 *
 * <p>{@code handler(signal, info, context)}: if the instruction that faulted is a reading, goes on
 * where {@code read} returns REFUSED; else it jumps to the handler of before.
 */
final class Reader {
    private static final int SIGILL = 4;
    private static final int SIGSEGV = 11;

    final int signal;
    final byte[] code;
    /** Where in the code the handler begins. */
    final int handler;
    /** Where in the code the address of the handler of before goes. */
    final int before;

    private Reader(int signal, byte[] code, int handler, int before) {
        this.signal = signal;
        this.code = code;
        this.handler = handler;
        this.before = before;
    }

    /** This machine's, one of those that {@link Machine} knows. */
    static Reader here() {
        boolean isArm = System.getProperty("os.arch").equals("aarch64");
        return isArm ? new Reader(SIGILL, arm64(), 0xa0, 0xd8)
                     : new Reader(SIGSEGV, x86(), 0x7c, 0xa8);
    }

    private static byte[] x86() {
        int[] bytes = {
            0x53, // read: push %rbx
            0x49, 0x89, 0xd1, // mov %rdx, %r9: so many are left
            0x49, 0x89, 0xc8, // mov %rcx, %r8
            0x44, 0x8b, 0x57, 0x08, // mov 8(%rdi), %r10d: the first page's lock
            0x48, 0x8b, 0x47, 0x18, // mov 24(%rdi), %rax
            0x49, 0x89, 0x00, // mov %rax, (%r8)
            0x48, 0x8b, 0x47, 0x20, // mov 32(%rdi), %rax
            0x49, 0x89, 0x40, 0x08, // mov %rax, 8(%r8)
            0x48, 0x8b, 0x47, 0x38, // mov 56(%rdi), %rax
            0x49, 0x89, 0x40, 0x10, // mov %rax, 16(%r8)
            0x49, 0x89, 0xfb, // mov %rdi, %r11
            0x41, 0x8b, 0x5b, 0x08, // next: mov 8(%r11), %ebx: this page's lock
            0x41, 0x8b, 0x4b, 0x0c, // mov 12(%r11), %ecx
            0x49, 0x89, 0x48, 0x20, // mov %rcx, 32(%r8)
            0xff, 0xc9, // dec %ecx
            0x78, 0x1d, // js same: it is not on the CPU
            0x0f, 0x33, // fault: rdpmc
            0x48, 0xc1, 0xe2, 0x20, // shl $32, %rdx
            0x48, 0x09, 0xd0, // or %rdx, %rax
            0x31, 0xc9, // xor %ecx, %ecx
            0x41, 0x2a, 0x4b, 0x30, // sub 48(%r11), %cl: 64 less the width, of which 6 bits count
            0x48, 0xd3, 0xe0, // shl %cl, %rax
            0x48, 0xd3, 0xf8, // sar %cl, %rax
            0x49, 0x03, 0x43, 0x10, // add 16(%r11), %rax
            0x49, 0x89, 0x40, 0x18, // mov %rax, 24(%r8)
            0x41, 0x3b, 0x5b, 0x08, // same: cmp 8(%r11), %ebx
            0x75, 0x16, // jne again
            0x49, 0x01, 0xf3, // add %rsi, %r11
            0x49, 0x83, 0xc0, 0x10, // add $16, %r8
            0x49, 0xff, 0xc9, // dec %r9
            0x75, 0xc1, // jnz next
            0x44, 0x3b, 0x57, 0x08, // cmp 8(%rdi), %r10d
            0x75, 0x04, // jne again
            0x31, 0xc0, // xor %eax, %eax
            0x5b, // pop %rbx
            0xc3, // ret
            0xb8, 0x01, 0x00, 0x00, 0x00, // again: mov $1, %eax
            0x5b, // pop %rbx
            0xc3, // ret
            0xb8, 0x02, 0x00, 0x00, 0x00, // refused: mov $2, %eax
            0x5b, // pop %rbx
            0xc3, // ret
            0x83, 0x7e, 0x08, 0x00, // handler: cmpl $0, 8(%rsi): si_code
            0x7e, 0x1f, // jle other: it was sent by kill() and the like
            0x48, 0x8d, 0x05, 0xac, 0xff, 0xff, 0xff, // lea fault(%rip), %rax
            0x48, 0x39, 0x82, 0xa8, 0x00, 0x00, 0x00, // cmp %rax, 168(%rdx): the context's rip
            0x75, 0x0f, // jne other
            0x48, 0x8d, 0x05, 0xdc, 0xff, 0xff, 0xff, // lea refused(%rip), %rax
            0x48, 0x89, 0x82, 0xa8, 0x00, 0x00, 0x00, // mov %rax, 168(%rdx)
            0xc3, // ret
            0xff, 0x25, 0x01, 0x00, 0x00, 0x00, // other: jmp *before(%rip)
            0x90, // nop
            0, 0, 0, 0, 0, 0, 0, 0, // before
        };
        byte[] code = new byte[bytes.length];
        for (int i = 0; i < bytes.length; i++) {
            code[i] = (byte) bytes[i];
        }
        return code;
    }

    private static byte[] arm64() {
        final int got = 0x48;
        final int registers = 32;
        int[] words = {
            0xb9400804, // read: ldr w4, [x0, #8]: the first page's lock
            0xf9400c05, // ldr x5, [x0, #24]
            0xf9000065, // str x5, [x3]
            0xf9401005, // ldr x5, [x0, #32]
            0xf9000465, // str x5, [x3, #8]
            0xf9401c05, // ldr x5, [x0, #56]
            0xf9000865, // str x5, [x3, #16]
            0xaa0003e6, // mov x6, x0
            0x10000607, // adr x7, registers
            0xb94008c8, // next: ldr w8, [x6, #8]: this page's lock
            0xb9400cc9, // ldr w9, [x6, #12]
            0x7100813f, // cmp w9, #32
            0x1a9f9129, // csel w9, w9, wzr, ls: a register that is not known is none
            0xf9001069, // str x9, [x3, #32]
            0x34000169, // cbz w9, same: it is not on the CPU
            0x8b090cea, // add x10, x7, x9, lsl #3
            0xd100214a, // sub x10, x10, #8
            0xd61f0140, // br x10
            0x794060cc, // got: ldrh w12, [x6, #48]
            0x4b0c03ec, // neg w12, w12: 64 less the width, of which 6 bits count
            0x9acc216b, // lsl x11, x11, x12
            0x9acc296b, // asr x11, x11, x12
            0xf94008cd, // ldr x13, [x6, #16]
            0x8b0d016b, // add x11, x11, x13
            0xf9000c6b, // str x11, [x3, #24]
            0xb94008cd, // same: ldr w13, [x6, #8]
            0x6b0801bf, // cmp w13, w8
            0x54000121, // b.ne again
            0x8b0100c6, // add x6, x6, x1
            0x91004063, // add x3, x3, #16
            0xf1000442, // subs x2, x2, #1
            0x54fffd41, // b.ne next
            0xb940080d, // ldr w13, [x0, #8]
            0x6b0401bf, // cmp w13, w4
            0x1a9f07e0, // cset w0, ne
            0xd65f03c0, // ret
            0x52800020, // again: mov w0, #1
            0xd65f03c0, // ret
            0x52800040, // refused: mov w0, #2
            0xd65f03c0, // ret
            0xb9400823, // handler: ldr w3, [x1, #8]: si_code
            0x7100007f, // cmp w3, #0
            0x5400012d, // b.le other: it was sent by kill() and the like
            0xf940dc43, // ldr x3, [x2, #440]: the context's pc
            0x10000184, // adr x4, registers
            0xcb040063, // sub x3, x3, x4
            0xf104007f, // cmp x3, #256
            0x54000082, // b.hs other
            0x10fffec3, // adr x3, refused
            0xf900dc43, // str x3, [x2, #440]
            0xd65f03c0, // ret
            0x58000070, // other: ldr x16, before
            0xd61f0200, // br x16
            0xd503201f, // nop
            0, 0, // before
        };
        ByteBuffer code = ByteBuffer.allocate(4 * words.length + 8 * registers);
        code.order(ByteOrder.LITTLE_ENDIAN);
        for (int word : words) {
            code.putInt(word);
        }
        for (int number = 0; number < registers; number++) {
            // mrs x11, pmevcntr0_el0 to pmevcntr30_el0, and, the last, pmccntr_el0
            code.putInt(number < 31 ? 0xd53be80b | number << 5 : 0xd53b9d0b);
            code.putInt(0x14000000 | (got - code.position()) / 4 & 0x3ffffff); // b got
        }
        return code.array();
    }
}
