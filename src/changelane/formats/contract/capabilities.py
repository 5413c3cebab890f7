# SPDX-License-Identifier: Apache-2.0
"""What a format can express, as data, and what is lost when an event meets it.

:class:`Carries` is the declaration; :class:`~changelane.formats.contract.reducer.Reducer` turns an
event into what survives and names the rest as losses, each a pair (field, reason);
:mod:`changelane.formats.contract.losses` declares which of them are of data. Writers get reduced
events only, so nothing outside the declaration can reach a message, and the conformance kit uses
the same reduction as the expectation of its round trips.
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
from changelane.types import UNAVAILABLE, Decimal, Float, LogicalType, String, Unavailable, Value
from changelane.types.values import number_form, written_form


class AbsentMeans(StrEnum):
    """What a column that is missing from an after image means in a format."""

    NULL = "null"
    UNCHANGED = "unchanged"
    ERROR = "error"


class SchemaDetail(StrEnum):
    """How much of a table's schema a message tells."""

    NONE = "none"
    SOURCE_TYPES = "source_types"
    FULL = "full"


class Extreme(StrEnum):
    """Values that Python or many databases have no native form for."""

    NON_FINITE = "non_finite"
    """NaN and infinity of floats."""
    NON_FINITE_DECIMAL = "non_finite_decimal"
    TEMPORAL_TEXT = "temporal_text"
    """Any date or timestamp that is text here: infinity, zero dates, far years."""


class Carries(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a format. The defaults carry nothing.

    Attributes:
        operations: Row operations that are written; an operation outside is a loss of the event.
        kinds: Event kinds besides row changes, by their tag (``schema``, ``truncate`` ...).
        before: Update events keep a complete before image.
        partial_before: Before images that lack columns are kept as they are.
        key_change_partial: So are those of key changes, which are written as deletes.
        delete_partial: A delete may hold some columns only.
        absent: A column that is not in an image stays apart from NULL.
        unavailable: There is a marker for :data:`~changelane.types.UNAVAILABLE`.
        absent_means: What the decoder makes of a missing column.
        schema: How much of the schema travels.
        column_flags: Nullability, defaults and generated columns travel.
        untyped_nulls: A column that holds only NULL may come back with another type.
        unknown_nullability: That nobody knows whether a column may be NULL travels as well.
        types: Logical types (classes) whose values come back equal; others become text.
        forms: Other types that are written in a form of :data:`~changelane.types.values.FORMS`.
        extremes: Which extreme values are carried.
        pair: What pairs two halves of an update travels.
        key: The key columns' names travel.
        key_change: An update may change the key.
        table: Parts of the table's name.
        positions: Domains of positions (``mysql``, ``postgresql`` ...).
        shared_positions: Those of them that several changes of rows may have here, though they are
            the names of one elsewhere (:class:`~changelane.position.PositionScope`).
        transaction: Fields of the transaction.
        source: Fields of the source.
        products: Products whose changes are written; others are refused. Empty = all.
        stamp: What the decoder says about every message's source. When it names the connector,
            the version and the details of another connector's events are not carried.
        source_time: Unit of the source time, empty when it does not travel.
        process_time: Unit of the process time, empty when it does not travel.
        details: The producer's own further fields travel inside this family.
        text_only: Values without a type travel as text.
        other_images: An insert may have a row before, and a delete a row after.
        rowless_delete: A delete may come without the row that went.
        unsound: Even what cannot be travels (:mod:`changelane.formats.contract.consistency`).
    """

    operations: frozenset[Op] = frozenset()
    kinds: frozenset[str] = frozenset()
    before: bool = False
    partial_before: bool = False
    key_change_partial: bool = False
    delete_partial: bool = True
    absent: bool = False
    unavailable: bool = False
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
    unsound: bool = False


class SchemaPlan:
    """The reduction of one schema's images, compiled once."""

    def __init__(self, schema: TableSchema, carries: Carries) -> None:
        self._carries = carries
        self._names = schema.names
        self.losses: dict[Loss, None] = {}
        columns: list[Column] = []
        self._texts: dict[str, Callable[[Value], Value]] = {}
        forms = dict(carries.forms)
        self._checks: dict[str, Callable[[Value], Loss | None]] = {}
        self._holds_all = carries.schema is SchemaDetail.FULL and not carries.unsound
        is_untyped = carries.schema is SchemaDetail.NONE and not carries.text_only
        for column in schema.columns:
            kind = column.type
            if type(kind) not in carries.types:
                form, self._texts[column.name] = written_form(kind, forms.get(type(kind)))
                loss = (f"type:{_type_name(kind)}", f"no such type; the value is written as {form}")
                self.losses[loss] = None
                kind = String()
            elif check := _extreme_check(kind, carries):
                self._checks[column.name] = check
            if is_untyped and isinstance(kind, Float | Decimal):
                self._texts[column.name] = _untyped_number
            columns.append(self._column(column, kind))
        self.schema: TableSchema | None = TableSchema(tuple(columns))
        if carries.schema is SchemaDetail.NONE:
            self.losses["schema", "column types are not written"] = None
            self.schema = None

    def _column(self, column: Column, kind: LogicalType) -> Column:
        carries = self._carries
        changes: dict[str, object] = {"type": kind}
        if not carries.column_flags:
            flags = ("nullable", None), ("generated", False), ("default", msgspec.UNSET)
            for field, empty in flags:
                if getattr(column, field) is not empty:
                    self.losses[f"schema.{field}", "not written"] = None
                    changes[field] = empty
        elif column.nullable is None and not carries.unknown_nullability:
            self.losses["schema.nullable", "unknown; written as may be NULL"] = None
            changes["nullable"] = True
        return msgspec.structs.replace(column, **changes)

    def image(self, image: Image, losses: dict[Loss, None], *, fill: bool = False) -> Image:
        """Return what survives of an image; *fill* puts NULL where a column is missing."""
        if self._holds_all and not image.keys() <= self._names:
            losses["column", "not in the schema; not written"] = None
            image = {name: value for name, value in image.items() if name in self._names}
        image = self._kept(image, losses)
        if fill and (missing := self._names - image.keys()):
            losses["absent", "a missing column is written as NULL"] = None
            return {**image, **dict.fromkeys(sorted(missing))}
        return image

    def _kept(self, image: Image, losses: dict[Loss, None]) -> Image:
        if not self._carries.unavailable and Unavailable in map(type, image.values()):
            losses["unavailable", "written as an absent column"] = None
            image = {name: value for name, value in image.items() if value is not UNAVAILABLE}
        if not self._texts and not self._checks:
            return image
        result = dict(image)
        for name, write in self._texts.items():
            if (value := result.get(name)) is not None and value is not UNAVAILABLE:
                result[name] = write(value)
        for name, check in self._checks.items():
            is_known = (value := result.get(name)) is not None and value is not UNAVAILABLE
            if is_known and (loss := check(value)):
                losses[loss] = None
                result[name] = None
        return result


def _type_name(kind: LogicalType) -> str:
    return str(kind).partition("(")[0].partition("<")[0]


def _untyped_number(value: Value) -> Value:
    """Return a number whose type no column says as it comes back: as what it says.

    One that is not finite stays: :func:`_extreme_check` decides about it next, and knows it only
    as a number, not as the text that :func:`~changelane.types.values.number_form` makes of it.
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
