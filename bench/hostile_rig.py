"""What bench/hostile.py and its long version run: recorders, a production program, attackers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
from harness import ROOT, SERVER_CPU, SPARE_CPU, Bench

KINDS = ("record", "timeline", "agent")
NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
#: Reads commands and runs each as a child; what is watched in it is watched in its children.
SHELL = 'while read -r line; do eval "$line"; done'
PYTHON = Path("/usr/bin/python3")


def reset_peak(pid: int) -> None:
    """From now on the peak of a process's memory counts anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mib(pid: int) -> float:
    """The most memory that a process has held since then."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1024


def children(pid: int) -> list[int]:
    """The processes that its first thread has started."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(word) for word in text.split()]
    return []


class Shell:
    """A process that runs what it is told."""

    def __init__(self, place: Bench, **options: Any) -> None:  # noqa: ANN401
        env = {**os.environ, "TAILSCOPE_SOCKET": str(place.folder / "sdk.sock")}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", SHELL], stdin=pipe, stdout=pipe, text=True, env=env, **options
        )

    def tell(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(20)


class Production(Shell):
    """A program whose spans must not suffer: it has a CPU of its own and goes before all others."""

    def __init__(self, place: Bench) -> None:
        super().__init__(place)
        self.program = place.compile("steady.c")

    def begin(self) -> None:
        """Starts the program that runs through all phases, once the recorder knows its file."""
        self.another()
        time.sleep(1.5)
        self.tell(f"{self.program} {SERVER_CPU} &")
        while not children(self.process.pid):
            time.sleep(0.01)
        (self.steady,) = children(self.process.pid)
        time.sleep(1)

    def _said(self) -> dict[str, int]:
        return json.loads(self.process.stdout.readline())

    def ask(self) -> dict[str, int]:
        """How many spans the program has ended, and the longest since the last time."""
        os.kill(self.steady, signal.SIGUSR1)
        return self._said()

    def end(self) -> dict[str, int]:
        """Ends it."""
        os.kill(self.steady, signal.SIGTERM)
        return self._said()

    def another(self) -> dict[str, int]:
        """One that starts now and runs for a moment: its longest span holds its wait to start."""
        self.tell(f"{self.program} {SERVER_CPU} 0.5")
        return self._said()


class Attackers:
    """Programs of the user nobody. `shell` is watched, and so are those that it starts."""

    def __init__(self, place: Bench) -> None:
        self.place = place
        self.folder = place.folder / "attacker"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        os.chown(self.folder, NOBODY["user"], NOBODY["group"])
        self.python = place.folder / "python"
        shutil.copy(PYTHON.resolve(), self.python)
        self.forging = self._compiled()
        for program in (ROOT / "lab" / "attacks").glob("*.py"):
            shutil.copy(program, place.folder)
        self.shells = [Shell(place, cwd=self.folder, **NOBODY) for _ in range(2)]

    def _compiled(self) -> Path:
        target = self.place.folder / "forging"
        where = ["-isystem", ROOT / "sdk" / "c", "-I", ROOT / "tests" / "c"]
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-pthread"]
        source = ROOT / "tests" / "c" / "forging.c"
        subprocess.run(["cc", *flags, *where, "-o", target, source], check=True)
        return target

    @property
    def watched(self) -> int:
        return self.shells[0].process.pid

    def start(self, commands: Sequence[Sequence[str]], *, watched: bool) -> None:
        """Starts programs of lab/attacks and waits until all are ready."""
        shell = self.shells[0 if watched else 1]
        python = self.python if watched else PYTHON
        outs = []
        for number, (name, *arguments) in enumerate(commands):
            program = self.place.folder / f"{name}.py"
            words = [word.replace("{}", str(self.place.folder)) for word in arguments]
            outs.append(self.folder / f"{number}.out")
            command = f"taskset -c {SPARE_CPU} {python} -I {program} {' '.join(words)}"
            shell.tell(f"{command} >{outs[-1]} 2>&1 &")
        deadline = time.monotonic() + 30
        while not all(out.exists() and "ready" in out.read_text() for out in outs):
            if time.monotonic() > deadline:
                said = [(out.read_text() if out.exists() else "")[-200:] for out in outs]
                raise SystemExit(f"no attack: {said}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends what runs, and what that runs."""
        for shell in self.shells:
            for pid in children(shell.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for out in self.folder.glob("*.out"):
            out.unlink()

    def close(self) -> None:
        self.stop()
        for shell in self.shells:
            shell.close()


class Subject:
    """A recorder that is attacked."""

    def __init__(
        self, place: Bench, kind: str, production: Production, attackers: Attackers
    ) -> None:
        self.kind, self.place = kind, place
        self.folder = place.folder / f"{kind}-{time.monotonic_ns()}"
        self.err = place.folder / f"{self.folder.name}.err"
        watched = [production.process.pid, attackers.watched]
        pids = [word for pid in watched for word in ("-p", str(pid))]
        command: list[str | Path] = [place.tailscope, kind]
        if kind == "agent":
            command += [self._configuration(production, attackers)]
        else:
            command += [*pids, "--span", "sdk", "-o", self.folder]
        if kind == "timeline":
            command += ["--memory", "64MB"]
        with self.err.open("w") as err:
            self.process = place.start(command, stderr=err.fileno())
        said = {"record": r"recording ", "timeline": r"keeping ", "agent": r"metrics at (\S+)"}
        while not (ready := re.search(said[kind], self.err.read_text())):
            if self.process.poll() is not None:
                raise SystemExit(f"no recorder: {self.err.read_text()}")
            time.sleep(0.05)
        if kind == "agent":
            self.url = ready[1]
            port = re.search(r":(\d+)/", self.url)[1]
            (place.folder / "port").write_text(port)

    def _configuration(self, production: Production, attackers: Attackers) -> Path:
        programs = (production.program, attackers.python, attackers.forging)
        path = Path(f"{self.folder}.toml")
        rules = "".join(f'[[process]]\nexe = "{program}"\n' for program in programs)
        path.write_text(
            f'{rules}[record]\nspans = ["sdk"]\n[ledger]\nfolder = "{self.folder}"\n'
            '[metrics]\nlisten = "127.0.0.1:0"\n'
        )
        return path

    @property
    def pid(self) -> int:
        return self.process.pid

    def figure(self, name: str) -> float:
        """One figure of an agent's /metrics."""
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name + " "))

    def stop(self) -> float:
        """SIGTERM, and how many seconds it takes to end."""
        begin = time.monotonic()
        code = self.place.end(self.process)
        if code != 0:
            raise SystemExit(f"{self.kind} ended with {code}: {self.err.read_text()[-2000:]}")
        return time.monotonic() - begin

    def kill(self) -> None:
        """Ends it, if it runs."""
        self.place.end(self.process, signal.SIGKILL)

    def log_lines(self) -> int:
        return self.err.read_text().count("\n")

    def rows(self) -> dict[int, int]:
        """How many rows each process has in the ledgers."""
        files = f"{self.folder}/**/*.parquet"
        with duckdb.connect() as engine:
            query = f"SELECT pid, count(*) FROM read_parquet('{files}') GROUP BY pid"
            return dict(engine.sql(query).fetchall())

    def lost(self) -> int:
        """Rows that the ledgers count as lost, whosever they were."""
        told = [json.loads(path.read_text()) for path in self.folder.rglob("ledger.json")]
        places = ("ring_full", "region_full", "threads")
        return sum(ledger["lost"].get(place, 0) for ledger in told for place in places)
