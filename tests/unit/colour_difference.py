"""Distances of colours in CIE L*a*b*, with all cones, without the green, and without the red ones.

Source of the last two: Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision
deficiency", 2009.
"""

from collections.abc import Iterable
from itertools import combinations

import numpy as np

VISION = {
    "all cones": np.eye(3),
    "no green cones": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no red cones": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
"""Linear RGB as it is seen, from linear RGB."""

_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
_WHITE = np.array([0.95047, 1.0, 1.08883])


def _lab(colour: str, vision: str) -> np.ndarray:
    """CIE L*a*b* under D65 of a colour #rrggbb as it is seen."""
    srgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    xyz = _XYZ @ np.clip(VISION[vision] @ linear, 0, 1) / _WHITE
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def too_near(colours: Iterable[str], vision: str) -> list[tuple[str, str]]:
    """Pairs of colours less than 14 apart, where an eye tells 2.3 apart beside each other."""
    return [
        (one, two)
        for one, two in combinations(colours, 2)
        if np.linalg.norm(_lab(one, vision) - _lab(two, vision)) < 14
    ]
