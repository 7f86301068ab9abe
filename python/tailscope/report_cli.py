"""`tailscope report`: the JSON of a report in, its page out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tailscope import __version__
from tailscope.cli import Parser, complain, guarded
from tailscope.errors import MachineError, TailscopeError
from tailscope.present.output import write
from tailscope.present.pages import DRAWN, draw
from tailscope.present.terminal import Terminal

EXAMPLES = """\
examples:
  tailscope observe --signal channel:PID:NAME -d 10s --json > seen.json
  tailscope report seen.json                   writes seen.html
  tailscope timeline story windows/slow-0001.timeline --json > slow.json
  tailscope report slow.json -o slowest.html   the slowest request
  tailscope report slow.json -n 3 -o third.html
                                               the third in that list
  tailscope borrow --for PID --json -- ./batch > lent.json
  tailscope report lent.json                   writes lent.html
  tailscope locality -p PID --json > lines.json
  tailscope report lines.json                  writes lines.html
  tailscope explain LEDGER --json > tail.json
  tailscope report tail.json                   writes tail.html
  ssh HOST tailscope observe … --json | tailscope report - -o seen.html

Some commands write their page themselves:
  tailscope explain LEDGER --html FILE
  tailscope observe … --html FILE
  tailscope timeline page WINDOW

A page is one file. It has no scripts and loads nothing, so it can be mailed,
archived and read offline.

exit codes: 0 done, 2 wrong usage or file, 3 this machine can't
"""
#: Larger files are no reports (bytes).
LARGEST = 512 << 20


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = Parser(
        prog="tailscope report",
        description=f"Draw the page of a report: HTML with pictures, from the JSON of {DRAWN}.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "file",
        metavar="FILE",
        help="what one of these commands printed with --json; - for stdin",
    )
    found.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the page, - for stdout; default: FILE with the ending .html, stdout for stdin",
    )
    found.add_argument(
        "-n",
        "--number",
        type=int,
        default=1,
        metavar="NUMBER",
        help="which story of a timeline: 1 (the default) is the slowest request",
    )
    found.add_argument("-q", "--quiet", action="store_true", help="no message on stderr")
    found.add_argument("--version", action="version", version=f"tailscope {__version__}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns 0 done, 2 wrong usage or file, 3 this machine can't."""
    return guarded("tailscope report", run, parser().parse_args(arguments))


def run(chosen: argparse.Namespace) -> int:
    """Read, draw and write."""
    report = parsed(contents(chosen.file), chosen.file)
    try:
        page = draw(report, chosen.number)
    except TailscopeError as error:
        raise TailscopeError(f"{chosen.file}: {error}") from error
    except ImportError as error:
        raise MachineError(
            f"can't draw the page: {error}; install Tailscope's Python part with its "
            "dependencies (python/requirements.lock)"
        ) from error
    output = chosen.output or default_output(chosen.file)
    if output == "-":
        if sys.stdout.isatty():
            page = Terminal.of(sys.stdout).spell_lines(page)
        sys.stdout.buffer.write(page.encode())
        sys.stdout.buffer.flush()
        return 0
    write(output, page)
    if not chosen.quiet:
        complain(f"tailscope report: wrote {output}")
    return 0


def default_output(file: str) -> str:
    """Where the page goes if the user does not say."""
    if file == "-":
        return "-"
    place = Path(file)
    return str(place.with_suffix(".html")) if place.suffix == ".json" else f"{file}.html"


def contents(file: str) -> bytes:
    """The bytes of a file or of stdin."""
    try:
        if file == "-":
            found = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with open(file, "rb") as stream:
                found = stream.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise TailscopeError(f"can't read {file}: {why}") from error
    if len(found) > LARGEST:
        raise TailscopeError(f"{file} is larger than any report ({LARGEST >> 20} MiB)")
    return found


def parsed(text: bytes, file: str) -> object:
    """The JSON of some bytes."""
    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise TailscopeError(
            f"{file} is not JSON ({error}); write it with the option --json of tailscope {DRAWN}"
        ) from error


def refuse(constant: str) -> NoReturn:
    """JSON has no NaN and no Infinity, though Python reads them."""
    raise ValueError(f"{constant} is no number")


if __name__ == "__main__":
    sys.exit(main())
