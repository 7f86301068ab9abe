"""Keeps a control group at its memory limit with pages of a file, which can be given up.

They are mapped and read again and again, so that the kernel has to look at many to find one.

usage: filler.py FILE MIB
"""

from __future__ import annotations

import mmap
import os
import sys
import time

PIECE = 256 << 10
PAGE = mmap.PAGESIZE


def main(path: str, mib: int) -> None:
    """Touches the file's pages in turn, 50 MiB a second, for ever."""
    with open(path, "w+b") as file:
        os.truncate(path, mib << 20)
        with mmap.mmap(file.fileno(), mib << 20, prot=mmap.PROT_READ) as pages:
            at = 0
            while True:
                for page in range(at, at + PIECE, PAGE):
                    _ = pages[page]
                at = (at + PIECE) % (mib << 20)
                time.sleep(0.005)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
