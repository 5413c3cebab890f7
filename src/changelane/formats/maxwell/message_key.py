# SPDX-License-Identifier: Apache-2.0
"""The message key: the primary key's values, with the names of its columns in lower case.

Maxwell's ``RowIdentity`` writes ``{"database":"d","table":"t","pk.id":1}``, with
``kafka_key_format = array`` ``["d","t",[{"id":1}]]``, and for a table without a primary key
``{"database":"d","table":"t","_uuid":"..."}`` with a random id. The id that is written here follows
from the message, because equal events have equal messages.
"""

import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.event import Key, KeyOrigin
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.maxwell.wire import Row

_PREFIX: Final = "pk."
NAME_START: Final = b'"pk.'
"""The start of the name of a key column in a message key."""
_MOST_KEYS: Final = 4096
_NAMESPACE: Final = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 9562: URLs


class KeyReader:
    """Finds the key columns of rows by message keys."""

    def __init__(self) -> None:
        self._keys: BoundedCache[tuple[tuple[str, ...], tuple[str, ...]], Key | None]
        self._keys = BoundedCache(_MOST_KEYS)
        self._starts: BoundedCache[tuple[str, str], tuple[bytes, tuple[str, ...]]]
        self._starts = BoundedCache(_MOST_KEYS)

    def read(self, message_key: bytes, database: str, table: str, row: Row) -> Key | None:
        """Return the key of a row; ``None`` if the message key is not that of a row of the table.

        Such a message key is no error: a topic may have been written with other keys.
        """
        names = self._names(message_key, database, table)
        if not names:
            return None
        identity = names, tuple(row)
        try:
            return self._keys[identity]
        except KeyError:
            columns = columns_of(names, row)
            return self._keys.add(identity, Key(columns) if columns else None)

    def start(self, message_key: bytes, database: str, table: str) -> bytes | None:
        """Return the start of message keys with the one column of this one; ``None`` = unknown.

        It is that of the last row of the table; see :func:`has_start`.
        """
        cached_start = self._starts.get((database, table))
        if cached_start is None or not has_start(message_key, cached_start[0]):
            return None
        return cached_start[0]

    def _names(self, message_key: bytes, database: str, table: str) -> tuple[str, ...]:
        """Return the names in a message key, from its start if it has one column."""
        cached_start = self._starts.get((database, table))
        if cached_start is not None and has_start(message_key, cached_start[0]):
            return cached_start[1]
        names = names_in(message_key, database, table)
        if len(names) == 1:
            first, name, _ = message_key.partition(json.dumps(_PREFIX + names[0]))
            self._starts.add((database, table), (first + name, names))
        return names


def has_start(message_key: bytes, start: bytes) -> bool:
    """Return whether a message key has the one column whose name is at the end of a start."""
    return message_key.startswith(start) and message_key.find(NAME_START, len(start)) < 0


def names_in(message_key: bytes, database: str, table: str) -> tuple[str, ...]:
    """Return the names in a message key of a table's row; none if it is another message key."""
    try:
        content: Any = json.loads(message_key, object)
    except DecodeError:
        return ()
    match content:
        case {"database": key_database, "table": key_table}:
            names = tuple(name[3:] for name in content if name.startswith(_PREFIX))
        case [key_database, key_table, list() as pairs]:
            names = tuple(name for pair in pairs if isinstance(pair, dict) for name in pair)
        case _:
            return ()
    return names if (key_database, key_table) == (database, table) else ()


def columns_of(names: Sequence[str], row: Collection[str]) -> tuple[str, ...]:
    """Return the columns that have these names in lower case; none if one is not certain.

    >>> columns_of(["id", "part"], ["Id", "part", "note"])
    ('Id', 'part')
    """
    matches = [[column for column in row if column.lower() == name] for name in names]
    is_certain = all(len(columns) == 1 for columns in matches)
    return tuple(column for columns in matches for column in columns) if is_certain else ()


def message_key(
    database: str | None,
    table: str | None,
    columns: Iterable[str],
    row: Row,
    value: bytes,
    *,
    is_array: bool,
) -> bytes:
    """Return the message key of a row.

    Args:
        database: The database.
        table: The table.
        columns: The key columns.
        row: ``data`` of the message.
        value: The value of the message.
        is_array: Write the format ``array``.
    """
    pairs: list[tuple[str, Any]] = [(name.lower(), row.get(name)) for name in columns]
    if is_array:
        pair_list = [{name: item} for name, item in pairs]
        return json.with_jackson_escapes(json.dumps([database, table, pair_list]))
    fields = {"database": database, "table": table}
    fields |= {_PREFIX + name: item for name, item in pairs}
    if not pairs:
        fields["_uuid"] = unique_id(value)
    return json.with_jackson_escapes(json.dumps(fields))


def unique_id(value: bytes) -> str:
    """Return the id of a message without a key."""
    return str(uuid.uuid5(_NAMESPACE, value.hex()))


def payload_key(columns: Sequence[str], row: Row) -> Key | None:
    """Return the key of ``primary_key_columns``; ``None`` if the table has none.

    With ``underscore_to_camelcase`` Maxwell renames the columns of the row, but not these.
    """
    names = (
        camel if name not in row and (camel := _camel_case(name)) in row else name
        for name in columns
    )
    return Key(tuple(names), KeyOrigin.PAYLOAD) if columns else None


def _camel_case(name: str) -> str:
    head, *words = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in words)
