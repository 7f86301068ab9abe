"""Runs the measurements of what recording costs, one by one, and sums up which bars are held.

Each script writes bench/results/MACHINE/NAME.json. The bars of all of them are printed at the end,
and the tables of bench/README.md are written from all results (bench/render). Takes about an hour
and wants the machine for itself; --quick takes five minutes and leaves the results in the
repository alone. What is not among them has a reason: it takes far longer (soak, proof), or
measures something else (explain, diff, the agent at rest).

    bench/run
    bench/run --only server_cost
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from harness import ROOT, Bar, bars_table, known
from render import PAGE, write_tables

MEASUREMENTS = [
    "sdk_cost",
    "java_cost",
    "hook_cost",
    "probe_cost",
    "names_cost",
    "postgres_cost",
    "server_cost",
    "recorder_cost",
    "keeping",
    "observe_cost",
    "observe_java_cost",
]


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


def sum_up() -> None:
    """Prints the bars of this machine's results, and writes the tables."""
    bars = [Bar(**bar) for name in MEASUREMENTS for bar in known(name).get("bars", [])]
    if bars:
        print(f"\n{bars_table(bars)}")
    write_tables()
    print(f"\nwrote {PAGE.relative_to(ROOT)}", flush=True)


def main() -> None:
    """Run, sum up."""
    parser = argparse.ArgumentParser(
        prog="bench/run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="short runs, nothing written")
    parser.add_argument("--only", action="append", help="this one: " + ", ".join(MEASUREMENTS))
    parser.add_argument("--table", action="store_true", help="measure nothing, only sum up")
    args = parser.parse_args()
    unknown = set(args.only or []) - set(MEASUREMENTS)
    if unknown:
        parser.error(f"no measurement {', '.join(sorted(unknown))}")
    failed = []
    if not args.table:
        chosen = [name for name in MEASUREMENTS if not args.only or name in args.only]
        failed = [name for name in chosen if not run(name, args.quick)]
    if not args.quick:
        sum_up()
    if failed:
        sys.exit(f"did not finish: {', '.join(failed)}")


if __name__ == "__main__":
    main()
