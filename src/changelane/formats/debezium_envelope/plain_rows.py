# SPDX-License-Identifier: Apache-2.0
"""The parts of lanes that the members of the family share: columns, message keys, fillers."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from changelane.formats.contract import json
from changelane.formats.contract.lane import LaneColumn, NotPlainError, attribute
from changelane.formats.debezium_envelope.rows import json_values
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan
from changelane.formats.debezium_envelope.rows.semantic_types import NUMBERS

_KEY_CLASSES: Final = frozenset({int, str})


def lane_columns(plan: RowPlan) -> tuple[LaneColumn, ...]:
    """Return the columns of a plan with the forms of their values.

    Raises:
        NotPlainError: The plan has no columns.
    """
    if plan.schema is None or not plan.schema.columns:
        raise NotPlainError
    columns: list[LaneColumn] = []
    for column in plan.schema.columns:
        wire = plan.wires[column.name]
        unread = float if wire.decode is json_values.float_in else None
        columns.append(LaneColumn(column, wire.json, wire.decode, unread))
    return tuple(columns)


def values_getter(
    names: Sequence[str], columns: Sequence[LaneColumn]
) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function from an image to the tuple of some columns' values."""
    all_names = [column.column.name for column in columns]
    attributes = [attribute(all_names.index(name)) for name in names]
    if len(attributes) == 1:
        (name,) = attributes
        return lambda row: (getattr(row, name),)
    return attrgetter(*attributes) if attributes else lambda _row: ()


class KeyForm:
    """The form of the message keys of a lane: the JSON of the row's values between two texts.

    Attributes:
        names: The columns of the key.
        values: The function from an image to their values.

    Raises:
        NotPlainError: The key is not the JSON of the row's values, or of another type than text
            and whole numbers.
    """

    def __init__(
        self,
        data: bytes,
        names: tuple[str, ...],
        row: Mapping[str, Any],
        columns: Sequence[LaneColumn],
    ) -> None:
        json_types = {column.column.name: column.json for column in columns}
        if not json_types.keys() >= set(names):
            raise NotPlainError
        self.names = names
        self.values = values_getter(names, columns)
        values = tuple(row.get(name) for name in names)
        payload = self._payload(values)
        start = data.rfind(payload)
        if start < 0:
            raise NotPlainError
        self._head, self._tail = data[:start], data[start + len(payload) :]
        self._pattern: bytes | None = None
        if all(json_types[name] in NUMBERS - {bool} for name in names):
            head, tail = (part.replace(b"%", b"%%") for part in (self._head, self._tail))
            payload = json.dumps(dict.fromkeys(names, 0)).replace(b"%", b"%%")
            self._pattern = head + payload.replace(b'":0', b'":%d') + tail
        if not self.is_key(data, values):
            raise NotPlainError

    def _payload(self, values: tuple[Any, ...]) -> bytes:
        if not _KEY_CLASSES.issuperset(map(type, values)):
            raise NotPlainError
        return json.dumps(dict(zip(self.names, values, strict=True)))

    def is_key(self, data: bytes | None, values: tuple[Any, ...]) -> bool:
        """Return whether a message key has this form and these values.

        Raises:
            Exception: A value is NULL, or of another type than text and whole numbers.
        """
        if self._pattern is not None:
            return self._pattern % values == data
        return self._head + self._payload(values) + self._tail == data
