"""Recordings that are made in a guest, and looked at here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest.session import Ended, Session

#: Losses that leave every row there, and that emulation provokes: books that a read of the clock
#: made too big and that were cut, and a hook that a thread met while another one, switched out on
#: this CPU, was inside the same program.
NOT_ROWS = frozenset({"overdrawn", "recursion"})
#: How long a program waits for the recorder (ms): both are emulated, at a twentieth of the speed.
#: It is the most that the SDK takes.
PATIENCE_MS = 60_000
#: The bound for a recording as a whole, and for any command that loads every program (s): where
#: other suites run beside, the emulation has a fraction of its speed.
RECORDING_SECONDS = 300


@dataclass(frozen=True)
class Recording:
    """A recording that a guest made, and its ledger, here."""

    ended: Ended
    ledger: Path

    @property
    def about(self) -> dict[str, Any]:
        """The ledger's own metadata."""
        return json.loads((self.ledger / "ledger.json").read_text())

    @property
    def said(self) -> dict[str, Any]:
        """The JSON object that the recorded program printed last."""
        return json.loads(self.ended.out.splitlines()[-1])

    @property
    def lost(self) -> dict[str, int]:
        """What was lost of rows and of threads."""
        lost = self.about["lost"].items()
        return {name: count for name, count in lost if count and name not in NOT_ROWS}


class Record:
    """Records in a guest. The ledger is written to the guest's memory, then copied to the host."""

    def __init__(self, guest: Session) -> None:
        self.guest = guest

    def __call__(self, *arguments: object) -> Recording:
        """A recording that ends by itself, as that of a command does."""
        return self._run(f"tailscope record -q -o /tmp/ledger {' '.join(map(str, arguments))}")

    def server(self, start: str, span: str, client: str) -> Recording:
        """A recording of a server, in shell: `start` sets $server, `client` is what it serves."""
        return self._run(f"""{start}
rm -f said
tailscope record -o /tmp/ledger -p $server --span {span} 2>said & recorder=$!
until grep -qs '^recording' said
do kill -0 $recorder || {{ cat said >&2; exit 9; }}; usleep 20000; done
{client}
kill -INT $recorder
wait $recorder; ended=$?
kill $server; wait $server # its port is for the next one
(exit $ended)""")

    def _run(self, script: str) -> Recording:
        number = len(list(self.guest.share.glob("ledger-*")))
        name = f"ledger-{number}"
        ended = self.guest.shell(
            f"export TAILSCOPE_PATIENCE_MS={PATIENCE_MS}\n"
            f"rm -rf /tmp/ledger\n{script}\ncode=$?\ncp -r /tmp/ledger /share/{name}\nexit $code",
            RECORDING_SECONDS,
        )
        return Recording(ended.clean(), self.guest.share / name)


def pages_before_and_after(guest: Session, program: str) -> tuple[int, int]:
    """How many pages of perf's a program has, whose spans are counted: before and after the end of
    a recorder that is killed."""
    script = f"""
rm -rf said /tmp/killed
{program} & program=$!
tailscope record -o /tmp/killed --counters instructions -p $program --span sdk 2>said & recorder=$!
until grep -qs '^recording' said; do kill -0 $recorder || exit 9; usleep 20000; done
pages() {{ grep -c 'anon_inode:\\[perf_event\\]' /proc/$program/maps; }}
for try in $(seq 200); do [ "$(pages)" -gt 0 ] && break; usleep 100000; done
pages
kill -9 $recorder
for try in $(seq 200); do [ "$(pages)" -eq 0 ] && break; usleep 100000; done
pages
kill $program
"""
    before, after = map(int, guest.shell(script, 100).out.split())
    return before, after
