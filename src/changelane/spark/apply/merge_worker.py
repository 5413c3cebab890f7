# SPDX-License-Identifier: Apache-2.0
"""Moved keys in a worker: values as they look there, and the rule itself."""

import base64
import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from changelane.apply import (
    NO_ORDER,
    RULE,
    ColumnVersion,
    KeyDelete,
    KeyState,
    RowOperation,
    Upsert,
    key_values,
    last_known_states,
    resolve,
    stored_state,
    unpack_orders,
)
from changelane.apply import is_live as lives
from changelane.apply.added_columns import Addition, unlisted_order
from changelane.spark.apply.transaction_memory import read_within, write_within
from changelane.spark.rows.json_values import key_text
from changelane.spark.rows.target import Target
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
    target: Target, remembered: TableTombstones, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Put keys through the rule, in the worker: rows of ``TOLD`` become rows of ``RESOLVED``."""
    kinds, added = target.columns, target.additions
    read = {name: _read(kind) for name, kind in kinds.items()}
    states: dict[bytes, KeyState] = {}
    deleted_states: dict[bytes, KeyState] = {}
    steps: list[RowOperation] = []
    before: dict[tuple[bytes, bytes], dict[str, Any]] = {}
    for batch in batches:
        for record in batch.to_pylist():
            key = record["key"].encode()
            values = {name: read[name](text) for name, text in record["values"] or ()}
            match record["what"]:
                case "side":
                    state = states.get(key, KeyState())
                    other_key = record["other"]
                    states[key] = msgspec.structs.replace(
                        state,
                        deleted=record["order"] or NO_ORDER,
                        moved_to=None if other_key is None else other_key.encode(),
                    )
                case "within":
                    state = states.get(key, KeyState())
                    found_within = read_within(record["transactions"], read)
                    states[key] = msgspec.structs.replace(state, transactions=found_within)
                case "was":
                    known_columns = set(record["has"] or ())
                    image = {name: value for name, value in values.items() if name in known_columns}
                    before.setdefault((key, record["order"]), image)
                case "gone":
                    deleted_states[key] = _stored(values, record, kinds, added)
                case "held":
                    state, stored = (
                        states.get(key, KeyState()),
                        _stored(values, record, kinds, added),
                    )
                    states[key] = msgspec.structs.replace(
                        state, full_row_order=stored.full_row_order, cells=stored.cells
                    )
                case _:
                    steps.append(_step(key, values, record))
    steps = [
        msgspec.structs.replace(step, before=before.get((step.key or b"", step.order)))
        if isinstance(step, Upsert)
        else step
        for step in steps
    ]
    truncated, purged = remembered.truncated, remembered.watermark
    if purged:
        states = {key: _before(state) for key, state in states.items()}
    resolution = resolve(
        states,
        steps,
        truncated=truncated,
        tombstone_watermark=purged,
        complete=[key for key, state in states.items() if len(state.cells) == len(kinds)],
        keys=tuple(target.keys),
        rule=RULE.with_additions(added),
    )
    ghosts: dict[bytes, KeyState] = {}
    if target.keeps_deleted:
        dead_keys = [
            key
            for key, key_state in resolution.states.items()
            if not lives(key_state, resolution.truncated)
        ]
        refused = {id(problem.operation) for problem in resolution.rejections}
        ghosts = last_known_states(
            {**states, **deleted_states}, (s for s in steps if id(s) not in refused), dead_keys
        )
    rows: list[tuple[Any, ...]] = []
    for key, state in resolution.states.items():
        shown = state
        if (last := ghosts.get(key)) is not None:
            shown = msgspec.structs.replace(
                state, full_row_order=last.full_row_order, cells=last.cells
            )
        had = key in states and bool(states[key].transactions)
        rows.append(
            (
                *_row(key, shown, target, resolution.truncated),
                *_within(state, kinds, had=had),
            )
        )
    rows.extend(
        (
            (problem.key or b"").decode(),
            False,
            None,
            None,
            problem.operation.order,
            (),
            (),
            problem.code,
            None,
            None,
            None,
        )
        for problem in resolution.rejections
    )
    yield _arrow(rows)


def _within(
    state: KeyState, columns: Iterable[str], *, had: bool
) -> tuple[str | None, bytes | None, bytes | None]:
    """Return what is remembered of transactions at a key; nothing at all when nothing ever was."""
    if not state.transactions:
        return ("" if had else None, None, None)
    newest = max(state.transactions, key=lambda within: within.last)
    end = newest.last[:-1] + b"\xff"
    return (write_within(state.transactions, columns, _write), newest.transaction, end)


def _stored(
    values: Mapping[str, Any],
    record: Mapping[str, Any],
    columns: Iterable[str],
    added: Sequence[Addition],
) -> KeyState:
    """Return what a stored row says; columns that come later are not newer than its base."""
    orders = unpack_orders(record["order"], dict(record["orders"] or ()), columns)
    later = {addition.column for addition in added if addition.is_unknown}
    state = stored_state(values, {c: order for c, order in orders.items() if c not in later})
    full_order = min(state.full_row_order, record["order"])
    if any(not orders[column] and unlisted_order(column, full_order, added) for column in later):
        full_order = NO_ORDER  # nothing but the list of its columns says that the row lacks some
    cells = {
        column: ColumnVersion(order, values[column]) for column, order in orders.items() if order
    }
    return msgspec.structs.replace(state, full_row_order=full_order, cells=cells)


def _before(state: KeyState) -> KeyState:
    """Return a state as it was before a batch that died after it raised the side table.

    Its row is still there, and the batch brings the departure again; whether events are too late
    depends on the row.
    """
    if NO_ORDER < state.upserted <= state.deleted:
        return msgspec.structs.replace(state, deleted=NO_ORDER, moved_to=None)
    return state


def _step(key: bytes, values: dict[str, Any], record: Mapping[str, Any]) -> RowOperation:
    has = set(record["has"] or ())
    known_values = {name: value for name, value in values.items() if name in has}
    other_key = None if record["other"] is None else record["other"].encode()
    if record["what"] == "leave":
        order = record["order"][:-1] + b"\0"
        return KeyDelete(key, order, other_key, known_values, record["transaction"])
    inserts = record["what"] == "insert"
    return Upsert(
        key,
        record["order"],
        known_values,
        record["whole"],
        other_key,
        record["transaction"],
        inserts=inserts,
    )


def _row(key: bytes, state: KeyState, target: Target, truncated: bytes) -> tuple[Any, ...]:
    kinds, added = target.columns, target.additions
    cells: dict[str, ColumnVersion] = {name: state.cell(name, added) for name in kinds}
    # columns that the table gets later are as old as the newest event that set the whole row
    order, orders = state.full_row_order, {name: cell.order for name, cell in cells.items()}
    if order or not any(orders.values()):
        orders = {
            name: column_order
            for name, column_order in orders.items()
            if column_order != unlisted_order(name, order, added)
        }
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
