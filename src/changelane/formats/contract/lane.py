# SPDX-License-Identifier: Apache-2.0
"""Lanes: plain row changes of one table, read without event objects.

Most messages of a topic differ only in the values of their rows. A *lane* reads such messages of
one table, schema and producer: an image is an object of a class made for the columns of the table.
All other messages take the event path, :meth:`~changelane.formats.contract.format.Format.decode`.

A lane is a fast path and never a second algorithm. It is opened from a message that took the event
path, and it is compiled from the plan that reads the rows there: the columns with the JSON types
and the readers of their values (:class:`LaneColumn`). A lane accepts fewer messages than the event
path. If anything about a message is in doubt, the message is not plain and takes the event path.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from changelane.event import DataChange, Transaction
from changelane.message import Message
from changelane.position import Position
from changelane.schema import Column

Convert = Callable[[Any], Any]

PlainChange = tuple[
    str,
    Any,
    Any,
    Position | None,
    Transaction | None,
    int | str | None,
    int | None,
    int | None,
    bool,
]
"""The parts of a plain change: the operation as in :class:`~changelane.event.Op`, the before and
the after image, the position if the producer sends one, the position in the transaction, the id of
the transaction in a field of its own, the source time and the process time in nanoseconds, and
whether the event has details. Only :meth:`EventLane.event_reader` states the last two.
"""

ReadChange = Callable[[bytes, bytes | None], PlainChange | None]
"""Returns the change of a message's value and key; ``None`` or any exception = not plain."""


ReadChanges = Callable[[bytes, bytes | None], list[PlainChange] | None]
"""The same for a message of one or several changes, in their order."""


class NotPlainError(ValueError):
    """The message or the table is not plain: the message takes the event path."""


class LaneColumn(msgspec.Struct, frozen=True):
    """How the values of a column are read in a lane.

    Attributes:
        column: The column of the event's schema.
        json: The type with which msgspec reads the JSON.
        read: The function from the read JSON to the value, as on the event path; ``None`` if they
            are equal. It raises an exception for a value that is not of the column's type.
        unread: The class of JSON that *read* returns unchanged, if any.
        unscaled: The function from JSON text to the unscaled value of a decimal, if *read* returns
            that value at the scale of the column.
    """

    column: Column
    json: Any
    read: Convert | None = None
    unread: type | None = None
    unscaled: Convert | None = None


class Lane(Protocol):
    """Reads the plain messages of one table, schema and producer.

    Attributes:
        columns: The columns in the order of the schema.
        is_named: Images are dictionaries with the columns in their order, because the columns
            follow from the names and their order in the message.
        deleted_columns: The columns that before images of deletes have values of; ``None`` = all.
    """

    columns: tuple[LaneColumn, ...]
    is_named: bool
    deleted_columns: tuple[str, ...] | None

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages.

        All its changes have the table, the schema, the key and the source of the message that
        opened the lane. All of them are updates with possibly incomplete images, as
        :attr:`~changelane.event.DataChange.after_holds` states it, or none is; likewise deletes of
        a schema that lists the sent columns only. The reader returns no image with an unavailable
        value (except as :class:`UnavailableLane` states), and no update that changes the key of the
        message. If images are dictionaries, the before image of an update may lack columns, and has
        the others in any order.

        Args:
            row: The class of the images (:func:`row_class`), or of dictionaries.
        """
        ...


class EventLane(Lane, Protocol):
    """A lane whose messages can be converted."""

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of messages; see :meth:`Lane.reader`.

        Args:
            row: The class of the images.
            has_positions: The events need their positions. Otherwise they are ``None``.
        """
        ...


@runtime_checkable
class UnavailableLane(Lane, Protocol):
    """A lane that reads updates whose rows have unavailable values.

    Its :meth:`~Lane.reader` returns their after images with the placeholder in place of these
    values, if the messages have no before image.

    Attributes:
        placeholder: The text of an unavailable value; ``None`` = the reader returns no such image.
        placeholder_columns: The columns in which it may be.
    """

    placeholder: str | None
    placeholder_columns: frozenset[str]


@runtime_checkable
class BatchLane(Lane, Protocol):
    """A lane whose messages may have several changes."""

    def batch_reader(self, row: Any) -> ReadChanges:
        """Return the reader of messages; see :meth:`Lane.reader`."""
        ...


@runtime_checkable
class TimedLane(Lane, Protocol):
    """A lane whose changes are ordered by their source time and the offset of their message."""

    def position_at(self, time_ns: int | None, offset: int | None) -> Position | None:
        """Return the position of a change; ``None`` if a part is unknown.

        Args:
            time_ns: The source time in nanoseconds.
            offset: The offset of the message.
        """
        ...


class Lanes(Protocol):
    """The lanes of one codec.

    Attributes:
        header_names: A message with a header of such a name is not plain.
    """

    header_names: frozenset[str]

    @property
    def version(self) -> int:
        """The version of the plans of the event path: another version ends all lanes.

        The readers of a lane reject the messages of another version themselves.
        """
        ...

    def identity(self, value: bytes) -> Hashable | None:
        """Return the identity of the lane of a message; ``None`` if the message is not plain."""
        ...

    def open(self, message: Message, change: DataChange) -> Lane:
        """Return the lane of a message that the event path decoded into this change.

        Only a message of a :class:`BatchLane` may have further changes, of the same schema.

        Raises:
            Exception: Messages such as this one are not plain.
        """
        ...


Change = TypeVar("Change")


def read_one(
    read_changes: Callable[[bytes, bytes | None], list[Change] | None],
) -> Callable[[bytes, bytes | None], Change | None]:
    """Return the reader of messages with one change, from that of messages with several."""

    def read(value: bytes, key: bytes | None) -> Change | None:
        changes = read_changes(value, key)
        return changes[0] if changes is not None and len(changes) == 1 else None

    return read


Kind = tuple[Any, ...]
"""The type of a field, and its default if it has one."""

Kinds = dict[str, Kind]
"""The fields of a class in the order of messages, in which msgspec finds them fastest.

msgspec compares a text with those of a ``Literal`` type without making it.
"""


def literal(value: Any) -> Kind:
    """Return the type of a field with one value, and its default if the value is null."""
    return (None, None) if value is None else (Literal[value],)


def kinds_of(wire: type[msgspec.Struct]) -> Kinds:
    """Return the fields of a wire class whose defaults are constants, if they have one."""
    return {
        field.name: (field.type,) if field.required else (field.type, field.default)
        for field in msgspec.structs.fields(wire)
    }


def plain_class(kinds: Kinds, rename: Literal["kebab"] | Mapping[str, str] | None = None) -> Any:
    """Return the class of plain messages, or of a part of them; it rejects other fields.

    Args:
        kinds: The fields.
        rename: The names of fields in messages, as in :func:`msgspec.defstruct`.
    """
    fields: list[Any] = [(name, *kind) for name, kind in kinds.items()]
    return msgspec.defstruct(
        "PlainPart", fields, rename=rename, kw_only=True, forbid_unknown_fields=True, gc=False
    )


def attribute(index: int) -> str:
    """Return the attribute of the column of an index in a class of images."""
    return f"c{index}"


def value_getter(
    name: str, columns: Sequence[LaneColumn], *, is_named: bool
) -> Callable[[Any], Any]:
    """Return the function from an image to the value of a column.

    Raises:
        NotPlainError: The column is not in the images.
    """
    for index, column in enumerate(columns):
        if column.column.name == name:
            return itemgetter(name) if is_named else attrgetter(attribute(index))
    raise NotPlainError


def values_getter(
    names: Sequence[str], columns: Sequence[LaneColumn], *, is_named: bool
) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function from an image to the tuple of some columns' values.

    Raises:
        NotPlainError: A column is not in the images.
    """
    if len(names) == 1:
        value = value_getter(names[0], columns, is_named=is_named)
        return lambda image: (value(image),)
    indexes = {column.column.name: index for index, column in enumerate(columns)}
    if not indexes.keys() >= set(names):
        raise NotPlainError
    if not names:
        return lambda _image: ()
    paths = list(names) if is_named else [attribute(indexes[name]) for name in names]
    values: Callable[[Any], tuple[Any, ...]] = (itemgetter if is_named else attrgetter)(*paths)
    return values


def value_expression(
    image: str, index: int, name: str, names: dict[str, Any], *, is_named: bool
) -> str:
    """Return the expression of a column's value in an image, for :func:`compiled_function`.

    Args:
        image: The name of the image in the text.
        index: The index of the column.
        name: The name of the column.
        names: The names of the text, which this function extends.
        is_named: The image is a dictionary.
    """
    if not is_named:
        return f"{image}.{attribute(index)}"
    names[f"name_{index}"] = name
    return f"{image}[name_{index}]"


def compiled_function(lines: Iterable[str], names: dict[str, Any]) -> Any:
    """Return the function of a text that has no names or values of a message in it.

    The steps of a lane are statements of one function, because the calls between them took a third
    of the time.

    Args:
        lines: The text of the function, which is called ``function``.
        names: The global names of the text.
    """
    exec("\n".join(lines), names)  # noqa: S102 - see above
    return names["function"]


_NEEDS_ESCAPE: Final = frozenset('"\\') | frozenset(map(chr, range(32)))


def row_class(names: Sequence[str], kinds: Iterable[Any], *, omits_nulls: bool = False) -> Any:
    """Return the class of images with these columns, each with a type of :mod:`msgspec`.

    An object has all columns, and NULL is ``None``; with *omits_nulls*, the JSON of an object may
    lack columns that are NULL. msgspec reads and writes the names of the
    columns, and rejects other names.

    Raises:
        NotPlainError: msgspec cannot write one of the names, because it does not escape names.
    """
    if any(not _NEEDS_ESCAPE.isdisjoint(name) for name in names):
        raise NotPlainError
    # msgspec finds a field by the UTF-8 that Python keeps with its name. A name that msgspec
    # decoded itself has none until it is encoded once.
    msgspec.json.encode(list(names))
    fields: list[Any] = [(attribute(index), kind | None) for index, kind in enumerate(kinds)]
    if omits_nulls:
        fields = [(*field, None) for field in fields]
    rename = {attribute(index): name for index, name in enumerate(names)}
    try:
        return msgspec.defstruct("Row", fields, rename=rename, forbid_unknown_fields=True, gc=False)
    except (TypeError, ValueError):
        raise NotPlainError from None
