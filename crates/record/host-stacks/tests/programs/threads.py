"""Threads whose stacks are known. Ends when its standard input does."""

import ctypes
import os
import sys
import threading
import time


def sleeps():
    time.sleep(1000)


def outer():
    sleeps()


reads_from, _writes_to = os.pipe()


def reads():
    os.read(reads_from, 1)


def first_callee(n):
    return n + 1


def second_callee(n):
    return n + 2


def first_caller(n):
    return first_callee(n)


def second_caller(n):
    return second_callee(n)


def spins():
    n = 0
    while True:
        n = first_caller(n)
        n = second_caller(n)


def deep(depth):
    if depth:
        deep(depth - 1)
    else:
        sleeps()


def nested():
    deep(300)


def foreign():
    ctypes.CDLL(None).pause()


sys.setrecursionlimit(2000)
for target in (outer, reads, spins, spins, nested, foreign):
    threading.Thread(target=target, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
