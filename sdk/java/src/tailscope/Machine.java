// SPDX-License-Identifier: MIT
package tailscope;

/**
 * The three functions that Java has no word for, as machine code: {@code cycles()}, the cycle
 * counter; {@code cyclesAfterWork(int *cpu)}, the same at a span's end, with the CPU; and {@code
 * tell(long)}, which begins with the nop that a recorder's probe goes on, once for each recorder.
 */
final class Machine {
    static final int CYCLES = 0;
    static final int CYCLES_AFTER_WORK = 32;
    static final int TELL = 64;
    static final int BYTES = 32; // of each

    /** The processor as ELF numbers it. */
    final int elfNumber;

    /** Where {@code tell} has its argument, as a USDT note says it. */
    final String argument;

    /** What no CPU of {@code cyclesAfterWork} is known by; -1: it is known. */
    final int cpuUnless;

    final byte[] code;

    private Machine(int elfNumber, String argument, int cpuUnless, int[]... functions) {
        this.elfNumber = elfNumber;
        this.argument = argument;
        this.cpuUnless = cpuUnless;
        code = new byte[TELL + Abi.RECORDERS * BYTES];
        for (int at = 0; at < code.length; at += BYTES) {
            int[] function = functions[Math.min(at, TELL) / BYTES];
            for (int i = 0; i < function.length; i++) {
                code[at + i] = (byte) function[i];
            }
        }
    }

    /** This machine's; null if it is none that is known. */
    static Machine here() {
        return switch (System.getProperty("os.arch")) {
            case "amd64" -> new Machine(62, "-8@%rdi", -1,
                new int[] {
                    0x0f, 0x31, // rdtsc
                    0x48, 0xc1, 0xe2, 0x20, // shl $32, %rdx
                    0x48, 0x09, 0xd0, // or %rdx, %rax
                    0xc3, // ret
                },
                new int[] {
                    0x0f, 0x01, 0xf9, // rdtscp: after what came before; node << 12 | cpu in %ecx
                    0x48, 0xc1, 0xe2, 0x20, // shl $32, %rdx
                    0x48, 0x09, 0xd0, // or %rdx, %rax
                    0x89, 0x0f, // mov %ecx, (%rdi)
                    0xc3, // ret
                },
                new int[] {
                    0x90, // nop
                    0xc3, // ret
                });
            case "aarch64" -> new Machine(183, "-8@x0", 0xffff,
                new int[] {
                    0xdf, 0x3f, 0x03, 0xd5, // isb
                    0x40, 0xe0, 0x3b, 0xd5, // mrs x0, cntvct_el0
                    0xc0, 0x03, 0x5f, 0xd6, // ret
                },
                new int[] {
                    0xdf, 0x3f, 0x03, 0xd5, // isb
                    0x40, 0xe0, 0x3b, 0xd5, // mrs x0, cntvct_el0
                    0xc0, 0x03, 0x5f, 0xd6, // ret
                },
                new int[] {
                    0x1f, 0x20, 0x03, 0xd5, // nop
                    0xc0, 0x03, 0x5f, 0xd6, // ret
                });
            default -> null;
        };
    }
}
