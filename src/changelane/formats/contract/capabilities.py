# SPDX-License-Identifier: Apache-2.0
"""The capabilities of a format as data, and the reduction of a schema's images to them.

A format declares its capabilities as :class:`Carries`.
:class:`~changelane.formats.contract.reducer.Reducer` reduces an event to them and lists the losses,
each a pair (field, reason); :mod:`changelane.formats.contract.losses` has the class of each.
Encoders get only reduced events, so that a message never has content outside the declaration. The
conformance kit expects the same reduction from a round trip.
"""

import decimal
import math
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from changelane.event import (
    Image,
    Op,
    Source,
)
from changelane.formats.contract.losses import Loss
from changelane.schema import Column, TableSchema
from changelane.types import (
    UNAVAILABLE,
    Boolean,
    Decimal,
    Enum,
    Float,
    Integer,
    Json,
    LogicalType,
    Set,
    String,
    Text,
    Time,
    TimeTz,
    Unavailable,
    Unknown,
    Uuid,
    Value,
    Xml,
)
from changelane.types.forms import written_form, written_type
from changelane.types.values import number_form

TEXT_TYPES: Final[frozenset[type[LogicalType]]] = frozenset(
    {Enum, Json, Set, String, Text, Time, TimeTz, Uuid, Xml}
)
"""Types with text as values of events."""
JSON_TYPES: Final[frozenset[type[LogicalType]]] = TEXT_TYPES | {Boolean, Integer, Unknown}
"""Types whose values are JSON values: text, whole numbers, true and false."""


class AbsentMeans(StrEnum):
    """The decoder's interpretation of a column that is missing from an after image."""

    NULL = "null"
    UNCHANGED = "unchanged"
    ERROR = "error"


class SchemaDetail(StrEnum):
    """How much of a table's schema a message carries."""

    NONE = "none"
    SOURCE_TYPES = "source_types"
    FULL = "full"


class Extreme(StrEnum):
    """Values without a native form in Python or in many databases."""

    NON_FINITE = "non_finite"
    """NaN and infinity of floats."""
    NON_FINITE_DECIMAL = "non_finite_decimal"
    TEMPORAL_TEXT = "temporal_text"
    """Dates and timestamps that Python has as text: infinity, zero dates, years above 9999."""


class Carries(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities of a format. The defaults carry nothing.

    Attributes:
        operations: Row operations that are written; another operation is a loss of the event.
        kinds: Event kinds besides row changes, by their tag (``schema``, ``truncate`` ...).
        before: Updates keep a full before image.
        partial_before: Updates keep a partial before image.
        key_change_partial: Key changes keep a partial before image; it is written as a delete.
        delete_partial: A delete may have a partial image.
        absent: A missing column is distinct from NULL.
        unavailable: The format has a marker for :data:`~changelane.types.UNAVAILABLE`.
        partial_after: Updates without a schema keep a partial after image.
        partial_schema: The schema of an update may list the columns of its image only
            (:func:`~changelane.event.lists_sent_columns_only`).
        absent_means: The decoder's interpretation of a missing column.
        schema: How much of the schema is carried.
        column_flags: Nullability, defaults and generated columns are carried.
        untyped_nulls: A column with only NULL may come back with another type.
        unknown_nullability: An unknown nullability (``None``) is carried. Otherwise the encoder
            writes such a column as one that may be NULL, except in a key.
        types: Logical types (classes) whose values come back equal; others become text.
        forms: Other types that are written in a form of :data:`~changelane.types.forms.FORMS`.
        extremes: Extreme values that are carried.
        pair: The pair of two update halves is carried.
        key: The names of the key columns are carried.
        requires_key: A row change without a known key cannot be encoded.
        key_change: An update may change the key.
        table: Parts of the table's name that are carried.
        positions: Domains of positions that are carried (``mysql``, ``postgresql`` ...).
        shared_positions: Domains of which several row changes may share one position in this
            format, although a position identifies one change elsewhere
            (:class:`~changelane.position.PositionScope`).
        transaction: Fields of the transaction that are carried.
        source: Fields of the source that are carried.
        products: Products whose changes are written; others are refused. Empty = all.
        stamp: Source fields that the decoder sets on every event. If it has a connector, the
            version and the details of another connector's events are not carried.
        source_time: Unit of the source time; empty if it is not carried.
        process_time: Unit of the process time; empty if it is not carried.
        details: The producer's further fields are carried inside this family.
        text_only: Values without a type are carried as text.
        other_images: An insert may have a before image, and a delete an after image.
        rowless_delete: A delete may have no image.
        inconsistent: Inconsistent events (:mod:`changelane.formats.contract.consistency`) are
            carried as they are.
    """

    operations: frozenset[Op] = frozenset()
    kinds: frozenset[str] = frozenset()
    before: bool = False
    partial_before: bool = False
    key_change_partial: bool = False
    delete_partial: bool = True
    absent: bool = False
    unavailable: bool = False
    partial_after: bool = False
    partial_schema: bool = False
    absent_means: AbsentMeans = AbsentMeans.UNCHANGED
    schema: SchemaDetail = SchemaDetail.NONE
    column_flags: bool = False
    untyped_nulls: bool = False
    unknown_nullability: bool = False
    types: frozenset[type[LogicalType]] = frozenset()
    forms: frozenset[tuple[type[LogicalType], str]] = frozenset()
    extremes: frozenset[Extreme] = frozenset()
    pair: bool = False
    key: bool = False
    requires_key: bool = False
    key_change: bool = False
    table: frozenset[str] = frozenset()
    positions: frozenset[str] = frozenset()
    shared_positions: frozenset[str] = frozenset()
    transaction: frozenset[str] = frozenset()
    source: frozenset[str] = frozenset()
    products: frozenset[str] = frozenset()
    stamp: Source = Source()
    source_time: str = ""
    process_time: str = ""
    details: bool = False
    text_only: bool = False
    other_images: bool = False
    rowless_delete: bool = False
    inconsistent: bool = False


class SchemaPlan:
    """The reduction of one schema and its images, compiled once.

    Attributes:
        schema: The reduced schema.
        losses: The losses of the schema, which all its changes have.
        texts: The functions to the written form of values, for columns of other types.
        checks: The functions to the loss of a value, if any, for columns that may have extremes.
    """

    def __init__(self, schema: TableSchema, carries: Carries) -> None:
        self._carries = carries
        self._names = schema.names
        self.losses: dict[Loss, None] = {}
        columns: list[Column] = []
        self.texts: dict[str, Callable[[Value], Value]] = {}
        forms = dict(carries.forms)
        self.checks: dict[str, Callable[[Value], Loss | None]] = {}
        self._is_strict = carries.schema is SchemaDetail.FULL and not carries.inconsistent
        is_untyped = carries.schema is SchemaDetail.NONE and not carries.text_only
        for column in schema.columns:
            kind, source_type = column.type, column.source_type
            if type(kind) not in carries.types:
                name = forms.get(type(kind))
                form, self.texts[column.name] = written_form(kind, name)
                loss = (f"type:{_type_name(kind)}", f"no such type; the value is written as {form}")
                self.losses[loss] = None
                kind, source_type = written_type(name, source_type)
            elif check := _extreme_check(kind, carries):
                self.checks[column.name] = check
            if is_untyped and isinstance(kind, Float | Decimal):
                self.texts[column.name] = _untyped_number
            columns.append(self._column(column, kind, source_type))
        self.schema: TableSchema | None = TableSchema(tuple(columns))
        if carries.schema is SchemaDetail.NONE:
            self.losses["schema", "column types are not written"] = None
            self.schema = None

    def _column(self, column: Column, kind: LogicalType, source_type: str | None) -> Column:
        carries = self._carries
        changes: dict[str, object] = {"type": kind, "source_type": source_type}
        if not carries.column_flags:
            flags = ("nullable", None), ("generated", False), ("default", msgspec.UNSET)
            for field, empty in flags:
                if getattr(column, field) is not empty:
                    self.losses[f"schema.{field}", "not written"] = None
                    changes[field] = empty
        elif column.nullable is None and not carries.unknown_nullability:
            self.losses["schema.nullable", "unknown; written as may be NULL"] = None
        return msgspec.structs.replace(column, **changes)

    def image(self, image: Image, losses: dict[Loss, None], *, fill: bool = False) -> Image:
        """Return the reduced image; *fill* adds missing columns as NULL."""
        if self._is_strict and not image.keys() <= self._names:
            losses["column", "not in the schema; not written"] = None
            image = {name: value for name, value in image.items() if name in self._names}
        image = self._with_reduced_values(image, losses)
        if fill and (missing := self._names - image.keys()):
            losses["absent", "a missing column is written as NULL"] = None
            return {**image, **dict.fromkeys(sorted(missing))}
        return image

    def _with_reduced_values(self, image: Image, losses: dict[Loss, None]) -> Image:
        if not self._carries.unavailable and Unavailable in map(type, image.values()):
            losses["unavailable", "written as an absent column"] = None
            image = {name: value for name, value in image.items() if value is not UNAVAILABLE}
        if not self.texts and not self.checks:
            return image
        result = dict(image)
        for name, write in self.texts.items():
            if (value := result.get(name)) is not None and value is not UNAVAILABLE:
                result[name] = write(value)
        for name, check in self.checks.items():
            has_value = (value := result.get(name)) is not None and value is not UNAVAILABLE
            if has_value and (loss := check(value)):
                losses[loss] = None
                result[name] = None
        return result


def _type_name(kind: LogicalType) -> str:
    return str(kind).partition("(")[0].partition("<")[0]


def _untyped_number(value: Value) -> Value:
    """Return a number as a decoder without column types reads it back.

    A number that is not finite stays a number, because :func:`_extreme_check` checks it next;
    :func:`~changelane.types.values.number_form` would return its text.
    """
    is_number = isinstance(value, float | decimal.Decimal) and math.isfinite(value)
    return number_form(value) if is_number else value


_TEMPORAL: Final = frozenset({"Date", "Timestamp", "InstantType"})


def _extreme_check(kind: LogicalType, carries: Carries) -> Callable[[Value], Loss | None] | None:
    name = type(kind).__name__
    if name in _TEMPORAL and Extreme.TEMPORAL_TEXT not in carries.extremes:
        loss = (f"value:{_type_name(kind)}", "outside the years 1 to 9999; written as null")
        return lambda value: loss if isinstance(value, str) else None
    if name == "Float" and Extreme.NON_FINITE not in carries.extremes:
        loss = ("value:float", "NaN or infinity; written as null")
        return lambda value: None if math.isfinite(value) else loss  # type: ignore[arg-type]
    if name == "Decimal" and Extreme.NON_FINITE_DECIMAL not in carries.extremes:
        loss = ("value:decimal", "NaN or infinity; written as null")
        return lambda value: (
            loss if isinstance(value, decimal.Decimal) and not value.is_finite() else None
        )
    return None
