"""What is recorded of servers that nobody prepared is what their clients see, or says it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig import installed
from thirdparty.built import Lacking
from thirdparty.case import FRESH, KEPT
from thirdparty.client import Client
from thirdparty.measure import cell, path_ns
from thirdparty.own import OWN
from thirdparty.recording import Recorded
from thirdparty.verdict import text

SECONDS = 2.0
#: Servers of which `make test` has both modes; of the others it has their first.
IN_BOTH = ("nginx-proxy", "python-threads", "go-workers")
CELLS = [
    pytest.param(
        *(name, mode),
        marks=[] if name in IN_BOTH or mode == case.modes[0] else pytest.mark.more,
    )
    for name, case in OWN.items()
    for mode in case.modes
]
#: Those of which some requests end long after their last send, or come together.
FOLLOWED = ("python-threads", "java-http", "redis-pipelined")

pytestmark = pytest.mark.measures


@pytest.fixture(scope="module")
def paths(recordable: None) -> dict[str, float]:
    """The network path in each mode."""
    try:
        return {mode: path_ns(mode, 1) for mode in (KEPT, FRESH)}
    except Lacking as error:
        pytest.skip(str(error))


def shown(client: Client, recorded: Recorded) -> str:
    """Both sides, for a failure's message."""
    return (
        f"clients: {client.requests} requests, p50 {text(client.p50_ns)}, "
        f"p99 {text(client.p99_ns)}, own lag {text(client.lag_ns)}\n"
        f"ledger: {recorded.rows} rows, {recorded.losses or 'nothing'} lost, "
        f"p50 {text(recorded.p50_ns)}, p99 {text(recorded.p99_ns)}\n"
        + "\n".join(recorded.first_lines)
    )


@pytest.mark.parametrize(("name", "mode"), CELLS)
def test_what_is_recorded_is_what_clients_see_or_says_what_is_missing(
    name: str, mode: str, folder: Path, paths: dict[str, float]
) -> None:
    try:
        found = cell(OWN[name], mode, SECONDS, paths[mode], folder, installed.tailscope())
    except Lacking as error:
        pytest.skip(str(error))
    assert found.verdict.holds, f"{found.verdict.why}\n{shown(found.client, found.recorded)}"


@pytest.mark.parametrize("name", FOLLOWED)
def test_so_it_is_of_requests_that_are_followed(
    name: str, folder: Path, paths: dict[str, float]
) -> None:
    options = ("--span", "request")
    try:
        found = cell(OWN[name], KEPT, SECONDS, paths[KEPT], folder, installed.tailscope(), options)
    except Lacking as error:
        pytest.skip(str(error))
    assert found.verdict.holds, f"{found.verdict.why}\n{shown(found.client, found.recorded)}"
