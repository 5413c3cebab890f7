# SPDX-License-Identifier: Apache-2.0
"""The states of keys inside transactions as JSON text, as the tombstone table stores them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from changelane.apply import ColumnVersion, KeyDelete, KeyState, Upsert
from changelane.apply.row_state import TransactionRecord

_Texts = Mapping[str, str | None]


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


def write_transactions(
    transactions: Iterable[TransactionRecord],
    columns: Iterable[str],
    write: Callable[[Any], str | None],
) -> str:
    """Return the text of the transactions of a key.

    Args:
        transactions: The transactions.
        columns: The columns of the table.
        write: Writes a value.
    """
    names = sorted(columns)
    stored = [
        _Transaction(
            transaction.transaction,
            names,
            [_write_operation(operation, write) for operation in transaction.operations],
            _write_state(transaction.outside_state, write),
        )
        for transaction in transactions
    ]
    return msgspec.json.encode(stored).decode()


def read_transactions(
    text: str, read: Mapping[str, Callable[[str | None], Any]]
) -> tuple[TransactionRecord, ...]:
    """Return the transactions of a text, without those written for other columns.

    Args:
        text: The text that :func:`write_transactions` wrote.
        read: Reads a value, by column.
    """
    names = sorted(read)
    stored = msgspec.json.decode(text, type=list[_Transaction])
    return tuple(
        TransactionRecord(
            transaction.transaction,
            tuple(_read_operation(operation, read) for operation in transaction.steps),
            _read_state(transaction.rest, read),
        )
        for transaction in stored
        if transaction.columns == names
    )


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


def _read_operation(
    stored_operation: _Operation, read: Mapping[str, Callable[[str | None], Any]]
) -> Upsert | KeyDelete:
    def values(texts: _Texts) -> dict[str, Any]:
        return {name: read[name](text) for name, text in texts.items()}

    before = None if stored_operation.before is None else values(stored_operation.before)
    other_key = None if stored_operation.other is None else stored_operation.other.encode()
    if stored_operation.leaves:
        return KeyDelete(
            stored_operation.key.encode(),
            stored_operation.order,
            other_key,
            before,
            stored_operation.transaction,
        )
    return Upsert(
        stored_operation.key.encode(),
        stored_operation.order,
        values(stored_operation.values),
        stored_operation.whole,
        other_key,
        stored_operation.transaction,
        before,
        stored_operation.inserts,
    )


def _read_state(stored: _State, read: Mapping[str, Callable[[str | None], Any]]) -> KeyState:
    cells = {
        name: ColumnVersion(order, read[name](text)) for name, (order, text) in stored.cells.items()
    }
    moved_to = None if stored.moved_to is None else stored.moved_to.encode()
    return KeyState(stored.deleted, moved_to, stored.whole, cells)
