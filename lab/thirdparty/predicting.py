"""Does p99 without a planted fault come out as `tailscope explain` predicts it?

One recording runs through phases with and without the fault, in turns, and is cut in two. From the
phases with it come the first cause, who is to blame, and the prediction; the others show what came
true.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proof.cell import PARTS, SETTLING_S, Window, cut
from proof.judge import explain, prediction
from proof.machine import TAILSCOPE, folder

from thirdparty.case import Case
from thirdparty.faults import Fault
from thirdparty.finding import Finding, judge
from thirdparty.recording import recording

#: Of phases, one with the fault and one without it.
PAIRS = 6
#: How long the load begins before the first phase, in s.
LEAD_S = 1.0


@dataclass(frozen=True)
class Predicted:
    """What `explain` said of the phases with a fault, and what those without it were like."""

    finding: Finding
    #: `proof.judge.prediction`: `predicted_ns`, `held`, and p99 with the fault and without it.
    prediction: dict[str, Any]


def find_and_predict(
    fault: Fault, seconds: float, tailscope: Path = TAILSCOPE, where: Path | None = None
) -> Predicted:
    """Records a server for about so many seconds, half of them with the fault.

    The server runs before all ordinary threads, as in `find`.
    """
    with fault.case(first=True) as case, folder() as temporary:
        case.load(fault.mode, case.warm_up_s)
        at = where or temporary
        windows = record(fault, case, seconds, tailscope, at / "whole")
        for part in PARTS:
            cut(at / "whole", at / part, [one for one in windows if part == kind_of(one)])
        planted, calm = (at / part for part in PARTS)
        name = fault.blamed(case) if fault.blamed else ""
        finding = judge(fault, name, planted, calm, tailscope)
        without = removed(fault, finding)
        said = prediction(explain(planted, without, tailscope), explain(calm, [], tailscope))
        return Predicted(finding, said)


def removed(fault: Fault, finding: Finding) -> list[str]:
    """What the fault's removal takes away, as `--without` takes it."""
    if fault.only_blamed and finding.found:
        return [f"{finding.ranking[0][0]}:{finding.blamed[0]}"]
    return sorted(fault.causes)


def kind_of(window: Window) -> str:
    """Which of `PARTS` a phase belongs to."""
    return PARTS[0] if window.planted else PARTS[1]


def record(fault: Fault, case: Case, seconds: float, tailscope: Path, ledger: Path) -> list[Window]:
    """One recording of a running case, through all phases."""
    phase_s = max(seconds / (2 * PAIRS), 2 * SETTLING_S)
    length = LEAD_S + 2 * PAIRS * phase_s + 1
    with (
        ThreadPoolExecutor(1) as pool,
        recording(tailscope, case.pids, ledger, *fault.options),
    ):
        load = pool.submit(case.load, fault.mode, length)
        time.sleep(LEAD_S)
        windows = list(phases(fault, case, phase_s))
        load.result()
    return windows


def phases(fault: Fault, case: Case, phase_s: float) -> Iterator[Window]:
    """All phases; a drift that is steady strikes both kinds alike."""
    for pair in range(PAIRS):
        for planted in (True, False) if pair % 2 == 0 else (False, True):
            with fault.plant(case) if planted else nullcontext():
                time.sleep(SETTLING_S)
                begin_ns = time.time_ns()
                time.sleep(phase_s - SETTLING_S)
                yield Window(planted, begin_ns, time.time_ns())
