# SPDX-License-Identifier: Apache-2.0
"""What is remembered of keys inside transactions, as the text that the side table keeps."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from changelane.apply import Cell, Departure, KeyState, Upsert
from changelane.apply.row_state import Within

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
    told: Iterable[Within], columns: Iterable[str], write: Callable[[Any], str | None]
) -> str:
    """Return the text of what is remembered.

    Args:
        told: What is remembered of a key.
        columns: The columns that the table has.
        write: Writes a value.
    """
    names = sorted(columns)
    found = [
        _Within(
            one.transaction, names, [_step(s, write) for s in one.steps], _rest(one.rest, write)
        )
        for one in told
    ]
    return msgspec.json.encode(found).decode()


def read_within(text: str, read: Mapping[str, Callable[[str | None], Any]]) -> tuple[Within, ...]:
    """Return what a text remembers; nothing of transactions before the columns were others.

    Args:
        text: What :func:`write_within` wrote.
        read: Reads a value, by column.
    """
    names = sorted(read)
    found = msgspec.json.decode(text, type=list[_Within])
    return tuple(
        Within(
            one.transaction,
            tuple(_read_step(s, read) for s in one.steps),
            _read_rest(one.rest, read),
        )
        for one in found
        if one.columns == names
    )


def _texts(values: Mapping[str, Any], write: Callable[[Any], str | None]) -> dict[str, str | None]:
    return {name: write(value) for name, value in values.items()}


def _step(step: Upsert | Departure, write: Callable[[Any], str | None]) -> _Step:
    before = None if step.before is None else _texts(step.before, write)
    if isinstance(step, Departure):
        other = None if step.moved_to is None else step.moved_to.decode()
        return _Step(
            step.order, step.key.decode(), other, {}, before, step.transaction, leaves=True
        )
    other = None if step.moved_from is None else step.moved_from.decode()
    return _Step(
        step.order,
        (step.key or b"").decode(),
        other,
        _texts(step.values, write),
        before,
        step.transaction,
        step.whole,
        step.inserts,
    )


def _rest(state: KeyState, write: Callable[[Any], str | None]) -> _Rest:
    moved_to = None if state.moved_to is None else state.moved_to.decode()
    cells = {name: (cell.order, write(cell.value)) for name, cell in state.cells.items()}
    return _Rest(state.deleted, moved_to, state.whole, cells)


def _read_step(told: _Step, read: Mapping[str, Callable[[str | None], Any]]) -> Upsert | Departure:
    def values(texts: _Texts) -> dict[str, Any]:
        return {name: read[name](text) for name, text in texts.items()}

    before = None if told.before is None else values(told.before)
    other = None if told.other is None else told.other.encode()
    if told.leaves:
        return Departure(told.key.encode(), told.order, other, before, told.transaction)
    return Upsert(
        told.key.encode(),
        told.order,
        values(told.values),
        told.whole,
        other,
        told.transaction,
        before,
        told.inserts,
    )


def _read_rest(told: _Rest, read: Mapping[str, Callable[[str | None], Any]]) -> KeyState:
    cells = {name: Cell(order, read[name](text)) for name, (order, text) in told.cells.items()}
    moved_to = None if told.moved_to is None else told.moved_to.encode()
    return KeyState(told.deleted, moved_to, told.whole, cells)
