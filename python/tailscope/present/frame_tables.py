"""Frames for files of other programs: each frame, function and module is there once, by number."""

from __future__ import annotations

from typing import TypeVar

from tailscope.ledger.stacks import Frame

Key = TypeVar("Key")


class Numbered(dict[Key, int]):
    """Things with their numbers. A new one gets the next number; the first has 0."""

    def __missing__(self, key: Key) -> int:
        return self.setdefault(key, len(self))


class FrameTables:
    """What stacks refer to by a number."""

    def __init__(self) -> None:
        self.modules: Numbered[str] = Numbered()
        #: By name and module: two files can have a function with one name.
        self.functions: Numbered[tuple[str, str]] = Numbered()
        self.frames: Numbered[Frame] = Numbered()

    def number(self, frame: Frame) -> int:
        """The number of a frame, whose function and module have one from then on."""
        if frame not in self.frames:
            _ = self.functions[frame.name, frame.module]
            # A cause is a frame without code, so it is in no module.
            _ = self.modules[frame.module] if frame.module else 0
        return self.frames[frame]
