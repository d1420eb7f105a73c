"""What the Python programs share with output.h: results go to standard output as raw bytes, which verify.py hashes."""

import sys

import numpy


def write(*arrays):
    """Writes arrays of any framework (already on the host, or convertible by numpy) to standard output."""
    for array in arrays:
        sys.stdout.buffer.write(numpy.ascontiguousarray(array).tobytes())
    sys.stdout.buffer.flush()
