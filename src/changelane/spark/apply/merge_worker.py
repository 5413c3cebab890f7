# SPDX-License-Identifier: Apache-2.0
"""Moved keys in a worker: values as they look there, and the rule itself."""

import base64
import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from changelane.apply import (
    NOTHING,
    RULE,
    Cell,
    Departure,
    KeyState,
    Step,
    Upsert,
    key_values,
    last_known,
    resolve,
    stored_state,
    unpack,
)
from changelane.apply import is_live as lives
from changelane.apply.added_columns import Addition, implied
from changelane.spark.apply.transaction_memory import read_within, write_within
from changelane.spark.rows.json_values import key_text
from changelane.spark.rows.target import Target
from changelane.spark.state.tombstones import Remembered

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


def _read(kind: str) -> Callable[[str | None], Any]:
    convert = decimal.Decimal if kind.startswith("decimal") else _PYTHON.get(kind, str)
    return lambda text: None if text is None else convert(text)


def _write(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return format(value, "f") if isinstance(value, decimal.Decimal) else str(value)


def resolve_keys(
    target: Target, remembered: Remembered, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Put keys through the rule, in the worker: rows of ``TOLD`` become rows of ``RESOLVED``."""
    kinds, added = target.columns, target.additions
    read = {name: _read(kind) for name, kind in kinds.items()}
    states: dict[bytes, KeyState] = {}
    gone: dict[bytes, KeyState] = {}
    steps: list[Step] = []
    before: dict[tuple[bytes, bytes], dict[str, Any]] = {}
    for batch in batches:
        for told in batch.to_pylist():
            key = told["key"].encode()
            values = {name: read[name](text) for name, text in told["values"] or ()}
            match told["what"]:
                case "side":
                    state = states.get(key, KeyState())
                    other = told["other"]
                    states[key] = msgspec.structs.replace(
                        state,
                        deleted=told["order"] or NOTHING,
                        moved_to=None if other is None else other.encode(),
                    )
                case "within":
                    state = states.get(key, KeyState())
                    found_within = read_within(told["transactions"], read)
                    states[key] = msgspec.structs.replace(state, transactions=found_within)
                case "was":
                    known = set(told["has"] or ())
                    image = {name: value for name, value in values.items() if name in known}
                    before.setdefault((key, told["order"]), image)
                case "gone":
                    gone[key] = _stored(values, told, kinds, added)
                case "held":
                    state, held = states.get(key, KeyState()), _stored(values, told, kinds, added)
                    states[key] = msgspec.structs.replace(state, whole=held.whole, cells=held.cells)
                case _:
                    steps.append(_step(key, values, told))
    steps = [
        msgspec.structs.replace(step, before=before.get((step.key or b"", step.order)))
        if isinstance(step, Upsert)
        else step
        for step in steps
    ]
    truncated, purged = remembered.truncated, remembered.purged
    if purged:
        states = {key: _before(state) for key, state in states.items()}
    found = resolve(
        states,
        steps,
        truncated=truncated,
        horizon=purged,
        complete=[key for key, state in states.items() if len(state.cells) == len(kinds)],
        keys=tuple(target.keys),
        rule=RULE.knowing(added),
    )
    kept: dict[bytes, KeyState] = {}
    if target.keeps_deleted:
        left = [key for key, one in found.states.items() if not lives(one, found.truncated)]
        refused = {id(problem.step) for problem in found.problems}
        kept = last_known({**states, **gone}, (s for s in steps if id(s) not in refused), left)
    rows: list[tuple[Any, ...]] = []
    for key, state in found.states.items():
        shown = state
        if (last := kept.get(key)) is not None:
            shown = msgspec.structs.replace(state, whole=last.whole, cells=last.cells)
        had = key in states and bool(states[key].transactions)
        rows.append(
            (
                *_row(key, shown, target, found.truncated),
                *_within(state, kinds, had=had),
            )
        )
    rows.extend(
        (
            (problem.key or b"").decode(),
            False,
            None,
            None,
            problem.step.order,
            (),
            (),
            problem.code,
            None,
            None,
            None,
        )
        for problem in found.problems
    )
    yield _arrow(rows)


def _within(
    state: KeyState, columns: Iterable[str], *, had: bool
) -> tuple[str | None, bytes | None, bytes | None]:
    """Return what is remembered of transactions at a key; nothing at all when nothing ever was."""
    if not state.transactions:
        return ("" if had else None, None, None)
    newest = max(state.transactions, key=lambda within: within.last)
    until = newest.last[:-1] + b"\xff"
    return (write_within(state.transactions, columns, _write), newest.transaction, until)


def _stored(
    values: Mapping[str, Any],
    told: Mapping[str, Any],
    columns: Iterable[str],
    added: Sequence[Addition],
) -> KeyState:
    """Return what a stored row says; columns that come later are not newer than its base."""
    orders = unpack(told["order"], dict(told["orders"] or ()), columns)
    later = {one.column for one in added if one.is_unknown}
    state = stored_state(values, {c: order for c, order in orders.items() if c not in later})
    whole = min(state.whole, told["order"])
    if any(not orders[column] and implied(column, whole, added) for column in later):
        whole = NOTHING  # nothing but the list of its columns says that the row lacks some
    cells = {column: Cell(order, values[column]) for column, order in orders.items() if order}
    return msgspec.structs.replace(state, whole=whole, cells=cells)


def _before(state: KeyState) -> KeyState:
    """Return a state as it was before a batch that died after it raised the side table.

    Its row is still there, and the batch brings the departure again; whether events are too late
    depends on the row.
    """
    if NOTHING < state.upserted <= state.deleted:
        return msgspec.structs.replace(state, deleted=NOTHING, moved_to=None)
    return state


def _step(key: bytes, values: dict[str, Any], told: Mapping[str, Any]) -> Step:
    has = set(told["has"] or ())
    known = {name: value for name, value in values.items() if name in has}
    other = None if told["other"] is None else told["other"].encode()
    if told["what"] == "leave":
        order = told["order"][:-1] + b"\0"
        return Departure(key, order, other, known, told["transaction"])
    inserts = told["what"] == "insert"
    return Upsert(
        key, told["order"], known, told["whole"], other, told["transaction"], inserts=inserts
    )


def _row(key: bytes, state: KeyState, target: Target, truncated: bytes) -> tuple[Any, ...]:
    kinds, added = target.columns, target.additions
    cells: dict[str, Cell] = {name: state.cell(name, added) for name in kinds}
    # columns that the table gets later are as old as the newest event that set the whole row
    order, orders = state.whole, {name: cell.order for name, cell in cells.items()}
    if order or not any(orders.values()):
        orders = {name: one for name, one in orders.items() if one != implied(name, order, added)}
    values = {name: _write(cell.value) for name, cell in cells.items()}
    # the key names the row to delete, whatever else is known of it
    values.update(zip(target.keys, map(key_text, key_values(key)), strict=False))
    return (
        key.decode(),
        lives(state, truncated),
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
