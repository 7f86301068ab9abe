"""Servers that the tests of the engines talk to: started, awaited by what they print, and ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

#: How long a server may take to listen, in s; a Java needs about five on a quiet machine.
PATIENCE_S = 600.0


@contextmanager
def server(
    command: Sequence[str | Path], listens: str, log: Path, env: dict[str, str] | None = None
) -> Iterator[str]:
    """Run a server; gives the group in `listens` of the line with which it says where it listens.

    It runs in a process group of its own, which is ended as a whole.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            # Even where the tests themselves are killed, the server does not outlive them.
            ["setpriv", "--pdeathsig", "TERM", *(str(word) for word in command)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | (env or {}),
            start_new_session=True,
        )
    try:
        yield said(process, listens, log)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def said(process: subprocess.Popen[bytes], wanted: str, log: Path) -> str:
    """Wait for a line of the log."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(wanted, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"{process.args[0]} does not listen:\n{log.read_text()[-3_000:]}")


@contextmanager
def clickhouse(folder: Path) -> Iterator[str]:
    """ClickHouse's engine behind its HTTP interface; gives its address."""
    door = Path(__file__).with_name("clickhouse_door.py")
    with server([sys.executable, door], r"(?m)^(\d+)$", folder / "clickhouse.log") as port:
        yield f"clickhouse://127.0.0.1:{port}"


@contextmanager
def spark_master(folder: Path) -> Iterator[str]:
    """A standalone Spark master without workers; gives its address."""
    master = [spark_class(), "org.apache.spark.deploy.master.Master"]
    with server(
        [*master, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"],
        r"Starting Spark master at (spark://\S+)",
        folder / "master.log",
        spark_env(folder),
    ) as address:
        yield address


@contextmanager
def spark_cluster(folder: Path) -> Iterator[tuple[str, str]]:
    """A standalone Spark cluster with one worker, and a Connect server; gives both addresses."""
    with ExitStack() as stack:
        address = stack.enter_context(spark_master(folder))
        worker = [spark_class(), "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
        worker += ["--cores", "2", "--memory", "1g", "--webui-port", "0"]
        stack.enter_context(
            server(
                [*worker, "--work-dir", str(folder / "work"), address],
                r"(Successfully registered with master)",
                folder / "worker.log",
                spark_env(folder),
            )
        )
        connect = [spark_class(), "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
        connect += ["--conf", "spark.connect.grpc.binding.port=0"]
        connect += ["--conf", "spark.connect.grpc.binding.address=127.0.0.1"]
        connect += ["--conf", "spark.ui.enabled=false"]
        port = stack.enter_context(
            server(
                [*connect, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"],
                r"Spark Connect server started at: .*?:(\d+)",
                folder / "connect.log",
                spark_env(folder),
            )
        )
        yield address, f"sc://127.0.0.1:{port}"


def spark_class() -> Path:
    """The script that starts one of Spark's own programs; PySpark's wheel carries it."""
    import pyspark

    return Path(pyspark.__file__).parent / "bin" / "spark-class"


def spark_env(folder: Path) -> dict[str, str]:
    """Where Spark keeps its files, and how much memory a master or a worker itself takes."""
    return {
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "768m",
    }
