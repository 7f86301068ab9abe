"""Does `tailscope explain` name what keeps a server's requests waiting, run after run?

Plants each fault of `lab/thirdparty/faults.py` in its server, several times, and holds the first
cause of the ranking (and who is to blame, where the fault says who that is) against it.

    .venv/bin/python bench/planted_waits.py                        all faults, five runs each
    .venv/bin/python bench/planted_waits.py --only stopped,frozen --runs 1     nothing is written
    .venv/bin/python bench/planted_waits.py --requests             those for `--span request`

With --requests, phases with and without the fault take turns. So the runs also show whether p99
without the fault comes out as `explain` predicts it from the phases with it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import ROOT, Bar, Result, table

sys.path.insert(0, str(ROOT / "lab"))

from proof.machine import TAILSCOPE, ProofError
from thirdparty.built import Lacking
from thirdparty.faults import FAULTS, Fault
from thirdparty.finding import Finding, find
from thirdparty.followed import FOLLOWED
from thirdparty.predicting import find_and_predict
from thirdparty.verdict import text

#: The share of runs in which the fault must be found, and in which its prediction must hold.
FOUND, HELD = 0.95, 0.85


@dataclass(frozen=True)
class Run:
    """A run of one fault."""

    finding: Finding
    #: `proof.judge.prediction`; empty where nothing was predicted.
    prediction: Mapping[str, Any]

    @classmethod
    def of(cls, fault: Fault, args: argparse.Namespace) -> Run:
        """Measures one."""
        if not args.requests:
            return cls(find(fault, args.seconds, args.tailscope), {})
        both = find_and_predict(fault, args.seconds, args.tailscope)
        return cls(both.finding, both.prediction)

    @property
    def said(self) -> str:
        """What came out, in a line."""
        found = f"{'found' if self.finding.found else 'MISSED'}: {shown(self.finding)}"
        if not self.prediction:
            return found
        word = "held" if self.prediction["held"] else "NOT HELD"
        return f"{found}; prediction {word}: {self.predicted}"

    @property
    def predicted(self) -> str:
        """What was predicted, and what came true."""
        if not self.prediction:
            return "–"
        came_true = text(self.prediction["calm_p99_ns"]["ns"])
        return f"{interval(self.prediction['predicted_ns'])}; came true {came_true}"


def interval(found: Mapping[str, float]) -> str:
    """An estimate with its interval."""
    return f"{text(found['ns'])} ({text(found['lo'])} to {text(found['hi'])})"


def shown(finding: Finding) -> str:
    """The ranking in a line."""
    causes = ", ".join(f"{name} {text(ns)}" for name, ns in finding.ranking)
    blamed = f" behind {finding.blamed[0]}" if finding.blamed else ""
    return f"{causes}{blamed}" + (f" ({finding.why})" if finding.why else "")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME,…", help="some faults; nothing is written")
    parser.add_argument("--requests", action="store_true", help="faults for --span request")
    parser.add_argument("--runs", type=int, help="of each fault; default: 5, with --requests 2")
    parser.add_argument(
        "--seconds", type=float, help="of load, for each run; default: 5, with --requests 30"
    )
    parser.add_argument(
        "--tailscope", type=Path, default=TAILSCOPE, help="the program; default: the installed one"
    )
    args = parser.parse_args()
    args.runs = args.runs or (2 if args.requests else 5)
    args.seconds = args.seconds or (30.0 if args.requests else 5.0)
    return args


def measured(
    faults: Mapping[str, Fault], args: argparse.Namespace
) -> tuple[dict[str, list[Run]], list[str]]:
    """The runs of each fault, and what could not be measured. Prints each run as it is known."""
    runs: dict[str, list[Run]] = {}
    absent = []
    for name, fault in faults.items():
        for _ in range(args.runs):
            try:
                run = Run.of(fault, args)
            except (Lacking, ProofError) as error:
                absent.append(f"{name}: {error}")
                print(absent[-1], flush=True)
                break
            runs.setdefault(name, []).append(run)
            print(f"{name}: {run.said}", flush=True)
    return runs, absent


def bars(faults: Mapping[str, Fault], runs: Mapping[str, list[Run]]) -> list[Bar]:
    """A bar for each fault, and one for all predictions."""
    found = []
    for name, some in runs.items():
        count = sum(run.finding.found for run in some)
        what = f"{name}: {wanted(faults[name])} first"
        held = count >= FOUND * len(some)
        found.append(Bar(what, f"{FOUND:.0%}", f"{count} of {len(some)}", held))
    if predicted := [run.prediction for run in every(runs) if run.prediction]:
        held = sum(one["held"] for one in predicted)
        what = "p99 without the fault is in the predicted interval"
        figure = f"{held} of {len(predicted)} ({held / len(predicted):.0%})"
        found.append(Bar(what, f"{HELD:.0%}", figure, held >= HELD * len(predicted)))
    return found


def wanted(fault: Fault) -> str:
    """Which cause must come first, and where that is not at p99."""
    causes = " or ".join(sorted(fault.causes))
    return causes if fault.percentile == "p99" else f"{causes} at {fault.percentile}"


def every(runs: Mapping[str, list[Run]]) -> list[Run]:
    """All runs of all faults."""
    return [run for some in runs.values() for run in some]


def summary(runs: Mapping[str, list[Run]]) -> str:
    """The line of bench/README.md."""
    of = every(runs)
    found = sum(run.finding.found for run in of)
    line = f"the planted wait is the first cause in {found} of {len(of)} runs"
    if any(run.prediction for run in of):
        held = sum(bool(run.prediction.get("held")) for run in of)
        line += f", p99 without it as predicted in {held}"
    return line


def main() -> None:
    """Measures, prints each run as it is known, and writes the result."""
    args = arguments()
    faults = FOLLOWED if args.requests else FAULTS
    chosen = args.only.split(",") if args.only else list(faults)
    if unknown := set(chosen) - set(faults):
        sys.exit(f"there is no fault {', '.join(sorted(unknown))}: they are {', '.join(faults)}")
    name, of = ("planted_waits", "server's ")
    if args.requests:
        name, of = ("planted_requests", "followed server's ")
    result = Result(name, f"What keeps a {of}requests waiting, planted and found")
    runs, absent = measured({name: faults[name] for name in chosen}, args)
    result.bars += bars(faults, runs)
    rows = [
        (name, wanted(faults[name]), shown(run.finding), run.predicted)
        for name, some in runs.items()
        for run in some
    ]
    result.say("Runs", table(("fault", "cause", "ranking", "p99 without it: predicted"), rows))
    result.say("Not measured", "\n".join(f"- {one}" for one in absent) or "None.")
    result.summary = summary(runs)
    figures = {name: [asdict(run.finding) for run in some] for name, some in runs.items()}
    predictions = {name: [run.prediction for run in some] for name, some in runs.items()}
    result.figures = {"runs": figures, "predictions": predictions, "absent": absent}
    if not args.only:
        result.write()


if __name__ == "__main__":
    main()
