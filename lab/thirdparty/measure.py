"""One cell: a server in one mode, its clients' figures, a recording's, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proof.machine import TAILSCOPE, folder

from thirdparty.case import Case
from thirdparty.client import Client
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
) -> tuple[Client, Recorded]:
    """Records a running case under its load, which begins and ends within the recording."""
    if case.warm_up_s:
        case.load(mode, case.warm_up_s)
    with folder() as temporary:
        ledger = (where or temporary) / f"{type(case).__name__}-{mode}"
        with recording(tailscope, case.pids, ledger, *options):
            seen = case.load(mode, seconds)
        return seen, read(tailscope, ledger)


def path_ns(mode: str, seconds: float) -> float:
    """The network path, in ns: what the quickest of the empty server's requests take.

    Nobody records meanwhile: what a recorder leaves out must not pass for the path.
    """
    with Echo() as echo:
        return echo.load(mode, seconds).least_ns


def cell(
    case: type[Case],
    mode: str,
    seconds: float,
    path: float,
    where: Path | None = None,
    tailscope: Path = TAILSCOPE,
    options: Sequence[str] = (),
) -> Cell:
    """Starts a case, measures it and judges it.

    `path` is that of the mode (`path_ns`), `options` are the recorder's.
    """
    with case() as running:
        seen, recorded = measure(running, mode, seconds, where, tailscope, options)
    return Cell(case.title, mode, seen, recorded, judge(seen, recorded, path))
