"""Two children that work. Ends, with them, when its standard input does."""

import os
import signal
import sys
import time


def work():
    while True:
        time.sleep(0.001)


children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        work()
    children.append(child)
print("ready", flush=True)
sys.stdin.read()
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
os._exit(0)
