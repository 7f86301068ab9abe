"""Whatever keeps a server, its sockets or another session waiting comes out on top of `explain`."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig import installed
from thirdparty.built import Lacking
from thirdparty.faults import FAULTS
from thirdparty.finding import find

pytestmark = pytest.mark.measures

#: With strace on every system call a thread waits longer for the CPU behind strace (`runqueue`,
#: which names it) than it is `stopped`: which of the two is first says nothing of the recorder.
JUDGED = [name for name in FAULTS if name != "strace"]


@pytest.mark.parametrize("name", JUDGED)
def test_what_keeps_requests_waiting_is_the_first_cause(
    name: str, recordable: None, folder: Path
) -> None:
    try:
        finding = find(FAULTS[name], 3, installed.tailscope(), folder)
    except Lacking as error:
        pytest.skip(str(error))
    assert finding.found, f"{finding.why}\n{finding.ranking}\n{finding.blamed}"
