// SPDX-License-Identifier: MIT
package tailscope;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * The program file that recorders find in this process: an ELF image of two pages. The first is
 * code, the second begins with the probes' semaphores. Notes of SystemTap's form (owner "stapsdt",
 * type 3) say where both are, as the macro TS__PROBE of tailscope.h does in C.
 */
final class ProbeFile {
    static final int PAGE = 65536; // as large as Linux has them on these processors
    static final int BYTES = 2 * PAGE;
    static final int SEMAPHORE = PAGE;
    private static final int CODE = 4096;

    private static final int HEADER = 64;
    private static final int PROGRAM_HEADER = 56;
    private static final int SECTION_HEADER = 64;
    private static final int NOTES = 512;
    private static final int NAMES = 768;
    private static final int SECTIONS = 1024;

    private final ByteBuffer file = ByteBuffer.allocate(2 * CODE).order(ByteOrder.LITTLE_ENDIAN);
    private final ByteArrayOutputStream names = new ByteArrayOutputStream();
    private int sections;

    /** Where a function of the machine's is. */
    static int place(int function) {
        return CODE + function;
    }

    /** What the file begins with; the rest, up to BYTES, is zeros. */
    static byte[] of(Machine machine) {
        return new ProbeFile().write(machine);
    }

    private byte[] write(Machine machine) {
        ByteArrayOutputStream notes = new ByteArrayOutputStream();
        for (int which = 0; which < Abi.RECORDERS; which++) {
            notes.writeBytes(note(machine, which));
        }
        file.put(CODE, machine.code).put(NOTES, notes.toByteArray());
        section("", 0, 0, 0, 0);
        section(".text", 1, 6, CODE, machine.code.length); // PROGBITS; allocated, executable
        section(".note.stapsdt", 7, 0, NOTES, notes.size()); // NOTE
        section(".probes", 1, 3, SEMAPHORE, Abi.RECORDERS * Integer.BYTES); // PROGBITS; allocated, writable
        int ofNames = sections;
        // The last: its own name is among them, so they are whole only after it.
        section(".shstrtab", 3, 0, NAMES, names.size() + ".shstrtab".length() + 1); // STRTAB
        file.put(NAMES, names.toByteArray());
        segment(0, 5, 0); // readable, executable
        segment(1, 6, SEMAPHORE); // readable, writable
        header(machine, ofNames);
        return file.array();
    }

    private void header(Machine machine, int ofNames) {
        file.position(0);
        file.put(new byte[] {0x7f, 'E', 'L', 'F', 2, 1, 1}).position(16);
        file.putShort((short) 3).putShort((short) machine.elfNumber).putInt(1); // a shared object
        file.putLong(0).putLong(HEADER).putLong(SECTIONS).putInt(0);
        for (int field : List.of(HEADER, PROGRAM_HEADER, 2, SECTION_HEADER, sections, ofNames)) {
            file.putShort((short) field);
        }
    }

    /** A page that is loaded where it is in the file. */
    private void segment(int number, int rights, int at) {
        file.position(HEADER + number * PROGRAM_HEADER);
        file.putInt(1).putInt(rights);
        file.putLong(at).putLong(at).putLong(at).putLong(PAGE).putLong(PAGE).putLong(PAGE);
    }

    private void section(String name, int type, int flags, int at, int length) {
        file.position(SECTIONS + sections++ * SECTION_HEADER);
        file.putInt(names.size()).putInt(type).putLong(flags);
        file.putLong((flags & 2) != 0 ? at : 0).putLong(at).putLong(length);
        file.putInt(0).putInt(0).putLong(type == 0 ? 0 : 4).putLong(0);
        names.writeBytes((name + "\0").getBytes(StandardCharsets.US_ASCII));
    }

    private static byte[] note(Machine machine, int which) {
        byte[] owner = "stapsdt\0".getBytes(StandardCharsets.US_ASCII);
        String name = which == 0 ? "thread" : "thread_second";
        String text = "tailscope\0" + name + "\0" + machine.argument + "\0";
        byte[] strings = text.getBytes(StandardCharsets.US_ASCII);
        int described = 3 * Long.BYTES + strings.length;
        ByteBuffer note = ByteBuffer.allocate(12 + owner.length + (described + 3 & ~3));
        note.order(ByteOrder.LITTLE_ENDIAN);
        note.putInt(owner.length).putInt(described).putInt(3).put(owner);
        note.putLong(CODE + Machine.TELL + which * Machine.BYTES).putLong(0);
        note.putLong(SEMAPHORE + which * Integer.BYTES).put(strings);
        return note.array();
    }

    private ProbeFile() {}
}
