# SPDX-License-Identifier: Apache-2.0
"""What is remembered of keys inside transactions, as the text that the side table keeps."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from changelane.apply import ColumnVersion, KeyDelete, KeyState, Upsert
from changelane.apply.row_state import TransactionRecord

_Texts = Mapping[str, str | None]


class _Step(msgspec.Struct, omit_defaults=True):
    order: bytes
    key: str
    other: str | None = None
    values: dict[str, str | None] = {}
    before: dict[str, str | None] | None = None
    transaction: str | None = None
    whole: bool = False
    inserts: bool = False
    leaves: bool = False


class _Rest(msgspec.Struct, omit_defaults=True):
    deleted: bytes = b""
    moved_to: str | None = None
    whole: bytes = b""
    cells: dict[str, tuple[bytes, str | None]] = {}


class _Within(msgspec.Struct, omit_defaults=True):
    transaction: bytes
    columns: list[str]
    steps: list[_Step]
    rest: _Rest


def write_within(
    transactions: Iterable[TransactionRecord],
    columns: Iterable[str],
    write: Callable[[Any], str | None],
) -> str:
    """Return the text of what is remembered.

    Args:
        transactions: What is remembered of a key.
        columns: The columns that the table has.
        write: Writes a value.
    """
    names = sorted(columns)
    stored = [
        _Within(
            transaction.transaction,
            names,
            [_step(s, write) for s in transaction.operations],
            _rest(transaction.outside_state, write),
        )
        for transaction in transactions
    ]
    return msgspec.json.encode(stored).decode()


def read_within(
    text: str, read: Mapping[str, Callable[[str | None], Any]]
) -> tuple[TransactionRecord, ...]:
    """Return what a text remembers; nothing of transactions before the columns were others.

    Args:
        text: What :func:`write_within` wrote.
        read: Reads a value, by column.
    """
    names = sorted(read)
    stored = msgspec.json.decode(text, type=list[_Within])
    return tuple(
        TransactionRecord(
            transaction.transaction,
            tuple(_read_step(s, read) for s in transaction.steps),
            _read_rest(transaction.rest, read),
        )
        for transaction in stored
        if transaction.columns == names
    )


def _texts(values: Mapping[str, Any], write: Callable[[Any], str | None]) -> dict[str, str | None]:
    return {name: write(value) for name, value in values.items()}


def _step(step: Upsert | KeyDelete, write: Callable[[Any], str | None]) -> _Step:
    before = None if step.before is None else _texts(step.before, write)
    if isinstance(step, KeyDelete):
        other_key = None if step.moved_to is None else step.moved_to.decode()
        return _Step(
            step.order, step.key.decode(), other_key, {}, before, step.transaction, leaves=True
        )
    other_key = None if step.moved_from is None else step.moved_from.decode()
    return _Step(
        step.order,
        (step.key or b"").decode(),
        other_key,
        _texts(step.values, write),
        before,
        step.transaction,
        step.is_full_row,
        step.inserts,
    )


def _rest(state: KeyState, write: Callable[[Any], str | None]) -> _Rest:
    moved_to = None if state.moved_to is None else state.moved_to.decode()
    cells = {name: (cell.order, write(cell.value)) for name, cell in state.cells.items()}
    return _Rest(state.deleted, moved_to, state.full_row_order, cells)


def _read_step(
    stored_step: _Step, read: Mapping[str, Callable[[str | None], Any]]
) -> Upsert | KeyDelete:
    def values(texts: _Texts) -> dict[str, Any]:
        return {name: read[name](text) for name, text in texts.items()}

    before = None if stored_step.before is None else values(stored_step.before)
    other_key = None if stored_step.other is None else stored_step.other.encode()
    if stored_step.leaves:
        return KeyDelete(
            stored_step.key.encode(), stored_step.order, other_key, before, stored_step.transaction
        )
    return Upsert(
        stored_step.key.encode(),
        stored_step.order,
        values(stored_step.values),
        stored_step.whole,
        other_key,
        stored_step.transaction,
        before,
        stored_step.inserts,
    )


def _read_rest(stored_rest: _Rest, read: Mapping[str, Callable[[str | None], Any]]) -> KeyState:
    cells = {
        name: ColumnVersion(order, read[name](text))
        for name, (order, text) in stored_rest.cells.items()
    }
    moved_to = None if stored_rest.moved_to is None else stored_rest.moved_to.encode()
    return KeyState(stored_rest.deleted, moved_to, stored_rest.whole, cells)
