# SPDX-License-Identifier: Apache-2.0
"""Names in SQL and in paths: table and column names are hostile input."""

import hashlib
import re
from typing import Final

ORDER: Final = "_changelane_order"
COLUMNS: Final = "_changelane_columns"

DELETED: Final = "_changelane_deleted"
"""With soft deletes, whether the row is gone."""

UPSERTED: Final = "_changelane_upserted"
DEPARTED: Final = "_changelane_departed"
LIVE: Final = "_changelane_live"
"""What a statement's source holds beside the columns of the table."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_MAX_FOLDER: Final = 200
_HASH_DIGITS: Final = 32
"""128 bits: nobody finds two names with one hash."""
_PLAIN_SHAPES: Final = {"001", "101", "111"}


def quoted(name: str) -> str:
    """Return a column's name for SQL and for ``F.col``.

    >>> quoted('a`; DROP TABLE b')
    '`a``; DROP TABLE b`'
    """
    return "`" + name.replace("`", "``") + "`"


def sql_literal(value: str) -> str:
    """Return a text as SQL's literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def folder_name(*parts: str | None, generation: str = "") -> str:
    """Return one folder name for a table: injective, and safe on any file system.

    Letters, digits, ``_`` and ``-`` stay; every other byte is ``~`` and two hex digits, so that
    ``../../x`` stays inside its parent; parts are joined with ``.``. Long names end in ``~h`` and a
    hash, which no escape can be: ``h`` is no hex digit.
    A generation tells a table from an older one that came under its name.

    >>> folder("shop", None, "../../x")
    'shop.~2E~2E~2F~2E~2E~2Fx'
    """
    name = ".".join("".join(map(_escape, part)) or "~" for part in parts if part is not None)
    shape = "".join("0" if part is None else "1" for part in parts)
    # absent parts move the others: only one shape of each length goes without saying
    if shape not in _PLAIN_SHAPES:
        name += "~p" + shape
    if generation:
        name += "~g" + generation
    if len(name) <= _MAX_FOLDER:
        return name
    mark = "~h" + hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    return name[: _MAX_FOLDER - len(mark)] + mark


def _escape(character: str) -> str:
    if _PLAIN.match(character):
        return character
    return "".join(f"~{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
