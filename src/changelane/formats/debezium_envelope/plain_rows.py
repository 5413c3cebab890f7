# SPDX-License-Identifier: Apache-2.0
"""The parts of lanes that the members of the family share: columns, message keys, fillers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from changelane.formats.contract import json
from changelane.formats.contract.lane import LaneColumn, NotPlainError, values_getter
from changelane.formats.debezium_envelope.rows import json_values
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan
from changelane.formats.debezium_envelope.rows.semantic_types import NUMBERS
from changelane.schema import Column
from changelane.types import UNKNOWN

_KEY_CLASSES: Final = frozenset({int, str})


def lane_columns(plan: RowPlan, row: Iterable[str]) -> tuple[LaneColumn, ...]:
    """Return the columns of a plan with the forms of their values.

    Args:
        plan: The plan.
        row: The names of the columns if the plan has no types.
    """
    if plan.schema is None:
        return tuple(LaneColumn(Column(name, UNKNOWN), Any) for name in row)
    columns: list[LaneColumn] = []
    for column in plan.schema.columns:
        wire = plan.wires[column.name]
        unread = float if wire.decode is json_values.float_in else None
        columns.append(LaneColumn(column, wire.json, wire.decode, unread))
    return tuple(columns)


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
        plan: RowPlan | None,
        *,
        is_named: bool,
    ) -> None:
        """Read the form from a message key.

        Args:
            data: The message key.
            names: The columns of the key.
            row: The row of the message.
            columns: The columns of the lane.
            plan: The plan of the key's schema block, if any. Its types may have fewer values than
                the types of the row, and the event path ignores a key with another value.
            is_named: Images are dictionaries.
        """
        json_types = {column.column.name: column.json for column in columns}
        self.names = names
        self.values = values_getter(names, columns, is_named=is_named)
        values = tuple(row.get(name) for name in names)
        payload = self._payload(values)
        start = data.rfind(payload)
        if start < 0:
            raise NotPlainError
        self._head, self._tail = data[:start], data[start + len(payload) :]
        wires = {} if plan is None else plan.wires
        has_row_types = all(
            name not in wires or wires[name].json == json_types[name] for name in names
        )
        self._read = None if plan is None or has_row_types else plan.rows
        self._pattern: bytes | None = None
        if has_row_types and all(json_types[name] in NUMBERS - {bool} for name in names):
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
        payload = self._payload(values)
        if self._read is not None:
            self._read(payload)
        return self._head + payload + self._tail == data
