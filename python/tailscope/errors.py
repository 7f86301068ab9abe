"""What can be wrong, each as one sentence for the person who asked."""

from __future__ import annotations


class TailscopeError(Exception):
    """Something that ends the command with one sentence; `code` is the exit code (DESIGN §3)."""

    code = 2


class LedgerError(TailscopeError):
    """There is no ledger to read, or this one can't be explained as asked."""


class MachineError(TailscopeError):
    """The question is right, but this machine can't answer it."""

    code = 3
