"""The faults, what each must be found as, and those of them that come from outside a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from proof.machine import LAB, OTHER_CPU, SERVER_CPU, ProofError, running

#: A quota's part of what the server uses, at size 1: all of it is used up before each period's end.
QUOTA_RATIO = 0.7
#: Its period at least, and what the kernel grants at least (min_cfs_quota_period).
QUOTA_PERIOD_US, LEAST_QUOTA_US = 20_000, 1_000

WAIT_FOR_CPU = frozenset({"runqueue", "preempted"})
INTERRUPTED = frozenset({"irq", "softirq_timer", "softirq_other"})
PACKETS = frozenset({"softirq_net", "irq"})
BY_LOCK = frozenset({"lock"})


@dataclass(frozen=True)
class Fault:
    """What is planted, and under which causes it must appear."""

    #: As the table calls it.
    title: str
    #: The causes that each planted fault is found as; one set for each fault.
    causes: tuple[frozenset[str], ...]
    #: Why these.
    why: str
    #: What the plant also does to the server, and what goes with it.
    besides: frozenset[str] = frozenset()

    @property
    def all_causes(self) -> frozenset[str]:
        """What a prediction without the fault takes away."""
        return self.besides.union(*self.causes)


#: In the order of the table's rows.
FAULTS = {
    "none": Fault("none", (), "Nothing is planted, so no cause may be named."),
    "hog": Fault(
        "CPU hog",
        (WAIT_FOR_CPU,),
        "A thread that wants the server's CPU makes it wait after a wake-up (`runqueue`) or in the "
        "middle of its work (`preempted`).",
    ),
    "quota": Fault(
        "CPU quota",
        (frozenset({"throttled"}),),
        "A group that has used its quota up is held back until the next period.",
    ),
    "pages": Fault(
        "page-fault storm",
        (frozenset({"fault", "io"}),),
        "The pages that a request touches were taken out of the server's page table from outside, "
        "for which its CPU is interrupted to drop them from its TLB. A request that needs one that "
        "is just being taken waits until the kernel is done with it, as for a disk (`io`).",
        besides=frozenset({"irq"}),
    ),
    "lock": Fault(
        "lock contention",
        (BY_LOCK,),
        "The lock that a request needs is held by a thread that sleeps with it in hand.",
    ),
    "fsync": Fault(
        "fsync on a busy disk",
        (frozenset({"io"}),),
        "A request waits until its write is on a disk that another program keeps busy.",
    ),
    "packets": Fault(
        "packet storm",
        (PACKETS,),
        "The CPU receives bursts of packets for somebody else: softirqs (`softirq_net`), raised by "
        "interrupts (`irq`).",
    ),
    "timers": Fault(
        "timer storm",
        (INTERRUPTED,),
        "Timers interrupt the CPU (`irq`); what they leave to softirqs is theirs too.",
    ),
    "shootdowns": Fault(
        "TLB shootdowns",
        (INTERRUPTED,),
        "Another CPU makes this one drop pages from its TLB by interrupting it.",
    ),
    "gc": Fault(
        "garbage collection",
        (BY_LOCK | WAIT_FOR_CPU,),
        "The JVM's collector stops all threads: those at work block on a futex (`lock`); those "
        "that a request wakes up wait for the CPU that the collector has.",
    ),
    "thp": Fault(
        "zeroing of huge pages",
        (frozenset({"fault"}),),
        "A page fault on fresh memory waits until the kernel has zeroed 2 MiB.",
    ),
    "two": Fault(
        "hog and packets at once",
        (WAIT_FOR_CPU, PACKETS),
        "Both must be found: as the first two once causes of one fault count as one.",
    ),
}

#: Where a request touches memory that the process did not have before.
FRESH = Fault(
    "page-fault storm",
    (frozenset({"fault"}),),
    "The pages that a request touches are not in the server's page table.",
)
#: Where a fault is planted otherwise, or found as something else, in one server.
ON_SERVER = {
    "jvm:pages": FRESH,
    "loopbench:pages": FRESH,
    "postgres:lock": Fault(
        "lock contention",
        (frozenset({"lock", "network"}),),
        "PostgreSQL's backends wait for each other's row and table locks asleep in epoll, which is "
        "`network`; for those inside the server in a futex, which is `lock`.",
    ),
}


def planted_in(server: str, fault: str) -> Fault:
    """What a cell must be found as."""
    return ON_SERVER.get(f"{server}:{fault}", FAULTS[fault])


#: How large a fault is planted: the first of these that is large enough (`cell.Probe`).
SIZES = (1, 2, 4, 8, 16)
#: What has one size only.
ONE_SIZE = ("none", "shootdowns")
#: What is about a process and must be told which.
OF_A_PROCESS = ("quota", "shootdowns", "pages")


def command(fault: str, size: int) -> tuple[object, ...]:
    """The lab's program that plants a fault from outside, for all servers alike.

    Sizes follow from one rule: what strikes comes in bursts, so that most requests meet none, and a
    tenth of the time or about one request in twenty does, so that p99 is of those that do. What
    strikes in pieces shorter than a request (interrupts of all kinds) storms for 2 ms in each 20,
    so that a request in the storm meets it throughout; in one long piece it would strike most of
    them before they begin.
    """
    commands = {
        "hog": ("hog", "--duty", "60%", "--period", "20ms", "--threads", size),
        #: For two at once: about as long as a packet storm makes a request longer, not twenty
        #: times; like the storm for a tenth of the time.
        "short hog": ("hog", "--duty", "10%", "--period", f"{5 * size}ms"),
        "quota": ("quota",),
        "packets": (
            *("packets", "--sender-cpu", OTHER_CPU, "--rate", 4_000_000, "--burst", 64),
            *("--storm", f"{2 * size}ms", "--every", f"{20 * size}ms"),
        ),
        "timers": (
            *("timers", "--period", "10us", "--burst", 5 * size),
            *("--storm", "2ms", "--every", "20ms"),
        ),
        "shootdowns": ("shootdowns", "--burst", "2ms", "--period", "20ms"),
        #: Once in each period; or again and again, for up to 2 ms.
        "pages": ("evict", "--burst", f"{125 * size if size > 1 else 0}us", "--period", "20ms"),
    }
    on = () if fault == "quota" else ("--cpu", OTHER_CPU if fault in OF_A_PROCESS else SERVER_CPU)
    return *commands[fault], *on


def quota(used: float, size: int) -> tuple[object, ...]:
    """The options of a quota for a server that uses a part of a CPU (0 to 1)."""
    granted = QUOTA_RATIO / size * max(used, 0.002)
    period_us = max(QUOTA_PERIOD_US, round(LEAST_QUOTA_US / granted))
    quota_us = max(LEAST_QUOTA_US, round(granted * period_us))
    return ("--period-us", min(period_us, 1_000_000), "--quota-us", quota_us)


@contextmanager
def from_outside(fault: str, size: int, victims: list[int], *options: object) -> Iterator[None]:
    """Plants a fault from outside the server for as long as the block runs."""
    planted = []
    with ExitStack() as stack:
        for one in ("short hog", "packets") if fault == "two" else (fault,):
            for pid in victims if one in OF_A_PROCESS else (None,):
                where = SERVER_CPU if "hog" in one else OTHER_CPU
                about = () if pid is None else ("--pid", pid)
                words = [LAB, *command(one, size), *about, *options]
                planted.append(stack.enter_context(running(words, on=(where,))))
        yield
        for process in planted:
            if process.poll() is not None:
                words = " ".join(process.args)
                raise ProofError(f"the fault ended early with code {process.returncode}: {words}")


@contextmanager
def busy_disk(folder: Path, writers: int) -> Iterator[None]:
    """Keeps the disk of a folder busy."""
    with running([LAB, "fsync", "--dir", folder, "--cpu", OTHER_CPU, "--threads", writers]):
        yield
