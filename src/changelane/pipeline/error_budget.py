# SPDX-License-Identifier: Apache-2.0
"""How much may fail, and the words for what was beyond it."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import msgspec

from changelane.errors import ConfigError

LEAST: Final = 1000
"""A share counts from so many events on: one failure of one must not stop a pipeline."""


class Budget(msgspec.Struct, frozen=True):
    """How much may fail before a run counts as failed: a number or a share."""

    text: str
    count: int | None = None
    percent: Fraction | None = None

    @classmethod
    def parse(cls, text: str, where: str) -> "Budget":
        """Read ``12`` or ``0.5%``.

        Args:
            text: The text.
            where: The option that it is given by, for the message.

        Raises:
            ConfigError: The text is neither.
        """
        plain = text.strip()
        try:
            if plain.endswith("%"):
                percent = Fraction(plain[:-1].strip())
                if 0 <= percent <= 100:
                    return cls(plain, percent=percent)
            elif plain.isascii() and plain.isdigit():
                return cls(plain, count=int(plain))
        except (ValueError, ZeroDivisionError):
            pass
        raise ConfigError(f"{where} takes a number such as 12 or a share such as 0.5%")

    def holds(self, failed: int, total: int) -> bool:
        """Say whether *failed* of *total* are within the budget."""
        if self.percent is None:
            return failed <= (self.count or 0)
        return failed * 100 <= self.percent * total

    def goes_on(self, failed: int, total: int) -> bool:
        """Say the same in the middle of a run, where a share of little tells nothing."""
        return (self.percent is not None and total < LEAST) or self.holds(failed, total)


def counted(quarantined: Mapping[str, int]) -> str:
    """Return how much was set aside, by reason code.

    >>> counted({"no_key": 2, "malformed_json": 1200})
    '1,202 set aside (malformed_json 1,200, no_key 2)'
    """
    most_first = sorted(quarantined.items(), key=lambda one: (-one[1], one[0]))
    told = ", ".join(f"{code} {count:,}" for code, count in most_first)
    return f"{sum(quarantined.values()):,} set aside ({told})"


def beyond(
    budget: Budget | None, quarantined: Mapping[str, int], total: int, *, is_ended: bool
) -> str | None:
    """Return in words that a run set aside more than it may; ``None`` = it did not.

    Args:
        budget: What it may; ``None`` = any number.
        quarantined: What it set aside, by reason code.
        total: How many events it has taken.
        is_ended: It came to its end, so that a share of little counts, too.
    """
    failed = sum(quarantined.values())
    if budget is None or (budget.holds if is_ended else budget.goes_on)(failed, total):
        return None
    return f"{counted(quarantined)} of {total:,}, more than the {budget.text} allowed"
