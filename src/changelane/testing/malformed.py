# SPDX-License-Identifier: Apache-2.0
"""Mutations that generate malformed messages; each yields many messages of one message."""

import json
from collections.abc import Iterator
from typing import Any, Final

from changelane.event import DataChange, Key, Op
from changelane.schema import Column, TableId, TableSchema
from changelane.types import Date, Decimal, Integer, String, Timestamp

SECRETS: Final = ("s3cr3t-text", "987654321987", "s3cr3t-key", "3141592653.58")
"""Values of :data:`SECRET_EVENTS`, which no error may contain."""

_SCHEMA: Final = TableSchema(
    (
        Column("id", String(), "varchar(30)"),
        Column("note", String(), "varchar(255)"),
        Column("count", Integer(64), "bigint"),
        Column("price", Decimal(30, 2), "decimal(30,2)"),
        Column("day", Date(), "date"),
        Column("at", Timestamp(6), "datetime(6)"),
    )
)


def _row(note: str) -> dict[str, Any]:
    return {"id": "s3cr3t-key", "note": note, "count": 987654321987} | dict.fromkeys(
        ("price", "day", "at")
    )


SECRET_EVENTS: Final = tuple(
    DataChange(
        op,
        TableId(database="shop", name="orders"),
        key=Key(("id",)),
        before=_row("s3cr3t-text") if op in {Op.UPDATE, Op.DELETE} else None,
        after=None if op is Op.DELETE else _row("s3cr3t-text!"),
        schema=_SCHEMA,
        source_time_ns=1_732_184_415_183_000_000,
    )
    for op in (Op.CREATE, Op.UPDATE, Op.DELETE)
)
"""Row changes with values that occur nowhere else in a message."""

_WRONG: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**70,
    "",
    "s3cr3t-text",
    "\u0000",
    [],
    {},
    ["s3cr3t-text"],
    {"s3cr3t-text": "s3cr3t-text"},
    [[[[1]]]],
)
_HUGE: Final = (
    "1e999999999",
    "-1E+999999999",
    "1e-999999999",
    "-1.5e-9999999999999999999999",
    "9" * 5000,
)


def truncations(data: bytes) -> Iterator[bytes]:
    """Cut a message at every byte."""
    for length in range(len(data)):
        yield data[:length]


def flipped_bits(data: bytes) -> Iterator[bytes]:
    """Change one byte at many positions: to invalid UTF-8, NUL, or another digit or letter."""
    for index in range(0, len(data), 1 + len(data) // 500):
        for byte in (0xFF, 0x00, data[index] ^ 1, ord('"')):
            yield data[:index] + bytes([byte]) + data[index + 1 :]


def flipped_types(data: bytes) -> Iterator[bytes]:
    """Replace every part of a JSON document with a value of another type."""
    document = json.loads(data)
    for path in _paths(document):
        for wrong in _WRONG:
            yield json.dumps(_replaced(document, path, wrong)).encode()


def huge_numbers(data: bytes) -> Iterator[bytes]:
    """Replace every part with a number of a huge exponent, as number and as text."""
    document = json.loads(data)
    for path in _paths(document):
        for number in _HUGE:
            marked = json.dumps(_replaced(document, path, "@@@"))
            yield marked.replace('"@@@"', number).encode()
            yield marked.replace("@@@", number).encode()


_LITERALS: Final = (
    "NaN",
    "-Infinity",
    r'"\ud800"',
    "[" * 20_000,
    '{"a":' * 20_000,
    *("[" * depth + "]" * depth for depth in (201, 500, 900, 990)),
    *('{"a":' * depth + "0" + "}" * depth for depth in (201, 500, 900, 990)),
)


def literals(data: bytes) -> Iterator[bytes]:
    """Replace every part with text that is not JSON, or nested too deeply."""
    document = json.loads(data)
    for path in _paths(document):
        marked = json.dumps(_replaced(document, path, "@@@"))
        for wrong in _LITERALS:
            yield marked.replace('"@@@"', wrong, 1).encode()


def duplicate_fields(data: bytes) -> Iterator[bytes]:
    """Write every field of the outermost object twice, the second time with another value."""
    document = json.loads(data)
    if isinstance(document, dict):
        for name in document:
            for wrong in (None, 1, "x"):
                again = f"{json.dumps(name)}:{json.dumps(wrong)}}}"
                yield (json.dumps(document)[:-1] + "," + again).encode()


def missing_fields(data: bytes) -> Iterator[bytes]:
    """Remove one part of a JSON document."""
    document = json.loads(data)
    for path in _paths(document):
        if path:
            yield json.dumps(_replaced(document, path, _GONE)).encode()


_GONE: Final = object()
_Path = tuple[str | int, ...]


def _paths(document: Any, at: _Path = ()) -> Iterator[_Path]:
    yield at
    if isinstance(document, dict):
        for name, value in document.items():
            yield from _paths(value, (*at, name))
    elif isinstance(document, list):
        for index, value in enumerate(document[:3]):
            yield from _paths(value, (*at, index))


def _replaced(document: Any, path: _Path, value: Any) -> Any:
    if not path:
        return value
    head, *subpath = path
    if isinstance(document, dict):
        changed: Any = dict(document)
    else:
        changed = list(document)
    if value is _GONE and not subpath:
        del changed[head]
    else:
        changed[head] = _replaced(changed[head], tuple(subpath), value)
    return changed
