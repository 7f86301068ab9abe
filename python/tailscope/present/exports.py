"""The stacks of a ledger as files for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailscope.ledger.ledger import Ledger
from tailscope.present import firefox, perfetto, pprof, speedscope
from tailscope.present.thread_samples import timeline
from tailscope.statistics.explanation import Explanation

#: What shows a slow span beside a usual one.
MEANS = {"speedscope": speedscope.save, "pprof": pprof.save}
#: What shows threads over time.
TIMES = {"firefox": firefox.save, "perfetto": perfetto.save}


def save(ledger: Ledger, explanation: Explanation, files: Mapping[str, str]) -> Iterator[str]:
    """Write a file for each program that is named; yields what is to be said of each file."""
    for program, file in files.items():
        if program in MEANS:
            MEANS[program](ledger, explanation, file)
            yield f"wrote {file}"
    wanted = [program for program in files if program in TIMES]
    if not wanted:
        return
    shown = timeline(ledger, explanation)
    for program in wanted:
        TIMES[program](shown, files[program])
        yield f"wrote {files[program]}"
        yield from (f"{files[program]}: {note}" for note in shown.notes)
