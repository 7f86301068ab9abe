"""Guests for the tests: each kernel's machine boots once, and takes the commands of all tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from guest import Unavailable, boot
from guest.kernels import KERNELS
from guest.session import Session
from recording import RECORDING_SECONDS, Record

#: Which guests: `make test` has the one that fits into its time, `make test-guests` has all.
NAMED = os.environ.get("GUESTS", "6.1").split()
CHOSEN = list(KERNELS) if NAMED == ["all"] else NAMED


@pytest.fixture(scope="session", params=CHOSEN)
def guest(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    """A running guest; skips where this machine or its mirror can't have that one."""
    assert request.param in KERNELS, f"GUESTS may name {', '.join(KERNELS)}, not {request.param}"
    try:
        kernel = KERNELS[request.param]
        prepared = boot.prepare(kernel)
        session = Session(kernel, prepared, tmp_path_factory.mktemp("share"))
    except Unavailable as reason:
        pytest.skip(f"no guest {request.param}: {reason}")
    with session:
        yield session


@pytest.fixture(scope="session")
def ladder(guest: Session) -> dict[str, dict[str, Any]]:
    """What the recorder says of itself on this kernel: for each measurement its rung."""
    # It loads every program, and an emulated processor verifies at a twentieth of the speed.
    doctor = guest.run("tailscope", "doctor", "--json", seconds=RECORDING_SECONDS)
    return json.loads(doctor.clean().out)["ladder"]


@pytest.fixture
def record(guest: Session) -> Record:
    """Records in the guest: `record("--span", "sdk", "--", "loopbench")`."""
    return Record(guest)
