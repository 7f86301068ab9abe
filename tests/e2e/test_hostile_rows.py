"""A watched process writes rows and names that are made up."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from rig.agent import LOOPBENCH, Agent
from rig.hostile import own_folder
from rig.processes import AS_NOBODY, Started
from rig.waiting import until

Run = Callable[..., Started]

COUNT = "tailscope_span_duration_seconds_count"
SPANS = 2000


def test_a_forged_row_counts_for_nothing_and_many_names_hide_nobody(
    agent: Callable[..., Agent], run: Run, program: Callable[..., Path], folder: Path
) -> None:
    # Where everybody can run it.
    forging = Path(shutil.copy(program("forging.c"), folder))
    own_folder(folder)
    started = agent(LOOPBENCH, f'exe = "{forging}"')
    with Started([forging], cwd=folder / "attacker", **AS_NOBODY) as attacker:
        until(lambda: "forged" in attacker.out, "it has forged a row")
        place = "tailscope_lost_total{place=region_malformed}"
        until(lambda: started.figures()[place] >= 1, "the row is counted as lost")
        run("loopbench", "--spans", SPANS, "--think-us", 100).wait(60).clean()
        real = f"{COUNT}{{span=loop}}"
        figures = until(
            lambda: (f := started.figures()).get(real, 0) >= SPANS and f, "the real name is shown"
        )
        assert figures[real] == SPANS
        counts = [value for name, value in figures.items() if name.startswith(COUNT)]
        assert len(counts) == 65, "64 kinds and the others"
        assert sum(counts) == figures["tailscope_rows_total"]
    started.stop(signal.SIGTERM).clean()
