# SPDX-License-Identifier: Apache-2.0
"""The parts of lanes that the members of the family share: columns, message keys, fillers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from changelane.event import Key
from changelane.formats.contract import json
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    attribute,
    value_expression,
    values_getter,
)
from changelane.formats.contract.nesting import is_too_deep
from changelane.formats.debezium_envelope.message_key import JsonRow, KeyReader
from changelane.formats.debezium_envelope.options import BeforeImage
from changelane.formats.debezium_envelope.rows import json_values
from changelane.formats.debezium_envelope.rows.connect_schema import Blocks, Plan
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan
from changelane.formats.debezium_envelope.rows.semantic_types import NUMBERS
from changelane.schema import Column
from changelane.types import UNKNOWN

OPS: Final = Literal["c", "u", "d", "r"]
"""The type of the operation of plain changes."""

_KEY_CLASSES: Final = frozenset({int, str})


message_parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Returns the JSON of each member of an object, in the order of the message."""


def payload_of(value: bytes, plain: Plan, blocks: Blocks[Plan]) -> tuple[Plan, Any, bytes]:
    """Return the plan, the payload and the bytes before the payload of a message.

    Args:
        value: The message.
        plain: The plan of messages without a schema block.
        blocks: The plans of schema blocks.

    Raises:
        NotPlainError: The plan of the schema block is not cached.
    """
    if not value.startswith(b'{"schema":'):
        return plain, value, b""
    block = blocks.find(value)
    if block is None:
        raise NotPlainError
    plan, start = block
    return plan, memoryview(value)[start:-1], value[:start]


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
        columns.append(LaneColumn(column, wire.json, wire.decode, unread, wire.unscaled))
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
        self._is_named = is_named
        self._indexes = [list(json_types).index(name) for name in names if name in json_types]
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

    def check(self, image: str, names: dict[str, Any]) -> str:
        """Return the expression whether ``key`` is the message key of an image.

        Args:
            image: The name of the image in the expression.
            names: The names that the expression uses are added to it.
        """
        names |= {"pattern": self._pattern, "is_key": self.is_key, "key_values": self.values}
        if self._pattern is None:
            return f"is_key(key, key_values({image}))"
        values = ", ".join(
            value_expression(image, index, name, names, is_named=self._is_named)
            for name, index in zip(self.names, self._indexes, strict=True)
        )
        return f"pattern % ({values},) == key"

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


def key_form(
    reader: KeyReader,
    data: bytes | None,
    row: JsonRow,
    *,
    columns: Sequence[LaneColumn],
    plan: RowPlan,
    key: Key | None,
    is_named: bool,
) -> KeyForm | None:
    """Return the form of the message keys of a lane; ``None`` if messages have none.

    Args:
        reader: The reader of message keys.
        data: The message key of the message that opens the lane.
        row: The row of the message.
        columns: The columns of the lane.
        plan: The plan of the row.
        key: The key of the event.
        is_named: Images are dictionaries.

    Raises:
        NotPlainError: The key of the event is not from the message key, or has no such form.
    """
    if data is None:
        return None
    message_key, _ = reader.read(data, row, plan, {})
    if message_key is None or message_key != key:
        raise NotPlainError
    key_plan = reader.plan_of(data)
    return KeyForm(data, message_key.columns, row, columns, key_plan, is_named=is_named)


def completeness_check(
    columns: Sequence[LaneColumn],
    placeholder: Placeholder,
    names: dict[str, Any],
    *,
    is_named: bool,
) -> Callable[[str], str] | None:
    """Return the expression whether the image of a name is whole; ``None`` = every image is.

    A whole image has all columns, and none has the placeholder. The names that the expression uses
    are added to *names*.
    """
    if is_named:
        column_names = tuple(column.column.name for column in columns)
        names |= {"column_names": column_names, "may_be_in": placeholder.may_be_in}
        return lambda image: f"tuple({image}) == column_names and not may_be_in({image})"
    attributes = {attribute(index): column.json for index, column in enumerate(columns)}
    return placeholder.absence(attributes, names)


def _may_be_text(lane_column: LaneColumn, plan: RowPlan) -> bool:
    """Whether the text of the placeholder in a column is an unavailable value, as in events."""
    if plan.schema is None:
        return True
    wire = plan.wires[lane_column.column.name]
    is_text = lane_column.json is str and lane_column.read is None
    return is_text and wire.placeholder in {"", "text"}


class PlainImages:
    """The checks of the images of a lane.

    Attributes:
        deleted_columns: The columns that before images of deletes have values of; ``None`` = all.
        placeholder_columns: The columns beside the message key in which the text of the placeholder
            is an unavailable value: texts, and all columns without types.
    """

    def __init__(
        self,
        columns: Sequence[LaneColumn],
        plan: RowPlan,
        placeholder: Placeholder,
        key: tuple[str, ...] | None,
        *,
        before_image: BeforeImage,
        has_fillers: bool,
        is_named: bool,
    ) -> None:
        """Create the checks.

        Args:
            columns: The columns of the lane.
            plan: The plan of the rows.
            placeholder: The placeholder of unavailable values.
            key: The columns of the key.
            before_image: The columns of before images with real values.
            has_fillers: The deletes of the product have fillers beside the key.
            is_named: Images are dictionaries.
        """
        self._columns = columns
        self._plan = plan
        self._placeholder = placeholder
        self._key = key
        self._is_named = is_named
        self._names = tuple(column.column.name for column in columns)
        self.deleted_columns: tuple[str, ...] | None = None
        may_have_fillers = key is not None and before_image is not BeforeImage.FULL
        is_key_only = before_image is BeforeImage.KEY
        self._has_plain_updates = not (may_have_fillers and is_key_only)
        if may_have_fillers and (is_key_only or has_fillers):
            self.deleted_columns = tuple(name for name in self._names if name in (key or ()))
        self.placeholder_columns = frozenset(
            column.column.name
            for column in columns
            if column.column.name not in (key or ()) and _may_be_text(column, plan)
        )

    def check(
        self,
        key_form: KeyForm | None,
        names: dict[str, Any],
        *,
        created: str,
        ignores_key: bool = False,
        has_unavailable: bool = False,
    ) -> list[str]:
        """Return the statements that check a change and return ``None`` if it is not plain.

        They use the names ``op``, ``before``, ``after`` and ``key`` (the message key).

        Args:
            key_form: The form of the message keys; ``None`` = messages have none.
            names: The names that the statements use are added to it.
            created: The operation of a change that the message calls ``c``.
            ignores_key: The content of message keys has no effect.
            has_unavailable: An update without a before image may have unavailable values.
        """
        names["has_only_fillers"] = self._filler_check()
        is_deleted = " or not has_only_fillers(before)" if self.deleted_columns is not None else ""
        lines = [
            "image = after",
            "if op == 'd':",
            f" if before is None or after is not None{is_deleted}: return None",
            " image = before",
            "elif after is None: return None",
        ]
        if created != "c":
            lines.append(f"elif op == 'c': op = {created!r}")
        if key_form is not None:
            lines.append(f"if not ({key_form.check('image', names)}): return None")
        elif not ignores_key:
            lines.append("if key is not None: return None")
        is_whole = completeness_check(
            self._columns, self._placeholder, names, is_named=self._is_named
        )
        if is_whole is not None:
            refusal = f"if not ({is_whole('image')})"
            if has_unavailable:
                names["has_known_placeholders"] = self._placeholder_check()
                refusal += " and (op != 'u' or before is not None"
                refusal += " or not has_known_placeholders(image))"
            lines.append(f"{refusal}: return None")
        lines.append("if before is not None and image is after:")
        if not self._has_plain_updates:
            return [*lines, " return None"]
        lines.append(" if op != 'u': return None")
        if is_whole is not None:
            lines.append(f" if not ({is_whole('before')}): return None")
        for name in self._key or ():
            old, new = (
                value_expression(
                    image, self._names.index(name), name, names, is_named=self._is_named
                )
                for image in ("before", "after")
            )
            lines.append(f" if {old} != {new}: return None")
        return lines

    def _placeholder_check(self) -> Callable[[Any], bool]:
        """Return the check whether an image has all columns, and no other form of the placeholder.

        The form is the text, in :attr:`placeholder_columns`.
        """
        names, is_named = self._names, self._is_named
        values_of = values_getter(names, self._columns, is_named=is_named)
        text, forms = self._placeholder.forms.get("text"), self._placeholder.texts
        known = [name in self.placeholder_columns for name in names]

        def has_known_placeholders(image: Any) -> bool:
            if is_named and tuple(image) != names:
                return False
            for value, is_known in zip(values_of(image), known, strict=True):
                kind = value.__class__
                if kind is str:
                    if value in forms and not (is_known and value == text):
                        return False
                elif kind is dict or kind is list:
                    return False  # it may be a form of the placeholder
            return True

        return has_known_placeholders

    def _filler_check(self) -> Callable[[Any], bool]:
        """Return the check whether a deleted row has fillers in all columns beside the key.

        The filler of a column that is NOT NULL is any value, as
        :func:`~changelane.formats.debezium_envelope.fillers.blank_fillers` reads it. The event path
        keeps such values in the details, so a value that is nested too deeply is not plain.
        """
        if self.deleted_columns is None:
            return lambda _row: True
        plan, key = self._plan, self.deleted_columns
        fillers = {
            name: filler
            for name, filler in plan.fillers.items()
            if name not in key and plan.fields[name].optional
        }
        values = values_getter(tuple(fillers), self._columns, is_named=self._is_named)
        expected = tuple(fillers.values())
        nested = [
            column.column.name
            for column in self._columns
            if column.column.name not in {*key, *fillers}
            and column.json is not str
            and column.json not in NUMBERS
        ]
        if not nested:
            return lambda row: values(row) == expected
        other_values = values_getter(nested, self._columns, is_named=self._is_named)
        return lambda row: values(row) == expected and not is_too_deep(other_values(row))


# -- wire classes of a lane ------------------------------------------------------------------------

Kinds = dict[str, tuple[Any, ...]]
"""Field -> its type, and its default if it has one."""


def class_of(name: str, kinds: Kinds, message_fields: tuple[str, ...]) -> Any:
    """Return a class with fields of types (and defaults), in the order of a message.

    msgspec reads the fields of a class faster in their order.

    Raises:
        NotPlainError: The message has another field.
    """
    if not kinds.keys() >= set(message_fields):
        raise NotPlainError
    fields: list[Any] = [
        (field, *kinds[field]) for field in dict.fromkeys((*message_fields, *kinds))
    ]
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True, gc=False)


def decode_statements(
    decode: Callable[[Any], Any], prefix: bytes, names: dict[str, Any]
) -> list[str]:
    """Return the statements that decode the payload of ``value`` into ``envelope``.

    They return ``None`` for a message with other bytes before the payload than *prefix*. The names
    that they use are added to *names*.
    """
    names |= {"decode": decode, "prefix": prefix, "start": len(prefix)}
    if not prefix:
        return ["envelope = decode(value)"]
    return [
        "if value[-1:] != b'}' or not value.startswith(prefix): return None",
        "envelope = decode(memoryview(value)[start:-1])",
    ]


def payload_decoder(decode: Callable[[Any], Any], prefix: bytes) -> Callable[[bytes], Any]:
    """Return the decoder of messages with these bytes before the payload.

    The decoder raises an exception for other messages.
    """
    if not prefix:
        return decode
    start = len(prefix)

    def decode_payload(value: bytes) -> Any:
        if value[-1:] != b"}" or not value.startswith(prefix):
            raise NotPlainError
        return decode(memoryview(value)[start:-1])

    return decode_payload
