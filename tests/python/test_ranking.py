"""In which order causes are told: the most valuable first."""

from __future__ import annotations

import numpy as np
import tailscope
from conftest import Make


def test_a_cause_that_explains_the_tail_alone_comes_first(make: Make) -> None:
    slow = np.arange(10_000) % 40 == 0
    ledger = make(
        wall_ns=np.where(slow, 3_000_000, 100_000),
        lock_ns=np.where(slow, 2_900_000, 0),
        lock_n=np.where(slow, 1, 0),
    )
    assert tailscope.open(ledger).explain("p99").causes[0].name == "lock"


def test_where_each_alone_saves_nothing_what_the_tail_is_of_comes_first(make: Make) -> None:
    """One fault that is a wait on the run queue in some spans and a preemption in others.

    What is in all spans, and of no weight, saves more than either.
    """
    place = np.arange(10_000) % 40
    waits, preempted = place == 0, (place == 13) | (place == 26)
    slow = waits | preempted
    noise = np.where(slow, 60_000, 1_000) + np.arange(10_000)
    ledger = make(
        wall_ns=100_000 + noise + np.where(slow, 6_000_000, 0),
        runqueue_ns=np.where(waits, 6_000_000, 0),
        preempted_ns=np.where(preempted, 6_000_000, 0),
        softirq_net_ns=noise,
    )
    found = tailscope.open(ledger).explain("p99")
    saved = {cause.name: cause.saving.ns for cause in found.causes}
    assert saved["softirq_net"] > max(saved["preempted"], saved["runqueue"])
    assert [cause.name for cause in found.causes[:2]] == ["preempted", "runqueue"]
    both = {frozenset(step.causes): step.saving.ns for step in found.together}
    assert both[frozenset(("preempted", "runqueue"))] > 5_900_000
