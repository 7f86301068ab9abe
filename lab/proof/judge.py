"""The verdict on a cell, by `tailscope explain` alone.

- **Top**: the planted fault's causes come first in explain's ranking, which is by saving. Of two
  faults at once each hides what the other is worth: a request is as slow without the one if the
  other strikes it too, and as many others are. What each is worth then is its fair share, so both
  come first by that, causes of one fault counting once. Where nothing is planted, no cause saves
  more than a tenth of p99.
- **Held**: the p99 of the phases without the fault lies in the 95 % interval that explain predicts,
  from the phases with it, for p99 without the planted fault's causes, measured for as long. The
  interval of the prediction itself is for the true p99; whether it holds the measured one, which
  has its own luck, is counted beside it.

`running` is what a span does itself: as the top of a planted cell it counts as a miss, but where
nothing is planted it is not named as a cause.
"""

from __future__ import annotations

import json
import subprocess
from operator import itemgetter
from pathlib import Path
from typing import Any

from proof.cell import PARTS
from proof.faults import Fault
from proof.machine import TAILSCOPE, ProofError

#: Of p99: what a cause may save at most where nothing is planted.
NAMED = 0.10


def judge(fault: Fault, folder: Path) -> dict[str, Any]:
    """The figures of a cell (ns) and its verdicts."""
    planted, calm = (folder / part for part in PARTS)
    return verdict(fault, explain(planted, sorted(fault.all_causes)), explain(calm, []))


def verdict(fault: Fault, planted: dict[str, Any], calm: dict[str, Any]) -> dict[str, Any]:
    """The figures of a cell and its verdicts, from explain's JSON with and without the fault."""
    ranking = [{"cause": c["name"], "worth_ns": worth(fault, c)} for c in planted["causes"]]
    ranking.sort(key=itemgetter("worth_ns"), reverse=True)
    p99, came_true = planted["target_ns"], calm["target_ns"]
    found = {
        "p50_ns": planted["p50_ns"],
        "p99_ns": p99,
        "calm_p50_ns": calm["p50_ns"],
        "calm_p99_ns": came_true,
        "spans": planted["span"]["spans"],
        "calm_spans": calm["span"]["spans"],
        "ranking": ranking[:6],
        "top": is_top(fault, ranking, p99["ns"]),
    }
    return found | (prediction(planted, calm) if planted["without"] else {})


def prediction(planted: dict[str, Any], calm: dict[str, Any]) -> dict[str, Any]:
    """What was predicted for p99 without the fault, and whether it came true."""
    without, came_true = planted["without"], calm["target_ns"]
    lo, hi = without["again_lo_ns"], without["again_hi_ns"]
    true_lo, true_hi = without["predicted_lo_ns"], without["predicted_hi_ns"]
    # Where the usual variation may stay, an interval up to p99 as it is would say nothing.
    says_something = not without["usual_ns"] or hi < planted["target_ns"]["ns"]
    return {
        "p99_ns": planted["target_ns"],
        "calm_p99_ns": came_true,
        "predicted_ns": {"ns": without["predicted_ns"], "lo": lo, "hi": hi},
        "usual_ns": without["usual_ns"],
        "held": says_something and lo <= came_true["ns"] <= hi,
        "held_by_estimate": true_lo <= came_true["ns"] <= true_hi,
    }


def worth(fault: Fault, cause: dict[str, Any]) -> float:
    """By what the causes of a cell are ranked (ns)."""
    return (cause["fair_ns"] or 0.0) if len(fault.causes) > 1 else cause["saving_ns"]


def is_top(fault: Fault, ranking: list[dict[str, Any]], p99_ns: float) -> bool:
    """Whether what was planted is worth most."""
    if not fault.causes:
        named = [line for line in ranking if line["cause"] != "running"]
        return all(line["worth_ns"] <= NAMED * p99_ns for line in named)
    wanted = set(fault.causes)
    met: set[frozenset[str]] = set()
    for line in ranking:
        mine = {causes for causes in wanted if line["cause"] in causes}
        if not mine or line["worth_ns"] <= 0:
            return False
        met |= mine
        if met == wanted:
            return True
    return False


def explain(ledger: Path, without: list[str], tailscope: Path = TAILSCOPE) -> dict[str, Any]:
    """What `tailscope explain --json` says of a ledger."""
    command = [str(tailscope), "explain", str(ledger), "--json", "--quiet"]
    if without:
        command += ["--without", ",".join(without)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ProofError(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)
