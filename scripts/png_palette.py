#!/usr/bin/env python3
"""Pictures of screens as PNG with a palette of 256 colours, which takes a third of the bytes.

    png_palette.py FILE…      # needs Pillow and NumPy

A screen has a few hundred colours, most of them on the edges of letters. The most frequent ones stay as they are. The rest of the palette
goes to whatever colour is farthest from all of the palette, one after the other, so that no pixel changes by more than the printed number,
of 255, in any channel. A file with a palette stays as it is.
"""

import sys

import numpy
from PIL import Image

EXACT = 64
COLOURS = 256


def palette(colours, counts):
    """Indices of at most COLOURS of `colours`."""
    chosen = list(numpy.argsort(-counts, kind="stable")[:EXACT])
    distance = numpy.min([numpy.abs(colours - colours[at]).max(axis=1) for at in chosen], axis=0)
    while len(chosen) < COLOURS and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = numpy.minimum(distance, numpy.abs(colours - colours[chosen[-1]]).max(axis=1))
    return chosen


def reduce(path):
    picture = Image.open(path)
    if picture.mode == "P":
        return
    pixels = numpy.asarray(picture.convert("RGB"))
    colours, where, counts = numpy.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    colours = colours.astype(int)
    kept = colours[palette(colours, counts)]
    distances = numpy.abs(colours[:, None] - kept[None]).max(axis=2)
    indices = distances.argmin(axis=1)[where.reshape(-1)].astype(numpy.uint8).reshape(pixels.shape[:2])
    small = Image.fromarray(indices, mode="P")
    small.putpalette(kept.astype(numpy.uint8).tobytes())
    small.save(path, optimize=True)
    print(f"{path}: {len(colours)} colours, largest change of a channel {distances.min(axis=1).max()}")


if __name__ == "__main__":
    for file in sys.argv[1:]:
        reduce(file)
