# SPDX-License-Identifier: Apache-2.0
"""The texts of decimals, from their unscaled values."""

from collections.abc import Callable
from typing import Final

from changelane.types import Decimal
from changelane.types.values import scaled

MAX_PRECISION: Final = 38


def digits_of(kind: Decimal) -> int:
    """Return the most digits of a decimal in its Spark type."""
    return MAX_PRECISION if kind.precision is None else max(kind.precision, kind.scale or 0)


def scaled_bound(kind: Decimal) -> int:
    """Return the bound that unscaled values of a decimal are below."""
    return int(10 ** digits_of(kind))


def scaled_text(kind: Decimal) -> Callable[[int], str]:
    """Return the function from an unscaled value to the text that msgspec writes for the decimal.

    *kind* has at most six fraction digits. The function raises ``ValueError`` for a value with more
    digits than the column.

    >>> scaled_text(Decimal(6, 2))(-5)
    '-0.05'
    """
    scale, bound = kind.scale or 0, scaled_bound(kind)

    def text_of(unscaled: int) -> str:
        if not -bound < unscaled < bound:
            raise ValueError
        return str(scaled(unscaled, scale))

    return text_of
