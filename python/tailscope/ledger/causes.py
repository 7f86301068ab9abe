"""The causes of docs/reference/schema.md in their persisted order, each with its meaning."""

from __future__ import annotations

#: What is left of a span's wall time when all causes are taken away; computed, never stored.
RUNNING = "running"
#: How long a request's data lay ready while its thread did other work.
QUEUE = "queue"
#: The time that other servers took.
DOWNSTREAM = "downstream"
#: Waiting for a CPU, and whom the recorder blames where the CPU was idle and had to wake up.
RUNQUEUE, IDLE = "runqueue", "(idle)"

#: Order and names are those of docs/reference/schema.md ("Causes"). The words finish the sentence
#: "3.6 ms of it is runqueue: …".
MEANING = {
    "runqueue": "waiting for a CPU that other threads had",
    "preempted": "preempted with work left, waiting for the CPU again",
    "throttled": "held back by a CPU quota",
    "lock": "waiting for a lock",
    "io": "waiting for a block device or the page cache",
    "network": "blocked in a socket, epoll or poll call",
    "sleep": "asleep, or blocked on something else",
    "irq": "interrupts on its CPU",
    "softirq_net": "network packets handled on its CPU",
    "softirq_timer": "kernel timers handled on its CPU",
    "softirq_other": "other kernel work (softirqs) on its CPU",
    "fault": "page faults",
    "steal": "the hypervisor running something else",
    QUEUE: "ready at its socket while its thread did other work",
    "stopped": "its thread was stopped by a signal, a tracer or the cgroup freezer",
    "reclaim": "reclaiming memory, because its cgroup or the machine ran short",
    "tcp": "TCP held the answer back",
    "accept": "its connection waited to be accepted",
    "unknown": "what it did or waited for is not known",
    "downstream": "waiting for another server",
    RUNNING: "the span's own instructions",
}

CAUSES = tuple(name for name in MEANING if name != RUNNING)

#: Those for which a ledger names who is to blame, in the column `<cause>_by`. Older ledgers lack
#: some of these columns.
BLAMED = (
    *("runqueue", "preempted", "lock"),
    *("irq", "softirq_net", "softirq_timer", "softirq_other"),
    *("network", "sleep", QUEUE, "stopped", "tcp", "downstream"),
)
