"""Keeps a control group at its memory limit with pages of a file, which can be given up.

Many processes have them mapped: to give one up, the kernel has to take it from all of them.

usage: filler.py FILE MIB
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import time

PIECE = 1 << 20
#: One access maps so much around it (fault_around_bytes).
AROUND = 64 << 10
PROCESSES = 24
PR_SET_PDEATHSIG = 1


def main(path: str, mib: int) -> None:
    """Touches the file's pages in turn, 50 MiB a second, in many processes, for ever."""
    with open(path, "w+b") as file:
        os.truncate(path, mib << 20)
        with mmap.mmap(file.fileno(), mib << 20, prot=mmap.PROT_READ) as pages:
            for _ in range(PROCESSES - 1):
                if os.fork() == 0:
                    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                    break
            at = 0
            while True:
                for page in range(at, at + PIECE, AROUND):
                    _ = pages[page]
                at = (at + PIECE) % (mib << 20)
                time.sleep(0.020)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
