# SPDX-License-Identifier: Apache-2.0
"""Messages of wal2json to change events."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    Image,
    Key,
    KeyOrigin,
    LogicalMessage,
    Op,
    Source,
    Transaction,
    TransactionMarker,
    Truncate,
)
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.postgres_log import parse_lsn, parse_time
from changelane.formats.contract.postgres_text import DateOrder
from changelane.formats.wal2json.columns import ColumnPlan
from changelane.formats.wal2json.wire import Action, Change, ChangeSet, Column, Head, load
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, TableSchema, option_for_table
from changelane.types import UNAVAILABLE

SOURCE: Final = Source(product="postgresql", connector="wal2json")
MARKERS: Final = {"B": "begin", "C": "commit"}
OPERATIONS: Final = {"I": Op.CREATE, "U": Op.UPDATE, "D": Op.DELETE}
_KINDS: Final = {"insert": Op.CREATE, "update": Op.UPDATE, "delete": Op.DELETE}
ACTIONS: Final = frozenset((*MARKERS, *OPERATIONS, "T", "M"))
KINDS: Final = frozenset((*_KINDS, "truncate", "message"))

_MOST_CACHED: Final = 4096
# module names, because a look-up in the enum class is as slow as reading a number
_CREATE: Final = Op.CREATE
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_CHANGED: Final = Completeness.CHANGED
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN

_Names = tuple[str, ...]
_Union = tuple[ColumnPlan, ColumnPlan, TableSchema]


class Row(msgspec.Struct, frozen=True, gc=False):
    """The columns of an image in one of both versions.

    Attributes:
        plan: The columns.
        values: Their JSON values.
        path: The place in the message.
    """

    plan: ColumnPlan
    values: list[Any]
    path: str

    def image(self) -> dict[str, Any]:
        """Return the typed values."""
        return self.plan.image(self.values, self.path)


class RowChange(msgspec.Struct, frozen=True, gc=False):
    """A change of a row in one of both versions; ``pk`` is ``None`` if the plugin omits it."""

    op: Op
    table: TableId
    new: Row | None
    old: Row | None
    pk: _Names | None
    path: str


class Coordinates(msgspec.Struct, frozen=True, gc=False):
    """The place of a change, as far as the message has it."""

    position: SequencePosition | None = None
    transaction: Transaction | None = None
    time_ns: int | None = None


class Reader:
    """Decodes messages, each without the others.

    Args:
        keys: Table -> columns of its key, for tables whose messages have no ``pk``.
        date_order: The order of the numbers in dates.
    """

    def __init__(self, keys: Mapping[str, list[str]], date_order: DateOrder) -> None:
        self._keys = keys
        self._date_order = date_order
        self._plans: BoundedCache[tuple[Any, ...], ColumnPlan] = BoundedCache(_MOST_CACHED)
        self._tables: BoundedCache[tuple[str | None, str | None], TableId]
        self._tables = BoundedCache(_MOST_CACHED)
        self._cached_keys: BoundedCache[_Names, Key] = BoundedCache(_MOST_CACHED)
        self._unions: BoundedCache[tuple[int, int], _Union] = BoundedCache(_MOST_CACHED)

    def __call__(self, value: bytes) -> tuple[ChangeEvent, ...]:
        """Return the events of a message's value."""
        message = load(value)
        match message:
            case None:
                return ()
            case Action():
                return (self.event(message, self.coordinates(message)),)
            case Change():
                return (self.change(message, Coordinates(), "$"),)
            case ChangeSet():
                return self.events(message)

    # -- version 2 ---------------------------------------------------------------------------------

    def coordinates(self, head: Head) -> Coordinates:
        """Return the coordinates that a message of version 2 has."""
        position = None if head.lsn is None else SequencePosition(_lsn(head.lsn, "$.lsn"))
        transaction = None if head.xid is None else Transaction(str(head.xid))
        return Coordinates(position, transaction, _time(head.timestamp))

    def event(self, action: Action, coordinates: Coordinates) -> ChangeEvent:
        """Return the event of a message of version 2."""
        name = action.action or ""
        op = OPERATIONS.get(name)
        if op is not None:
            new = self.row(action.columns, "$.columns")
            old = self.row(action.identity, "$.identity")
            pk = None if action.pk is None else tuple(column.name for column in action.pk)
            table = self._table(action.schema, action.table, "$")
            return self._data(RowChange(op, table, new, old, pk, "$"), coordinates)
        position, transaction, time_ns = msgspec.structs.astuple(coordinates)
        if name in MARKERS:
            marked = transaction or Transaction("")
            return TransactionMarker(MARKERS[name], marked, position, SOURCE, time_ns)
        if name == "T":
            table = self._table(action.schema, action.table, "$")
            return Truncate(table, None, position, transaction, SOURCE, time_ns)
        if name == "M":
            return _message(action, coordinates, "$")
        code = ReasonCode.UNKNOWN_OPERATION
        raise DecodeError("an unknown action", code=code, path="$.action")

    def row(self, columns: list[Column] | None, path: str) -> Row | None:
        """Return the row of columns of version 2."""
        if columns is None:
            return None
        identity = tuple([(c.name, c.type, c.optional) for c in columns])
        plan = self._plans.get(identity)
        if plan is None:
            parts = tuple(zip(*identity, strict=True)) or ((), (), ())
            plan = self._plans.add(identity, self._plan(parts, path))
        return Row(plan, [column.value for column in columns], path)

    def _plan(self, parts: Any, path: str) -> ColumnPlan:
        try:
            columns, types, optionals = parts
            return ColumnPlan(columns, types, optionals, self._date_order)
        except ValueError:
            reason = "two columns have one name"
            raise DecodeError(reason, code=ReasonCode.WRONG_SCHEMA, path=path) from None

    # -- version 1 ---------------------------------------------------------------------------------

    def commit(self, message: ChangeSet) -> Coordinates:
        """Return the coordinates of a transaction of version 1: ``nextlsn`` ends its commit."""
        position = None
        if message.nextlsn is not None:
            position = SequencePosition(_lsn(message.nextlsn, "$.nextlsn"))
        transaction = None if message.xid is None else Transaction(str(message.xid))
        return Coordinates(position, transaction, _time(message.timestamp))

    def events(self, message: ChangeSet) -> tuple[ChangeEvent, ...]:
        """Return the events of a transaction, which are ordered by their number in it."""
        commit = self.commit(message)
        events: list[ChangeEvent] = []
        for index, change in enumerate(message.change or ()):
            position = None
            if commit.position is not None:
                position = SequencePosition(commit.position.value, index)
            coordinates = Coordinates(position, commit.transaction, commit.time_ns)
            events.append(self.change(change, coordinates, f"$.change[{index}]"))
        return tuple(events)

    def change(self, change: Change, coordinates: Coordinates, path: str) -> ChangeEvent:
        """Return the event of a change of version 1."""
        op = _KINDS.get(change.kind)
        if op is not None:
            table = self._table(change.schema, change.table, path)
            new, old = self._new(change, path), self._old(change, path)
            pk = None if change.pk is None else tuple(change.pk.pknames)
            return self._data(RowChange(op, table, new, old, pk, path), coordinates)
        if change.kind == "message":
            return _message(change, coordinates, path)
        if change.kind != "truncate":
            code = ReasonCode.UNKNOWN_OPERATION
            raise DecodeError("an unknown kind", code=code, path=f"{path}.kind")
        table = self._table(change.schema, change.table, path)
        position, transaction, time_ns = msgspec.structs.astuple(coordinates)
        return Truncate(table, None, position, transaction, SOURCE, time_ns)

    def _new(self, change: Change, path: str) -> Row | None:
        names, types = change.columnnames, change.columntypes
        if names is None:
            return None
        optionals = change.columnoptionals or None  # without types, the plugin leaves them empty
        return self._lists(names, types, optionals, change.columnvalues or [], path)

    def _old(self, change: Change, path: str) -> Row | None:
        old = change.oldkeys
        if old is None:
            return None
        return self._lists(old.keynames, old.keytypes, None, old.keyvalues, f"{path}.oldkeys")

    def _lists(
        self,
        columns: list[str],
        types: list[str] | None,
        optionals: list[bool] | None,
        values: list[Any],
        path: str,
    ) -> Row:
        texts: list[str | None] = [None] * len(columns) if types is None else [*types]
        nullables: list[bool | None] = [None] * len(columns) if optionals is None else [*optionals]
        if not len(columns) == len(texts) == len(values) == len(nullables):
            reason = "names, types and values have different lengths"
            raise DecodeError(reason, code=ReasonCode.WRONG_LENGTH, path=path)
        parts = tuple(columns), tuple(texts), tuple(nullables)
        plan = self._plans.get(parts)
        if plan is None:
            plan = self._plans.add(parts, self._plan(parts, path))
        return Row(plan, values, path)

    # -- rows --------------------------------------------------------------------------------------

    def _data(self, change: RowChange, coordinates: Coordinates) -> DataChange:
        op, new, old = change.op, change.new, change.old
        if op is _DELETE:
            return self._delete(change, coordinates)
        if new is None or not new.values:
            raise DecodeError("no columns", code=ReasonCode.MISSING_IMAGE, path=change.path)
        after: dict[str, Any] = new.image()
        before: Image | None = None
        schema = new.plan.schema
        if op is _CREATE:
            if old is not None:
                code = ReasonCode.UNEXPECTED_IMAGE
                raise DecodeError("an insert has no old row", code=code, path=old.path)
        elif old is not None and old.values:
            before = old.image()
            if before.keys() - after.keys():
                schema = self._union(new.plan, old.plan)
                for name in before:
                    after.setdefault(name, UNAVAILABLE)
            elif _is_same_key(before, after, change.pk):
                before = None
        return DataChange(
            op,
            change.table,
            self._key(change),
            before,
            after,
            schema,
            coordinates.position,
            coordinates.transaction,
            SOURCE,
            coordinates.time_ns,
            None,
            _UNKNOWN,
            _CHANGED if op is _UPDATE else _FULL if schema is None else _UNKNOWN,
        )

    def _delete(self, change: RowChange, coordinates: Coordinates) -> DataChange:
        old = change.old
        if change.new is not None:
            code = ReasonCode.UNEXPECTED_IMAGE
            raise DecodeError("a delete has no new row", code=code, path=change.new.path)
        if old is None or not old.values:
            raise DecodeError("no old row", code=ReasonCode.MISSING_IMAGE, path=change.path)
        return DataChange(
            _DELETE,
            change.table,
            self._key(change),
            old.image(),
            None,
            old.plan.schema,
            coordinates.position,
            coordinates.transaction,
            SOURCE,
            coordinates.time_ns,
            None,
            _CHANGED,
        )

    def _key(self, change: RowChange) -> Key | None:
        """Return the primary key, as sent or configured, or the replica identity.

        An identity with all columns of the row is no key: the table has REPLICA IDENTITY FULL.
        """
        if change.pk is not None:
            return self._named(change.pk, KeyOrigin.PAYLOAD) if change.pk else None
        if self._keys:
            configured = option_for_table(self._keys, change.table)
            if configured is not None:
                return self._named(tuple(configured), KeyOrigin.CONFIG)
        old = change.old
        if old is None or not old.values:
            return None
        names = old.plan.names
        if change.new is not None and set(names) >= set(change.new.plan.names):
            return None
        return self._named(names, KeyOrigin.PAYLOAD)

    def _named(self, columns: _Names, origin: KeyOrigin) -> Key:
        key = self._cached_keys.get(columns)  # shared, because rows are compiled by identity
        return self._cached_keys.add(columns, Key(columns, origin)) if key is None else key

    def _union(self, plan: ColumnPlan, other_plan: ColumnPlan) -> TableSchema | None:
        """Return the columns of both images; ``None`` if a type is unknown."""
        if plan.schema is None or other_plan.schema is None:
            return None
        cached = self._unions.get((id(plan), id(other_plan)))
        if cached is not None and cached[0] is plan and cached[1] is other_plan:
            return cached[2]
        names = plan.schema.names
        others = (column for column in other_plan.schema.columns if column.name not in names)
        schema = TableSchema((*plan.schema.columns, *others))
        self._unions.add((id(plan), id(other_plan)), (plan, other_plan, schema))
        return schema

    def _table(self, schema: str | None, name: str | None, path: str) -> TableId:
        if not name:
            raise DecodeError("no table", code=ReasonCode.MISSING_FIELD, path=f"{path}.table")
        table = self._tables.get((schema, name))  # shared, because reducers cache by identity
        if table is None:
            table = self._tables.add((schema, name), TableId(schema=schema or None, name=name))
        return table


def _is_same_key(before: Image, after: Image, pk: _Names | None) -> bool:
    """Whether the old row is only the key, which did not change.

    The plugin takes it from the new row then.
    """
    if len(before) >= len(after) or (pk is not None and before.keys() != set(pk)):
        return False
    return all(after[name] == value for name, value in before.items())


def _message(message: Action | Change, coordinates: Coordinates, path: str) -> LogicalMessage:
    if message.prefix is None or message.content is None:
        field = "prefix" if message.prefix is None else "content"
        raise DecodeError("no text", code=ReasonCode.MISSING_FIELD, path=f"{path}.{field}")
    transaction = None
    if message.transactional:
        transaction = coordinates.transaction or Transaction("")
    try:
        content = message.content.encode()
    except UnicodeEncodeError:
        code = ReasonCode.INVALID_UTF8
        raise DecodeError("not UTF-8", code=code, path=f"{path}.content") from None
    return LogicalMessage(
        message.prefix,
        content,
        coordinates.position,
        transaction,
        SOURCE,
        coordinates.time_ns,
    )


def _lsn(text: str, path: str) -> int:
    try:
        return parse_lsn(text)
    except ValueError:
        raise DecodeError("not an LSN", code=ReasonCode.WRONG_TYPE, path=path) from None


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        code = ReasonCode.WRONG_TYPE
        raise DecodeError("not a time", code=code, path="$.timestamp") from None
