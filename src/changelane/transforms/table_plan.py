# SPDX-License-Identifier: Apache-2.0
"""The combined effect of a list of transforms on one table, computed once per table and schema."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

import msgspec

from changelane.apply.added_columns import DefaultKind, default_of
from changelane.apply.schema_history import shadow_of
from changelane.errors import TransformError
from changelane.event import Completeness, Image, Key
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema
from changelane.transforms.include_exclude import Exclude, Include
from changelane.transforms.route import Route, shard_name
from changelane.transforms.transform import (
    OPERATIONS,
    ColumnTransform,
    Convert,
    MovedColumn,
    Transform,
)
from changelane.types import UNAVAILABLE, LogicalType, String, Value

MOST_NAMES: Final = 10_000
"""The maximum number of cached columns per table, for rows without a schema."""

RequiredColumn = tuple[int, str]
"""The number of a transform, and a column that the transform requires."""


_CHANGES: Final = frozenset({"create", "update", "delete", "read", "truncate"})
_ROW_OPERATIONS: Final = _CHANGES | {"tombstone"}


class ResolvedColumn(msgspec.Struct, frozen=True):
    """The result of all transforms for one column.

    Attributes:
        moved: The new name and column; ``None`` if the column is dropped.
        converts: The conversions of its values, in order.
        path: The numbers of the transforms that convert it, each with the new type; equal paths
            convert equally.
        found_columns: The required columns that it satisfies.
    """

    moved: MovedColumn | None
    converts: tuple[Convert, ...] = ()
    path: tuple[tuple[int, LogicalType | None], ...] = ()
    found_columns: frozenset[RequiredColumn] = frozenset()
    keeps_key: bool = True
    is_masked: bool = False

    @property
    def type(self) -> LogicalType | None:
        """The type of the converted values; ``None`` if it does not change."""
        return next((kind for _, kind in reversed(self.path) if kind is not None), None)

    def is_null(self, value: Value) -> bool:
        """Whether the converted value is NULL."""
        with suppress(TransformError):
            return self.value(value) is None
        return False

    def value(self, value: Value) -> Value:
        """Return the converted value; NULL and unavailable values stay unchanged."""
        for convert in self.converts:
            if value is None or value is UNAVAILABLE:
                return value
            value = convert(value)
        return value


class ChangedColumns:
    """The effect of transforms on the rows of a target table so far.

    Attributes:
        names: Target columns whose values do not identify rows.
        types: The types of target columns that are cast, for rows without a schema.
        shards: Target columns with the shard, which belong to the key.
        is_lossy: Whether different rows may be equal.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.types: dict[str, LogicalType] = {}
        self.shards: set[str] = set()
        self.is_lossy = False

    def add(self, resolved: ResolvedColumn) -> None:
        """Add a column of a row."""
        if resolved.moved is None:
            self.is_lossy = True
            return
        if not resolved.keeps_key:
            self.names.add(resolved.moved.name)
            self.is_lossy = True
        if resolved.moved.column is None and resolved.type is not None:
            self.types[resolved.moved.name] = resolved.type


class TableTarget:
    """The target of the events of one table.

    Attributes:
        source: The source table.
        table: The target table.
        refused: The operations of events that are excluded.
        undecided: The operations of events that need a table name, and the transform that needs it.
        transforms: The transforms of its columns, with their numbers.
        unsure_transforms: Column transforms that may apply; the event has no table name.
        added: The shard columns, and their values.
        is_merged: Other tables may have the same target.
        changed_columns: The columns of the target table that rows showed; tables with one target
            share them.
        topic: The topic of its messages, if a route sets one.
        may_move: The list can rename or exclude tables.
        ignores_statements: The list excludes the statements of all tables.
        is_shadow: The source is a shadow table.

    Args:
        table: The source table.
        transforms: The transforms in their order.
        shadow: A shadow table of *table*: its statements get the transforms of *table*, and its
            rows are left out.
    """

    def __init__(
        self, table: TableId, transforms: Sequence[Transform], *, shadow: TableId | None = None
    ) -> None:
        self.source = table
        self.refused: set[str] = set()
        self.undecided: dict[str, str] = {}
        self.transforms: list[tuple[int, ColumnTransform]] = []
        self.unsure_transforms: list[tuple[int, ColumnTransform]] = []
        self.is_merged = self.is_shard_key = False
        self.topic: str | None = None
        self.changed_columns = ChangedColumns()
        self.may_move = any(
            isinstance(transform, Route | Include | Exclude) for transform in transforms
        )
        self.ignores_statements = any(
            isinstance(transform, Include | Exclude) and not transform.passes_any("schema")
            for transform in transforms
        )
        added: list[tuple[int, str, str]] = []
        for number, transform in enumerate(transforms):
            match transform:
                case Include() | Exclude():
                    unnamed: frozenset[str] = frozenset()
                    if transform.covers(table) is None:
                        unnamed = _CHANGES.intersection(transform.operations or OPERATIONS)
                        self.undecided |= dict.fromkeys(unnamed, _kind(transform))
                    self.refused.update(
                        operation
                        for operation in OPERATIONS
                        if operation not in unnamed and not transform.passes(table, operation)
                    )
                case Route():
                    if transform.covers(table) is None:
                        self.undecided |= dict.fromkeys(_CHANGES, _kind(transform))
                        self.is_shard_key |= transform.shards == "key"
                    if not transform.covers(table):
                        continue
                    if transform.is_merging:
                        self.is_merged = True
                    if transform.shards == "key":
                        self.is_shard_key = True
                        added.append((number, transform.shard_column, shard_name(table)))
                    table = transform.destination(table)
                    self.topic = transform.topic_of(table) or self.topic
                case ColumnTransform():
                    covered = transform.covers(table)
                    if covered is None:
                        self.unsure_transforms.append((number, transform))
                    elif covered:
                        self.transforms.append((number, transform))
                case _:
                    raise TypeError(f"not a transform: {type(transform).__name__}")
        self.table = self.source if table == self.source else table
        self.is_shadow = shadow is not None
        if shadow is not None:
            self.table = shadow_of(self.table, shadow, self.source)
            self.source = shadow
            self.refused |= _ROW_OPERATIONS
        self._added_names = tuple(name for _, name, _ in added)
        self.added = tuple(
            (self._after(number, name, Column(name, String(), None, nullable=False)), value)
            for number, name, value in added
        )

    @property
    def changes_columns(self) -> bool:
        """Whether the columns of rows may change."""
        return bool(self.transforms or self.added)

    @cached_property
    def spellings(self) -> Mapping[str, str]:
        """The columns that the transforms name, by their names in lower case."""
        return {
            name.lower(): name
            for _, transform in self.transforms
            for name in transform.named_columns
        }

    @property
    def required_columns(self) -> frozenset[RequiredColumn]:
        """The columns that must exist."""
        return frozenset(
            (number, name)
            for number, transform in self.transforms
            for name in transform.required_columns
        )

    def resolve(self, name: str, column: Column | None) -> ResolvedColumn:
        """Return the result of all transforms for a column.

        Raises:
            TransformError: The event has no table name, and a transform of some tables may change
                the column.
        """
        for _, transform in self.unsure_transforms:
            if transform.names((name,)):
                reason = f"{_kind(transform)} of column {name!r}: the event does not name its table"
                raise TransformError(reason, code=ReasonCode.UNNAMED_TABLE)
        return self._after(-1, name, column)

    def _after(self, start: int, name: str, column: Column | None) -> ResolvedColumn:
        converts: list[Convert] = []
        path: list[tuple[int, LogicalType | None]] = []
        found_names: set[RequiredColumn] = set()
        keeps_key, is_masked = True, False
        moved: MovedColumn | None = MovedColumn(name, column)
        for number, transform in self.transforms:
            if number <= start or moved is None:
                continue
            if moved.name in transform.required_columns:
                found_names.add((number, moved.name))
            moved = transform.move(moved.name, moved.column)
            if moved is not None and moved.convert is not None:
                converts.append(moved.convert)
                path.append((number, moved.type))
                keeps_key &= moved.keeps_key
                is_masked |= moved.is_masked
        return ResolvedColumn(
            moved, tuple(converts), tuple(path), frozenset(found_names), keeps_key, is_masked
        )

    def key_column(self, name: str, column: Column | None) -> str:
        """Return the target name of a key column.

        Raises:
            TransformError: The column is dropped, or its new values do not identify rows.
        """
        return self._key_column(name, self.resolve(name, column))

    def added_key_columns(self) -> tuple[str, ...]:
        """Return the target names of the shard columns.

        Raises:
            TransformError: A later transform drops one, or its new values do not identify shards.
        """
        resolutions = (resolution for resolution, _ in self.added)
        return tuple(map(self._key_column, self._added_names, resolutions))

    def _key_column(self, name: str, resolved: ResolvedColumn) -> str:
        verb = None
        if resolved.moved is None:
            verb = "project drops"
        elif resolved.is_masked:
            verb = "mask hides"
        elif not resolved.keeps_key:
            verb = "cast may change the equality of values in"
        if resolved.moved is None or verb is not None:
            reason = f"{verb} the key column {name!r} of {self.source}"
            raise TransformError(reason, code=ReasonCode.KEY_COLUMN)
        return resolved.moved.name


def _kind(transform: Transform) -> str:
    return str(transform.__struct_config__.tag)


def _declared(source: Column, resolved: ResolvedColumn) -> Column | None:
    """Return the new column in the schema of a row, without a false declaration about older rows.

    Rows from before a column have its literal default, or NULL if it is nullable and declares no
    default (:mod:`changelane.apply.added_columns`). A conversion can make a literal of a default
    that an expression may have computed, or remove the default. Then the new column has no default
    and does not declare its nullability, so that the values of older rows are unknown.
    """
    column = None if resolved.moved is None else resolved.moved.column
    if column is None or not resolved.converts:
        return column
    old, new = default_of(source), default_of(column)
    if old is new or old is DefaultKind.NONE or new is DefaultKind.COMPUTED:
        return column
    is_declared = source.default is not None and source.default is not msgspec.UNSET
    if is_declared and resolved.is_null(source.default):
        return column
    return msgspec.structs.replace(
        column, default=msgspec.UNSET, nullable=False if column.nullable is False else None
    )


class TransformPlan:
    """The effect of the transforms on the rows of one table, with one schema and key.

    Attributes:
        target: The target of the table.
        schema: The target columns.
        key: The target key columns.
        is_changed: Whether rows may change.
        keeps_details: Whether the producer's other fields stay valid, because no column changes.
    """

    def __init__(self, target: TableTarget, schema: TableSchema | None, key: Key | None) -> None:
        self.target = target
        self._resolved: dict[str, ResolvedColumn] = {}
        self._columns = {} if schema is None else schema.by_name
        self._has_schema = schema is not None
        self.is_changed = target.changes_columns or bool(target.unsure_transforms)
        self.schema, self.key, self.missing = schema, key, frozenset[RequiredColumn]()
        self._key_names = frozenset(() if key is None else key.columns)
        self.keeps_details = not self.is_changed
        if not self.is_changed:
            return
        added_names = target.added_key_columns()
        target.changed_columns.shards.update(added_names)
        if key is not None:
            names = tuple(target.key_column(name, self._columns.get(name)) for name in key.columns)
            self.key = Key((*names, *added_names), key.origin)
            self.key = key if self.key == key else self.key
        if schema is not None:
            self._resolve_schema(schema)

    def _resolve_schema(self, schema: TableSchema) -> None:
        resolutions = [self._resolve(column.name) for column in schema.columns]
        columns = [
            _declared(column, resolution)
            for column, resolution in zip(schema.columns, resolutions, strict=True)
        ]
        columns.extend(
            resolution.moved.column
            for resolution, _ in self.target.added
            if resolution.moved is not None
        )
        new_columns = tuple(column for column in columns if column is not None)
        repeated_names = {
            column.name
            for column in new_columns
            if sum(c.name == column.name for c in new_columns) > 1
        }
        if repeated_names:
            self._refuse_same_name(min(repeated_names))
        self.missing = self._missing(resolutions)
        if new_columns == schema.columns and not any(
            resolution.converts for resolution in resolutions
        ):
            self.keeps_details = True
        else:
            self.schema = TableSchema(new_columns)

    def _refuse_same_name(self, name: str) -> None:
        reason = f"two columns of {self.target.source} would have the name {name!r}"
        raise TransformError(reason, code=ReasonCode.TWO_COLUMNS)

    def _resolve(self, name: str) -> ResolvedColumn:
        resolved = self._resolved.get(name)
        if resolved is None:
            resolved = self.target.resolve(name, self._columns.get(name))
            if len(self._resolved) >= MOST_NAMES:
                self._resolved.clear()
            self._resolved[name] = resolved
            self.target.changed_columns.add(resolved)
        return resolved

    def _missing(self, resolved: Iterable[ResolvedColumn]) -> frozenset[RequiredColumn]:
        added_names = (resolution.found_columns for resolution, _ in self.target.added)
        return self.target.required_columns.difference(
            *(resolution.found_columns for resolution in resolved), *added_names
        )

    def check(self, image: Image | None, completeness: Completeness) -> None:
        """Reject a row without a column that a mask requires; the column may be renamed.

        Raises:
            TransformError: A required column is missing.
        """
        if image is None or not self.target.required_columns:
            return
        missing = self.missing
        if not self._has_schema and completeness is Completeness.FULL:
            missing = self._missing([self._resolve(name) for name in image])
        if missing and not self._key_names.issuperset(image):
            refuse_missing(self.target, missing)

    def image(self, image: Image | None) -> Image | None:
        """Return the transformed row.

        Raises:
            TransformError: A value cannot be converted, or two columns would have one name.
        """
        if image is None or not self.is_changed:
            return image
        new_image: dict[str, Value] = {}
        for name, value in image.items():
            resolved = self._resolved.get(name) or self._resolve(name)
            if resolved.moved is None:
                continue
            new = resolved.moved.name
            if new in new_image:
                self._refuse_same_name(new)
            try:
                new_image[new] = resolved.value(value) if resolved.converts else value
            except TransformError as error:
                reason = f"column {name!r} of {self.target.source}: {error.reason}"
                raise TransformError(reason, code=error.code) from None
        for resolution, value in self.target.added:
            if resolution.moved is not None:
                if resolution.moved.name in new_image:
                    self._refuse_same_name(resolution.moved.name)
                new_image[resolution.moved.name] = resolution.value(value)
        return new_image


def refuse_missing(target: TableTarget, missing: Iterable[RequiredColumn]) -> None:
    """Reject an event without columns that a mask requires.

    Raises:
        TransformError: Always.
    """
    names = ", ".join(sorted({repr(name) for _, name in missing}))
    reason = (
        f"{target.source} has no column {names}, which a mask requires; a renamed column would "
        "pass unmasked. Correct the mask, or set `when_missing: pass`"
    )
    raise TransformError(reason, code=ReasonCode.MASK_MISSING)
