"""Copies a program under so many new names, or without end (0), and runs each: TIMES BEGIN PROGRAM.

Begins when the file BEGIN is there. Each runs for a second, 32 at a time.
"""

import os
import shutil
import subprocess
import sys
import time

times, begin, program = int(sys.argv[1]), sys.argv[2], sys.argv[3]
print("ready", flush=True)
while not os.path.exists(begin):
    time.sleep(0.05)
done, running = 0, []
while times == 0 or done < times:
    if len(running) == 32:
        running.pop(0).wait()
    copy = shutil.copy(program, f"copy-{done}")
    running.append(subprocess.Popen([f"./{copy}", "1"], stdout=subprocess.DEVNULL))
    done += 1
print("done", done, flush=True)
time.sleep(3600)
