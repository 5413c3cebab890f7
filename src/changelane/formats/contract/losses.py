# SPDX-License-Identifier: Apache-2.0
"""The names of losses, whether each is one of data or of metadata, and which of them pass.

A format declares what it carries (:mod:`changelane.formats.contract.capabilities`); what it does
not carry of an event is a loss, and :data:`LOSSES` declares once, for all formats, what each loss
takes away. A loss of data changes what a reader makes of a row: its values, the state of a column,
its operation or its key. A loss of metadata leaves the rows as they are: whatever a type becomes,
the value is kept in full, as its text or in a wider type.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal

import msgspec

from changelane.errors import UnknownNameError

Loss = tuple[str, str]
"""(field, reason); neither ever holds a value of a row."""


class LossClass(StrEnum):
    """What a loss takes away."""

    DATA = "data"
    """A value, the state of a column, an operation or a key."""
    METADATA = "metadata"
    """Anything else: the source block, types and nullability, transaction and position."""


class LossGroup(msgspec.Struct, frozen=True):
    """Losses of one kind.

    Attributes:
        kind: Their class.
        meaning: What is lost.
        parts: The names of single losses, without that of the group.
        others: Single losses of the other class.
        is_open: Any other name may stand for a single loss, too: that of a producer's own field.
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
    "absent": LossGroup(_DATA, "that a column is not in the image, and so stays as it is"),
    "action": LossGroup(_DATA, "what a statement does, where its text does not tell it"),
    "after": LossGroup(_DATA, "columns of the row after"),
    "before": LossGroup(_DATA, "the row before, or columns of it"),
    "column": LossGroup(_DATA, "a whole column"),
    "ddl": LossGroup(_DATA, "the text of a statement"),
    "details": LossGroup(_METADATA, "further fields of the producer", is_open=True),
    "event": LossGroup(
        _DATA,
        "a whole message that is no change of a row",
        ("control", "data", "half", "message", "schema", "truncate"),
        ("tombstone", "transaction", "watermark"),
    ),
    "half": LossGroup(_DATA, "that a message is half of an update"),
    "key": LossGroup(_DATA, "which columns are the key"),
    "key_change": LossGroup(_DATA, "that an update changed the key"),
    "moved_to": LossGroup(_METADATA, "the new key in a tombstone of the old one"),
    "null": LossGroup(_DATA, "that a column is NULL"),
    "operation": LossGroup(_DATA, "which operation it was", ("c", "r", "u", "d")),
    "other_key": LossGroup(_DATA, "the key on the other side of an update"),
    "pair": LossGroup(_DATA, "which two messages are one update"),
    "position": LossGroup(
        _METADATA, "the place in the source's log", ("file", "row", "rs_id", "scn", "tx_seq")
    ),
    "process_time": LossGroup(_METADATA, "when the producer handled it, or digits of it"),
    "schema": LossGroup(
        _METADATA,
        "how a table is declared; without a name behind it: the types of its columns",
        ("default", "generated", "key", "nullable", "source_type"),
    ),
    "source": LossGroup(
        _METADATA,
        "who produced the message",
        ("connector", "product", "server", "snapshot", "version"),
    ),
    "source_time": LossGroup(_METADATA, "when the change was made, or digits of it"),
    "table": LossGroup(
        _METADATA, "parts of the table's name", ("database", "schema"), others=("name",)
    ),
    "transaction": LossGroup(
        _METADATA, "the place in a transaction", ("id", "last", "order", "size", "table_order")
    ),
    "type": LossGroup(
        _METADATA, "the type of a column; the value is written in full, in another one", _TYPES
    ),
    "unavailable": LossGroup(_DATA, "that the value of a column is not known, and so stays"),
    "value": LossGroup(_DATA, "a value, or a part of it", _TYPES),
}
"""What is declared of each loss, by the name of its group: the first part of its own name."""

WARNED: Final[Mapping[str, str]] = {
    "position": "readers have nothing but the order in the topic or file to tell what is newer",
    "table.database": "tables of equal names in two databases become one",
    "table.schema": "tables of equal names in two schemas become one",
}
"""Losses of metadata that matter to later readers, by name, and why: a run warns of them once."""


def loss_name(field: str) -> str:
    """Return the name of a loss by its field.

    >>> loss_name("type:uuid"), loss_name("schema.nullable")
    ('type.uuid', 'schema.nullable')
    """
    return field.replace(":", ".", 1)


def loss_class(field: str) -> LossClass:
    """Return the class of a loss by its field or name; one that is not declared is of data.

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
    """Return a loss as reports count it: ``position (a mysql position is not written)``."""
    return f"{loss[0]} ({loss[1]})"


def loss_of(text: str) -> Loss:
    """Return the loss that :func:`loss_text` wrote."""
    field, _, reason = text.partition(" (")
    return field, reason.removesuffix(")")


def is_declared(field: str) -> bool:
    """Say whether :data:`LOSSES` has a loss."""
    group, _, part = loss_name(field).partition(".")
    declared = LOSSES.get(group)
    if declared is None:
        return False
    return not part or declared.is_open or part in declared.parts + declared.others


def _names() -> list[str]:
    """Return all that ``accept`` can name, without a producer's own fields."""
    losses = [
        f"{group}.{part}"
        for group, loss_group in LOSSES.items()
        for part in loss_group.parts + loss_group.others
    ]
    return [*(loss_class_.value for loss_class_ in LossClass), *LOSSES, *losses]


class LossPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which losses pass, by name or kind, and what becomes of all others.

    Attributes:
        accept: Losses that pass and are counted: a class (``data``, ``metadata``), a group such as
            ``source``, or one loss such as ``schema.nullable``; [the list](losses.md#names) has
            all names.
        otherwise: What becomes of an event with another loss: ``raise`` sets it aside, ``warn``
            and ``ignore`` count the loss.
    """

    accept: tuple[str, ...] = ("metadata",)
    otherwise: Literal["raise", "warn", "ignore"] = msgspec.field(name="else", default="raise")

    def __post_init__(self) -> None:
        """Refuse names that no loss has; the nearest one is named.

        Raises:
            ValueError: One is unknown.
        """
        for name in map(loss_name, self.accept):
            if name not in set(LossClass) and not is_declared(name):
                raise ValueError(str(UnknownNameError("loss", name, _names())))

    def accepts(self, field: str) -> bool:
        """Say whether a loss passes by its name, its group or its class."""
        name = loss_name(field)
        accepted_names = {name, name.partition(".")[0], loss_class(field).value}
        return not accepted_names.isdisjoint(map(loss_name, self.accept))


DEFAULT: Final = LossPolicy()
"""Metadata passes, and data does not."""


class OnLoss(StrEnum):
    """What to do with what the target format cannot carry, whatever it is."""

    RAISE = "raise"
    WARN = "warn"
    IGNORE = "ignore"


def otherwise(on_loss: str | LossPolicy) -> OnLoss:
    """Return what becomes of the losses that are not accepted by name."""
    return OnLoss(on_loss.otherwise if isinstance(on_loss, LossPolicy) else on_loss)


@lru_cache(maxsize=4096)
def refused(on_loss: str | LossPolicy, losses: tuple[Loss, ...]) -> tuple[Loss, ...]:
    """Return the losses that do not pass.

    Raises:
        ValueError: *on_loss* is none of the words.
    """
    if otherwise(on_loss) is not OnLoss.RAISE:
        return ()
    if not isinstance(on_loss, LossPolicy):
        return losses
    return tuple(loss for loss in losses if not on_loss.accepts(loss[0]))


class LossWarnings:
    """Warns of the losses in :data:`WARNED`, of each once.

    Args:
        on_loss: The policy; who ignores losses, or accepts one by its own name, knows of it.
        target_format: The format that cannot carry them.
    """

    def __init__(self, on_loss: str | LossPolicy, target_format: str) -> None:
        accepted = on_loss.accept if isinstance(on_loss, LossPolicy) else ()
        self._left = dict(WARNED) if otherwise(on_loss) is not OnLoss.IGNORE else {}
        for name in map(loss_name, accepted):
            self._left.pop(name, None)
        self._target_format = target_format

    def of(self, losses: Iterable[Loss]) -> Iterator[str]:
        """Yield what was not said before of losses that passed."""
        for field, reason in losses:
            if (why := self._left.pop(loss_name(field), None)) is not None:
                yield (
                    f"{self._target_format} does not carry {field} ({reason}): {why}; "
                    f"accept {field} by name (on_loss) to hide this"
                )
