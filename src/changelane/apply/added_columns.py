# SPDX-License-Identifier: Apache-2.0
"""Columns that a source added without a statement: what older rows have in them.

The log of PostgreSQL, and that of every source whose statements are not read, carries no
``ALTER TABLE``. A new column is first seen in the schema of an event. The rows from before have
NULL there only where the schema says so: a nullable column without a default. Else the source gave
them a value that no event carries: a default, or, where another column is gone at the same place,
perhaps all values of the column that was renamed. Such values are unknown.

The table keeps an :class:`Addition` and rewrites no row: the column is unknown in each row whose
base order is below that of the addition, unless the row lists an order of its own for the column.
"""

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from changelane.event import ChangeEvent, Completeness, DataChange, HalfUpdate, Op
from changelane.position import is_of_stream
from changelane.schema import Column
from changelane.types import UNKNOWN

_AFTER: Final = b"\x02"
"""A phase above those of events: an order that ends in it stands between two events."""


class Cause(StrEnum):
    """Why older rows may have more than NULL in a new column."""

    DEFAULT = "default"
    """The schema declares a default, which is a literal: older rows have that value."""
    COMPUTED = "computed"
    """The schema declares a default whose value an expression may have computed."""
    NOT_NULL = "not_null"
    """The column cannot be NULL, and the schema declares no default."""
    RENAMED = "renamed"
    """Another column is gone at the same place."""
    UNTOLD = "untold"
    """The events do not say whether the column can be NULL, nor its default."""


class Default(StrEnum):
    """What a schema says of a column's default."""

    NONE = "none"
    LITERAL = "literal"
    COMPUTED = "computed"


class Traits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a schema says of a column.

    Attributes:
        name: The column, as the table spells it.
        nullable: ``None`` when the schema does not say.
        default: Whether it has a default; ``None`` when nothing says.
        value: The literal default: as JSON of a row with one field ``v``, and its Spark type.
    """

    name: str
    nullable: bool | None = None
    default: Default | None = Default.NONE
    value: tuple[str, str] | None = None


class Listing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The columns of a table, as the events of one schema list them.

    Attributes:
        order: The oldest event with this schema.
        columns: By their names in lower case.
        is_complete: The table had no other columns. Else a column that is not listed says nothing.
        last: The newest event with this schema; empty = the oldest.
    """

    order: bytes
    columns: Mapping[str, Traits]
    is_complete: bool = True
    last: bytes = b""

    @property
    def end(self) -> bytes:
        """The newest event with this schema."""
        return self.last or self.order


class Addition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column that came to a table which had rows.

    Attributes:
        column: The column, as the table spells it.
        order: Rows from below do not know the column, unless they list an order for it.
        cause: Why their value is not NULL.
        gone: The columns that were gone at the same place.
        value: With a default whose value is known, that value: as JSON of a row with one field
            ``v``, and its Spark type.
    """

    column: str
    order: bytes
    cause: Cause
    gone: tuple[str, ...] = ()
    value: tuple[str, str] | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether the value of older rows is unknown."""
        return self.value is None


def listing(
    order: bytes, columns: Iterable[Traits], *, is_complete: bool = True, last: bytes = b""
) -> Listing:
    """Return the columns of a schema by their names in lower case."""
    named = {column.name.lower(): column for column in columns}
    return Listing(order, named, is_complete, last)


def additions(
    before: Listing | None, later: Iterable[Listing], known: Collection[str] = ()
) -> list[Addition]:
    """Return the columns that came to a table, with what older rows may have in them.

    A nullable column without a default is none of them: older rows have NULL there.

    Args:
        before: The newest schema that the table had before; ``None`` = the table is new, and the
            oldest complete schema is its first.
        later: The schemas of a batch.
        known: Names, in lower case, of columns that the table has had before.
    """
    columns: dict[str, Addition] = {}
    names = set(known)
    last = before
    for schema in sorted(later, key=lambda schema: schema.end):
        if last is None:
            if schema.is_complete:
                last = schema
            names.update(schema.columns)
            continue
        order = schema.order
        if order <= last.end and not is_of_stream(order):
            # a snapshot sorts below the stream, and has the columns of a later time
            order = last.end[:-1] + _AFTER
        gone = (
            [traits for name, traits in last.columns.items() if name not in schema.columns]
            if schema.is_complete
            else []
        )
        for name, traits in schema.columns.items():
            if name not in names and (cause := _cause(traits, gone)) is not None:
                renamed = tuple(column.name for column in gone) if cause is Cause.RENAMED else ()
                value = traits.value if cause is Cause.DEFAULT else None
                columns[name] = Addition(traits.name, order, cause, renamed, value)
        names.update(schema.columns)
        if schema.is_complete and schema.end > last.end:
            last = schema
    return list(columns.values())


def newest(before: Listing | None, later: Iterable[Listing]) -> Listing | None:
    """Return the newest complete schema of a table and a batch."""
    complete = [schema for schema in later if schema.is_complete]
    if before is not None:
        complete.append(before)
    return max(complete, key=lambda schema: schema.end, default=None)


def _cause(traits: Traits, gone: Sequence[Traits]) -> Cause | None:
    if traits.default is Default.LITERAL:
        # a rename leaves the default as it is, too
        is_possible = any(
            column.default is None or _default(column) == _default(traits) for column in gone
        )
        return Cause.RENAMED if is_possible else Cause.DEFAULT
    if gone:
        return Cause.RENAMED
    if traits.default is Default.COMPUTED:
        return Cause.COMPUTED
    if traits.nullable is None:
        return Cause.UNTOLD
    return None if traits.nullable else Cause.NOT_NULL


def _default(traits: Traits) -> tuple[Default | None, tuple[str, str] | None]:
    return traits.default, traits.value


def implied(column: str, base: bytes, added: Iterable[Addition]) -> bytes:
    """Return the order of a column that a row does not list: its base order, or empty = unknown.

    A row that moved to another key has the order of that change before its own: of what it took
    along, the last bytes are the order of the event that told it.
    """
    for addition in added:
        is_older = base[-len(addition.order) :] < addition.order
        if addition.is_unknown and addition.column == column and is_older:
            return b""
    return base


def lacking(
    order: bytes, names: Collection[str], added: Iterable[Addition]
) -> tuple[Addition, ...]:
    """Return the columns that came after a whole event, and that the event does not name.

    Args:
        order: The event's.
        names: The columns that it names, in lower case.
        added: The additions of its table.
    """
    return tuple(
        addition
        for addition in added
        if order < addition.order and addition.column.lower() not in names
    )


class Columns(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a table remembers of the columns of its source.

    Attributes:
        newest: The newest schema that listed all of them.
        known: All columns that events ever named, in lower case.
        added: The columns that came to rows which were there.
    """

    newest: Listing | None = None
    known: tuple[str, ...] = ()
    added: tuple[Addition, ...] = ()

    def has_new(self, listings: Iterable[Listing]) -> bool:
        """Return whether schemas have a column that came to a table which had others."""
        known = set(self.known)
        return self.newest is not None and any(not known >= one.columns.keys() for one in listings)

    def reaching(self, high: bytes) -> "Columns":
        """Return the same where the newest schema is that of all events up to an order."""
        if self.newest is None:
            return self
        newest = msgspec.structs.replace(self.newest, last=max(high, self.newest.end))
        return msgspec.structs.replace(self, newest=newest)

    def after(self, listings: Sequence[Listing], high: bytes = b"") -> "Columns":
        """Return the same after a batch with events of these schemas.

        Args:
            listings: The schemas.
            high: The newest order of all events, where orders are offsets of several partitions:
                a column may be new to rows of another partition with greater offsets.
        """
        new = additions(self.newest, listings, self.known)
        if high:
            above = high[:-1] + _AFTER
            new = [
                msgspec.structs.replace(addition, order=max(addition.order, above))
                for addition in new
            ]
        names = {name for schema in listings for name in schema.columns}
        return Columns(
            newest(self.newest, listings),
            tuple(sorted({*self.known, *names})),
            (*self.added, *new),
        )

    def without(self, columns: Iterable[str]) -> "Columns":
        """Return the same without the additions of some columns (in lower case)."""
        stated = set(columns)
        others = tuple(addition for addition in self.added if addition.column.lower() not in stated)
        return msgspec.structs.replace(self, added=others)


def lists_columns(event: DataChange, *, omits_nulls: bool = False) -> bool:
    """Say whether an event lists all columns that its table had.

    Args:
        event: The event.
        omits_nulls: Its format leaves columns out that are NULL.
    """
    if event.schema is not None:
        return True
    if event.op is Op.DELETE:
        return event.before_holds in {Completeness.FULL, Completeness.KEY}
    return event.after_holds is Completeness.FULL and not omits_nulls


def listings_of(upserts: Iterable[tuple[ChangeEvent, bytes]]) -> list[Listing]:
    """Return the schemas of events that tell rows, given with their orders."""
    listings: dict[tuple[object, ...], Listing] = {}
    for event, order in upserts:
        change = event.change if isinstance(event, HalfUpdate) else event
        if not isinstance(change, DataChange) or change.after is None:
            continue
        columns = (
            [Column(name, UNKNOWN) for name in {**change.after, **(change.before or {})}]
            if change.schema is None
            else change.schema.columns
        )
        traits = [
            Traits(
                column.name,
                column.nullable,
                default := default_of(column),
                (repr(column.default), str(column.type)) if default is Default.LITERAL else None,
            )
            for column in columns
        ]
        is_complete = lists_columns(change)
        place = (*traits, is_complete)
        reach = (
            (order, order)
            if (earlier := listings.get(place)) is None
            else (earlier.order, earlier.end)
        )
        first, last = min(order, *reach), max(order, *reach)
        listings[place] = listing(first, traits, is_complete=is_complete, last=last)
    return list(listings.values())


_PLACEHOLDERS: Final = (
    0,
    "",
    "{}",
    "00000000-0000-0000-0000-000000000000",
    dt.date(1970, 1, 1),
    dt.datetime(1970, 1, 1),
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    dt.timedelta(0),
)


def default_of(column: Column) -> Default:
    """Say whether a schema declares a default, and its value.

    Debezium's connector for PostgreSQL declares 0, empty text, 1970-01-01 and the like for a
    default that is an expression (``PostgresDefaultValueConverter``), such as ``now()``,
    ``nextval(...)`` or ``gen_random_uuid()``: such a value proves nothing. Only ``false`` does: a
    flag has no default but a constant.
    """
    value = column.default
    if value is msgspec.UNSET or value is None:
        return Default.COMPUTED if column.generated else Default.NONE
    if column.generated:
        return Default.COMPUTED
    if not isinstance(value, bool) and _is_placeholder(value):
        return Default.COMPUTED
    return Default.LITERAL


def _is_placeholder(value: object) -> bool:
    if isinstance(value, bytes):
        return not any(value)
    return any(value == placeholder for placeholder in _PLACEHOLDERS)
