# SPDX-License-Identifier: Apache-2.0
"""The values of a row that determine its partition."""

from collections.abc import Sequence

from changelane.errors import EncodeError
from changelane.event import DataChange, Image, Op
from changelane.types import UNAVAILABLE, String, Value
from changelane.types.values import value_text


def row_of(event: DataChange) -> Image:
    """Return the row of a change: its after image or, for a delete, its before image.

    A column that the after image lacks did not change.
    """
    if event.op is Op.DELETE or event.after is None:
        return event.before or {}
    return event.after if event.before is None else {**event.before, **event.after}


def value_of(event: DataChange, row: Image, name: str) -> Value:
    """Return the value of a column that determines the partition.

    Raises:
        EncodeError: The row lacks the column.
    """
    value = row.get(name, UNAVAILABLE)
    if value is UNAVAILABLE:
        raise EncodeError(
            f"a row of table {event.table} has no value of column {name!r}, which determines its "
            "partition"
        )
    return value


def texts_of(event: DataChange, row: Image, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of columns of a row; NULL is an empty text.

    Raises:
        EncodeError: The row lacks one of the columns.
    """
    columns_by_name = {} if event.schema is None else event.schema.by_name
    texts: list[str] = []
    for name in columns:
        value = value_of(event, row, name)
        kind = columns_by_name[name].type if name in columns_by_name else String()
        texts.append("" if value is None else value_text(kind, value))
    return tuple(texts)
