"""Stacks of slow and usual spans as a file for pprof.

One profile with two values for each stack: the ns that a mean slow span and a mean usual one spend
on it. The outermost frame is the cause, which is also a label. Times below half a ns are left out.

The format is a compressed protobuf message: `profile.proto` of github.com/google/pprof. It needs
two kinds of fields, numbers and bytes, so they are written here, without a library.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from tailscope.ledger.ledger import Ledger
from tailscope.ledger.stacks import Frame
from tailscope.present.mean_stacks import Means, slow_and_usual
from tailscope.present.output import write
from tailscope.statistics.explanation import Explanation

#: Fields of the messages.
SAMPLE_TYPE, SAMPLE, MAPPING, LOCATION, FUNCTION, STRING, DEFAULT_TYPE = 1, 2, 3, 4, 5, 6, 14
KINDS = ("slow", "usual")


def save(ledger: Ledger, explanation: Explanation, file: str) -> None:
    """Write the file."""
    slow, usual = (side.ns for side in slow_and_usual(ledger, explanation))
    write(file, gzip.compress(profile(slow, usual), mtime=0))


def profile(slow: Means, usual: Means) -> bytes:
    """The message, not compressed."""
    tables = Tables()
    samples = []
    for cause, stack in sorted({*slow, *usual}, key=repr):
        values = [round(side.get((cause, stack), 0.0)) for side in (slow, usual)]
        if any(values):
            samples.append(tables.sample(cause, stack, values))
    return tables.profile(samples)


class Tables:
    """What samples refer to by a number, each once."""

    def __init__(self) -> None:
        # The format wants the empty string first.
        self.strings = {"": 0}
        self.mappings: dict[str, int] = {}
        self.functions: dict[tuple[str, str], int] = {}
        self.locations: dict[Frame, int] = {}

    def string(self, text: str) -> int:
        """The number of a string."""
        return self.strings.setdefault(text, len(self.strings))

    def location(self, frame: Frame) -> int:
        """The number of a frame; numbers begin with 1."""
        if frame.module:
            self.mappings.setdefault(frame.module, len(self.mappings) + 1)
        self.functions.setdefault((frame.name, frame.module), len(self.functions) + 1)
        return self.locations.setdefault(frame, len(self.locations) + 1)

    def sample(self, cause: str, stack: tuple[Frame, ...], values: Iterable[int]) -> bytes:
        """A stack with its values."""
        frames = [*reversed(stack), Frame(cause, "", 0)]
        label = number(1, self.string("cause")) + number(2, self.string(cause))
        return (
            packed(1, (self.location(frame) for frame in frames))
            + packed(2, values)
            + message(3, label)
        )

    def profile(self, samples: Iterable[bytes]) -> bytes:
        """The whole message."""
        unit = self.string("nanoseconds")
        parts = [
            message(SAMPLE_TYPE, number(1, self.string(kind)) + number(2, unit)) for kind in KINDS
        ]
        parts += [message(SAMPLE, sample) for sample in samples]
        for module, place in self.mappings.items():
            # 7: its functions have their names already.
            found = number(1, place) + number(5, self.string(module)) + number(7, 1)
            parts.append(message(MAPPING, found))
        for frame, place in self.locations.items():
            line = number(1, self.functions[frame.name, frame.module])
            found = number(1, place) + number(2, self.mappings.get(frame.module, 0))
            parts.append(
                message(LOCATION, found + number(3, frame.address % 2**64) + message(4, line))
            )
        for (name, module), place in self.functions.items():
            text = self.string(name)
            found = number(1, place) + number(2, text) + number(3, text)
            parts.append(message(FUNCTION, found + number(4, self.string(module))))
        parts.append(number(DEFAULT_TYPE, self.string(KINDS[0])))
        # Last: the others have made all strings by now.
        parts += [message(STRING, text.encode("utf-8", "replace")) for text in self.strings]
        return b"".join(parts)


def varint(value: int) -> bytes:
    """A number, seven bits to a byte, the lowest first; not negative."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number(field: int, value: int) -> bytes:
    """A field with a number."""
    return varint(field << 3) + varint(value)


def message(field: int, content: bytes) -> bytes:
    """A field with bytes: a text or another message."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def packed(field: int, values: Iterable[int]) -> bytes:
    """A field with several numbers."""
    return message(field, b"".join(map(varint, values)))
