"""A viewer cuts oblique slices from a scan of 320 by 320 by 320 voxels, each under another angle, and fits their brightness.

Cause: each cubic interpolation filters the whole scan first. Remedy: spline_filter once, and prefilter=False.
"""

import math

import cupy
from cupyx.scipy import ndimage

from pairs import main

SIDE, PIXELS = 320, 512


def plane(angle, depth):
    """Coordinates of a slice's pixels in the scan."""
    across, along = cupy.meshgrid(cupy.linspace(-0.7, 0.7, PIXELS), cupy.linspace(-0.7, 0.7, PIXELS))
    x = across * math.cos(angle) - depth * math.sin(angle)
    z = across * math.sin(angle) + depth * math.cos(angle)
    return (cupy.stack([z, along, x]) + 1) * ((SIDE - 1) / 2)


def brightness(slice_):
    """The slice with its mean at one half and a spread of one quarter."""
    return cupy.clip((slice_ - slice_.mean()) / (4 * slice_.std()) + 0.5, 0, 1)


def build(remedy):
    cupy.random.seed(1)
    scan = cupy.random.random((SIDE, SIDE, SIDE), dtype=cupy.float32)
    if remedy:
        scan = ndimage.spline_filter(scan, order=3, output=cupy.float32, mode="mirror")
    state = {"slice": 0}

    def step():
        state["slice"] += 1
        angle, depth = state["slice"] * 0.01, 0.4 * math.sin(state["slice"] * 0.03)
        cut = ndimage.map_coordinates(scan, plane(angle, depth), order=3, mode="mirror", prefilter=not remedy)
        return brightness(cut)

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.runtime.deviceSynchronize)
