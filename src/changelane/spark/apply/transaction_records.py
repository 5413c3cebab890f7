# SPDX-License-Identifier: Apache-2.0
"""The states of keys inside transactions as JSON text, as the tombstone table stores them.

A batch may end inside a transaction, and the next batch may alter the columns of the table. So a
text contains the columns that the table had, and the alterations that it had executed.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from changelane.apply import NO_ORDER, ColumnVersion, KeyDelete, KeyState, Upsert
from changelane.apply.row_state import TransactionRecord
from changelane.spark.rows.target import Target

_Texts = Mapping[str, str | None]
_Readers = Mapping[str, Callable[[str | None], Any]]


class _Operation(msgspec.Struct, omit_defaults=True):
    order: bytes
    key: str
    other: str | None = None
    values: dict[str, str | None] = {}
    before: dict[str, str | None] | None = None
    transaction: str | None = None
    whole: bool = False
    inserts: bool = False
    leaves: bool = False


class _State(msgspec.Struct, omit_defaults=True):
    deleted: bytes = b""
    moved_to: str | None = None
    whole: bytes = b""
    cells: dict[str, tuple[bytes, str | None]] = {}


class _Transaction(msgspec.Struct, omit_defaults=True):
    transaction: bytes
    columns: list[str]
    steps: list[_Operation]
    rest: _State
    executed: list[str] | None = None


def write_transactions(
    transactions: Iterable[TransactionRecord],
    target: Target,
    write: Callable[[Any], str | None],
) -> str:
    """Return the text of the transactions of a key.

    Args:
        transactions: The transactions.
        target: The columns of the table.
        write: Writes a value.
    """
    names = sorted(target.columns)
    executed = [alteration_id for alteration_id, _ in target.alterations]
    stored = [
        _Transaction(
            transaction.transaction,
            names,
            [_write_operation(operation, write) for operation in transaction.operations],
            _write_state(transaction.outside_state, write),
            executed,
        )
        for transaction in transactions
    ]
    return msgspec.json.encode(stored).decode()


def read_transactions(text: str, target: Target, read: _Readers) -> tuple[TransactionRecord, ...]:
    """Return the transactions of a text, with the columns that the table has now.

    Args:
        text: The text that :func:`write_transactions` wrote.
        target: The columns of the table.
        read: Reads a value, by column.
    """
    records = []
    for transaction in msgspec.json.decode(text, type=list[_Transaction]):
        if transaction.executed is None and not target.columns.keys() >= {*transaction.columns}:
            continue  # written by an older changelane, and it is unknown what was renamed since
        columns = _StoredColumns(transaction, target, read)
        operations = tuple(map(columns.operation, transaction.steps))
        outside_state = columns.state(transaction.rest)
        records.append(TransactionRecord(transaction.transaction, operations, outside_state))
    return tuple(records)


def connected_keys(text: str) -> Iterator[str]:
    """Yield the keys that the transactions of a text connect with the key that has them."""
    for transaction in msgspec.json.decode(text, type=list[_Transaction]):
        for operation in transaction.steps:
            yield operation.key
            if operation.other is not None:
                yield operation.other
        if transaction.rest.moved_to is not None:
            yield transaction.rest.moved_to


def _texts(values: Mapping[str, Any], write: Callable[[Any], str | None]) -> dict[str, str | None]:
    return {name: write(value) for name, value in values.items()}


def _write_operation(
    operation: Upsert | KeyDelete, write: Callable[[Any], str | None]
) -> _Operation:
    before = None if operation.before is None else _texts(operation.before, write)
    if isinstance(operation, KeyDelete):
        other_key = None if operation.moved_to is None else operation.moved_to.decode()
        return _Operation(
            operation.order,
            operation.key.decode(),
            other_key,
            {},
            before,
            operation.transaction,
            leaves=True,
        )
    other_key = None if operation.moved_from is None else operation.moved_from.decode()
    return _Operation(
        operation.order,
        (operation.key or b"").decode(),
        other_key,
        _texts(operation.values, write),
        before,
        operation.transaction,
        operation.is_full_row,
        operation.inserts,
    )


def _write_state(state: KeyState, write: Callable[[Any], str | None]) -> _State:
    moved_to = None if state.moved_to is None else state.moved_to.decode()
    cells = {name: (cell.order, write(cell.value)) for name, cell in state.cells.items()}
    return _State(state.deleted, moved_to, state.full_row_order, cells)


class _StoredColumns:
    """Reads a stored transaction with the columns that its table has now.

    Args:
        transaction: The stored transaction.
        target: The columns of the table.
        read: Reads a value, by column.
    """

    def __init__(self, transaction: _Transaction, target: Target, read: _Readers) -> None:
        self._read = read
        self._names = _current_names(transaction, target)
        self._defaults: dict[str, Any] = {}
        self._has_unknown = False
        spellings = {name.lower(): name for name in target.columns}
        for addition in (*target.additions, *target.backfills):
            column = spellings.get(addition.column.lower())
            if column is None or column in self._names.values():
                continue
            if addition.value is not None:
                self._defaults[column] = read[column](_text_of_default(*addition.value))
            elif addition in target.backfills:  # the rule knows the additions without a statement
                self._has_unknown = True

    def operation(self, stored: _Operation) -> Upsert | KeyDelete:
        """Return an operation."""
        before = None if stored.before is None else self._values(stored.before)
        other_key = None if stored.other is None else stored.other.encode()
        key, transaction = stored.key.encode(), stored.transaction
        if stored.leaves:
            return KeyDelete(key, stored.order, other_key, before, transaction)
        values, is_full_row = self._values(stored.values), stored.whole
        if is_full_row:
            values = {**self._defaults, **values}
        if is_full_row and self._has_unknown:
            # only the list of its columns shows that the row lacks some
            values, is_full_row = {**self._all(None), **values}, False
        return Upsert(
            key, stored.order, values, is_full_row, other_key, transaction, before, stored.inserts
        )

    def state(self, stored: _State) -> KeyState:
        """Return the registers of a key."""
        cells = {
            column: ColumnVersion(order, self._read[column](text))
            for name, (order, text) in stored.cells.items()
            if (column := self._names.get(name)) is not None
        }
        full_order = stored.whole
        if full_order:
            defaults = {
                column: ColumnVersion(full_order, value) for column, value in self._defaults.items()
            }
            cells = {**defaults, **cells}
        if full_order and self._has_unknown:
            cells, full_order = {**self._all(ColumnVersion(full_order, None)), **cells}, NO_ORDER
        moved_to = None if stored.moved_to is None else stored.moved_to.encode()
        return KeyState(stored.deleted, moved_to, full_order, cells)

    def _values(self, texts: _Texts) -> dict[str, Any]:
        return {
            column: self._read[column](text)
            for name, text in texts.items()
            if (column := self._names.get(name)) is not None
        }

    def _all(self, value: Any) -> dict[str, Any]:
        """Return a value for each stored column."""
        return dict.fromkeys(filter(None, self._names.values()), value)


def _current_names(transaction: _Transaction, target: Target) -> dict[str, str | None]:
    """Return the names that stored columns have now; ``None`` = the column was dropped."""
    names: dict[str, str | None] = {name: name for name in transaction.columns}
    executed = transaction.executed
    for alteration_id, new_names in target.alterations:
        if executed is not None and alteration_id not in executed:
            names = {
                stored: None if name is None else new_names.get(name.lower(), name)
                for stored, name in names.items()
            }
    spellings = {name.lower(): name for name in target.columns}
    return {
        stored: None if name is None else spellings.get(name.lower())
        for stored, name in names.items()
    }


def _text_of_default(row_text: str, kind: str) -> str | None:
    """Return the text of a default (``Addition.value``) as a stored value."""
    if kind.lower().startswith(("array", "struct")):
        return row_text
    value = json.loads(row_text, parse_int=str, parse_float=str)["v"]
    return str(value).lower() if isinstance(value, bool) else value
