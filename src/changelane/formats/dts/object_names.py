# SPDX-License-Identifier: Apache-2.0
"""The texts of a record that have a syntax: ``objectName``, ``pk_uk_info`` and positions."""

import re
from collections.abc import Collection
from typing import Final

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.position import MySqlPosition
from changelane.schema import TableId

ESCAPED_DOT: Final = "\\u002E"
"""A dot inside a name: six characters, not an escape of JSON."""

KEY_TAG: Final = "pk_uk_info"
_PRIMARY: Final = "PRIMARY"

NO_POSITION: Final = "0@0"
"""The text of an unknown position. The numbers of binary log files start with 1."""

_BINLOG: Final = re.compile(r"([0-9]{1,19})@([0-9]{1,18})")
_MOST_PARTS: Final = 3


def read_object_name(text: str | None) -> TableId | None:
    r"""Return the table of an ``objectName``; ``None`` for more than three parts.

    One part is a database, two are database and table, three have the schema between them. The
    text is split at the dots, and then each name is unescaped.

    >>> read_object_name("d\u002Eb.t")
    TableId(database='d.b', name='t')
    """
    if text is None:
        return TableId()
    parts = [part.replace(ESCAPED_DOT, ".") or None for part in text.split(".")]
    if len(parts) > _MOST_PARTS:
        return None
    if len(parts) == _MOST_PARTS:
        return TableId(*parts)
    return TableId(parts[0], None, parts[1] if len(parts) > 1 else None)


def object_name(table: TableId) -> str | None:
    """Return the ``objectName`` of a table; an unknown part is empty."""
    database, schema, name = (
        None if part is None else part.replace(".", ESCAPED_DOT)
        for part in (table.database, table.schema, table.name)
    )
    if schema is not None:
        return f"{database or ''}.{schema}.{name or ''}"
    if name is not None:
        return f"{database or ''}.{name}"
    return database


def key_columns(text: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return the primary key of a ``pk_uk_info``; empty where it has other names than *columns*.

    The producer does not escape names in this JSON, so a name may break it.

    >>> key_columns('{"uk_x":["b"],"PRIMARY":["id"]}', ["id", "b"])
    ('id',)
    """
    try:
        keys = json.loads(text.encode(), dict[str, list[str]])
        key_names = tuple(keys.get(_PRIMARY, ()))
    except DecodeError:
        key_names = ()
    if key_names and all(name in columns for name in key_names):
        return key_names
    _, _, tail = text.partition(f'"{_PRIMARY}":["')
    key_names = tuple(tail.partition('"]')[0].split('","'))
    return key_names if tail and all(name in columns for name in key_names) else ()


def key_info(columns: tuple[str, ...]) -> str:
    """Return the ``pk_uk_info`` of a primary key."""
    return json.dumps({_PRIMARY: columns}).decode()


def read_binlog(text: str, prefix: str, gtid: str | None) -> MySqlPosition | None:
    """Return the position of ``<offset>@<number of the binary log file>``; else ``None``.

    >>> read_binlog("72469@78", "mysql-bin", None)
    MySqlPosition(file='mysql-bin.000078', pos=72469)
    """
    match = _BINLOG.fullmatch(text)
    if match is None or text == NO_POSITION:
        return None
    return MySqlPosition(f"{prefix}.{int(match[2]):06}", int(match[1]), 0, gtid)


def binlog(position: MySqlPosition) -> str | None:
    """Return a position in the form of DTS; ``None`` where its file has no number."""
    number = position.file.rpartition(".")[2]
    if not (number.isascii() and number.isdigit()) or position.pos < 0:
        return None
    return f"{position.pos}@{int(number)}"
