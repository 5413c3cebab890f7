# SPDX-License-Identifier: Apache-2.0
"""Lanes of formats whose messages have no column types (:mod:`changelane.formats.contract.lane`).

The columns of a lane are those that the option ``schemas`` declares for its table. Without a
declaration they are the names in the image of the message that opens the lane, and plain images
have the same names in the same order.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from changelane.event import DataChange, Op
from changelane.formats.contract.declared_tables import DeclaredTable
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    PlainChange,
    ReadChange,
    row_class,
    value_getter,
    values_getter,
)
from changelane.schema import Column
from changelane.types import UNKNOWN


class EventForm(msgspec.Struct, frozen=True):
    """The form of the events that the reader of a lane returns.

    Attributes:
        row: The class of the images.
        columns: The columns.
        names: The names of the columns in images without types, in their order; ``None`` = the
            columns are declared.
        has_details: The events state whether they have details; else they state that they have
            none.
        has_whole_before: The before images of updates have all columns.
    """

    row: Any
    columns: tuple[LaneColumn, ...]
    names: tuple[str, ...] | None
    has_details: bool
    has_whole_before: bool

    def before_check(self) -> Callable[[Mapping[str, Any]], bool]:
        """Return the check whether a mapping is a before image without types of an update."""
        names, name_set = self.names, frozenset(self.names or ())
        if self.has_whole_before:
            return lambda image: tuple(image) == names

        def is_before(image: Mapping[str, Any]) -> bool:
            # an image in another order must not have all columns: it would be written in its order
            return tuple(image) == names or (bool(image) and image.keys() < name_set)

        return is_before

    def omitting_row(self) -> Any:
        """Return the class of images of declared columns whose JSON may lack NULL columns."""
        names = [column.column.name for column in self.columns]
        return row_class(names, (column.json for column in self.columns), omits_nulls=True)

    def values_of(self, names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
        """Return the function from an image to the JSON values of some columns.

        Raises:
            NotPlainError: A column is not in the images.
        """
        return values_getter(names, self.columns, is_named=self.names is not None)

    def value_of(self, name: str) -> Callable[[Any], Any]:
        """Return the function from an image to the JSON value of a column.

        Raises:
            NotPlainError: The column is not in the images.
        """
        return value_getter(name, self.columns, is_named=self.names is not None)


ReaderOf = Callable[[EventForm], ReadChange]
"""Returns the reader of the plain messages of a lane."""


class UntypedLane:
    """Reads the plain messages of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Attributes:
        columns: The columns in the order of the schema.
        names: Their names, if they have no types.
    """

    deleted_columns: tuple[str, ...] | None = None

    def __init__(
        self,
        change: DataChange,
        declared: DeclaredTable | None,
        reader_of: ReaderOf,
        *,
        has_whole_before: bool = True,
    ) -> None:
        """Create the lane.

        Args:
            change: The change of the message that opens the lane.
            declared: The declaration of its table.
            reader_of: Returns the reader of events.
            has_whole_before: The before images of updates without a schema are known to be whole.
                Other ones are not converted, because not every format can express them.

        Raises:
            NotPlainError: The change has other columns than the declaration, or none.
        """
        self.names: tuple[str, ...] | None = None
        self.columns: tuple[LaneColumn, ...] = ()
        if declared is None:
            self.names = tuple((change.before if change.op is Op.DELETE else change.after) or ())
            self.columns = tuple(LaneColumn(Column(name, UNKNOWN), Any) for name in self.names)
        elif change.schema is declared.schema:
            self.columns = declared.lane_columns()
        if not self.columns:
            raise NotPlainError
        self.is_named = self.names is not None
        self._reader_of = reader_of
        self._has_whole_before = has_whole_before or declared is not None

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        return self._reader_of(self._form(row, has_details=False))

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events (:class:`EventLane`)."""
        del has_positions  # they are read for their errors
        read_event = self._reader_of(self._form(row, has_details=True))
        if self._has_whole_before:
            return read_event

        def read(value: bytes, key: bytes | None) -> PlainChange | None:
            event = read_event(value, key)
            has_both = event is not None and event[1] is not None and event[2] is not None
            return None if has_both else event

        return read

    def _form(self, row: Any, *, has_details: bool) -> EventForm:
        return EventForm(row, self.columns, self.names, has_details, self._has_whole_before)
