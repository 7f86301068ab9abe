"""`tailscope agent`: its configuration, its figures, its ledgers."""

from __future__ import annotations

import http
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from rig import installed
from rig.processes import Started
from rig.recorder import about
from rig.waiting import until

#: The rule of the program that most tests record.
LOOPBENCH = f'exe = "{installed.LAB / "loopbench"}"'

#: The configuration of a test, where it says nothing else: by the section's name.
USUAL = {
    "record": 'spans = ["sdk"]',
    "ledger": 'rotate_age = "1h"',
    "metrics": 'listen = "127.0.0.1:0"',
}


def configuration(folder: Path, *processes: str, **sections: str) -> Path:
    """Writes a configuration; each process is a rule's text."""
    text = "".join(f"[[process]]\n{rule}\n" for rule in processes)
    for name, body in {**USUAL, **sections}.items():
        text += f"[{name}]\n{body}\n"
        if name == "ledger":
            text += f'folder = "{folder / "ledgers"}"\n'
    path = folder / "agent.toml"
    path.write_text(text)
    return path


class Agent(Started):
    """An agent that runs."""

    def __init__(self, folder: Path, config: Path, under: Sequence[object] = ()) -> None:
        self.folder = folder / "ledgers"
        super().__init__([*under, installed.tailscope(), "agent", config], env=os.environ)
        until(lambda: "metrics at" in self.err or not self.runs, "the agent is ready")
        assert self.runs, self.wait()

    def scrape(self) -> str | None:
        """The text of /metrics; none while the recorder is busy, as when it loads programs."""
        url = re.findall(r"metrics at (\S+)", self.err)[-1]
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as e:
            if e.code != http.HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return None

    def figures(self) -> dict[str, float]:
        """What /metrics says, by `name` or `name{label=value}`."""
        text = until(self.scrape, "the recorder answers a scrape")
        families = text_string_to_metric_families(text)
        samples = [sample for family in families for sample in family.samples]
        return {
            name + "".join(f"{{{k}={v}}}" for k, v in labels.items()): value
            for name, labels, value, *_ in samples
        }

    def lost(self) -> dict[str, float]:
        """What was lost of rows; not what was only measured less well."""
        return {
            name: value
            for name, value in self.figures().items()
            if name.startswith("tailscope_lost_total")
            and value
            and not name.endswith(("{place=overdrawn}", "{place=switches}"))
        }

    def reload(self) -> None:
        """SIGHUP, and waits until it was applied or refused."""

        def reloads() -> float:
            figures = self.figures()
            return sum(
                figures[f"tailscope_config_reloads_total{{result={result}}}"]
                for result in ("applied", "refused")
            )

        before = reloads()
        os.kill(self.pid, signal.SIGHUP)
        until(lambda: reloads() > before, "the configuration was read again")

    def ledgers(self) -> list[Path]:
        """Oldest first."""
        return sorted(self.folder.glob("2*Z-*"), key=lambda path: int(path.name.split("-")[-1]))

    def rows(self) -> int:
        """Of all sealed ledgers together, as they say themselves."""
        return sum(about(ledger).get("rows") or 0 for ledger in self.ledgers())


def dropped(figures: dict[str, float]) -> float:
    return sum(n for name, n in figures.items() if name.startswith("tailscope_otlp_dropped_total"))


def recorded(agent: Agent) -> float:
    """The rows of the programs that ran, once the agent knows of their ends."""
    figures = until(
        lambda: (
            (f := agent.figures())["tailscope_processes"] == 0
            and f["tailscope_rows_total"] > 0
            and f
        ),
        "the programs' ends are heard",
    )
    return figures["tailscope_rows_total"]


def all_exported(agent: Agent, arrived: Callable[[], int]) -> float:
    """The rows of the programs that ran, once each has arrived at a collector and is counted."""
    kept = recorded(agent)
    until(lambda: arrived() == kept, "all spans have come")
    figures = until(
        lambda: (f := agent.figures())["tailscope_otlp_spans_total"] == kept and f,
        "they are counted",
    )
    assert dropped(figures) == 0
    return kept
