"""Samples and slow requests as a trace for ui.perfetto.dev.

Slow requests are slices on their threads, with the time of each cause. Samples are Perfetto's
`StackSample`, which its viewer knows from version 58 (August 2026) on. Unlike a `PerfSample`, it
carries the time that it stands for, so flame graphs of waits have the right widths. The outermost
frame of a stack is the cause.

The messages are those of `protos/perfetto/trace/` in Perfetto's sources. All packets are of one
sequence. Its first packet has the tables that the others refer to. Moments are Unix ns, by the
clock REALTIME.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tailscope.engines.measure import Worst
from tailscope.ledger.stacks import Frame
from tailscope.present.frame_tables import FrameTables, Numbered
from tailscope.present.output import write
from tailscope.present.protobuf import message, number, signed, text
from tailscope.present.thread_samples import Thread, Timeline

#: Fields of a trace and of its packets.
PACKET = 1
CLOCK_SNAPSHOT, TIMESTAMP, SEQUENCE, TRACK_EVENT, INTERNED, FLAGS = 6, 8, 10, 11, 12, 13
DEFAULTS, TRACK, STACK_SAMPLE = 59, 60, 135
#: Tables of `InternedData`.
NAMES, FRAMES, STACKS, PATHS, MAPPINGS, CONTEXTS = 5, 6, 7, 17, 19, 48
#: `SEQ_INCREMENTAL_STATE_CLEARED`: the tables start here; `SEQ_NEEDS_INCREMENTAL_STATE`.
TABLES_START, TABLES_NEEDED = 1, 2
REALTIME = 1
NANOSECONDS = 1
SLICE_BEGIN, SLICE_END = 1, 2
#: Ids of the second machine's processes and threads start here, those of the third at twice it.
#: Linux gives none above this one.
MACHINE = 1 << 22


def save(shown: Timeline, file: str) -> None:
    """Write the file."""
    write(file, trace(shown))


def trace(shown: Timeline) -> bytes:
    """The whole trace."""
    packets = (clock(shown), tables(shown), *tracks_and_slices(shown), *samples(shown))
    return b"".join(message(PACKET, packet + number(SEQUENCE, 1)) for packet in packets)


def clock(shown: Timeline) -> bytes:
    """Which clock the moments are of."""
    now = number(1, REALTIME) + number(2, shown.extent_ns[0])
    return message(CLOCK_SNAPSHOT, message(1, now) + number(2, REALTIME))


def tables(shown: Timeline) -> bytes:
    """What samples refer to, and what is the same for all of them. Numbers start with 1."""
    frames = FrameTables()
    chains = [
        [frames.number(frame) + 1 for frame in (Frame(cause, "", 0), *chain)]
        for cause, chain in shown.stacks
    ]
    names: Numbered[str] = Numbered()
    parts: list[bytes] = []
    for frame, place in frames.frames.items():
        # The first mapping is that of frames without code.
        mapping = frames.modules[frame.module] + 2 if frame.module else 1
        found = number(1, place + 1) + number(2, names[frame.name] + 1) + number(3, mapping)
        parts.append(message(FRAMES, found + number(4, frame.address % (1 << 64))))
    parts += [interned(NAMES, place, text(2, name)) for name, place in names.items()]
    parts.append(interned(MAPPINGS, 0, b""))
    for module, place in frames.modules.items():
        parts.append(interned(PATHS, place, text(2, module)))
        parts.append(interned(MAPPINGS, place + 1, number(7, place + 1)))
    for place, chain in enumerate(chains):
        parts.append(interned(STACKS, place, b"".join(number(2, frame) for frame in chain)))
    for place, thread in enumerate(shown.threads):
        process, its = ids(thread, shown)
        parts.append(interned(CONTEXTS, place, number(2, process) + number(3, its)))
    weight = text(2, "time") + number(3, NANOSECONDS) + text(6, "the time that a sample stands for")
    defaults = text(1, "tailscope") + message(2, weight)
    return (
        number(TIMESTAMP, shown.extent_ns[0])
        + number(FLAGS, TABLES_START)
        + message(INTERNED, b"".join(parts))
        + message(DEFAULTS, number(58, REALTIME) + message(100, defaults))
    )


def interned(table: int, place: int, content: bytes) -> bytes:
    """An entry of a table; its number is one above its place."""
    return message(table, number(1, place + 1) + content)


def ids(thread: Thread, shown: Timeline) -> tuple[int, int]:
    """The numbers of a thread's process and of the thread, apart for each machine."""
    start = shown.hosts.index(thread.host) * MACHINE
    return (thread.pid + start) % (1 << 31), (thread.tid + start) % (1 << 31)


def samples(shown: Timeline) -> Iterator[bytes]:
    """A packet for each sample."""
    for place, its in enumerate(shown.threads.values()):
        context = number(2, place + 1)
        for time_ns, ns, stack in zip(its.time_ns, its.ns, its.stack, strict=True):
            sample = context + number(6, stack + 1) + number(11, ns)
            yield (
                number(TIMESTAMP, time_ns)
                + number(FLAGS, TABLES_NEEDED)
                + message(STACK_SAMPLE, sample)
            )


def tracks_and_slices(shown: Timeline) -> Iterator[bytes]:
    """Each thread's requests. Those that overlap without being nested have a track each."""
    track = 0
    processes = set()
    for thread, its in shown.threads.items():
        process, tid = ids(thread, shown)
        if len(shown.hosts) > 1 and process not in processes:
            processes.add(process)
            track += 1
            name = f"process {thread.pid} on {thread.host}"
            yield message(TRACK, number(1, track) + message(3, number(1, process) + text(6, name)))
        own = track + 1
        for lane in lanes(its.requests):
            track += 1
            if track == own:
                of_thread = message(4, number(1, process) + number(2, tid))
                yield message(TRACK, number(1, track) + of_thread)
            else:
                name = text(2, f"requests of thread {thread.tid}")
                yield message(TRACK, number(1, track) + name + number(5, own))
            yield from slices(lane, shown.span, track)


def lanes(requests: Iterable[Worst]) -> list[list[Worst]]:
    """Requests in order of their start, divided so that two of one lane are apart or nested."""
    found: list[list[Worst]] = []
    #: For each lane, the ends of what is still open, the innermost last.
    open_ends: list[list[int]] = []
    for request in requests:
        end = request.start_ns + request.wall_ns
        for ends in open_ends:
            while ends and ends[-1] <= request.start_ns:
                ends.pop()
        fitting = (place for place, ends in enumerate(open_ends) if not ends or end <= ends[-1])
        place = next(fitting, len(found))
        if place == len(found):
            found.append([])
            open_ends.append([])
        found[place].append(request)
        open_ends[place].append(end)
    return found


def slices(requests: Iterable[Worst], name: str, track: int) -> Iterator[bytes]:
    """The starts and ends of requests, in order of time."""
    ends: list[int] = []
    for request in requests:
        while ends and ends[-1] <= request.start_ns:
            yield event(ends.pop(), SLICE_END, track)
        start = text(22, "request") + text(23, name) + b"".join(annotations(request))
        yield event(request.start_ns, SLICE_BEGIN, track, start)
        ends.append(request.start_ns + request.wall_ns)
    while ends:
        yield event(ends.pop(), SLICE_END, track)


def event(at_ns: int, kind: int, track: int, content: bytes = b"") -> bytes:
    """A packet with the start or the end of a slice."""
    return number(TIMESTAMP, at_ns) + message(
        TRACK_EVENT, number(9, kind) + number(11, track) + content
    )


def annotations(request: Worst) -> Iterator[bytes]:
    """A request's causes in ns, the largest first, who is blamed for them, and its ids."""
    for cause, ns in sorted(request.causes.items(), key=lambda one: -one[1]):
        if ns:
            yield message(4, text(10, f"{cause}_ns") + signed(4, ns))
            if cause in request.culprits:
                yield message(4, text(10, f"{cause}_by") + text(6, request.culprits[cause]))
    if "id" in request.identity:
        yield message(4, text(10, "id") + signed(4, request.identity["id"]))
    if request.trace_id is not None:
        yield message(4, text(10, "trace_id") + text(6, request.trace_id))
