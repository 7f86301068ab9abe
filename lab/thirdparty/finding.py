"""Is a planted fault the first cause that `tailscope explain` names, with whoever is to blame?"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proof.machine import TAILSCOPE, folder, stolen_cpu_s

from thirdparty.case import Case
from thirdparty.faults import Fault
from thirdparty.recording import recording

#: What spoils a comparison of two recordings: CPU time that the host kept, as a share of one CPU.
#: Then both are made again, once.
STOLEN, REPEATS = 0.02, 1


@dataclass(frozen=True)
class Finding:
    """What `explain` said of one run."""

    found: bool
    #: The first causes of the ranking, with what each saves in ns.
    ranking: tuple[tuple[str, float], ...]
    #: Who is to blame for the first.
    blamed: tuple[str, ...] = ()
    why: str = ""


def find(
    fault: Fault,
    seconds: float,
    tailscope: Path = TAILSCOPE,
    where: Path | None = None,
) -> Finding:
    """Records a server with the fault planted, and asks `explain`.

    The server runs before all ordinary threads, so that nobody else who uses this machine is a
    larger fault than the planted one.
    """
    with fault.case(first=True) as case, folder() as temporary:
        case.load(fault.mode, case.warm_up_s)
        ledger, usual = (where or temporary) / "planted", (where or temporary) / "usual"
        for _ in range(1 + REPEATS):
            before, began = stolen_cpu_s(), time.monotonic()
            record(fault, case, seconds, tailscope, ledger, usual)
            stolen = (stolen_cpu_s() - before) / (time.monotonic() - began)
            if not fault.strikes_all or stolen <= STOLEN:
                break
        name = fault.blamed(case) if fault.blamed else ""
        return judge(fault, name, ledger, usual, tailscope)


def record(
    fault: Fault, case: Case, seconds: float, tailscope: Path, ledger: Path, usual: Path
) -> None:
    """Records a running case with the fault, and first without it if it strikes all requests."""
    for old in (ledger, usual):
        shutil.rmtree(old, ignore_errors=True)
    if fault.strikes_all:
        with recording(tailscope, case.pids, usual, *fault.options):
            case.load(fault.mode, seconds)
    with fault.plant(case), recording(tailscope, case.pids, ledger, *fault.options):
        case.load(fault.mode, seconds)


def judge(fault: Fault, name: str, ledger: Path, usual: Path, tailscope: Path) -> Finding:
    """What `explain` says of a ledger; `usual` is one of the same server without the fault."""
    command = [tailscope, "explain", ledger, "--json", "--quiet", "-p", fault.percentile]
    if fault.strikes_all:
        command += ["--baseline", usual]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        return Finding(False, (), why=done.stderr.strip()[-300:])
    causes = json.loads(done.stdout)["causes"]
    ranking = tuple((cause["name"], cause["saving_ns"]) for cause in causes[:4])
    if not causes or causes[0]["name"] not in fault.causes or causes[0]["saving_ns"] <= 0:
        return Finding(False, ranking, why=f"{' or '.join(sorted(fault.causes))} is not the first")
    blamed = culprits(causes[0])
    if name and not (blamed and name in blamed[0]):
        return Finding(False, ranking, blamed, f"{name} is not to blame")
    return Finding(True, ranking, blamed)


def culprits(cause: dict[str, Any]) -> tuple[str, ...]:
    """Who is to blame for a cause, the one with most of its time first."""
    listed: Sequence[dict[str, Any]] = (cause["blame"] or {"culprits": []})["culprits"]
    return tuple(one["name"] for one in sorted(listed, key=lambda one: -one["share"]))
