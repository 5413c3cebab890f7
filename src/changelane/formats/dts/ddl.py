# SPDX-License-Identifier: Apache-2.0
"""DDL records: what a statement does, and to which table. Statements are read, never executed."""

import re
from typing import Final

import msgspec

from changelane.schema import TableId


class Statement(msgspec.Struct, frozen=True):
    """What the head of a statement says.

    Attributes:
        action: ``create``, ``alter``, ``drop``, ``rename``, ``create_index``, ``drop_index``,
            ``truncate`` or ``other``.
        names: The tables that it names, each in one to three parts; only a truncate names more
            than one here.
    """

    action: str
    names: tuple[tuple[str, ...], ...] = ()


# atomic and possessive: comments cannot be divided in more than one way
_BLANK: Final = r"(?>\s+|/\*.*?\*/|--[^\n]*\n|#[^\n]*\n)"
_GAP: Final = _BLANK + "++"
_ANY_GAP: Final = _BLANK + "*+"
_NAME: Final = r"(?:`(?:[^`]|``)++`|\"(?:[^\"]|\"\")++\"|\[[^\]]++\]|[\w$#]++)"
_TABLE: Final = rf"({_NAME}(?:\s*\.\s*{_NAME}){{0,2}})"

_HEADS: Final[tuple[tuple[str, str], ...]] = (
    ("truncate", r"truncate(?:~table)?(?:~only)?~@"),
    ("create", r"create~(?:(?:global~|local~)?temporary~|unlogged~)?table~(?:if~not~exists~)?@"),
    ("drop", r"drop~(?:temporary~)?table~(?:if~exists~)?@"),
    ("rename", r"rename~table~(?:if~exists~)?@"),
    ("alter", r"alter~(?:(?:online|offline|ignore)~)*table~(?:if~exists~)?(?:only~)?@"),
    (
        "create_index",
        (
            r"create~(?:(?:unique|fulltext|spatial|bitmap)~)?index~(?:concurrently~)?"
            r"(?:if~not~exists~)?(?:%~(?:using~\w+~)?)?on~(?:only~)?@"
        ),
    ),
    ("drop_index", r"drop~index~%~on~@"),
    ("drop_index", r"drop~index\b"),
)
_STATEMENTS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (
        action,
        re.compile(
            _ANY_GAP + head.replace("~", _GAP).replace("@", _TABLE).replace("%", _TABLE[1:-1]),
            re.IGNORECASE | re.DOTALL,
        ),
    )
    for action, head in _HEADS
)
_NEXT_TABLE: Final = re.compile(
    rf"{_ANY_GAP},{_ANY_GAP}(?:only{_GAP})?{_TABLE}", re.IGNORECASE | re.DOTALL
)
_AFTER_TABLES: Final = re.compile(
    _ANY_GAP + r"(?:;|$|(?:restart|continue|cascade|restrict|drop|reuse|preserve|purge|wait|nowait)"
    r"\b)",
    re.IGNORECASE | re.DOTALL,
)
_PART: Final = re.compile(_NAME)
_MOST_CHARACTERS: Final = 65_536


def read(sql: str) -> Statement:
    """Return what a statement does; ``other`` for one that is not known.

    >>> read("alter table `shop`.orders add note text")
    Statement(action='alter', names=(('shop', 'orders'),))
    """
    head = sql[:_MOST_CHARACTERS]
    for action, pattern in _STATEMENTS:
        match = pattern.match(head)
        if match is None:
            continue
        names = tuple(map(_parts, match.groups()[:1]))
        if action != "truncate":
            return Statement(action, names)
        end = match.end()
        while following := _NEXT_TABLE.match(head, end):
            names = (*names, _parts(following[1]))
            end = following.end()
        if _AFTER_TABLES.match(head, end):
            return Statement(action, names)
    return Statement("other")


def _parts(text: str) -> tuple[str, ...]:
    return tuple(map(_unquoted, _PART.findall(text)))


def _unquoted(name: str) -> str:
    quote = name[0]
    if quote == "[":
        return name[1:-1]
    if quote in '`"':
        return name[1:-1].replace(quote * 2, quote)
    return name


def table_of(names: tuple[str, ...], around: TableId, *, has_schemas: bool) -> TableId:
    """Return the table of a name in a statement; what the name leaves out is *around* it.

    Args:
        names: The parts of the name.
        around: The database (and schema) that the record belongs to.
        has_schemas: A name of two parts is schema and table; else database and table.
    """
    match names:
        case (name,):
            return TableId(around.database, around.schema, name)
        case (outer, name) if has_schemas:
            return TableId(around.database, outer, name)
        case (outer, name):
            return TableId(outer, None, name)
        case (database, schema, name):
            return TableId(database, schema, name)
        case _:
            return around


def truncate_statement(table: TableId, *, quote: str) -> str:
    """Return a TRUNCATE for a table whose statement is not known."""
    found = (table.database if table.schema is None else None, table.schema, table.name)
    parts = (quote + part.replace(quote, quote * 2) + quote for part in found if part)
    return "TRUNCATE TABLE " + ".".join(parts)
