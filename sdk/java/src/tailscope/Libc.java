// SPDX-License-Identifier: MIT
package tailscope;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.TimeUnit;

/**
 * The few functions of the C library that attaching takes. Numbers are Linux's, alike on all
 * machines.
 */
final class Libc {
    /** What a function of the C library failed with. */
    static final class Failure extends Exception {
        static final int EPERM = 1;
        static final int ESRCH = 3;
        static final int EAGAIN = 11;
        static final int ENOSPC = 28;
        static final int ENAMETOOLONG = 36;
        static final int EPROTO = 71;
        static final int EOPNOTSUPP = 95;

        private static final long serialVersionUID = 1;

        final int errno;

        Failure(String what, int errno) {
            super(what + ": errno " + errno, null, false, false);
            this.errno = errno;
        }
    }

    private static final int READ = 1;
    static final int READ_WRITE = 3;
    static final int READ_EXECUTE = 5;
    private static final int SHARED = 1;
    private static final int SHARED_FIXED = 0x11;
    private static final int EMPTY_FIXED = 0x4032; // private, anonymous, without a reserve
    private static final int PRIVATE = 2;
    private static final int ANONYMOUS_NO_RESERVE = 0x4022;

    private static final Linker LINKER = Linker.nativeLinker();
    private static final Linker.Option ERRNO = Linker.Option.captureCallState("errno");

    private static final MethodHandle MEMFD = find("memfd_create", JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle FTRUNCATE = find("ftruncate", JAVA_INT, JAVA_INT, JAVA_LONG);
    private static final MethodHandle WRITE =
        find("write", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG);
    private static final MethodHandle MMAP =
        find("mmap", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG);
    private static final MethodHandle FCNTL =
        variadic("fcntl", 2, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT);
    private static final MethodHandle CLOSE = find("close", JAVA_INT, JAVA_INT);
    private static final MethodHandle SOCKET =
        find("socket", JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT);
    private static final MethodHandle CONNECT =
        find("connect", JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle SETSOCKOPT =
        find("setsockopt", JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle GETSOCKOPT =
        find("getsockopt", JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS, ADDRESS);
    private static final MethodHandle RECVMSG =
        find("recvmsg", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle POLL = find("poll", JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT);
    private static final MethodHandle SIGACTION =
        find("sigaction", JAVA_INT, JAVA_INT, ADDRESS, ADDRESS);
    private static final MethodHandle PAGE_BYTES = find("getpagesize", JAVA_INT);
    private static final MethodHandle IOCTL =
        variadic("ioctl", 2, JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle SYSCALL = variadic(
        "syscall", 1, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle GETTID = find("gettid", JAVA_INT);
    private static final MethodHandle GETEUID = find("geteuid", JAVA_INT);

    private static MethodHandle find(String name, MemoryLayout result, MemoryLayout... arguments) {
        MemorySegment at = LINKER.defaultLookup().find(name).orElseThrow();
        return LINKER.downcallHandle(at, FunctionDescriptor.of(result, arguments), ERRNO);
    }

    /** One whose arguments from this one on are those that C declares by dots. */
    private static MethodHandle variadic(
        String name, int fixed, MemoryLayout result, MemoryLayout... arguments) {
        return LINKER.downcallHandle(
            LINKER.defaultLookup().find(name).orElseThrow(),
            FunctionDescriptor.of(result, arguments),
            ERRNO,
            Linker.Option.firstVariadicArg(fixed));
    }

    /** One call: its result, or its errno as a failure. */
    private static long call(String what, MethodHandle function, Object... arguments)
        throws Failure {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment errno = arena.allocate(Linker.Option.captureStateLayout());
            Object[] all = new Object[arguments.length + 1];
            all[0] = errno;
            System.arraycopy(arguments, 0, all, 1, arguments.length);
            long result = ((Number) function.invokeWithArguments(all)).longValue();
            if (result == -1) {
                throw new Failure(what, errno.get(JAVA_INT, 0));
            }
            return result;
        } catch (Failure | RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException(what, e);
        }
    }

    /**
     * A file that has no name in any folder, with these bytes and then zeros; it may be executed.
     */
    static int memoryFile(String name, byte[] bytes, long length) throws Failure {
        final int cloexec = 1;
        final int executable = 0x10; // known since Linux 6.3, which wants a yes or a no
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment text = arena.allocateFrom(name);
            int file;
            try {
                file = (int) call("memfd_create", MEMFD, text, cloexec | executable);
            } catch (Failure older) {
                file = (int) call("memfd_create", MEMFD, text, cloexec);
            }
            MemorySegment content = arena.allocateFrom(ValueLayout.JAVA_BYTE, bytes);
            call("write", WRITE, file, content, (long) bytes.length);
            call("ftruncate", FTRUNCATE, file, length);
            return file;
        }
    }

    /**
     * A file of zeros that has no name in any folder, mapped here; it can't be made shorter, so that
     * who maps it can't be struck by that. It stays open: that is how an observer without the powers
     * of an administrator finds it.
     */
    static long sealedFile(String name, long length) throws Failure {
        final int cloexecAllowSealing = 3;
        final int addSeals = 1033;
        final int shrinkAndSeal = 2 | 1;
        int file;
        try (Arena arena = Arena.ofConfined()) {
            file = (int) call("memfd_create", MEMFD, arena.allocateFrom(name), cloexecAllowSealing);
        }
        try {
            call("ftruncate", FTRUNCATE, file, length);
            call("fcntl", FCNTL, file, addSeals, shrinkAndSeal);
            return call("mmap", MMAP, 0L, length, READ_WRITE, SHARED, file, 0L);
        } catch (Failure e) {
            close(file);
            throw e;
        }
    }

    /** Maps a part of a file, for this process alone. */
    static long mapPrivate(int file, long offset, long bytes, int rights) throws Failure {
        return call("mmap", MMAP, 0L, bytes, rights, PRIVATE, file, offset);
    }

    /** Addresses that nobody else gets. */
    static long reserve(long bytes) throws Failure {
        return call("mmap", MMAP, 0L, bytes, 0, ANONYMOUS_NO_RESERVE, -1, 0L);
    }

    /** Maps a shared file over addresses that were reserved, or over an earlier such mapping. */
    static void mapOver(long at, long bytes, int file) throws Failure {
        call("mmap", MMAP, at, bytes, READ_WRITE, SHARED_FIXED, file, 0L);
    }

    /** Maps the begin of a file over addresses that were reserved, to be read. */
    static void mapRead(long at, long bytes, int file) throws Failure {
        call("mmap", MMAP, at, bytes, READ, SHARED_FIXED, file, 0L);
    }

    /** Nothing is mapped there any more; who reads it all the same finds zeros. */
    static void empty(long at, long bytes) throws Failure {
        call("mmap", MMAP, at, bytes, READ, EMPTY_FIXED, -1, 0L);
    }

    static long pageBytes() {
        try {
            return call("getpagesize", PAGE_BYTES);
        } catch (Failure never) {
            throw new IllegalStateException(never);
        }
    }

    /** Perf's event of this thread, in the group of {@code leader}, or, at -1, of a new one. */
    static int openEvent(byte[] attributes, int leader) throws Failure {
        boolean isArm = System.getProperty("os.arch").equals("aarch64");
        final long perfEventOpen = isArm ? 241 : 298;
        final long thisThread = 0;
        final long anyCpu = -1;
        final long cloexec = 8;
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment text = arena.allocateFrom(ValueLayout.JAVA_BYTE, attributes);
            return (int) call("perf_event_open", SYSCALL, perfEventOpen, text, thisThread, anyCpu,
                (long) leader, cloexec);
        }
    }

    static void control(int file, long order, long argument) throws Failure {
        call("ioctl", IOCTL, file, order, argument);
    }

    /** What a signal does, as C's struct has it; from now on it does {@code now}, if that is any. */
    static ByteBuffer signalAction(int signal, ByteBuffer now, int bytes) throws Failure {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment wanted = MemorySegment.NULL;
            if (now != null) {
                wanted = arena.allocateFrom(ValueLayout.JAVA_BYTE, now.array());
            }
            MemorySegment before = arena.allocate(bytes, 8);
            call("sigaction", SIGACTION, signal, wanted, before);
            byte[] action = before.toArray(ValueLayout.JAVA_BYTE);
            return ByteBuffer.wrap(action).order(ByteOrder.nativeOrder());
        }
    }

    static void close(int file) {
        try {
            call("close", CLOSE, file);
        } catch (Failure gone) {
            // It is gone either way.
        }
    }

    /** The calling thread, as the kernel numbers it in this process's namespace. */
    static int threadId() throws Failure {
        return (int) call("gettid", GETTID);
    }

    /** Whose rights this process has. */
    static int user() throws Failure {
        return (int) call("geteuid", GETEUID);
    }

    /**
     * Connects to a unix socket of packets whose other side is root or our own user, and waits there
     * for so many milliseconds at most.
     */
    static int connect(byte[] path, long patienceMs) throws Failure {
        final int unix = 1;
        final int seqpacketCloexec = 5 | 02000000;
        final int addressBytes = 110;
        final int solSocket = 1;
        final int peerCredentials = 17;
        final int receiveTimeout = 20;
        final int sendTimeout = 21;
        if (path.length > addressBytes - 3) {
            throw new Failure("connect", Failure.ENAMETOOLONG);
        }
        int socket = (int) call("socket", SOCKET, unix, seqpacketCloexec, 0);
        boolean isGood = false;
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment patience = arena.allocate(16, 8); // struct timeval
            patience.set(JAVA_LONG, 0, patienceMs / 1000);
            patience.set(JAVA_LONG, 8, TimeUnit.MILLISECONDS.toMicros(patienceMs % 1000));
            call("setsockopt", SETSOCKOPT, socket, solSocket, receiveTimeout, patience, 16);
            call("setsockopt", SETSOCKOPT, socket, solSocket, sendTimeout, patience, 16);
            MemorySegment address = arena.allocate(addressBytes, 8); // struct sockaddr_un
            address.set(ValueLayout.JAVA_SHORT, 0, (short) unix);
            MemorySegment.copy(path, 0, address, ValueLayout.JAVA_BYTE, 2, path.length);
            call("connect", CONNECT, socket, address, addressBytes);
            MemorySegment peer = arena.allocate(12, 4); // struct ucred: process, user, group
            MemorySegment length = arena.allocateFrom(JAVA_INT, 12);
            call("getsockopt", GETSOCKOPT, socket, solSocket, peerCredentials, peer, length);
            int user = peer.get(JAVA_INT, 4);
            // Shared memory asks for trust.
            if (user != 0 && user != user()) {
                throw new Failure("connect", Failure.EPERM);
            }
            isGood = true;
            return socket;
        } finally {
            if (!isGood) {
                close(socket);
            }
        }
    }

    /** A packet, and the two descriptors that came with it; null if none came. */
    record Packet(byte[] bytes, int[] files) {
        void discard() {
            for (int file : files == null ? new int[0] : files) {
                close(file);
            }
        }
    }

    /** Receives a packet of exactly this many bytes. */
    static Packet receive(int socket, int bytes) throws Failure {
        final int cloexec = 0x40000000;
        final int rights = 1;
        final int controlBytes = 24; // struct cmsghdr, and two descriptors
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment packet = arena.allocate(bytes, 8);
            MemorySegment part = arena.allocate(16, 8); // struct iovec
            part.set(ADDRESS, 0, packet);
            part.set(JAVA_LONG, 8, bytes);
            MemorySegment control = arena.allocate(controlBytes, 8);
            MemorySegment message = arena.allocate(56, 8); // struct msghdr
            message.set(ADDRESS, 16, part);
            message.set(JAVA_LONG, 24, 1);
            message.set(ADDRESS, 32, control);
            message.set(JAVA_LONG, 40, controlBytes);
            long received = call("recvmsg", RECVMSG, socket, message, cloexec);
            int[] files = null;
            if (control.get(JAVA_LONG, 0) == controlBytes && control.get(JAVA_INT, 12) == rights) {
                files = new int[] {control.get(JAVA_INT, 16), control.get(JAVA_INT, 20)};
            }
            Packet whole = new Packet(packet.toArray(ValueLayout.JAVA_BYTE), files);
            if (received != bytes) {
                whole.discard();
                throw new Failure("recvmsg", Failure.EPROTO);
            }
            return whole;
        }
    }

    /** Whether nothing happened to a connection: neither data nor a hang-up. */
    static boolean isQuiet(int socket) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment entry = arena.allocate(8, 4); // struct pollfd
            entry.set(JAVA_INT, 0, socket);
            return call("poll", POLL, entry, 1L, 0) == 0;
        } catch (Failure gone) {
            return false;
        }
    }

    private Libc() {}
}
