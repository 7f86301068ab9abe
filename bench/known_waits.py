"""Is what requests are known to do found as what it is, on runtimes that nobody chose for it?

Each request of a server waits for a timer (5 ms), asks a backend (2 ms), or computes (1 ms). The
figure is how much of that time `tailscope record --span request` has in the right cause, on average
over all requests, and how much in a wrong one. The rest is `unknown`: not explained, and not wrong.

    .venv/bin/python bench/known_waits.py                    all servers, about ten minutes
    .venv/bin/python bench/known_waits.py --only tcl,warp    some, nothing written
    .venv/bin/python bench/known_waits.py --list             which there are

What it needs besides Debian's own test packages: scripts/setup --for-servers.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness import ROOT, Bar, Result, table

sys.path.insert(0, str(ROOT / "lab"))

from proof.machine import TAILSCOPE, ProofError
from thirdparty.built import Lacking
from thirdparty.jvm import JVM
from thirdparty.known import KNOWN, Shares, shares
from thirdparty.proxies import PROXIES

SERVERS = KNOWN | JVM | PROXIES

FOUND, ELSEWHERE = 0.90, 0.05
HEAD = ("server", "request", "requests", "right", "unknown", "wrong")


def line(of: Shares) -> tuple[str, ...]:
    """A line of the table."""
    parts = (f"{part:.1%}" for part in (of.found, of.unknown, of.elsewhere))
    return (of.title, of.path, str(of.requests), *parts)


def main() -> None:
    """Measures, prints each line as it is known, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME,…", help="some servers; nothing is written")
    parser.add_argument("--list", action="store_true", help="print the servers' names")
    parser.add_argument("--seconds", type=float, default=4.0, help="of load, for each line")
    parser.add_argument("--ledgers", type=Path, help="keep the ledgers in this folder")
    parser.add_argument(
        "--tailscope", type=Path, default=TAILSCOPE, help="the program; default: the installed one"
    )
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{name:14} {case.title}" for name, case in SERVERS.items()))
        return
    chosen = args.only.split(",") if args.only else list(SERVERS)
    if unknown := set(chosen) - set(SERVERS):
        sys.exit(f"there is no server {', '.join(sorted(unknown))}; --list shows which there are")
    if args.ledgers:
        args.ledgers.mkdir(parents=True, exist_ok=True)
    found: list[Shares] = []
    absent: list[str] = []
    for name in chosen:
        try:
            with SERVERS[name]() as case:
                for path in case.paths:
                    of = shares(case, path, args.seconds, args.tailscope, args.ledgers)
                    found.append(of)
                    print(" | ".join(line(of)), flush=True)
        except (Lacking, ProofError) as error:
            absent.append(f"{name}: {error}")
            print(absent[-1], flush=True)
    if args.only:
        return
    result = Result("known_waits", "What requests are known to do, on runtimes nobody chose for it")
    least = min((of.found for of in found), default=0.0)
    most = max((of.elsewhere for of in found), default=1.0)
    result.bars += [
        Bar("least share in the right cause", f"{FOUND:.0%}", f"{least:.1%}", least >= FOUND),
        Bar("largest in a wrong one", f"{ELSEWHERE:.0%}", f"{most:.1%}", most <= ELSEWHERE),
        Bar("servers that could not be measured", "0", f"{len(absent)}", not absent),
    ]
    result.say("Shares of the known time", table(HEAD, [line(of) for of in found]))
    result.say("Not measured", "\n".join(f"- {one}" for one in absent) or "None.")
    right = sum(of.found >= FOUND and of.elsewhere <= ELSEWHERE for of in found)
    result.summary = f"{right} of {len(found)} kinds of requests are found as what they are"
    result.figures = {"shares": [of.json() for of in found]}
    result.write()


if __name__ == "__main__":
    main()
