"""The file for pprof, read back by a reader of its own that knows only the wire format."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailscope.ledger.stacks import Frame
from tailscope.present import pprof, protobuf
from tailscope.present.mean_stacks import Means

Message = dict[int, list[int | bytes]]


def varint(data: bytes, place: int) -> tuple[int, int]:
    """A number, and the place after it."""
    value = shift = 0
    while True:
        value |= (data[place] & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if data[place - 1] < 0x80:
            return value, place


def fields(data: bytes) -> Message:
    """The fields of a message, by number."""
    found: Message = defaultdict(list)
    place = 0
    while place < len(data):
        key, place = varint(data, place)
        value, place = varint(data, place)
        if key & 7 == 2:
            found[key >> 3].append(data[place : place + value])
            place += value
        else:
            assert key & 7 == 0, f"wire type {key & 7}"
            found[key >> 3].append(value)
    assert place == len(data)
    return found


def numbers(data: bytes) -> list[int]:
    """A packed field."""
    found, place = [], 0
    while place < len(data):
        value, place = varint(data, place)
        found.append(value)
    return found


def read(data: bytes) -> dict[tuple[str, tuple[tuple[str, str, int], ...]], list[int]]:
    """Values by cause and frames (name, module, address), the outermost first."""
    profile = fields(data)
    strings = [text.decode() for text in profile[6]]
    assert strings[0] == "" and len(set(strings)) == len(strings)
    kinds = [fields(kind) for kind in profile[1]]
    assert [(strings[one[1][0]], strings[one[2][0]]) for one in kinds] == [
        ("slow", "nanoseconds"),
        ("usual", "nanoseconds"),
    ]
    modules = {one[1][0]: strings[one[5][0]] for one in map(fields, profile[3])}
    functions = {one[1][0]: strings[one[2][0]] for one in map(fields, profile[5])}
    places = {}
    for one in map(fields, profile[4]):
        (line,) = map(fields, one[4])
        module = modules[one[2][0]] if one[2][0] else ""
        places[one[1][0]] = (functions[line[1][0]], module, one[3][0])
    found = {}
    for sample in map(fields, profile[2]):
        *frames, cause = (places[number] for number in numbers(sample[1][0]))
        label = fields(sample[3][0])
        assert (strings[label[1][0]], strings[label[2][0]]) == ("cause", cause[0])
        key = (cause[0], tuple(reversed(frames)))
        assert key not in found
        found[key] = numbers(sample[2][0])
    return found


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
FRAMES = st.builds(Frame, TEXTS, TEXTS, st.integers(0, 2**64 - 1))
STACKS = st.tuples(
    st.sampled_from(["running", "lock"]), st.lists(FRAMES, min_size=1, max_size=5).map(tuple)
)
MEANS = st.dictionaries(STACKS, st.floats(0, 1e15), max_size=8)


@given(MEANS, MEANS)
def test_every_stack_is_read_back_with_both_values(slow: Means, usual: Means) -> None:
    expected = {}
    for cause, stack in {*slow, *usual}:
        values = [round(side.get((cause, stack), 0.0)) for side in (slow, usual)]
        if any(values):
            frames = tuple((one.name, one.module, one.address) for one in stack)
            expected[cause, frames] = values
    assert read(pprof.profile(slow, usual)) == expected


def test_the_same_function_in_two_files_is_two_functions() -> None:
    stack = (Frame("main", "/a", 1), Frame("main", "/b", 1))
    found = read(pprof.profile({("running", stack): 5.0}, {}))
    assert found == {("running", (("main", "/a", 1), ("main", "/b", 1))): [5, 0]}


@pytest.mark.parametrize("value", [0, 1, 127, 128, 2**32, 2**64 - 1])
def test_numbers_are_read_back(value: int) -> None:
    assert varint(protobuf.varint(value), 0) == (value, len(protobuf.varint(value)))
