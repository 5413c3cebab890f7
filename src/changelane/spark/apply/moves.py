# SPDX-License-Identifier: Apache-2.0
"""Keys whose rows moved and took columns along: the few that need more than a fold.

A key change may lack columns (unchanged TOAST), its halves may come in different batches, late
events of the old key follow the row to its new one, and inside one transaction keys may be
swapped (apply.md section 4). Such keys, and only these, go through :func:`changelane.apply.resolve`
itself, in one task; everything else stays with the fold.
"""

import base64
import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

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
from changelane.apply.additions import Addition, implied
from changelane.spark.apply.meetings import leaving, may_have_met, met_before
from changelane.spark.events import fold
from changelane.spark.events.additions import lacks
from changelane.spark.events.fidelity import key_text
from changelane.spark.events.target import Target, filled
from changelane.spark.lake.held import held_rows, typed, written
from changelane.spark.ledgers.side import Remembered, SideTable
from changelane.spark.schemas.evolve import Plan
from changelane.spark.sql import COLUMNS, DELETED, LIVE, ORDER

_VALUES: Final = "map<string,string>"
TOLD: Final = (
    "what STRING, key STRING, `order` BINARY, other STRING, transaction STRING, whole BOOLEAN, "
    f"has ARRAY<STRING>, values {_VALUES}, orders MAP<STRING,BINARY>"
)
RESOLVED: Final = (
    "key STRING, live BOOLEAN, deleted BINARY, moved_to STRING, `order` BINARY, "
    f"orders MAP<STRING,BINARY>, values {_VALUES}, code STRING"
)


class Moved(NamedTuple):
    """Keys of a table that went through the rule itself, and what became of them."""

    keys: DataFrame
    states: DataFrame


def moved_keys(
    rows: DataFrame,
    table: DataFrame,
    side: SideTable,
    one: Plan,
    remembered: Remembered,
    *,
    late: DataFrame | None = None,
) -> DataFrame | None:
    """Return the keys of a batch that a fold cannot decide, in a column ``key``; ``None`` = none.

    Args:
        rows: ``data`` rows of one table.
        table: The table.
        side: What is remembered.
        one: How the table's events are applied.
        remembered: What is remembered of the whole table.
        late: Keys of events that are too late; a row that arrives there left another key.
    """
    seeds: list[DataFrame] = []
    ends: list[DataFrame] = []
    if one.work.has_other_keys:
        moves = rows.where(F.col("other_key").isNotNull()).select(
            "op", "key", "other_key", "whole", "order", "transaction"
        )
        seeds.append(_undecided(moves, rows))
        if late is not None:
            seeds.append(moves.where("op != 'd'").join(late, "key", "left_semi").select("key"))
        if one.work.is_transactional:
            seeds.append(_held_arrivals(moves, rows, table, one))
        ends.append(moves.select("key", "other_key"))
    if remembered.has_moves:
        known = side.moved(one.work.table_id)
        touched = fold.keys(rows, moves=one.work.has_other_keys).distinct()
        away = known.where("moved_to != key").join(F.broadcast(touched), "key", "left_semi")
        seeds += [away.select("key"), met_before(known, rows)]
        ends.append(known.select("key", F.col("moved_to").alias("other_key")))
    if not seeds:
        return None
    # a row that moved before and moves again in this batch: one closure over both
    found = _closure(reduce(DataFrame.unionByName, seeds), reduce(DataFrame.unionByName, ends))
    kept = found.where("key IS NOT NULL").distinct().persist(StorageLevel.MEMORY_AND_DISK)
    if kept.isEmpty():
        kept.unpersist()
        return None
    return kept


def _undecided(moves: DataFrame, rows: DataFrame) -> DataFrame:
    arrives = F.col("op") != "d"
    lacking = moves.where(arrives & ~F.col("whole")).select("key")
    # the first half of a key change whose second half is not here, or not whole
    whole = moves.where(arrives & F.col("whole")).select(
        F.col("key").alias("other_key"), F.col("other_key").alias("key")
    )
    lone = moves.where(~arrives).join(whole, ["key", "other_key"], "left_anti").select("key")
    # a key that a row reaches and another leaves in one transaction: swaps and chains
    arrived = moves.where(arrives).select(
        "key", F.col("order").alias("came"), F.col("transaction").alias("within")
    )
    within = F.coalesce(F.col("transaction") == F.col("within"), F.lit(True))
    rivals = leaving(rows).join(arrived, "key").where((F.col("order") > F.col("came")) & within)
    return lacking.unionByName(lone).unionByName(rivals.select("key")).distinct()


def _held_arrivals(moves: DataFrame, rows: DataFrame, table: DataFrame, one: Plan) -> DataFrame:
    """Return the keys at which rows arrive where others seem to be.

    Under deferred constraints the other row may leave in a later batch; where positions tell the
    transaction, the rule remembers that two rows met (apply.md section 4).
    """
    arrived = moves.where("op != 'd'").groupBy("key").agg(F.max("order").alias("came"))
    upserts = rows.where("op != 'd'").select("key", "order")
    met = upserts.join(arrived, "key").where(F.col("order") < F.col("came")).select("key")
    there = table.where(~F.col(DELETED)) if one.target.keeps_deleted else table
    held = held_rows(there, arrived.select("key"), one.target)
    return met.unionByName(held.select("key")).distinct()


def _closure(seeds: DataFrame, moves: DataFrame) -> DataFrame:
    """Return the seeds with every key that moves lead to from them, or lead from."""
    ends = moves.select("key", "other_key").distinct()
    # not eager: the count computes what the checkpoint keeps
    known = seeds.distinct().localCheckpoint(eager=False)
    count = known.count()
    while count:
        forth = ends.join(known, "key").select(F.col("other_key").alias("key"))
        back = ends.join(known.withColumnRenamed("key", "other_key"), "other_key").select("key")
        known = known.unionByName(forth).unionByName(back).distinct().localCheckpoint(eager=False)
        grown = known.count()
        if grown == count:
            break
        count = grown
    return known


def resolved(
    rows: DataFrame,
    keys: DataFrame,
    table: DataFrame,
    side: SideTable,
    one: Plan,
    *,
    remembered: Remembered,
) -> DataFrame:
    """Return what becomes of moved keys: :data:`RESOLVED`, a row a key and a row a problem."""
    target = one.target
    told = _steps(rows, target).join(F.broadcast(keys), "key", "left_semi")
    remembers = side.of(one.work.table_id, keys).select(
        F.lit("side").alias("what"),
        "key",
        F.col("deleted").alias("order"),
        F.col("moved_to").alias("other"),
    )
    parts = [remembers]
    if target.keeps_deleted:
        parts.append(_held(table.where(~F.col(DELETED)), keys, target, "held"))
        parts.append(_held(table.where(DELETED), keys, target, "gone"))
    else:
        parts.append(_held(table, keys, target, "held"))
    everything = told
    for part in parts:
        everything = everything.unionByName(part, allowMissingColumns=True)
    work = partial(_resolve, target._replace(schemas={}), remembered)
    shaped = everything.selectExpr(
        "what", "key", "`order`", "other", "transaction", "whole", "has", "values", "orders"
    )
    return shaped.repartition(1).mapInArrow(work, RESOLVED)


def raised(
    told: DataFrame, moved: Mapping[str, Moved], side: SideTable, plans: Sequence[Plan]
) -> DataFrame:
    """Return what the batch raises in the side table; moved keys as they were resolved."""
    raised = side.raised(told)
    if (met := may_have_met(told, side, plans)) is not None:
        raised = raised.unionByName(met, allowMissingColumns=True)
    cleared = [(one.work.table_id, one.cleared) for one in plans if one.cleared]
    if cleared:
        went = told.sparkSession.createDataFrame(cleared, "table_id STRING, truncated BINARY")
        raised = raised.unionByName(went, allowMissingColumns=True)
    times = {one.work.table_id: one.work.time_us for one in plans}
    for table_id, one in moved.items():
        theirs = one.keys.select(F.lit(table_id).alias("table_id"), "key")
        raised = raised.join(F.broadcast(theirs), ["table_id", "key"], "left_anti")
        # the newest time of the table in this batch: not before that of the departure
        time = F.lit(times.get(table_id)).cast("bigint")
        settled = one.states.where("code IS NULL AND length(deleted) > 0").select(
            F.lit(table_id).alias("table_id"),
            "key",
            "deleted",
            "moved_to",
            F.timestamp_micros(time).alias("source_time"),
        )
        raised = raised.unionByName(settled, allowMissingColumns=True)
    return raised


def final(told: DataFrame, one: Plan) -> DataFrame:
    """Return resolved keys as final rows of the table; ``LIVE`` says which of them exist."""
    target = one.target
    columns = [
        typed(F.try_element_at("values", F.lit(name)), kind).alias(name)
        for name, kind in target.columns.items()
    ]
    return told.where("code IS NULL").select(
        *columns,
        F.col("order").alias(ORDER),
        F.when(F.size("orders") > 0, F.col("orders")).alias(COLUMNS),
        F.col("live").alias(LIVE),
    )


def _as_text(row: Column, kind: str, name: str) -> Column:
    value = row[name]
    if kind == "binary":
        return F.base64(value)
    if kind.startswith(("array", "struct")):
        return F.to_json(F.struct(value.cast(written(kind)).alias("v")))
    return value.cast("string")


def _texts(row: Column, target: Target) -> Column:
    names = F.array(*(F.lit(name) for name in target.columns))
    values = F.array(*(_as_text(row, kind, name) for name, kind in target.columns.items()))
    return F.map_from_arrays(names, values)


def _steps(rows: DataFrame, target: Target) -> DataFrame:
    """Return upserts and departures with typed values as text, and what each knows."""
    leaves = F.col("op") == "d"
    moves = (F.col("op") == "u") & F.col("other_key").isNotNull()
    schema_id = F.col("schema_id")

    def told(what: Column, key: str, other: str, image: str) -> Column:
        missing = F.col(f"{image}_missing")
        return F.struct(
            what.alias("what"),
            F.col(key).alias("key"),
            F.col(other).alias("other"),
            F.col(image).alias("text"),
            missing.alias("missing"),
        )

    left = told(F.lit("leave"), "other_key", "key", "before")
    plain = F.when(leaves, told(F.lit("leave"), "key", "other_key", "before")).otherwise(
        told(F.lit("arrive"), "key", "other_key", "after")
    )
    each = rows.select(
        F.explode(F.when(moves, F.array(plain, left)).otherwise(F.array(plain))).alias("s"),
        "order",
        "schema_id",
        "transaction",
        "whole",
    ).select("s.*", "order", "schema_id", "transaction", "whole")
    row = fold.parsed(F.col("text"), schema_id, target)
    complete = (F.col("what") == "arrive") & F.col("missing").isNull()
    complete = complete & (F.col("whole") | fold.names_all(schema_id, target))
    row = filled(row, F.col("order"), schema_id, target)
    return each.withColumn("row", row).select(
        "what",
        "key",
        "order",
        "other",
        "transaction",
        "whole",
        _carried(target, complete).alias("has"),
        _texts(F.col("row"), target).alias("values"),
    )


def _carried(target: Target, complete: Column) -> Column:
    """Return what an event carries: a whole one the defaults, too, of columns that came later."""
    schema_id = F.col("schema_id")
    has = fold.carried(schema_id, F.col("missing"), target, complete)
    for one in target.additions:
        if not one.is_unknown:
            is_older = lacks(F.col("order"), schema_id, one, target.having(one.column))
            is_filled = is_older & F.col("whole") & (F.col("what") == "arrive")
            has = F.when(is_filled, F.array_append(has, F.lit(one.column))).otherwise(has)
    return has


def _held(table: DataFrame, keys: DataFrame, target: Target, what: str) -> DataFrame:
    return held_rows(table, keys, target).select(
        F.lit(what).alias("what"),
        "key",
        "order",
        _texts(F.col("row"), target).alias("values"),
        "orders",
    )


# -- in the worker: what the values look like there --------------------------------------------

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


def _resolve(
    target: Target, remembered: Remembered, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    kinds, added = target.columns, target.additions
    read = {name: _read(kind) for name, kind in kinds.items()}
    states: dict[bytes, KeyState] = {}
    gone: dict[bytes, KeyState] = {}
    steps: list[Step] = []
    for batch in batches:
        for told in batch.to_pylist():
            key = told["key"].encode()
            values = {name: read[name](text) for name, text in told["values"] or ()}
            match told["what"]:
                case "side":
                    state = states.get(key, KeyState())
                    other = told["other"]
                    states[key] = KeyState(
                        told["order"] or NOTHING,
                        None if other is None else other.encode(),
                        state.whole,
                        state.cells,
                    )
                case "gone":
                    gone[key] = _stored(values, told, kinds, added)
                case "held":
                    state, held = states.get(key, KeyState()), _stored(values, told, kinds, added)
                    states[key] = msgspec.structs.replace(state, whole=held.whole, cells=held.cells)
                case _:
                    steps.append(_step(key, values, told))
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
        rows.append(_row(key, shown, target, found.truncated))
    rows.extend(
        ((problem.key or b"").decode(), False, None, None, problem.step.order, (), (), problem.code)
        for problem in found.problems
    )
    yield _arrow(rows)


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
    return Upsert(key, told["order"], known, told["whole"], other, told["transaction"])


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
    ]
)


def _arrow(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((),) * len(_RESOLVED_ARROW)
    arrays = [
        pa.array(column, type=field.type)
        for column, field in zip(columns, _RESOLVED_ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_RESOLVED_ARROW)
