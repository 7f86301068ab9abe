"""Maps a program file as code, and changes its time and its own mappings again and again: FILE."""

import mmap
import os
import sys
import time

name = f"code-{os.getpid()}"
with open(sys.argv[1], "rb") as source, open(name, "wb") as file:
    file.write(source.read())
code = os.open(name, os.O_RDONLY)
held = mmap.mmap(code, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
print("ready", flush=True)
while True:
    more = mmap.mmap(-1, 1 << 20)
    os.utime(name)
    time.sleep(0.02)
    more.close()
    time.sleep(0.02)
