# SPDX-License-Identifier: Apache-2.0
"""The names of losses, their classes, and the policy that decides which losses pass.

A loss is content of an event outside the capabilities of the target format
(:mod:`changelane.formats.contract.capabilities`). :data:`LOSSES` declares all losses of all
formats. A loss of data changes a row: its values, the state of a column, its operation or its key.
A loss of metadata leaves rows as they are: if a type is lost, the value is written in full, as text
or in a wider type.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal

import msgspec

from changelane.errors import UnknownNameError

Loss = tuple[str, str]
"""(field, reason); neither contains a value of a row."""


PARTIAL_ROW: Final[Loss] = ("absent", "readers take the columns of the update for a whole row")
"""The loss of an update that may lack columns, in a message that does not show it."""

LACKING_ROW: Final[Loss] = ("absent", "the new row of a key change lacks a column, read as NULL")
"""The loss of a key change that is written as a delete and an insert."""


DATABASE_AS_SCHEMA: Final[Loss] = ("table.database", "read as the schema")
SCHEMA_AS_DATABASE: Final[Loss] = ("table.schema", "read as the database")
"""The losses of a part of a table's name that is written in the place of the other part, because
the format has only that one, and the table does not. Tables of one name stay apart.
"""


class LossClass(StrEnum):
    """The kind of content that is lost."""

    DATA = "data"
    """A value, the state of a column, an operation or a key."""
    METADATA = "metadata"
    """Other content: the source block, types and nullability, transaction and position."""


class LossGroup(msgspec.Struct, frozen=True):
    """A group of losses with a common name.

    Attributes:
        kind: The class of its losses.
        meaning: The content that is lost.
        parts: The names of single losses, without the name of the group.
        others: The names of single losses of the other class.
        is_open: A single loss may have any other name, too: the name of a producer's own field.
    """

    kind: LossClass
    meaning: str
    parts: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    is_open: bool = False


_DATA: Final = LossClass.DATA
_METADATA: Final = LossClass.METADATA
_TYPES: Final = tuple(
    "array bits boolean bytes date decimal enum float float32 float64 geometry instant int8 int16 "
    "int32 int64 integer interval json map record set string text time timestamp timetz uint8 "
    "uint16 uint32 uint64 unknown uuid xml year".split()
)

LOSSES: Final[Mapping[str, LossGroup]] = {
    "absent": LossGroup(_DATA, "the difference between a missing column and NULL"),
    "action": LossGroup(_DATA, "the action of a statement, if its text does not determine it"),
    "after": LossGroup(_DATA, "the after image, or columns of it"),
    "before": LossGroup(_DATA, "the before image, or columns of it"),
    "column": LossGroup(_DATA, "a whole column"),
    "ddl": LossGroup(_DATA, "the text of a statement"),
    "details": LossGroup(_METADATA, "further fields of the producer", is_open=True),
    "event": LossGroup(
        _DATA,
        "an event that is no row change",
        ("control", "data", "half", "message", "schema", "truncate"),
        ("tombstone", "transaction", "watermark"),
    ),
    "half": LossGroup(_DATA, "the mark that a message is half of an update"),
    "key": LossGroup(_DATA, "the names of the key columns"),
    "key_change": LossGroup(_DATA, "the connection between the old and the new key of an update"),
    "moved_to": LossGroup(_METADATA, "the new key in a tombstone of the old key"),
    "null": LossGroup(_DATA, "the state NULL of a column"),
    "operation": LossGroup(
        _DATA,
        "the operation; `upsert`: an insert is read as an insert or an update of its key",
        ("c", "r", "u", "d"),
        ("upsert",),
    ),
    "other_key": LossGroup(_DATA, "the key of the other half of an update"),
    "pair": LossGroup(_DATA, "the value that joins two halves of an update"),
    "position": LossGroup(
        _METADATA, "the position in the source's log", ("file", "row", "rs_id", "scn", "tx_seq")
    ),
    "process_time": LossGroup(
        _METADATA, "the time at which the producer handled the change, or digits of it"
    ),
    "schema": LossGroup(
        _METADATA,
        "the declaration of a table; `schema` alone: the types of its columns",
        ("default", "generated", "key", "nullable", "source_type"),
    ),
    "source": LossGroup(
        _METADATA,
        "the producer of the message",
        ("connector", "product", "server", "snapshot", "version"),
    ),
    "source_time": LossGroup(_METADATA, "the time of the change, or digits of it"),
    "table": LossGroup(
        _METADATA, "parts of the table's name", ("database", "schema"), others=("name",)
    ),
    "transaction": LossGroup(
        _METADATA, "the position in a transaction", ("id", "last", "order", "size", "table_order")
    ),
    "type": LossGroup(
        _METADATA, "the type of a column; the value is written in full, as another type", _TYPES
    ),
    "unavailable": LossGroup(_DATA, "the mark that a column's value exists and was not sent"),
    "value": LossGroup(_DATA, "a value, or a part of it", _TYPES),
}
"""All groups of losses by name. The name of a group is the first part of its losses' names."""

WARNED: Final[Mapping[str, str]] = {
    "position": "later readers can order changes only by their place in the topic or file",
    "table.database": "tables with the same name in two databases become one",
    "table.schema": "tables with the same name in two schemas become one",
}
"""Losses of metadata that affect later readers, by name, and the effect; a run warns once."""


def loss_name(field: str) -> str:
    """Return the name of a loss by its field.

    >>> loss_name("type:uuid"), loss_name("schema.nullable")
    ('type.uuid', 'schema.nullable')
    """
    return field.replace(":", ".", 1)


def loss_class(field: str) -> LossClass:
    """Return the class of a loss by its field or name; an undeclared loss is of data.

    >>> loss_class("source.version").value, loss_class("value:float").value
    ('metadata', 'data')
    """
    group, _, part = loss_name(field).partition(".")
    declared = LOSSES.get(group)
    if declared is None:
        return LossClass.DATA
    if part in declared.others:
        return _METADATA if declared.kind is _DATA else _DATA
    return declared.kind


def loss_text(loss: Loss) -> str:
    """Return a loss as one text: ``position (a mysql position is not written)``."""
    return f"{loss[0]} ({loss[1]})"


def loss_of(text: str) -> Loss:
    """Return the loss of a text of :func:`loss_text`."""
    field, _, reason = text.partition(" (")
    return field, reason.removesuffix(")")


def is_declared(field: str) -> bool:
    """Return whether :data:`LOSSES` has a loss."""
    group, _, part = loss_name(field).partition(".")
    declared = LOSSES.get(group)
    if declared is None:
        return False
    return not part or declared.is_open or part in declared.parts + declared.others


def _names() -> list[str]:
    """Return all names that ``accept`` takes, without a producer's own fields."""
    losses = [
        f"{group}.{part}"
        for group, loss_group in LOSSES.items()
        for part in loss_group.parts + loss_group.others
    ]
    return [*(loss_class_.value for loss_class_ in LossClass), *LOSSES, *losses]


class LossPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The losses that pass, by name or class, and the treatment of all others.

    Attributes:
        accept: Losses that pass and are counted: a class (``data``, ``metadata``), a group such as
            ``source``, or one loss such as ``schema.nullable``; [the list](losses.md#names) has
            all names.
        otherwise: The treatment of an event with another loss: ``raise`` makes it a failure,
            ``warn`` and ``ignore`` count the loss and write the event.
    """

    accept: tuple[str, ...] = ("metadata",)
    otherwise: Literal["raise", "warn", "ignore"] = msgspec.field(name="else", default="raise")

    def __post_init__(self) -> None:
        """Check the names in ``accept``.

        Raises:
            ValueError: A name is unknown; the error suggests the nearest one.
        """
        for name in map(loss_name, self.accept):
            if name not in set(LossClass) and not is_declared(name):
                raise ValueError(str(UnknownNameError("loss", name, _names())))

    def accepts(self, field: str) -> bool:
        """Return whether a loss passes by its name, its group or its class."""
        name = loss_name(field)
        accepted_names = {name, name.partition(".")[0], loss_class(field).value}
        return not accepted_names.isdisjoint(map(loss_name, self.accept))


DEFAULT: Final = LossPolicy()
"""Losses of metadata pass, losses of data do not."""


class OnLoss(StrEnum):
    """The treatment of losses, for all of them."""

    RAISE = "raise"
    WARN = "warn"
    IGNORE = "ignore"


def otherwise(on_loss: str | LossPolicy) -> OnLoss:
    """Return the treatment of losses that are not accepted by name."""
    return OnLoss(on_loss.otherwise if isinstance(on_loss, LossPolicy) else on_loss)


@lru_cache(maxsize=4096)
def refused(on_loss: str | LossPolicy, losses: tuple[Loss, ...]) -> tuple[Loss, ...]:
    """Return the losses that do not pass.

    Raises:
        ValueError: *on_loss* is none of ``raise``, ``warn`` and ``ignore``.
    """
    if otherwise(on_loss) is not OnLoss.RAISE:
        return ()
    if not isinstance(on_loss, LossPolicy):
        return losses
    return tuple(loss for loss in losses if not on_loss.accepts(loss[0]))


class LossWarnings:
    """Warns of each loss in :data:`WARNED` once.

    Args:
        on_loss: The policy; a loss that it ignores, or accepts by its own name, causes no warning.
        target_format: The name of the format that does not carry the losses.
    """

    def __init__(self, on_loss: str | LossPolicy, target_format: str) -> None:
        accepted = on_loss.accept if isinstance(on_loss, LossPolicy) else ()
        self._pending = dict(WARNED) if otherwise(on_loss) is not OnLoss.IGNORE else {}
        for name in map(loss_name, accepted):
            self._pending.pop(name, None)
        self._target_format = target_format

    def of(self, losses: Iterable[Loss]) -> Iterator[str]:
        """Yield the warnings for losses that passed, each only once."""
        for field, reason in losses:
            if (field, reason) in {DATABASE_AS_SCHEMA, SCHEMA_AS_DATABASE}:
                continue
            if (effect := self._pending.pop(loss_name(field), None)) is not None:
                yield (
                    f"{self._target_format} does not carry {field} ({reason}): {effect}; "
                    f"accept {field} by name (on_loss) to hide this warning"
                )
