"""Does `tailscope explain` name what keeps a server's requests waiting, run after run?

Plants each fault of `lab/thirdparty/faults.py` in its server, several times, and holds the first
cause of the ranking (and who is to blame, where the fault says who that is) against it.

    .venv/bin/python bench/planted_waits.py                        all faults, five runs each
    .venv/bin/python bench/planted_waits.py --only stopped,frozen --runs 1     nothing is written
    .venv/bin/python bench/planted_waits.py --requests             those for `--span request`
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from harness import ROOT, Bar, Result, table

sys.path.insert(0, str(ROOT / "lab"))

from proof.machine import TAILSCOPE, ProofError
from thirdparty.built import Lacking
from thirdparty.faults import FAULTS
from thirdparty.finding import Finding, find
from thirdparty.followed import FOLLOWED
from thirdparty.verdict import text

#: The share of runs in which the fault must be found.
FOUND = 0.95


def shown(finding: Finding) -> str:
    """The ranking in a line."""
    causes = ", ".join(f"{name} {text(ns)}" for name, ns in finding.ranking)
    blamed = f" behind {finding.blamed[0]}" if finding.blamed else ""
    return f"{causes}{blamed}" + (f" ({finding.why})" if finding.why else "")


def main() -> None:
    """Measures, prints each run as it is known, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME,…", help="some faults; nothing is written")
    parser.add_argument("--requests", action="store_true", help="faults for --span request")
    parser.add_argument("--runs", type=int, default=5, help="of each fault")
    parser.add_argument("--seconds", type=float, default=5.0, help="of load, for each run")
    parser.add_argument(
        "--tailscope", type=Path, default=TAILSCOPE, help="the program; default: the installed one"
    )
    args = parser.parse_args()
    faults = FOLLOWED if args.requests else FAULTS
    chosen = args.only.split(",") if args.only else list(faults)
    if unknown := set(chosen) - set(faults):
        sys.exit(f"there is no fault {', '.join(sorted(unknown))}: they are {', '.join(faults)}")
    name, of = (
        ("planted_requests", "followed server's ")
        if args.requests
        else ("planted_waits", "server's ")
    )
    result = Result(name, f"What keeps a {of}requests waiting, planted and found")
    findings: dict[str, list[Finding]] = {}
    absent = []
    for name in chosen:
        for _ in range(args.runs):
            try:
                finding = find(faults[name], args.seconds, args.tailscope)
            except (Lacking, ProofError) as error:
                absent.append(f"{name}: {error}")
                print(absent[-1], flush=True)
                break
            findings.setdefault(name, []).append(finding)
            print(f"{name}: {'found' if finding.found else 'MISSED'}: {shown(finding)}", flush=True)
    rows = []
    for name, runs in findings.items():
        found = sum(run.found for run in runs)
        held = found >= FOUND * len(runs)
        wanted = " or ".join(sorted(faults[name].causes))
        bar = Bar(f"{name}: {wanted} first", f"{FOUND:.0%}", f"{found} of {len(runs)}", held)
        result.bars.append(bar)
        rows += [(name, wanted, faults[name].percentile, shown(run)) for run in runs]
    result.say("Runs", table(("fault", "cause", "at", "ranking"), rows))
    result.say("Not measured", "\n".join(f"- {one}" for one in absent) or "None.")
    runs = {name: [asdict(run) for run in found] for name, found in findings.items()}
    found = sum(run.found for some in findings.values() for run in some)
    of = sum(map(len, findings.values()))
    result.summary = f"the planted wait is the first cause in {found} of {of} runs"
    result.figures = {"runs": runs, "absent": absent}
    if not args.only:
        result.write()


if __name__ == "__main__":
    main()
