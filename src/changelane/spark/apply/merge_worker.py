# SPDX-License-Identifier: Apache-2.0
"""Applies the merge rule to changed keys in a Python worker of Spark."""

import base64
import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec
import pyarrow as pa

from changelane.apply import (
    NO_ORDER,
    RULE,
    ColumnVersion,
    KeyDelete,
    KeyState,
    Resolution,
    RowOperation,
    Upsert,
    is_live,
    key_values,
    last_known_states,
    resolve,
    stored_state,
    unpack_orders,
)
from changelane.apply.added_columns import unlisted_order
from changelane.apply.merge.key_groups import numbered_groups
from changelane.apply.row_state import TransactionRecord
from changelane.spark.apply.transaction_records import (
    connected_keys,
    read_transactions,
    write_transactions,
)
from changelane.spark.rows.json_values import key_text
from changelane.spark.rows.target import Target
from changelane.spark.runtime.garbage import without_garbage_collection
from changelane.spark.state.tombstones import TableTombstones

_PYTHON: Final[dict[str, Callable[[str], Any]]] = {
    "boolean": lambda text: text == "true",
    "tinyint": int,
    "smallint": int,
    "int": int,
    "bigint": int,
    "float": float,
    "double": float,
    "binary": base64.b64decode,
}


def _reader(kind: str) -> Callable[[str | None], Any]:
    convert = decimal.Decimal if kind.startswith("decimal") else _PYTHON.get(kind, str)
    return lambda text: None if text is None else convert(text)


def _write(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return format(value, "f") if isinstance(value, decimal.Decimal) else key_text(value)


class RecordKind(StrEnum):
    """The kinds of records that the worker gets of a key."""

    TOMBSTONE = "tombstone"
    TRANSACTIONS = "transactions"
    STORED_ROW = "stored_row"
    DELETED_ROW = "deleted_row"
    BEFORE_IMAGE = "before_image"
    DELETE = "delete"
    INSERT = "insert"
    UPSERT = "upsert"


class _Records:
    """The records of all keys: stored states, and the operations of the batch."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._read = {name: _reader(kind) for name, kind in target.columns.items()}
        self.states: dict[bytes, KeyState] = {}
        self.deleted_states: dict[bytes, KeyState] = {}
        self._operations: list[RowOperation] = []
        self._before_images: dict[tuple[bytes, bytes], dict[str, Any]] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        key, order, what = record["key"].encode(), record["order"], RecordKind(record["what"])
        # the before image of a key change is that of the row at its old key
        is_old_key = what is RecordKind.BEFORE_IMAGE and record["other"] is not None
        values = self._with_key(
            {name: self._read[name](text) for name, text in record["values"] or ()},
            record["other"].encode() if is_old_key else key,
        )
        match what:
            case RecordKind.TOMBSTONE:
                other_key = None if record["other"] is None else record["other"].encode()
                self._replace(key, deleted=order or NO_ORDER, moved_to=other_key)
            case RecordKind.TRANSACTIONS:
                transactions = read_transactions(record["transactions"], self._target, self._read)
                self._replace(
                    key, transactions=tuple(self._with_keys(one, key) for one in transactions)
                )
            case RecordKind.STORED_ROW:
                stored = self._stored_state(values, record)
                self._replace(key, full_row_order=stored.full_row_order, cells=stored.cells)
            case RecordKind.DELETED_ROW:
                self.deleted_states[key] = self._stored_state(values, record)
            case RecordKind.BEFORE_IMAGE:
                self._before_images.setdefault((key, order), _carried(values, record))
            case _:
                self._operations.append(_operation(key, values, record))

    def operations(self) -> list[RowOperation]:
        """Return the operations of the batch, each upsert with its before image."""
        return [
            msgspec.structs.replace(
                operation,
                before=self._before_images.get((operation.key or b"", operation.order)),
            )
            if isinstance(operation, Upsert)
            else operation
            for operation in self._operations
        ]

    def _replace(self, key: bytes, **fields: Any) -> None:
        state = self.states.get(key, KeyState())
        self.states[key] = msgspec.structs.replace(state, **fields)

    def _with_key(self, values: Mapping[str, Any], key: bytes) -> dict[str, Any]:
        """Return values of a row whose key columns have the values of its key.

        The rule compares them with those of keys, and a text of Spark is another value.
        """
        columns = dict(zip(self._target.keys, key_values(key), strict=False))
        return {name: columns.get(name, value) for name, value in values.items()}

    def _with_keys(self, record: TransactionRecord, key: bytes) -> TransactionRecord:
        """Return the record of a key and a transaction with the values of keys."""
        operations = tuple(map(self._with_operation_key, record.operations))
        state = record.outside_state
        values = self._with_key({name: cell.value for name, cell in state.cells.items()}, key)
        cells = {
            name: ColumnVersion(cell.order, values[name]) for name, cell in state.cells.items()
        }
        outside_state = msgspec.structs.replace(state, cells=cells)
        return msgspec.structs.replace(record, operations=operations, outside_state=outside_state)

    def _with_operation_key(self, operation: Upsert | KeyDelete) -> Upsert | KeyDelete:
        key, before = operation.key or b"", operation.before
        if isinstance(operation, KeyDelete):
            before = None if before is None else self._with_key(before, key)
            return msgspec.structs.replace(operation, before=before)
        before = None if before is None else self._with_key(before, operation.moved_from or key)
        values = self._with_key(operation.values, key)
        return msgspec.structs.replace(operation, values=values, before=before)

    def _stored_state(self, values: Mapping[str, Any], record: Mapping[str, Any]) -> KeyState:
        """Return the state of a stored row; columns added later are not newer than its base."""
        columns, additions = self._target.columns, self._target.additions
        orders = unpack_orders(record["order"], dict(record["orders"] or ()), columns)
        added = {addition.column for addition in additions if addition.is_unknown}
        state = stored_state(values, {c: order for c, order in orders.items() if c not in added})
        full_order = min(state.full_row_order, record["order"])
        if any(
            not orders[column] and unlisted_order(column, full_order, additions) for column in added
        ):
            full_order = NO_ORDER  # only the list of its columns shows that the row lacks some
        cells = {
            column: ColumnVersion(order, values[column])
            for column, order in orders.items()
            if order
        }
        return msgspec.structs.replace(state, full_row_order=full_order, cells=cells)


def resolve_keys(
    target: Target, table_tombstones: TableTombstones, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Apply the merge rule to the records of keys, in a worker.

    Args:
        target: The columns of the table.
        table_tombstones: The tombstones of the whole table.
        batches: Records (:class:`RecordKind`).

    Yields:
        Rows of ``key_changes.RESOLVED``.
    """
    # with the objects of 40,000 keys the collector takes 40 % of the time
    with without_garbage_collection():
        resolved = _resolved(target, table_tombstones, batches)
    yield resolved


def number_groups(size: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Number the groups of keys that moved rows connect, in a worker.

    Args:
        size: As for ``numbered_groups``.
        batches: Rows of ``key`` with ``other``, a key that it is connected with, or with
            ``transactions``, the text of its transactions.

    Yields:
        Rows of ``key`` and ``part``.
    """

    def links() -> Iterator[tuple[str, str]]:
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("key", "other", "transactions"))
            for key, other, transactions in zip(*columns, strict=True):
                if other is not None:
                    yield key, other
                for connected_key in connected_keys(transactions) if transactions else ():
                    yield key, connected_key

    numbers = numbered_groups(links(), size)
    parts = pa.array(numbers.values(), pa.int32())
    yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.string()), parts], ["key", "part"])


def _resolved(
    target: Target, table_tombstones: TableTombstones, batches: Iterable[pa.RecordBatch]
) -> pa.RecordBatch:
    records = _Records(target)
    for batch in batches:
        for record in batch.to_pylist():
            records.add(record)
    states, operations = records.states, records.operations()
    if table_tombstones.watermark:
        states = {key: _before_batch(state) for key, state in states.items()}
    resolution = resolve(
        states,
        operations,
        truncated=table_tombstones.truncated,
        tombstone_watermark=table_tombstones.watermark,
        complete={key for key, state in states.items() if len(state.cells) == len(target.columns)},
        keys=tuple(target.keys),
        rule=RULE.with_additions(target.additions),
    )
    deleted_rows: dict[bytes, KeyState] = {}
    if target.keeps_deleted:
        deleted_rows = _deleted_rows(resolution, {**states, **records.deleted_states}, operations)
    rows: list[tuple[Any, ...]] = []
    for key, state in resolution.states.items():
        shown = state
        if (last := deleted_rows.get(key)) is not None:
            shown = msgspec.structs.replace(
                state, full_row_order=last.full_row_order, cells=last.cells
            )
        had_transactions = key in states and bool(states[key].transactions)
        transactions = _transactions(state, target, had_transactions=had_transactions)
        rows.append((*_row(key, shown, target, resolution.truncated), *transactions))
    rows.extend(
        (
            (rejection.key or b"").decode(),
            False,
            None,
            None,
            rejection.operation.order,
            (),
            (),
            rejection.code,
            None,
            None,
            None,
        )
        for rejection in resolution.rejections
    )
    return _arrow(rows)


def _deleted_rows(
    resolution: Resolution,
    states: Mapping[bytes, KeyState],
    operations: Iterable[RowOperation],
) -> dict[bytes, KeyState]:
    """Return the last known states of deleted rows, which a table of soft deletes keeps."""
    deleted_keys = [
        key for key, state in resolution.states.items() if not is_live(state, resolution.truncated)
    ]
    rejected = {id(rejection.operation) for rejection in resolution.rejections}
    accepted = (operation for operation in operations if id(operation) not in rejected)
    return last_known_states(states, accepted, deleted_keys)


def _transactions(
    state: KeyState, target: Target, *, had_transactions: bool
) -> tuple[str | None, bytes | None, bytes | None]:
    """Return the columns ``transactions``, ``within`` and ``until`` of a key's tombstone.

    They are NULL if the key never had a transaction, and empty if it has none any more.
    """
    if not state.transactions:
        return ("" if had_transactions else None, None, None)
    newest = max(state.transactions, key=lambda record: record.last)
    until = newest.last[:-1] + b"\xff"
    return (write_transactions(state.transactions, target, _write), newest.transaction, until)


def _before_batch(state: KeyState) -> KeyState:
    """Return a state as it was before a batch that failed after it wrote its tombstones.

    The row is still in the table, and the batch contains the delete again. Which events are too
    late depends on the row.
    """
    if NO_ORDER < state.upserted <= state.deleted:
        return msgspec.structs.replace(state, deleted=NO_ORDER, moved_to=None)
    return state


def _carried(values: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the columns that an image carries."""
    carried_columns = set(record["has"] or ())
    return {name: value for name, value in values.items() if name in carried_columns}


def _operation(key: bytes, values: dict[str, Any], record: Mapping[str, Any]) -> RowOperation:
    carried_values = _carried(values, record)
    other_key = None if record["other"] is None else record["other"].encode()
    if record["what"] == RecordKind.DELETE:
        return KeyDelete(key, record["order"], other_key, carried_values, record["transaction"])
    return Upsert(
        key,
        record["order"],
        carried_values,
        record["whole"],
        other_key,
        record["transaction"],
        inserts=record["what"] == RecordKind.INSERT,
    )


def _row(key: bytes, state: KeyState, target: Target, truncated: bytes) -> tuple[Any, ...]:
    kinds, added = target.columns, target.additions
    cells: dict[str, ColumnVersion] = {name: state.cell(name, added) for name in kinds}
    # columns that are added later are as old as the newest full row
    order, orders = state.full_row_order, {name: cell.order for name, cell in cells.items()}
    if order or not any(orders.values()):
        orders = {
            name: column_order
            for name, column_order in orders.items()
            if column_order != unlisted_order(name, order, added)
        }
    values = {name: _write(cell.value) for name, cell in cells.items()}
    # the key identifies the row to delete, even if the row has no other value
    values.update(zip(target.keys, map(key_text, key_values(key)), strict=False))
    return (
        key.decode(),
        is_live(state, truncated),
        state.deleted,
        None if state.moved_to is None else state.moved_to.decode(),
        order,
        tuple(orders.items()),
        tuple(values.items()),
        None,
    )


_RESOLVED_ARROW: Final = pa.schema(
    [
        ("key", pa.string()),
        ("live", pa.bool_()),
        ("deleted", pa.binary()),
        ("moved_to", pa.string()),
        ("order", pa.binary()),
        ("orders", pa.map_(pa.string(), pa.binary())),
        ("values", pa.map_(pa.string(), pa.string())),
        ("code", pa.string()),
        ("transactions", pa.string()),
        ("within", pa.binary()),
        ("until", pa.binary()),
    ]
)


def _arrow(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((),) * len(_RESOLVED_ARROW)
    arrays = [
        pa.array(column, type=field.type)
        for column, field in zip(columns, _RESOLVED_ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_RESOLVED_ARROW)
