"""Runs the measurements of what recording costs, one by one, and sums up which bars are held.

Each script writes bench/results/NAME.md and NAME.json; the bars of all of them become a table,
bench/results/README.md. Takes about an hour and wants the machine for itself; --quick takes five
minutes and leaves the results in the repository alone. What is not among them has a reason: it
takes far longer (soak, proof), or measures something else (explain, diff, the agent at rest).

    bench/run
    bench/run --only server_cost
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from harness import RESULTS, ROOT, Bar, bars_table

MEASUREMENTS = [
    "sdk_cost",
    "java_cost",
    "hook_cost",
    "probe_cost",
    "postgres_cost",
    "server_cost",
    "recorder_cost",
    "keeping",
    "observe_cost",
    "observe_java_cost",
]
SUMMARY = RESULTS / "README.md"


def run(name: str, quick: bool) -> bool:
    """Runs one, in its own process; its output is ours."""
    path = ROOT / "bench" / f"{name}.py"
    options = ["--quick"] if quick else []
    if quick and "--no-result" in path.read_text():
        options.append("--no-result")
    if quick and "--quick" not in path.read_text():
        print(f"{name}: has no --quick, left out", flush=True)
        return True
    print(f"\n=== {name} ===", flush=True)
    begin = time.monotonic()
    child = subprocess.Popen([sys.executable, str(path), *options], cwd=ROOT)
    try:
        code = child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise
    print(f"=== {name}: {time.monotonic() - begin:.0f} s, exit code {code} ===", flush=True)
    return code == 0


def known_results() -> tuple[list[Bar], list[str]]:
    """The bars of every result that is there, and the machines and loads they were measured at."""
    bars, notes = [], []
    for name in MEASUREMENTS:
        path = RESULTS / f"{name}.json"
        if not path.exists():
            continue
        found = json.loads(path.read_text())
        bars += [Bar(**bar) for bar in found.get("bars", [])]
        load = " to ".join(f"{x:.1f}" for x in found.get("load", []))
        notes.append(f"- [{name}]({name}.md): {found.get('machine', '?')}; load {load}")
    return bars, notes


def write_summary() -> None:
    """Writes the table of all bars."""
    bars, notes = known_results()
    if not bars:
        return
    title = "# Which bars are held\n\nWritten by `bench/run` from the files beside it."
    SUMMARY.write_text("\n\n".join([title, bars_table(bars), "\n".join(notes)]) + "\n")
    print(f"\n{bars_table(bars)}\n\nwrote {SUMMARY.relative_to(ROOT)}", flush=True)


def main() -> None:
    """Run, sum up."""
    parser = argparse.ArgumentParser(
        prog="bench/run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="short runs, nothing written")
    parser.add_argument("--only", action="append", help="this one: " + ", ".join(MEASUREMENTS))
    parser.add_argument("--table", action="store_true", help="only write the table anew")
    args = parser.parse_args()
    unknown = set(args.only or []) - set(MEASUREMENTS)
    if unknown:
        parser.error(f"no measurement {', '.join(sorted(unknown))}")
    failed = []
    if not args.table:
        chosen = [name for name in MEASUREMENTS if not args.only or name in args.only]
        failed = [name for name in chosen if not run(name, args.quick)]
    if not args.quick:
        write_summary()
    if failed:
        sys.exit(f"did not finish: {', '.join(failed)}")


if __name__ == "__main__":
    main()
