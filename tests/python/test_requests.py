"""`tailscope requests`: each thread's requests, with the work that they are alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import Make
from tailscope.requests_cli import main


def ran(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    code = main([str(word) for word in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_work_is_the_wall_time_without_waits(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = 2000
    ledger = make(
        tid=[7 + i % 2 for i in range(rows)],
        wall_ns=np.arange(rows) + 5000,
        queue_ns=[1000] * rows,
        runqueue_ns=[500] * rows,
        lock_ns=[100] * rows,
    )
    code, out, _ = ran(capsys, ledger)
    assert code == 0
    found = json.loads(out)
    assert len(found["threads"]) == 2
    for number, thread in enumerate(found["threads"]):
        assert thread["work_ns"] == [3500 + i for i in range(number, rows, 2)]
        assert thread["arrival_ns"] == sorted(thread["arrival_ns"])
    assert found["threads"][0]["arrival_ns"][0] == 0
    assert found["p50_ns"] == 5999
    assert found["p99_ns"] == 6979
    assert found["p999_ns"] is None


def test_a_ledger_with_missing_requests_is_refused(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    sampled = make("sampled", wall_ns=[5000] * 10, queue_ns=[7] * 10, weight=[2.0] * 10)
    code, _, err = ran(capsys, sampled)
    assert code == 2
    assert "--sample" in err
    without = make("without", wall_ns=[5000] * 10)
    code, _, err = ran(capsys, without)
    assert code == 2
    assert "--span request" in err
    code, _, err = ran(capsys, "nowhere")
    assert code == 2
    assert "nowhere" in err
