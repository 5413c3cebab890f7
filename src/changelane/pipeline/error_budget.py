# SPDX-License-Identifier: Apache-2.0
"""The error budget of a run: the number or share of events that may fail."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import msgspec

from changelane.errors import ConfigError

MIN_EVENTS: Final = 1000
"""The number of events from which a share counts, so that a first failure stops no pipeline."""


class Budget(msgspec.Struct, frozen=True):
    """The maximum number or share of failures before a run counts as failed."""

    text: str
    count: int | None = None
    percent: Fraction | None = None

    @classmethod
    def parse(cls, text: str, where: str) -> "Budget":
        """Parse ``12`` or ``0.5%``.

        Args:
            text: The text.
            where: The name of the option, for the error.

        Raises:
            ConfigError: The text is neither a number nor a share.
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
        raise ConfigError(f"{where} must be a number such as 12 or a share such as 0.5%")

    def allows(self, failed: int, total: int) -> bool:
        """Whether *failed* of *total* events are within the budget."""
        if self.percent is None:
            return failed <= (self.count or 0)
        return failed * 100 <= self.percent * total

    def allows_so_far(self, failed: int, total: int) -> bool:
        """Whether an unfinished run is within the budget; a share of few events does not count."""
        return (self.percent is not None and total < MIN_EVENTS) or self.allows(failed, total)


def quarantined_text(quarantined: Mapping[str, int]) -> str:
    """Return the number of quarantined rows, by reason code.

    >>> quarantined_text({"no_key": 2, "malformed_json": 1200})
    '1,202 quarantined (malformed_json 1,200, no_key 2)'
    """
    most_first = sorted(
        quarantined.items(), key=lambda code_and_count: (-code_and_count[1], code_and_count[0])
    )
    codes = ", ".join(f"{code} {count:,}" for code, count in most_first)
    return f"{sum(quarantined.values()):,} quarantined ({codes})"


def over_budget_text(
    budget: Budget | None, quarantined: Mapping[str, int], total: int, *, is_ended: bool
) -> str | None:
    """Return the text about a run over its budget; ``None`` if the run is within the budget.

    Args:
        budget: The budget; ``None`` = any number.
        quarantined: The number of quarantined rows, by reason code.
        total: The number of events so far.
        is_ended: Whether the run is complete, so that a share of few events counts.
    """
    failed = sum(quarantined.values())
    if budget is None or (budget.allows if is_ended else budget.allows_so_far)(failed, total):
        return None
    return f"{quarantined_text(quarantined)} of {total:,}, more than the {budget.text} allowed"
