"""The certified mode of `crt`: what its decision on the device rests on.

The device works out, without the host: inner exponents d_h, which even out A D and D^-1 B; norms, sums and lowest bits
of the scaled rows and columns; magnitudes cut down to e5m2, whose product is a lower bound L of |A||B|; for each tile
of C the number of moduli with which

    (x_i tau_j + y_j sigma_i) / R  <=  gamma L_ij

holds for all its elements, x and y being norms, sigma and tau sums of magnitudes, R what `moduli` leaves of the radius;
and then one number for all tiles, the tiles that ask for more being multiplied in double. `kernels/crt/NOTES.md` proves
the inequality.
"""

import math

LEAST, MOST = 13, 16
"""Moduli that the device chooses from."""
TILE = (128, 192)
"""Rows and columns of C that are judged together."""
GROUP = 16
"""Rows of tiles that are walked together."""
LONGEST_K = 2**16
"""Sums of products of unsigned residues fit 32 bits."""

_TIME_8_BIT, _TIME_BYTE = 1.0 / 1.42e9, 1.0 / 2.9e6
_TIME_DOUBLE, _TIME_TILES = 1.0 / 52.0e6, 1.0 / 34.0e6
"""Microseconds that an H200 takes, as in 10_certified.cu: of an 8-bit operation, of a byte; of one in double, where
all are and where single tiles are."""


def gamma(k: int, loosened: int = 0) -> float:
    """2 sqrt(k) u, times 2^loosened: the bound that tiles of residues keep."""
    return math.ldexp(2.0 * math.sqrt(k), loosened - 53)
