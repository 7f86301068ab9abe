"""One cell: a server in one mode, its clients' figures, a recording's, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proof.machine import TAILSCOPE, folder

from thirdparty.case import Case
from thirdparty.client import Client
from thirdparty.outside import Generator
from thirdparty.own import Echo
from thirdparty.recording import Recorded, read, recording
from thirdparty.verdict import Verdict, judge


@dataclass(frozen=True)
class Cell:
    """What was measured of a case in one mode, and what it comes to."""

    title: str
    mode: str
    client: Client
    recorded: Recorded
    verdict: Verdict

    def json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)


def measure(
    case: Case,
    mode: str,
    seconds: float,
    where: Path | None = None,
    tailscope: Path = TAILSCOPE,
    options: Sequence[str] = (),
    generator: Generator | None = None,
) -> tuple[Client, Recorded]:
    """Records a running case under its load, which begins and ends within the recording."""
    if case.warm_up_s:
        case.load(mode, case.warm_up_s)
    with folder() as temporary:
        ledger = (where or temporary) / f"{type(case).__name__}-{mode}"
        with recording(tailscope, case.pids, ledger, *options):
            seen = offered(case, mode, seconds, generator)
        return seen, read(tailscope, ledger)


def offered(case: Case, mode: str, seconds: float, generator: Generator | None) -> Client:
    """Offers a case's load, by the lab's own generator or by another one."""
    return generator.load(case, mode, seconds) if generator else case.load(mode, seconds)


def path_ns(mode: str, seconds: float, generator: Generator | None = None) -> float:
    """The network path, in ns: what the quickest of the empty server's requests take.

    Nobody records meanwhile: what a recorder leaves out must not pass for the path.
    """
    with Echo() as echo:
        return offered(echo, mode, seconds, generator).least_ns


def cell(
    case: type[Case],
    mode: str,
    seconds: float,
    path: float,
    where: Path | None = None,
    tailscope: Path = TAILSCOPE,
    options: Sequence[str] = (),
    generator: Generator | None = None,
) -> Cell:
    """Starts a case, measures it and judges it.

    `path` is that of the mode (`path_ns`), `options` are the recorder's.
    """
    with case() as running:
        seen, recorded = measure(running, mode, seconds, where, tailscope, options, generator)
    return Cell(case.title, mode, seen, recorded, judge(seen, recorded, path))
