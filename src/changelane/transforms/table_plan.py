# SPDX-License-Identifier: Apache-2.0
"""What a list of transforms makes of one table, asked once per table and schema."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from changelane.errors import TransformError
from changelane.event import Completeness, Image, Key
from changelane.schema import Column, TableId, TableSchema
from changelane.transforms.include_exclude import Exclude, Include
from changelane.transforms.route import Route, shard_name
from changelane.transforms.transform import OPERATIONS, ColumnStep, Convert, Moved, Step
from changelane.types import UNAVAILABLE, String, Value

MOST_NAMES: Final = 10_000
"""Columns of rows without a schema that are remembered per table."""

Wanted = tuple[int, str]
"""A column that the step of this number wants to find."""


class Resolved(msgspec.Struct, frozen=True):
    """What becomes of one column after all steps.

    Attributes:
        moved: ``None`` = it goes.
        converts: In this order.
        path: The steps that convert it: columns with one path become alike.
        found: What steps want and find in it.
    """

    moved: Moved | None
    converts: tuple[Convert, ...] = ()
    path: tuple[int, ...] = ()
    found: frozenset[Wanted] = frozenset()
    keeps_key: bool = True
    is_masked: bool = False

    def value(self, value: Value) -> Value:
        """Return what a value becomes; NULL and unavailable stay."""
        for convert in self.converts:
            if value is None or value is UNAVAILABLE:
                return value
            value = convert(value)
        return value


class Place:
    """Where the events of one table go.

    Attributes:
        source: The table.
        table: What it is called from now on.
        refused: Operations whose events do not go on.
        steps: The transforms of columns that cover it, with their numbers.
        added: Columns that tell its shard, with their value.
        is_merged: Other tables may go there, too.
        topic: The topic of its messages, where a route tells one.
        may_move: Tables may go elsewhere, or not go on.
        ignores_statements: No statement goes on, of whatever table.
    """

    def __init__(self, table: TableId, steps: Sequence[Step]) -> None:
        self.source = table
        self.refused: set[str] = set()
        self.steps: list[tuple[int, ColumnStep]] = []
        self.unsure: list[tuple[int, ColumnStep]] = []
        self.is_merged = self.is_shard_key = False
        self.topic: str | None = None
        self.may_move = any(isinstance(step, Route | Include | Exclude) for step in steps)
        self.ignores_statements = any(
            isinstance(step, Include | Exclude) and not step.passes_any("schema") for step in steps
        )
        added: list[tuple[int, str, str]] = []
        for number, step in enumerate(steps):
            match step:
                case Include() | Exclude():
                    self.refused.update(op for op in OPERATIONS if not step.passes(table, op))
                case Route():
                    if step.covers(table) is None and step.shards == "key":
                        self.is_shard_key = True
                    if not step.covers(table):
                        continue
                    if step.is_merging:
                        self.is_merged = True
                    if step.shards == "key":
                        self.is_shard_key = True
                        added.append((number, step.shard_column, shard_name(table)))
                    table = step.destination(table)
                    self.topic = step.topic_of(table) or self.topic
                case ColumnStep():
                    covered = step.covers(table)
                    if covered is None:
                        self.unsure.append((number, step))
                    elif covered:
                        self.steps.append((number, step))
                case _:
                    raise TypeError(f"not a transform: {type(step).__name__}")
        self.table = self.source if table == self.source else table
        self.added = tuple(
            (self._after(number, name, Column(name, String(), None, nullable=False)), value)
            for number, name, value in added
        )

    @property
    def changes_columns(self) -> bool:
        """Whether rows may look different there."""
        return bool(self.steps or self.added)

    @property
    def wanted(self) -> frozenset[Wanted]:
        """The columns that must be there."""
        return frozenset((number, name) for number, step in self.steps for name in step.wanted)

    def resolve(self, name: str, column: Column | None) -> Resolved:
        """Return what becomes of a column.

        Raises:
            TransformError: The event does not tell its table, and a transform of single tables
                would change the column.
        """
        for _, step in self.unsure:
            if step.names((name,)):
                reason = f"{_kind(step)} of column {name!r}: the event does not tell its table"
                raise TransformError(reason, code="unnamed_table")
        return self._after(-1, name, column)

    def _after(self, start: int, name: str, column: Column | None) -> Resolved:
        converts: list[Convert] = []
        path: list[int] = []
        found: set[Wanted] = set()
        keeps_key, is_masked = True, False
        moved: Moved | None = Moved(name, column)
        for number, step in self.steps:
            if number <= start or moved is None:
                continue
            if moved.name in step.wanted:
                found.add((number, moved.name))
            moved = step.move(moved.name, moved.column)
            if moved is not None and moved.convert is not None:
                converts.append(moved.convert)
                path.append(number)
                keeps_key &= moved.keeps_key
                is_masked |= moved.is_masked
        return Resolved(moved, tuple(converts), tuple(path), frozenset(found), keeps_key, is_masked)

    def key_column(self, name: str, column: Column | None) -> str:
        """Return what a key column is called from now on.

        Raises:
            TransformError: It goes, or its values would not tell rows apart any more.
        """
        found = self.resolve(name, column)
        verb = None
        if found.moved is None:
            verb = "project drops"
        elif found.is_masked:
            verb = "mask hides"
        elif not found.keeps_key:
            verb = "cast changes, so that keys may meet or part,"
        if found.moved is None or verb is not None:
            reason = f"{verb} column {name!r} of {self.source}, which is a part of the key"
            raise TransformError(reason, code="key_column")
        return found.moved.name


def _kind(step: Step) -> str:
    return str(step.__struct_config__.tag)


class Plan:
    """What becomes of the rows of one table, with one schema and key.

    Attributes:
        place: Where they go.
        schema: The columns from now on.
        key: The key columns from now on.
        is_changed: Whether rows may look different.
        keeps_details: No column changes, so what the producer says beyond the model still holds.
        is_lossy: Rows that differ may be equal from now on.
        masked: Columns, as they are called from now on, that cannot be a key.
    """

    def __init__(self, place: Place, schema: TableSchema | None, key: Key | None) -> None:
        self.place = place
        self._found: dict[str, Resolved] = {}
        self._known = {} if schema is None else schema.by_name
        self._has_schema = schema is not None
        self.is_changed = place.changes_columns or bool(place.unsure)
        self.schema, self.key, self.missing = schema, key, frozenset[Wanted]()
        self._key_names = frozenset(() if key is None else key.columns)
        self.keeps_details = not self.is_changed
        if not self.is_changed:
            self.masked: frozenset[str] = frozenset()
            self.is_lossy = False
            return
        if key is not None:
            names = tuple(place.key_column(name, self._known.get(name)) for name in key.columns)
            self.key = Key((*names, *self._added_names()), key.origin)
            self.key = key if self.key == key else self.key
        if schema is not None:
            self._take(schema)
        resolved = self._found.values()
        self.masked = frozenset(
            one.moved.name for one in resolved if one.moved is not None and not one.keeps_key
        )
        self.is_lossy = bool(self.masked) or any(one.moved is None for one in resolved)

    def _take(self, schema: TableSchema) -> None:
        found = [self._resolve(column.name) for column in schema.columns]
        columns = [one.moved.column for one in found if one.moved is not None]
        columns.extend(one.moved.column for one, _ in self.place.added if one.moved is not None)
        made = tuple(column for column in columns if column is not None)
        twice = {column.name for column in made if sum(c.name == column.name for c in made) > 1}
        if twice:
            self._collide(min(twice))
        self.missing = self._missing(found)
        if made == schema.columns and not any(one.converts for one in found):
            self.keeps_details = True
        else:
            self.schema = TableSchema(made)

    def _added_names(self) -> Iterable[str]:
        return (one.moved.name for one, _ in self.place.added if one.moved is not None)

    def _collide(self, name: str) -> None:
        reason = f"two columns of {self.place.source} would be called {name!r}"
        raise TransformError(reason, code="two_columns")

    def _resolve(self, name: str) -> Resolved:
        found = self._found.get(name)
        if found is None:
            found = self.place.resolve(name, self._known.get(name))
            if len(self._found) >= MOST_NAMES:
                self._found.clear()
            self._found[name] = found
        return found

    def _missing(self, resolved: Iterable[Resolved]) -> frozenset[Wanted]:
        found = (one.found for one, _ in self.place.added)
        return self.place.wanted.difference(*(one.found for one in resolved), *found)

    def check(self, image: Image | None, holds: Completeness) -> None:
        """Refuse a row that lacks a column which a mask wants to hide: it may be called otherwise.

        Raises:
            TransformError: It does.
        """
        if image is None or not self.place.wanted:
            return
        missing = self.missing
        if not self._has_schema and holds is Completeness.FULL:
            missing = self._missing([self._resolve(name) for name in image])
        if missing and not self._key_names.issuperset(image):
            refuse_missing(self.place, missing)

    def image(self, image: Image | None) -> Image | None:
        """Return what a row becomes.

        Raises:
            TransformError: A value does not fit, or two columns would have one name.
        """
        if image is None or not self.is_changed:
            return image
        made: dict[str, Value] = {}
        for name, value in image.items():
            found = self._found.get(name) or self._resolve(name)
            if found.moved is None:
                continue
            new = found.moved.name
            if new in made:
                self._collide(new)
            try:
                made[new] = found.value(value) if found.converts else value
            except TransformError as error:
                reason = f"column {name!r} of {self.place.source} holds {error.reason}"
                raise TransformError(reason, code=error.code) from None
        for one, value in self.place.added:
            if one.moved is not None:
                if one.moved.name in made:
                    self._collide(one.moved.name)
                made[one.moved.name] = one.value(value)
        return made


def refuse_missing(place: Place, missing: Iterable[Wanted]) -> None:
    """Refuse what lacks columns that a mask wants to hide.

    Raises:
        TransformError: Always.
    """
    names = ", ".join(sorted({repr(name) for _, name in missing}))
    reason = (
        f"mask finds no column {names} in {place.source}: it may have another name now, and would "
        "go on unmasked (`when_missing: pass` lets such tables pass)"
    )
    raise TransformError(reason, code="mask_missing")
