"""The functions behind a cause, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from tailscope.present.terminal import DIM, Terminal
from tailscope.quantity import Interval, count, duration, percent, span_of_time
from tailscope.statistics.code import Function, FunctionDifference
from tailscope.statistics.explanation import Explanation

#: From this part of the samples on, it is worth a hint that JIT code has no names.
HINTED = 0.05
#: More samples are worth a hint where each stands for a longer time, in ns.
SPARSE_NS = 2_000_000
#: A function's time with its calls is shown from this multiple of its own time on.
MUCH_MORE = 1.1


def functions(explanation: Explanation, cause: str, terminal: Terminal) -> Iterator[str]:
    """The functions of a cause that take longer in slow spans, a line each."""
    if explanation.code is None:
        return
    for one in explanation.code.functions(cause):
        yield from terminal.wrapped(f"  {line(one)}", DIM, indent="      ")


def line(one: FunctionDifference) -> str:
    """`2.91 ms (2.80–3.02 ms) more in parse ← handle, 3.40 ms with its calls; usually 41.2 µs`."""
    text = f"{duration(one.difference.ns)} ({span_of_time(one.difference)}) more in {path(one)}"
    if calls_matter(one.with_calls, one.difference):
        text += f", {duration(one.with_calls.ns)} with its calls"
    if one.usual_ns >= 1:
        text += f"; {duration(one.usual_ns)} in a usual span"
    return text


def path(one: Function) -> str:
    """`planted_lock ← handle, in pthread_mutex_lock`."""
    through = f", in {one.through}" if one.through else ""
    return " ← ".join((one.function, *one.callers)) + through


def calls_matter(whole: Interval | None, own: Interval) -> TypeGuard[Interval]:
    """Whether a function's calls take so much that its own time says too little."""
    return whole is not None and abs(whole.ns) > MUCH_MORE * abs(own.ns)


def sampling(explanation: Explanation) -> str:
    """How many stacks there are, and how far they go."""
    if explanation.code is None:
        return ""
    taken = explanation.code.sampling
    text = (
        f"stacks: {count(taken.samples)} samples, each for {duration(taken.period_ns)} on a CPU or "
        f"for a wait; {percent(taken.cut_share)} end early, so their callers are not shown"
    )
    if taken.lost:
        text += f"; {count(taken.lost)} lost"
    if not any(one.functions for one in explanation.code.causes):
        text += "; no function takes longer in slow spans beyond doubt"
        if taken.period_ns > SPARSE_NS:
            text += ": record longer, or with more samples (--stacks=997)"
    if taken.unnamed_jit_share >= HINTED:
        text += (
            f"; {percent(taken.unnamed_jit_share)} have JIT code without a name: run Node with "
            "--perf-basic-prof, .NET with DOTNET_PerfMapEnabled=1; for Java, run jcmd PID "
            "Compiler.perfmap before the recording ends"
        )
    if taken.unnamed_share >= HINTED:
        text += (
            f"; {percent(taken.unnamed_share)} are in code without a name: tailscope symbols "
            "LEDGER --debug FOLDER finds names in debug files"
        )
    return "; ".join((text, *taken.warnings))
