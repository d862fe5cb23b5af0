"""How far apart two colours look: CIEDE2000, with all cones, without the green, and without the red ones.

Sources: CIE 142-2001, as Sharma, Wu and Dalal wrote it out ("The CIEDE2000 color-difference formula", 2005), and
Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency", 2009.
"""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

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


def lab(colour: str, vision: str = "all cones") -> Vector:
    """CIE L*a*b* under D65 of a colour #rrggbb as it is seen."""
    srgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    xyz = _XYZ @ np.clip(VISION[vision] @ linear, 0, 1) / _WHITE
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def ciede2000(one: Vector, two: Vector) -> float:
    """The difference of two colours in CIE L*a*b*; 1 is about what an eye can tell beside each other."""
    chroma = np.mean([np.hypot(*each[1:]) for each in (one, two)])
    stretch = 1.5 - 0.5 * np.sqrt(chroma**7 / (chroma**7 + 25**7))
    (l1, c1, h1), (l2, c2, h2) = (
        (light, np.hypot(stretch * a, b), np.degrees(np.arctan2(b, stretch * a)) % 360) for light, a, b in (one, two)
    )
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = h1 + turn / 2 if c1 * c2 else h1 + h2
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    t = 1 - 0.17 * _cos(hue - 30) + 0.24 * _cos(2 * hue) + 0.32 * _cos(3 * hue + 6) - 0.2 * _cos(4 * hue - 63)
    by_light = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    by_chroma = (c2 - c1) / (1 + 0.045 * chroma)
    by_hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * chroma * t)
    bend = 60 * np.exp(-((((hue % 360) - 275) / 25) ** 2))
    both = -2 * np.sqrt(chroma**7 / (chroma**7 + 25**7)) * np.sin(np.radians(bend))
    return float(np.sqrt(by_light**2 + by_chroma**2 + by_hue**2 + both * by_chroma * by_hue))


def _cos(degrees: float) -> float:
    return float(np.cos(np.radians(degrees)))
