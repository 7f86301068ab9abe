"""Whatever keeps a server, its sockets or another session waiting comes out on top of `explain`."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig import installed
from thirdparty.built import Lacking
from thirdparty.faults import FAULTS
from thirdparty.finding import find

pytestmark = pytest.mark.measures


#: `traced` stops a server by ptrace too, and takes half as long; `membarrier` is one of several
#: ways to interrupts, which test_planted_causes.py has.
SELDOM = {"strace", "membarrier"}
NAMES = [pytest.param(name, marks=pytest.mark.more if name in SELDOM else []) for name in FAULTS]


@pytest.mark.parametrize("name", NAMES)
def test_what_keeps_requests_waiting_is_the_first_cause(
    name: str, recordable: None, folder: Path
) -> None:
    try:
        finding = find(FAULTS[name], 3, installed.tailscope(), folder)
    except Lacking as error:
        pytest.skip(str(error))
    assert finding.found, f"{finding.why}\n{finding.ranking}\n{finding.blamed}"
