"""The functions behind a cause, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from tailscope.present.terminal import DIM, Terminal
from tailscope.quantity import count, duration, percent, span_of_time
from tailscope.statistics.code import FunctionDifference
from tailscope.statistics.explanation import Explanation

#: From this part of the samples on, it is worth a hint that JIT code has no names.
HINTED = 0.05


def functions(explanation: Explanation, cause: str, terminal: Terminal) -> Iterator[str]:
    """The functions of a cause that take longer in slow spans, a line each."""
    if explanation.code is None:
        return
    for one in explanation.code.functions(cause):
        yield from terminal.wrapped(f"  {line(one)}", DIM, indent="      ")


def line(one: FunctionDifference) -> str:
    """`3.01 ms (2.9–3.1 ms)  planted_lock ← handle, in pthread_mutex_lock; usually 0 ns`."""
    path = " ← ".join((one.function, *one.callers))
    through = f", in {one.through}" if one.through else ""
    usual = f"; {duration(one.usual_ns)} in a usual span" if one.usual_ns >= 1 else ""
    return (
        f"{duration(one.difference.ns)} ({span_of_time(one.difference)}) more in "
        f"{path}{through}{usual}"
    )


def sampling(explanation: Explanation) -> str:
    """How many stacks there are, and how far they go."""
    if explanation.code is None:
        return ""
    taken = explanation.code.sampling
    text = (
        f"stacks: {count(taken.samples)} samples, each for {duration(taken.period_ns)} or a longer "
        f"wait; {percent(taken.cut_share)} end early, so their callers are not shown"
    )
    if taken.lost:
        text += f"; {count(taken.lost)} lost"
    if not any(one.functions for one in explanation.code.causes):
        text += "; no function takes longer in slow spans beyond doubt"
    if taken.unnamed_jit_share >= HINTED:
        text += (
            f"; {percent(taken.unnamed_jit_share)} have JIT code without a name: run Node with "
            "--perf-basic-prof; for Java, run jcmd PID Compiler.perfmap before the recording ends"
        )
    return "; ".join((text, *taken.warnings))
