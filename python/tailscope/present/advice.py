"""What to do about a cause: one line, with the name of who is to blame where the ledger has it.

Each line names a setting, a file or a command that a reader can check. A cause without an entry
gets no line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from tailscope.ledger.causes import DOWNSTREAM, IDLE, RUNNING
from tailscope.statistics.blame import Blame

if TYPE_CHECKING:
    from tailscope.statistics.explanation import Cause, Explanation

#: At most this many causes get a line.
MOST = 3
#: A cause gets a line if it saves at least this part of what the target is above its base, or is
#: at least this part of the tail.
MATTERS = 0.1
#: Below this part of the base, the target is not above it (as in `answer`).
FLAT = 0.01
#: From this part of a cause's time on, the line is about the one who is to blame.
MOSTLY = 0.5

Line = Callable[[str], str]


def advice(cause: str, blame: Blame | None) -> str:
    """What to do about a cause; "" where nothing is known."""
    line = ADVICE.get(cause)
    if line is None:
        return ""
    who = blame.culprits[0] if blame and blame.culprits else None
    return line(who.name if who and who.share >= MOSTLY else "")


def advised(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """The causes that matter, the most valuable first, each with what to do about it.

    Causes with the same line share it.
    """
    above = beyond(explanation)
    if above <= 0:
        return
    lines: dict[str, list[str]] = {}
    for cause in explanation.causes:
        text = in_other_server(cause.name, explanation) or in_code(cause.name, explanation)
        text = text or advice(cause.name, cause.blame)
        if matters(cause, above) and text:
            lines.setdefault(text, []).append(cause.name)
    yield from [(", ".join(names), text) for text, names in lines.items()][:MOST]


def in_other_server(cause: str, explanation: Explanation) -> str:
    """Which cause there matters most, where the other server's ledger was opened; else ""."""
    chain = explanation.through
    if cause != DOWNSTREAM or chain is None or not chain.tail.causes:
        return ""
    largest = max(chain.tail.causes, key=lambda name: chain.tail.causes[name])
    return f"there it is mostly {largest}: explain {', '.join(chain.through)}"


def in_code(cause: str, explanation: Explanation) -> str:
    """Which function to look at; "" where none is named, or another line says more."""
    if explanation.code is None:
        return ""
    functions = explanation.code.functions(cause)
    line = IN_CODE.get(cause)
    if functions and line:
        return line.format(functions[0].function)
    return NO_FUNCTION if cause == RUNNING and not functions else ""


def beyond(explanation: Explanation) -> float:
    """How far (ns) the target is above what causes are held against; 0 if next to nothing."""
    base, at_target = explanation.base, explanation.at_target.ns
    usual = base.target.ns if base.target else 0.0
    if base.is_median:
        usual = explanation.p50_ns
    above = at_target - usual
    return above if above > FLAT * usual else 0.0


def matters(cause: Cause, above_ns: float) -> bool:
    """Whether a cause is worth a line, for a target that is so much above its base."""
    saves = cause.saving.ns >= MATTERS * above_ns and cause.saving.lo > 0
    return saves or (cause.share or 0.0) >= MATTERS


def always(text: str) -> Line:
    """The same line whoever is to blame."""
    return lambda _: text


def by_name(lines: Mapping[str, str], other: str) -> Line:
    """A line for each known name, and one for all others; case does not matter."""
    return lambda who: lines.get(who.lower(), other)


def is_named(who: str) -> bool:
    """Whether somebody is named; the recorder's words for what has no name are in parentheses."""
    return bool(who) and not who.startswith("(")


#: Of causes that nobody else is to blame for, the line with the function that has most of them.
IN_CODE = {
    "running": "make {} faster, or have fewer requests call it",
    "fault": "{} touches new memory: reuse it, or touch it earlier",
    "sleep": "look at why {} waits",
}

#: Of running, where stacks name no function.
NO_FUNCTION = "no function stands out: record longer, or look at caches (perf stat)"

#: What the recorder adds to the name of a thread that had the lock of Python's interpreter.
GIL = " (GIL)"

#: Kernel threads that are bound to a CPU, by how their names begin.
BOUND = ("ksoftirqd/", "migration/", "cpuhp/", "rcuc/", "irq_work/", "idle_inject/")


def cpu_taken(who: str) -> str:
    """A thread waits for a CPU: `who` ran instead."""
    if who == IDLE:
        return "the CPU woke up slowly: limit idle states (cpupower idle-set -D 10)"
    if who.startswith(BOUND):
        return f"{who} is bound to its CPU: run the server on others (taskset)"
    if who.startswith("kworker/"):
        return f"{who} is a kernel worker: run the server on other CPUs (taskset)"
    if is_named(who):
        return f"move {who} to other CPUs (taskset), or lower its cpu.weight"
    return "use fewer threads, more CPUs (cpuset.cpus), or a higher cpu.weight"


def lock(who: str) -> str:
    """`who` released the lock, or ended a part of the work that was waited for."""
    if who == "(interrupt)":
        return "a timeout ended its waits: look for timed waits (perf trace -s)"
    if who.endswith(GIL):
        thread = who.removesuffix(GIL)
        return f"one thread of Python runs at a time: move what {thread} does to another process"
    if is_named(who):
        return f"shorten what {who} does while others wait for it, or split the lock"
    return "find what wakes it (perf trace -e futex); shorten or split the lock"


def network(who: str) -> str:
    """The span waits for a peer; `who` woke it."""
    if who == "(interrupt)":
        return "a timeout ended its waits: look for timed polls (perf trace -e poll,epoll_wait)"
    if is_named(who):
        return f"{who} answers it: make that faster, or record it too"
    return "it waits for a peer (ss -tp shows which): record that side too"


def sleep(who: str) -> str:
    """The span sleeps; `who` woke it."""
    if who == "(interrupt)":
        return "a timer ended its waits: look for sleeps and timeouts (perf trace -s)"
    if is_named(who):
        return f"it waits for {who}: make that faster, or record it too"
    return "find the system call that it sleeps in (perf trace -s -p PID)"


def queue(who: str) -> str:
    """A request waits for its thread; `who` occupied that."""
    if is_named(who):
        return f"shorten {who}, or let another worker take it"
    return "more workers, or shorter requests"


#: The CPU's own vectors, which are no devices; "": nothing is known that would help.
VECTORS = {
    "local timer": "fewer timers on that CPU, or no tick there (nohz_full=)",
    "function call": "find munmap, mprotect, madvise, membarrier calls (perf trace -s)",
    "reschedule": "pin threads that wake each other to the same CPU",
    "thermal": "the CPU is too hot: check its cooling and its frequency (turbostat)",
    **dict.fromkeys(("irq work", "platform ipi", "threshold", "deferred error"), ""),
    **dict.fromkeys(("error", "spurious"), ""),
}


def irq(who: str) -> str:
    """`who` is a device, or a vector of the CPU."""
    if not is_named(who) or who.startswith("vector "):
        return "move the line that grows in /proc/interrupts (/proc/irq/N/smp_affinity)"
    return VECTORS.get(who, f"move {who} to another CPU (/proc/irq/N/smp_affinity)")


def stopped(who: str) -> str:
    """`who` stopped the thread."""
    if who == "(cgroup freezer)":
        return "find what writes cgroup.freeze (docker pause, systemctl freeze)"
    if is_named(who):
        return f"{who} stopped it (a signal or ptrace): end that"
    return "find what sends SIGSTOP, or traces it (TracerPid in /proc/PID/status)"


#: One entry for each cause, by its name in the ledger.
ADVICE: dict[str, Line] = {
    "runqueue": cpu_taken,
    "preempted": cpu_taken,
    "throttled": always("raise cpu.max (or cpu.max.burst) of its cgroup, or spread the work"),
    "lock": lock,
    "io": always("find the device (iostat -x 1), or keep the data in memory"),
    "network": network,
    "sleep": sleep,
    "irq": irq,
    "softirq_net": by_name(
        {"net_tx": "move it: XPS (xps_cpus), or the card's IRQ affinity"},
        "move it: RPS (rps_cpus), the card's IRQ affinity, or busy polling",
    ),
    "softirq_timer": always("find the timers: perf record -a -e 'timer:*expire_entry'"),
    "softirq_other": by_name(
        {
            "rcu": "move RCU callbacks to other CPUs (rcu_nocbs=)",
            "block": "move the disk's interrupts (/proc/irq/N/smp_affinity)",
            "irq_poll": "move the disk's interrupts (/proc/irq/N/smp_affinity)",
            "sched": "give the server CPUs of its own (cpuset.cpus.partition)",
        },
        "see which line of /proc/softirqs grows on its CPU",
    ),
    "fault": always("pre-fault (MAP_POPULATE), use huge pages, or raise memory.high"),
    "steal": always("ask the host's operator, or use dedicated CPUs"),
    "queue": queue,
    "stopped": stopped,
    "reclaim": always("raise memory.high or memory.max of its cgroup, or use less memory"),
    "tcp": by_name(
        {
            "nagle": "set TCP_NODELAY, or write each answer with one call (writev)",
            "receive window": "the client reads slowly, or has a small buffer (its tcp_rmem)",
            "congestion window": "look for loss (ss -ti), or set tcp_slow_start_after_idle=0",
        },
        "see what its connections wait for (ss -ti)",
    ),
    "accept": always("more workers or accept threads, a larger backlog, or SO_REUSEPORT"),
    "unknown": always("mark the work as spans: --span sdk, usdt:… or uprobe:…"),
    "downstream": always("record that server too, and see its causes: explain --through"),
    "running": always("find the function: record with --stacks"),
}
