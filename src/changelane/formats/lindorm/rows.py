# SPDX-License-Identifier: Apache-2.0
"""Rows of Lindorm: HBase tables, deleted columns, and schemas inferred from payloads."""

import binascii
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import DataChange, Image, Op
from changelane.formats.contract.format import Report
from changelane.formats.contract.losses import PARTIAL_ROW, Loss
from changelane.formats.debezium_envelope.rows.json_values import bytes_in, bytes_out
from changelane.formats.lindorm.options import Options, TableKind
from changelane.position import TimePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema, option_for_table
from changelane.types import Boolean, Bytes, Float, Integer, LogicalType, String

ROW: Final = "ROW"
"""The name of an HBase table's key column: "the column name of the primary key column is fixed"."""

_INT32: Final = 1 << 31
_INT64: Final = 1 << 63


def position_at(time_ms: int | None, offset: int | None) -> TimePosition | None:
    """Return the position of a change: its source time, then the offset of its message.

    It is unknown if a part is unknown.
    """
    return None if time_ms is None or offset is None else TimePosition(time_ms, offset)


# -- HBase tables --------------------------------------------------------------------------------


def family_of(name: str, families: Iterable[str]) -> str | None:
    """Return the column family of a field ``family_qualifier``; ``None`` if it has none.

    >>> family_of("a_b_c", []), family_of("a_b_c", ["a", "a_b"]), family_of("ROW", [])
    ('a', 'a_b', None)
    """
    matches = [family for family in families if name.startswith(f"{family}_")]
    if matches:
        return max(matches, key=len)
    head, mark, _ = name.partition("_")
    return head if mark else None


class HBase:
    """Conversion of HBase rows: Base64 text <-> bytes, field names <-> column names."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def read(
        self, table: TableId, images: tuple[dict[str, Any] | None, ...]
    ) -> tuple[dict[str, Any] | None, ...] | None:
        """Return the images of an HBase row as bytes; ``None`` if it is no HBase row.

        Args:
            table: The table of the row.
            images: The before image, the after image and the values of the message key. The key is
                checked only if there is no image.

        Raises:
            DecodeError: The option says HBase, and a value is not Base64; or two fields have the
                same column name after their families are split.
        """
        kind = self._options.tables
        if kind is TableKind.SQL:
            return None
        present = [image for image in images[:2] if image is not None]
        checked = present or [image for image in images if image is not None]
        if kind is TableKind.AUTO and not all(_may_be_hbase(image) for image in checked):
            return None
        names = self._names(table)
        result: list[dict[str, Any] | None] = []
        for image, path in zip(images, ("$.before", "$.after", "key"), strict=True):
            if image is None:
                result.append(None)
                continue
            try:
                cells = {names(name): _bytes(value) for name, value in image.items()}
            except (binascii.Error, ValueError, TypeError):
                if path == "key" and present:
                    result.append(None)
                    continue
                if kind is TableKind.AUTO:
                    return None
                raise DecodeError("not Base64", code=ReasonCode.WRONG_TYPE, path=path) from None
            if len(cells) != len(image):
                raise DecodeError(
                    "two fields have the same column name", code=ReasonCode.WRONG_TYPE, path=path
                )
            result.append(cells)
        return tuple(result)

    def is_written(self, event: DataChange) -> bool:
        """Return whether an event is written as a row of an HBase table."""
        schema = event.schema
        if self._options.tables is TableKind.SQL or schema is None or ROW not in schema.names:
            return False
        return all(isinstance(column.type, Bytes) for column in schema.columns)

    def write(self, event: DataChange, report: Report) -> DataChange:
        """Return an event with Base64 text for bytes and with field names."""
        split = self._names(event.table)
        fields: dict[str, str] = {}
        for column in event.schema.columns if event.schema is not None else ():
            name = column.name
            field = name.replace(":", "_", 1) if self._options.split_families else name
            if split(field) != name or field in fields.values():
                report(("column", "a column's name is read as another name"))
                field = name
            fields[name] = field
        columns = () if event.schema is None else event.schema.columns
        texts = tuple(
            msgspec.structs.replace(c, name=fields[c.name], type=String(), default=msgspec.UNSET)
            for c in columns
        )
        key = event.key
        if key is not None:
            named_key = tuple(fields.get(name, name) for name in key.columns)
            key = msgspec.structs.replace(key, columns=named_key)
        return msgspec.structs.replace(
            event,
            key=key,
            before=_texts(event.before, fields),
            after=_texts(event.after, fields),
            schema=TableSchema(texts),
        )

    def is_read_as_hbase(self, row: Mapping[str, Any]) -> bool:
        """Return whether a reader interprets the JSON of an SQL row as an HBase row."""
        return self._options.tables is not TableKind.SQL and _is_base64_row(row)

    def _names(self, table: TableId) -> Any:
        if not self._options.split_families:
            return str
        families = option_for_table(self._options.families, table) or ()

        def split(name: str) -> str:
            family = family_of(name, families)
            return name if family is None else f"{family}:{name[len(family) + 1 :]}"

        return split


def _may_be_hbase(image: Mapping[str, Any]) -> bool:
    return ROW in image and all(
        value is None or isinstance(value, str | bytes) for value in image.values()
    )


def _is_base64_row(row: Mapping[str, Any]) -> bool:
    if not _may_be_hbase(row):
        return False
    try:
        return all(value is None or _bytes(value) is not None for value in row.values())
    except (binascii.Error, ValueError):
        return False


def _bytes(value: str | bytes | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError
    return bytes_in(value)


def _texts(image: Image | None, fields: Mapping[str, str]) -> Image | None:
    if image is None:
        return None
    return {
        fields.get(name, name): bytes_out(value) if isinstance(value, bytes) else value
        for name, value in image.items()
    }


@lru_cache(maxsize=1024)
def hbase_schema(names: tuple[str, ...]) -> TableSchema:
    """Return the schema of an HBase row: the columns of the message, as bytes."""
    return TableSchema(tuple(Column(name, Bytes(), nullable=name != ROW) for name in names))


# -- deleted columns -----------------------------------------------------------------------------


def without_deleted_columns(event: DataChange, report: Report) -> DataChange:
    """Return an update without its deleted columns: Lindorm omits them.

    A column that had a value and is NULL now is deleted; any other NULL is written as null. A
    column in the before image only is unchanged; it is omitted there, because readers would
    interpret it as deleted.
    """
    before, after = event.before, event.after
    if event.op is not Op.UPDATE or before is None or after is None:
        return event
    if any(name not in after for name in before):
        report(("absent", "a column of the before image only is omitted"))
        before = {name: value for name, value in before.items() if name in after}
    stored = {
        name: value
        for name, value in after.items()
        if value is not None or before.get(name) is None
    }
    return msgspec.structs.replace(event, before=before or None, after=stored or after)


# -- schemas from payloads -----------------------------------------------------------------------


_TOO_LARGE: Final = 0
_Form = type | int
"""The class of a value; for a whole number the bits that it needs."""


def schema_of_images(before: Image | None, after: Image | None) -> TableSchema | None:
    """Return a schema inferred from the values of a row without types, if all are exact.

    Whole numbers are ``int32`` if they fit, else ``int64``; a column that is NULL in all images is
    an optional string. Numbers with a fraction, arrays and objects have no exact type.
    """
    return _schema_of_forms(
        tuple(
            [
                tuple(
                    [
                        (name, _bits(value) if value.__class__ is int else value.__class__)
                        for name, value in image.items()
                    ]
                )
                for image in (before, after)
                if image is not None
            ]
        )
    )


def _bits(value: int) -> int:
    if -_INT32 <= value < _INT32:
        return 32
    return 64 if -_INT64 <= value < _INT64 else _TOO_LARGE


@lru_cache(maxsize=1024)
def _schema_of_forms(row_forms: tuple[tuple[tuple[str, _Form], ...], ...]) -> TableSchema | None:
    """Return the schema of images whose values have these forms."""
    forms: dict[str, set[_Form]] = {}
    for row in row_forms:
        for name, form in row:
            forms.setdefault(name, set()).add(form)
    columns: list[Column] = []
    for name, column_forms in forms.items():
        kind = _kind(column_forms - {type(None)})
        if kind is None:
            return None
        columns.append(Column(name, kind, nullable=type(None) in column_forms))
    return _schema_of(tuple(columns))


@lru_cache(maxsize=1024)
def _schema_of(columns: tuple[Column, ...]) -> TableSchema:
    """Return a schema, the same object for the same columns, because writers are cached by it."""
    return TableSchema(columns)


def _kind(forms: set[_Form]) -> LogicalType | None:
    if not forms:
        return String()
    if forms == {bool}:
        return Boolean()
    if forms == {str}:
        return String()
    if forms == {32}:
        return Integer(32)
    return Integer(64) if forms <= {32, 64} else None


_LITERALS: Final[Mapping[LogicalType, str]] = {
    Boolean(): "boolean",
    Bytes(): "bytes",
    Float(32): "float",
    Float(64): "double",
    Integer(8): "int8",
    Integer(16): "int16",
    Integer(32): "int32",
    Integer(64): "int64",
    Integer(8, unsigned=True): "int16",
    Integer(16, unsigned=True): "int32",
    Integer(32, unsigned=True): "int64",
    String(): "string",
}


def field_schemas(schema: TableSchema) -> dict[str, Any]:
    """Return the schemas of columns: type, optional and field, without a semantic name."""
    return {
        column.name: {
            "type": _LITERALS[column.type],
            "optional": column.nullable is not False,
            "field": column.name,
        }
        for column in schema.columns
    }


_UNSIGNED64: Final = Integer(64, unsigned=True)


def report_types(schema: TableSchema | None, event: DataChange, report: Report) -> None:
    """Report the losses of a row's types and columns.

    Args:
        schema: The columns before :func:`with_schema_types`.
        event: The event with its row.
        report: Called for each loss.
    """
    if schema is None:
        return
    names = _column_names(event)
    for loss in _losses(schema, names):
        report(loss)
    if event.op is Op.UPDATE and not schema.names <= names:
        report(PARTIAL_ROW)


def with_schema_types(event: DataChange) -> DataChange:
    """Return an event with types that a schema block has; ``uint64`` becomes text."""
    schema = event.schema
    if schema is None:
        return event
    texts = {column.name for column in schema.columns if is_written_as_text(column)}
    if not texts:
        return event
    columns = tuple(
        msgspec.structs.replace(c, type=String(), default=msgspec.UNSET) if c.name in texts else c
        for c in schema.columns
    )
    before, after = (
        None
        if image is None
        else {name: as_text(value) if name in texts else value for name, value in image.items()}
        for image in (event.before, event.after)
    )
    return msgspec.structs.replace(event, schema=TableSchema(columns), before=before, after=after)


def is_written_as_text(column: Column) -> bool:
    """Return whether no type of a schema block has the values of a column."""
    return column.type == _UNSIGNED64


def as_text(value: Any) -> Any:
    """Return a whole number as text, and any other value unchanged."""
    return str(value) if isinstance(value, int) else value


def _column_names(event: DataChange) -> frozenset[str]:
    return frozenset(event.before or ()) | frozenset(event.after or ())


@lru_cache(maxsize=1024)
def _losses(schema: TableSchema, names: frozenset[str]) -> tuple[Loss, ...]:
    losses: dict[Loss, None] = {}
    for column in schema.columns:
        if column.source_type is not None:
            losses["schema.source_type", "not written"] = None
        if column.type == _UNSIGNED64:
            losses["type:uint64", "written as text"] = None
    if not schema.names <= names:
        losses["schema", "a column that no image has is not in the schema"] = None
    return tuple(losses)
