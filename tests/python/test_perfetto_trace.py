"""The trace for Perfetto, read back with Perfetto's own definitions."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from hypothesis import given
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as definitions
from tailscope.engines.measure import Worst
from tailscope.ledger.stacks import Frame, Stack
from tailscope.present import perfetto
from tailscope.present.thread_samples import Thread
from timelines import CASES, Case, Sample, case

BEGIN = definitions.TrackEvent.TYPE_SLICE_BEGIN


def parsed(made: Case) -> definitions.Trace:
    """The trace; all of it is known to the definitions."""
    data = perfetto.trace(made.shown)
    trace = definitions.Trace()
    trace.ParseFromString(data)
    size = trace.ByteSize()
    trace.DiscardUnknownFields()
    assert size == trace.ByteSize()
    first = trace.packet[1]
    assert first.sequence_flags == definitions.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    assert trace.packet[0].clock_snapshot.primary_trace_clock == definitions.BUILTIN_CLOCK_REALTIME
    defaults = first.trace_packet_defaults
    assert defaults.timestamp_clock_id == definitions.BUILTIN_CLOCK_REALTIME
    unit = defaults.stack_sample_defaults.primary_descriptor.unit
    assert unit == definitions.StackSample.UNIT_NANOSECONDS
    assert {packet.trusted_packet_sequence_id for packet in trace.packet} == {1}
    return trace


def thread_of(pid: int, tid: int, hosts: list[str]) -> Thread:
    """Whose the numbers are: each machine has its own."""
    assert pid // perfetto.MACHINE == tid // perfetto.MACHINE
    return Thread(hosts[pid // perfetto.MACHINE], pid % perfetto.MACHINE, tid % perfetto.MACHINE)


def by_number(entries: Any) -> dict[int, Any]:  # noqa: ANN401
    """The entries of a table; each is there once, and none has 0."""
    found = {one.iid: one for one in entries}
    assert len(found) == len(entries) and 0 not in found
    return found


def samples(made: Case, trace: definitions.Trace) -> Counter[Any]:
    """The samples with their threads and names."""
    data = trace.packet[1].interned_data
    contexts = by_number(data.stack_sample_task_contexts)
    stacks, frames = by_number(data.callstacks), by_number(data.frames)
    names, mappings = by_number(data.function_names), by_number(data.mappings)
    paths = by_number(data.mapping_paths)
    for mapping in mappings.values():
        assert all(path in paths for path in mapping.path_string_ids)
    # No row is there twice.
    for table, key in (
        (stacks, lambda one: tuple(one.frame_ids)),
        (frames, lambda one: (one.function_name_id, one.mapping_id, one.rel_pc)),
        (names, lambda one: one.str),
        (paths, lambda one: one.str),
    ):
        assert len({key(one) for one in table.values()}) == len(table)
    found: Counter[Any] = Counter()
    latest: dict[Thread, int] = defaultdict(int)
    for packet in trace.packet:
        if not packet.HasField("stack_sample"):
            continue
        sample = packet.stack_sample
        context = contexts[sample.task_context_iid]
        thread = thread_of(context.pid, context.tid, made.shown.hosts)
        assert packet.timestamp >= latest[thread]
        latest[thread] = packet.timestamp
        chain = [frames[frame] for frame in stacks[sample.callstack_iid].frame_ids]
        assert all(frame.mapping_id in mappings for frame in chain)
        cause, *rest = (names[frame.function_name_id].str.decode() for frame in chain)
        found[thread, packet.timestamp, sample.primary_weight, cause, tuple(rest)] += 1
    return found


def slices(made: Case, trace: definitions.Trace) -> Counter[Any]:
    """The slices by thread, as a viewer finds them: an end closes what began last on its track."""
    threads: dict[int, Thread] = {}
    open_slices: dict[int, list[int]] = defaultdict(list)
    latest: dict[int, int] = defaultdict(int)
    found: Counter[Any] = Counter()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("thread"):
                one = (track.thread.pid, track.thread.tid)
                threads[track.uuid] = thread_of(*one, made.shown.hosts)
            elif track.HasField("parent_uuid"):
                threads[track.uuid] = threads[track.parent_uuid]
        if packet.HasField("track_event"):
            event, at = packet.track_event, packet.timestamp
            assert at >= latest[event.track_uuid]
            latest[event.track_uuid] = at
            if event.type == BEGIN:
                assert event.name == made.shown.span
                open_slices[event.track_uuid].append(at)
            else:
                start = open_slices[event.track_uuid].pop()
                found[threads[event.track_uuid], start, at - start] += 1
    assert not any(open_slices.values())
    return found


@given(CASES)
def test_any_samples_and_requests_are_read_back(made: Case) -> None:
    trace = parsed(made)
    assert samples(made, trace) == made.expected()
    assert slices(made, trace) == made.walls()


@given(CASES)
def test_the_slices_of_a_lane_are_apart_or_nested(made: Case) -> None:
    for its in made.shown.threads.values():
        for lane in perfetto.lanes(its.requests):
            spans = [(one.start_ns, one.start_ns + one.wall_ns) for one in lane]
            for number, (start, end) in enumerate(spans):
                for later, until in spans[number + 1 :]:
                    assert later >= end or (later >= start and until <= end)


def test_a_slice_says_what_a_request_waited_for() -> None:
    request = Worst(
        start_ns=5,
        wall_ns=4,
        identity={"id": -7, "pid": 1, "tid": 1},
        causes={"running": 1, "lock": 3, "io": 0},
        culprits={"lock": "writer"},
        trace_id="ab" * 16,
    )
    trace = parsed(case([], [(0, request)], {}))
    (begin,) = [one.track_event for one in trace.packet if one.track_event.type == BEGIN]
    said = [(one.name, one.string_value or one.int_value) for one in begin.debug_annotations]
    assert said == [
        ("lock_ns", 3),
        ("lock_by", "writer"),
        ("running_ns", 1),
        ("id", -7),
        ("trace_id", "ab" * 16),
    ]


def test_a_frame_says_in_which_file_it_is() -> None:
    stacks = {1: Stack((Frame("memset", "/lib/libc.so.6", 5), Frame("put", "/bin/kv", 7)), True)}
    made = case([Sample(0, 1, 2, 10, 3_000_000, "lock", 1)], [], stacks)
    data = parsed(made).packet[1].interned_data
    mappings, paths = by_number(data.mappings), by_number(data.mapping_paths)
    files = {
        number: [paths[path].str.decode() for path in one.path_string_ids]
        for number, one in mappings.items()
    }
    assert [(files[one.mapping_id], one.rel_pc) for one in data.frames] == [
        ([], 0),
        (["/bin/kv"], 7),
        (["/lib/libc.so.6"], 5),
    ]


def test_several_machines_are_told_apart() -> None:
    made = case([Sample(0, 1, 2, 10, 1, "lock", 1), Sample(1, 1, 2, 10, 1, "lock", 1)], [], {})
    trace = parsed(made)
    named = [
        packet.track_descriptor.process.process_name
        for packet in trace.packet
        if packet.HasField("track_descriptor")
    ]
    assert named == ["process 1 on a", "process 1 on b"]
    assert samples(made, trace) == made.expected()
