"""Stacks of slow and usual spans as a file for pprof.

One profile with two values for each stack: the ns that a mean slow span and a mean usual one spend
on it. The outermost frame is the cause, which is also a label. Times below half a ns are left out.

The format is a compressed protobuf message: `profile.proto` of github.com/google/pprof.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from tailscope.ledger.ledger import Ledger
from tailscope.ledger.stacks import Frame
from tailscope.present.frame_tables import FrameTables, Numbered
from tailscope.present.mean_stacks import Means, slow_and_usual
from tailscope.present.output import write
from tailscope.present.protobuf import message, number, packed, text
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
    made = Profile()
    samples = []
    for cause, stack in sorted({*slow, *usual}, key=repr):
        values = [round(side.get((cause, stack), 0.0)) for side in (slow, usual)]
        if any(values):
            samples.append(made.sample(cause, stack, values))
    return made.message(samples)


class Profile:
    """The message's samples, and the tables that they refer to. Numbers of tables start with 1."""

    def __init__(self) -> None:
        self.tables = FrameTables()
        # The format wants the empty string first.
        self.strings: Numbered[str] = Numbered({"": 0})

    def sample(self, cause: str, stack: tuple[Frame, ...], values: Iterable[int]) -> bytes:
        """A stack with its values."""
        frames = [*reversed(stack), Frame(cause, "", 0)]
        label = number(1, self.strings["cause"]) + number(2, self.strings[cause])
        return (
            packed(1, (self.tables.number(frame) + 1 for frame in frames))
            + packed(2, values)
            + message(3, label)
        )

    def message(self, samples: Iterable[bytes]) -> bytes:
        """The whole message."""
        strings, tables = self.strings, self.tables
        unit = strings["nanoseconds"]
        parts = [message(SAMPLE_TYPE, number(1, strings[kind]) + number(2, unit)) for kind in KINDS]
        parts += [message(SAMPLE, sample) for sample in samples]
        for module, place in tables.modules.items():
            # 7: its functions have their names already.
            found = number(1, place + 1) + number(5, strings[module]) + number(7, 1)
            parts.append(message(MAPPING, found))
        for frame, place in tables.frames.items():
            line = number(1, tables.functions[frame.name, frame.module] + 1)
            mapping = tables.modules[frame.module] + 1 if frame.module else 0
            found = number(1, place + 1) + number(2, mapping)
            parts.append(
                message(LOCATION, found + number(3, frame.address % 2**64) + message(4, line))
            )
        for (name, module), place in tables.functions.items():
            found = number(1, place + 1) + number(2, strings[name]) + number(3, strings[name])
            parts.append(message(FUNCTION, found + number(4, strings[module])))
        parts.append(number(DEFAULT_TYPE, strings[KINDS[0]]))
        # Last: the others have made all strings by now.
        parts += [text(STRING, one) for one in strings]
        return b"".join(parts)
