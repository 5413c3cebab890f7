# SPDX-License-Identifier: Apache-2.0
"""Findings about a database that is to be captured, each with the statements that mend it."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal

import msgspec

from changelane.errors import ConfigError

_MAX_SHOWN: Final = 3


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One defect of a server, a slot, a publication or some tables.

    It contains names of the catalog, never a value of a row and never a secret.

    Attributes:
        severity: ``error``: changes are lost, or the capture does not run; ``warning``: the capture
            runs, but a later event of a known kind loses changes or fails.
        defect: The kind of the defect, such as ``wal_level``; tables with one defect share a
            finding.
        about: The subject, such as ``table public.orders``.
        problem: What is wrong.
        consequence: What is lost, or happens.
        statements: The SQL that mends it, for a user who has the privileges.
        advice: What no statement can do, such as a restart of the server.
    """

    severity: Literal["error", "warning"]
    defect: str
    about: str
    problem: str
    consequence: str
    statements: tuple[str, ...] = ()
    advice: str = ""

    @property
    def state(self) -> Literal["problem", "warning"]:
        """The severity as ``changelane check`` names it."""
        return "problem" if self.severity == "error" else "warning"

    @property
    def fix(self) -> str:
        """The statements, shortened if there are many, and the advice."""
        parts = list(self.statements[:_MAX_SHOWN])
        if hidden_count := len(self.statements) - len(parts):
            parts.append(f"and {hidden_count} more statements")
        return "; ".join([*parts, *filter(None, [self.advice])])

    def text(self) -> str:
        """Return the finding as one line of ``changelane check``."""
        line = f"{self.state:<7}  {self.about}: {self.problem}; {self.consequence}"
        return f"{line}: {self.fix}" if self.fix else line


def about_tables(names: Sequence[str]) -> str:
    """Return the subject of a finding about one or more tables.

    >>> about_tables(["public.a"]), about_tables(["public.a", "public.b"])
    ('table public.a', 'tables public.a, public.b')
    """
    return f"table {names[0]}" if len(names) == 1 else f"tables {shortened(names)}"


def shortened(names: Collection[str]) -> str:
    """Return some of the names as text.

    >>> shortened(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    shown = list(names)[:_MAX_SHOWN]
    hidden_count = len(names) - len(shown)
    return ", ".join(shown) + (f" and {hidden_count} more" if hidden_count else "")


def size_text(byte_count: int) -> str:
    """Return a number of bytes for people, rounded down.

    >>> size_text(1023), size_text(1536 * 1024), size_text(-5 << 30)
    ('1023 B', '1.5 MB', '-5.0 GB')
    """
    size, sign = abs(byte_count), "-" if byte_count < 0 else ""
    for unit, shift in (("TB", 40), ("GB", 30), ("MB", 20), ("kB", 10)):
        if size >> shift:
            return f"{sign}{size * 10 // (1 << shift) / 10} {unit}"
    return f"{sign}{size} B"


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether one of the findings is an error."""
    return any(finding.severity == "error" for finding in findings)


def reject_errors(findings: Iterable[Finding], label: str) -> None:
    """Reject a database with errors.

    Args:
        findings: The findings about it.
        label: The database as text.

    Raises:
        ConfigError: There are errors; the error has the statements that mend them.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        lines = "\n".join(f"  {finding.text()}" for finding in errors)
        raise ConfigError(f"{label} cannot be captured:\n{lines}")
