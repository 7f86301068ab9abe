"""A ZooKeeper of a test's own: Debian's jars, alone, in a folder that goes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from proof.ports import answers, free_port

from rig.java import JAR, java
from rig.processes import Ended, Started
from rig.waiting import until

ZOOKEEPER = Path("/usr/share/java/zookeeper.jar")
SERVER = "org.apache.zookeeper.server"


class ZooKeeper(Started):
    """A running server. `spans`: what the agent makes spans of; none: without the agent."""

    def __init__(self, folder: Path, *spans: str) -> None:
        if not ZOOKEEPER.exists():
            pytest.skip("ZooKeeper is not installed")
        self.port = free_port()
        place = folder / "zookeeper"
        place.mkdir()
        config = place / "zoo.cfg"
        config.write_text(
            f"tickTime=2000\ndataDir={place}/data\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=ruok\n"
        )
        agent = (f"-javaagent:{JAR}=span={','.join(spans)}",) if spans else ()
        main = f"{SERVER}.quorum.QuorumPeerMain"
        super().__init__(java(main, config, options=agent, jars=(ZOOKEEPER,)))
        until(lambda: self.serves() or not self.runs, "ZooKeeper serves", 60)
        assert self.runs, self.wait()

    def serves(self) -> bool:
        """Whether it says that it is well: a word that goes through none of its stages."""
        if not answers(self.port):
            return False
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as asked:
            asked.sendall(b"ruok")
            return asked.recv(4) == b"imok"

    def load(self, clients: int, rounds: int) -> Ended:
        """Requests whose number it prints."""
        command = java("ZooLoad", self.port, clients, rounds, jars=(ZOOKEEPER,))
        with Started(command) as load:
            return load.wait(60).clean()
