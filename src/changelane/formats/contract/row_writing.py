# SPDX-License-Identifier: Apache-2.0
"""How a format writes the plain row changes of a table, as data: the target side of a lane.

A *conversion lane* reads plain messages with a lane (:mod:`changelane.formats.contract.lane`) and
writes them without event objects. The target format states its part as :class:`RowWriting`: the
writers of the columns' values, which are those of its encoder, and the function that writes the
messages around the rows. Whatever depends on a value in another way is not plain, or a loss that
the function reports.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from changelane.event import DataChange, Transaction
from changelane.formats.contract.format import Report
from changelane.formats.contract.lane import NotPlainError
from changelane.formats.contract.losses import Loss
from changelane.message import Message
from changelane.position import Position

Coordinates = tuple[Position | None, Transaction | None, int | None, int | None]
"""The position of a change, its position in the transaction, and its source time and process time
in nanoseconds, reduced to the capabilities of the format.
"""

WriteChange = Callable[[str, Any, Any, Coordinates, Report], tuple[Message, ...]]
"""Returns the messages of a change: of the operation as in :class:`~changelane.event.Op`, the
written before and after image, the coordinates, and the function that reports losses which depend
on these. Any exception = not plain. An image is an object or a dictionary with the columns in their
order; that of a delete may lack columns.
"""


class ColumnWriting(msgspec.Struct, frozen=True):
    """How the values of a column are written.

    Attributes:
        write: The function from a value to its JSON. It raises an exception for a value that is not
            of the column's type. ``None`` = the values are written as they are.
        text_class: The class of values that *write* writes as ``str`` does, if any.
        has_plain_null: Whether a change with NULL in this column is plain.
        is_text: Values that are written as they are must be texts.
    """

    write: Callable[[Any], Any] | None = None
    text_class: type | None = None
    has_plain_null: bool = True
    is_text: bool = True


class RowWriting(msgspec.Struct, frozen=True):
    """How a format writes the plain row changes of one table.

    The changes have no details.

    Attributes:
        columns: The writers of the columns in the order of the schema; empty without a schema, then
            the values of an image are written as the reduction returns them.
        write: The function that writes a change.
    """

    columns: tuple[ColumnWriting, ...]
    write: WriteChange


WritingOf = Callable[[DataChange], RowWriting]
"""Returns how messages such as that of a reduced change are written: with its table, schema, key
and source. It raises :class:`NotPlainError` if the format cannot state it.
"""


def not_plain(_loss: Loss) -> None:
    """Reject a loss that depends on a value.

    Raises:
        NotPlainError: Always.
    """
    raise NotPlainError
