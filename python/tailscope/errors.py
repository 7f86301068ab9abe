"""What can be wrong, each as one sentence for the person who asked."""

from __future__ import annotations

from collections.abc import Sequence


class TailscopeError(Exception):
    """Something that ends the command with one sentence; `code` is the exit code (DESIGN §3)."""

    code = 2

    @property
    def lines(self) -> tuple[str, ...]:
        """What to say: one line, but for a list."""
        return (str(self),)


class LedgerError(TailscopeError):
    """There is no ledger to read, or this one can't be explained as asked."""


class ListError(LedgerError):
    """The same with a list: `lines` begins with the sentence."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.listed = tuple(lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """The sentence and the list."""
        return self.listed


class MachineError(TailscopeError):
    """The question is right, but this machine can't answer it."""

    code = 3
