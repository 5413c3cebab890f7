# SPDX-License-Identifier: Apache-2.0
"""Patterns of table names: two parts with a dot between them, such as ``public.orders``. Pure.

A part without quotes is the exact name, where ``*`` and ``?`` match any characters and any one
character. A part in quotes is the exact name, whatever it contains; a quote inside is written
twice. The quotes are those of the database: double quotes in PostgreSQL, backticks in MySQL.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from changelane.errors import ConfigError

_WILDCARDS: Final = {"*": ".*", "?": "."}


class TablePattern(msgspec.Struct, frozen=True):
    """A pattern of table names.

    Attributes:
        text: The pattern as it was written.
        schema, table: Its parts as regular expressions; in MySQL, a schema is a database.
        is_exact: Whether it names one table.
        ignores_case: Whether the database ignores the case of names.
    """

    text: str
    schema: str
    table: str
    is_exact: bool
    ignores_case: bool = False

    def matches(self, schema: str, name: str) -> bool:
        """Whether it matches a table."""
        flags = re.DOTALL | (re.IGNORECASE if self.ignores_case else 0)
        parts = ((self.schema, schema), (self.table, name))
        return all(re.fullmatch(pattern, text, flags) for pattern, text in parts)


def pattern_of(
    text: str, *, quote: str = '"', schema_word: str = "schema", ignores_case: bool = False
) -> TablePattern:
    """Parse a pattern.

    Args:
        text: The pattern.
        quote: The quote of the database.
        schema_word: The word for the first part, for the error.
        ignores_case: Whether the database ignores the case of names.

    Raises:
        ConfigError: It has not two parts.

    >>> pattern_of("public.*").matches("public", "Orders")
    True
    >>> pattern_of('public."*"').matches("public", "Orders")
    False
    """
    part = f"(?:{quote}(?:[^{quote}]|{quote}{quote})+{quote}|[^{quote}.]+)"
    parts = re.fullmatch(rf"({part})\.({part})", text, re.DOTALL)
    if parts is None:
        raise ConfigError(
            f"the table {text!r} is not {schema_word}.table, such as shop.orders or shop.*; write "
            f"a name with a dot or a quote in quotes: shop.{quote}old.orders{quote}"
        )
    is_exact = all(name[0] == quote or not set(name) & set(_WILDCARDS) for name in parts.groups())
    schema, table = (_expression_of(name, quote) for name in parts.groups())
    return TablePattern(text, schema, table, is_exact, ignores_case)


def _expression_of(part: str, quote: str) -> str:
    if part[0] == quote:
        return re.escape(part[1:-1].replace(quote * 2, quote))
    return "".join(_WILDCARDS.get(char) or re.escape(char) for char in part)


def nearest_name(text: str, names: Iterable[str], *, quote: str = '"') -> str:
    """Return the name that a pattern without a match may mean; empty if none is near.

    Args:
        text: The pattern.
        names: Names of tables, as patterns.
        quote: The quote of the database.
    """
    plain_names: Mapping[str, str] = {name.replace(quote, "").lower(): name for name in names}
    plain_text = text.replace(quote, "").lower()
    near = difflib.get_close_matches(plain_text, plain_names, n=1, cutoff=0.7)
    return plain_names[near[0]] if near else ""
