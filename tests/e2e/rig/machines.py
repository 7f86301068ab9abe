"""Other machines: network namespaces that are joined to this one by a link of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

import pytest

_NUMBERS = count()


def _ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, timeout=60)


class Machine:
    """One of them, with its address, and that of this machine towards it."""

    def __init__(self) -> None:
        number = next(_NUMBERS)
        # From 198.18.0.0/15, which is for tests of networks. Other tests may run beside these.
        block = (os.getpid() * 32 + number) % 16384
        start = (198 << 24) + (18 << 16) + 4 * block
        self.here, self.address = (
            ".".join(str(byte) for byte in (start + host).to_bytes(4, "big")) for host in (1, 2)
        )
        self.name = f"ts{os.getpid()}-{number}"
        self._link = f"ts{block}"

    @property
    def under(self) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{self.name}")

    def join(self) -> None:
        """Makes the link between the two."""
        inside = ("-n", self.name)
        _ip("link", "add", self._link, "type", "veth", "peer", "eth0", "netns", self.name)
        _ip("addr", "add", f"{self.here}/30", "dev", self._link)
        _ip("link", "set", self._link, "up")
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "addr", "add", f"{self.address}/30", "dev", "eth0")
        _ip(*inside, "link", "set", "eth0", "up")

    def cut_off(self) -> None:
        _ip("link", "set", self._link, "down")

    def reach_again(self) -> None:
        _ip("link", "set", self._link, "up")

    def end(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, timeout=60)


@contextmanager
def machines(number: int) -> Iterator[list[Machine]]:
    """This number of other machines. They are gone afterwards."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with ExitStack() as stack:
        made = [Machine() for _ in range(number)]
        for machine in made:
            stack.callback(machine.end)
            try:
                _ip("netns", "add", machine.name)
            except (OSError, subprocess.CalledProcessError) as why:
                pytest.skip(f"no network namespaces can be made here: {why}")
            machine.join()
        yield made
