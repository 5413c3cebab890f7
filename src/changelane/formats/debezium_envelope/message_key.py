# SPDX-License-Identifier: Apache-2.0
"""Message keys, tombstones, and the two halves of a key change."""

import decimal
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import DataChange, HalfUpdate, Key, Op, Tombstone
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.debezium_envelope import source_block
from changelane.formats.debezium_envelope.rows.connect_schema import (
    Blocks,
    unwrap,
    unwrap_envelope,
)
from changelane.formats.debezium_envelope.rows.raw_json import as_text
from changelane.formats.debezium_envelope.rows.row_reader import PLAIN, KeyPlan, RowPlan, decoder
from changelane.formats.debezium_envelope.source_block import KeyTemplate
from changelane.message import Message
from changelane.schema import TableId, TableSchema

NEW_KEY: Final = "__debezium.newkey"
OLD_KEY: Final = "__debezium.oldkey"


def other_key_name(change: DataChange) -> str:
    """Return the name of the header with the other key of a half update."""
    return NEW_KEY if change.op is Op.DELETE else OLD_KEY


READ_ERRORS: Final = (
    msgspec.MsgspecError,
    UnicodeDecodeError,
    RecursionError,
    ValueError,
    decimal.InvalidOperation,  # an exponent out of range
)
"""Errors of a decoder if the message does not have the form that it expects."""
_KEY_ERRORS: Final = (*READ_ERRORS, DecodeError, TypeError, AttributeError)
_MAX_KEYS: Final = 10_000
_ROUTED: Final = "__dbz__"
"""The prefix of key columns that a routing transform adds, so that keys of tables differ."""

_object = decoder(dict[str, Any]).decode

JsonRow = dict[str, Any]


def key_template_of(data: bytes, key: Key, row: Mapping[str, Any], plan: RowPlan) -> KeyTemplate:
    """Return the template of a message key; without a pattern if a key column is no number."""
    columns = itemgetter(*key.columns)
    no_pattern = KeyTemplate(columns, b"", plan, key)
    values = [row[name] for name in key.columns]
    if any(type(value) is not int for value in values):
        return no_pattern
    payload = json.dumps(dict(zip(key.columns, values, strict=True)))
    start = data.rfind(payload)
    if start < 0:
        return no_pattern
    head, tail = data[:start], data[start + len(payload) :]
    names = json.dumps(dict.fromkeys(key.columns, 0)).replace(b"%", b"%%").replace(b'":0', b'":%d')
    template = KeyTemplate(
        columns, head.replace(b"%", b"%%") + names + tail.replace(b"%", b"%%"), plan, key
    )
    return template if matches_template(data, template, row) else no_pattern


def matches_template(data: bytes, template: KeyTemplate, row: Mapping[str, Any]) -> bool:
    """Return whether a message key is equal to the template with the row's values."""
    try:
        values = template.columns(row)
        if type(values) is int or all(type(value) is int for value in values):
            return bool(template.pattern % values == data)
    except (TypeError, KeyError):
        pass
    return False


def key_as_row(key: JsonRow, plan: RowPlan) -> JsonRow | None:
    """Return a key's JSON as a row of *plan*; ``None`` if its values are not of the row's types.

    A message key may have no schema, or another schema than the value. Its values replace those of
    the row only if they are of the columns' types.
    """
    try:
        row: JsonRow = plan.rows(json.dumps(key))
        plan.convert(dict(row), "key")
    except _KEY_ERRORS:
        return None
    return row


class KeyReader:
    """Decodes the keys of one codec's messages. A key that cannot be decoded is no error."""

    def __init__(self) -> None:
        self._blocks: Blocks[KeyPlan] = Blocks(KeyPlan)
        self._names: BoundedCache[tuple[str, ...], tuple[Key | None, bool]] = BoundedCache(
            _MAX_KEYS
        )

    def read(
        self,
        data: bytes,
        row: Mapping[str, Any] | None,
        plan: RowPlan,
        details: dict[str, object],
    ) -> tuple[Key | None, JsonRow | None]:
        """Return the key and its JSON.

        The bytes are kept in *details* if a writer would not produce them from the row: for
        example, if the key has another wrapping than the value, or is not JSON.
        """
        key_plan: KeyPlan | None = None
        try:
            if b'"payload"' in data:
                key_plan, values = self._wrapped(data)
            else:
                values = _object(data)
        except _KEY_ERRORS:
            values = None
        if not values:
            details["key"] = as_text(data)
            return None, None
        names = tuple(values)
        key, is_whole = self._names.get(names) or self._key(names)
        if is_whole and row is not None and values.items() <= row.items():
            if key_plan is None:
                if plan.schema is None or plan.is_declared:
                    return key, values
            elif plan.schema is not None and key_plan.fits(plan):
                return key, values
        details["key"] = as_text(data)
        return key, None if key is None else {name: values[name] for name in key.columns}

    def plan_of(self, data: bytes) -> KeyPlan | None:
        """Return the plan of the schema block of a message key; ``None`` if it has none.

        Raises:
            Exception: The key is not JSON, or not of the types of its schema block.
        """
        return self._wrapped(data)[0] if b'"payload"' in data else None

    def key_of(self, names: tuple[str, ...]) -> Key | None:
        """Return the key of the columns that a message key has."""
        return (self._names.get(names) or self._key(names))[0]

    def _key(self, names: tuple[str, ...]) -> tuple[Key | None, bool]:
        columns = tuple(name for name in names if not name.startswith(_ROUTED))
        key = Key(columns) if columns else None
        return self._names.add(names, (key, len(columns) == len(names)))

    def _wrapped(self, data: bytes) -> tuple[KeyPlan | None, Any]:
        cached_block = self._blocks.find(data)
        if cached_block is not None:
            plan, start = cached_block
            try:
                return plan, plan.rows(memoryview(data)[start:-1])
            except READ_ERRORS:
                pass
        wrapped = unwrap_envelope(data)
        if wrapped is None:
            return None, _object(data)
        block, payload = wrapped
        if block is None:
            return None, _object(payload)
        plan = self._blocks.plan(block)
        self._blocks.remember(data, block, plan)
        return plan, plan.rows(payload)

    # -- key changes ---------------------------------------------------------------------------

    def half(self, change: DataChange, message: Message, plan: RowPlan) -> DataChange | HalfUpdate:
        """Return a half update if a header has the other key, else the change itself."""
        header_name = other_key_name(change)
        for name, value in message.headers:
            if name == header_name and value:
                details = dict(change.details)
                other_key = self._other(value, plan, details)
                change = msgspec.structs.replace(change, details=details)
                return change if other_key is None else HalfUpdate(change, other_key)
        return change

    def _other(self, data: bytes, plan: RowPlan, details: dict[str, object]) -> JsonRow | None:
        """Return the other key in a header; text that is not plain JSON is kept in *details*."""
        try:
            wrapped = unwrap(data)
            values = json.dumps(_object(data if wrapped is None else wrapped[1]))
            row: JsonRow = plan.rows(values)
            plan.convert(row, "headers")
        except _KEY_ERRORS:
            details["header"] = as_text(data)
            return None
        if values != data:
            details["header"] = as_text(data)
        return row

    def tombstone(self, message: Message) -> Tombstone:
        """Return the tombstone of a message without a value (no bytes, ``null``, null payload)."""
        details: dict[str, object] = {}
        if message.topic is not None:
            details["topic"] = message.topic
        if message.value is not None:
            details["value"] = as_text(message.value)
        plan: RowPlan = PLAIN
        key: JsonRow | None = None
        schema: TableSchema | None = None
        if message.key is not None:
            try:
                key_plan, key = self._wrapped(message.key)
                plan = key_plan or PLAIN
                schema = plan.schema
                if key is not None:
                    plan.convert(key, "key")
            except _KEY_ERRORS:
                key = None
            if key and any(name.startswith(_ROUTED) for name in key):
                details["key"] = as_text(message.key)
                key = {name: value for name, value in key.items() if not name.startswith(_ROUTED)}
                schema = None if schema is None else _columns_of(schema, key)
            if not key:
                key, plan, schema = None, PLAIN, None
                details["key"] = as_text(message.key)
        if plan.base and plan.base != source_block.sanitised(message.topic or ""):
            details["name"] = plan.base
        details.update(plan.details)
        moved_to = None
        for name, value in message.headers:
            if name == NEW_KEY and value:
                moved_to = self._other(value, plan, details)
        return Tombstone(TableId(), key, schema, moved_to, details)


def _columns_of(schema: TableSchema, row: Mapping[str, Any]) -> TableSchema:
    return TableSchema(tuple(column for column in schema.columns if column.name in row))
