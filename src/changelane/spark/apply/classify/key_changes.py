# SPDX-License-Identifier: Apache-2.0
"""Keys to which the merge rule itself is applied, because rows of them changed their keys.

A key change may lack columns (unchanged TOAST), and its two halves may be in different batches.
Late events of the old key belong to the row at its new key, and rows of one transaction may swap
their keys (docs/merge-rule.md, Keys inside one transaction). Such keys, and no others, go through
:func:`changelane.apply.merge.resolve`; the latest event per key decides all others. Keys that moved
rows connect are in one task, with other such groups of keys.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial, reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.reason_codes import ReasonCode
from changelane.spark.apply.classify.classifier import ChangedKeys, StoredTable
from changelane.spark.apply.classify.deferred_constraints import (
    identified_moves,
    key_deletes,
    keys_of_transactions,
    shared_keys_with_deletes,
)
from changelane.spark.apply.merge_worker import RecordKind, number_groups, resolve_keys
from changelane.spark.evolution.compatibility import is_of_table
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.key_filter import MAX_KEYS, key_filter
from changelane.spark.lake.lookup import existing_rows, json_type, value_of_text
from changelane.spark.rows import key_operations, latest_per_key
from changelane.spark.rows.added_columns import lacks_column, names_where
from changelane.spark.rows.batch_stats import FEW_KEYS
from changelane.spark.rows.target import Target, with_defaults
from changelane.spark.runtime.computed import computed, computed_once, release
from changelane.spark.runtime.conditions import any_of
from changelane.spark.runtime.sql import (
    COLUMNS,
    DELETED,
    EMPTY_ORDER,
    JSON_OPTIONS,
    LIVE,
    ORDER,
    literal_rows,
)
from changelane.spark.state.quarantine import RejectedRows
from changelane.spark.state.tombstones import TombstoneTable

KEYS_PER_TASK: Final = 10_000
"""The number of keys of a task that applies the rule. A worker needs about 10 kB for each."""
_VALUES: Final = "map<string,string>"
RESOLVED: Final = (
    "key STRING, live BOOLEAN, deleted BINARY, moved_to STRING, `order` BINARY, "
    f"orders MAP<STRING,BINARY>, values {_VALUES}, code STRING, "
    "transactions STRING, within BINARY, until BINARY"
)
"""The state of a key after the batch; with a ``code``, an event that the rule rejected instead."""


def changed_keys(rows: DataFrame, plan: TablePlan, stored: StoredTable) -> ChangedKeys | None:
    """Return the keys to which the merge rule itself is applied; ``None`` = none.

    Args:
        rows: ``data`` rows of one table.
        plan: The plan of the table.
        stored: The table as it is stored before the batch.
    """
    if not plan.target.keys:
        return None
    if not plan.table_batch.has_other_keys and not stored.has_touched_key_changes:
        return None
    rows = rows.where("key IS NOT NULL")
    with ExitStack() as stack:
        stored_moves = None
        if moved_count := stored.table_tombstones.moved_keys:
            moved_keys = stored.tombstones.moved_keys(
                plan.table_batch.table_id, are_few=moved_count <= FEW_KEYS
            )
            stored_moves = stack.enter_context(computed_once(moved_keys))
        keys = _changed_keys(rows, plan, stored, stored_moves)
    if keys is None:
        return None
    key_count = keys.count()
    if not key_count:
        release(keys)
        return None
    few_keys = None
    if key_count <= MAX_KEYS:
        few_keys = frozenset(row["key"] for row in keys.collect())
    task_count = -(-key_count // KEYS_PER_TASK)
    states = _resolved(rows, keys, plan, stored, few_keys=few_keys, task_count=task_count)
    return ChangedKeys(keys, computed(states), few_keys)


def _changed_keys(
    rows: DataFrame, plan: TablePlan, stored: StoredTable, stored_moves: DataFrame | None
) -> DataFrame | None:
    """Return the computed keys, which may be none; ``None`` = no key can have changed.

    Args:
        rows: ``data`` rows of one table with a key.
        plan: The plan of the table.
        stored: The table as it is stored before the batch.
        stored_moves: The keys whose rows moved in earlier batches; ``None`` = none.
    """
    seeds: list[DataFrame] = []
    links: list[DataFrame] = []
    if plan.table_batch.has_other_keys:
        moves = _moves(rows)
        seeds.append(_undecided_keys(moves, rows))
        named_moves = identified_moves(rows, plan)
        seeds += [named_moves.select("key"), named_moves.select(F.col("other_key").alias("key"))]
        if stored.late_keys is not None:
            # a row that is inserted at such a key was deleted at another one
            late_inserts = moves.where("op != 'd'").join(stored.late_keys, "key", "left_semi")
            seeds.append(late_inserts.select("key"))
        if plan.table_batch.is_transactional:
            seeds.append(_occupied_keys(moves, rows, plan, stored))
        links.append(moves.select("key", "other_key"))
    if stored_moves is not None:
        table_id = plan.table_batch.table_id
        touched = key_operations.touched_keys(
            rows, moves=plan.table_batch.has_other_keys
        ).distinct()
        left_keys = stored_moves.where("moved_to != key").join(
            F.broadcast(touched), "key", "left_semi"
        )
        in_transactions = keys_of_transactions(stored.tombstones.transactions_of(table_id), rows)
        seeds += [
            left_keys.select("key"),
            shared_keys_with_deletes(stored_moves, rows),
            in_transactions,
        ]
        links.append(stored_moves.select("key", F.col("moved_to").alias("other_key")))
    if not seeds:
        return None
    # one closure over both: a row may have changed its key before, and again in this batch
    return _closure(reduce(DataFrame.unionByName, seeds), reduce(DataFrame.unionByName, links))


def _moves(rows: DataFrame) -> DataFrame:
    return rows.where(F.col("other_key").isNotNull()).select(
        "op", "key", "other_key", "whole", "order", "transaction"
    )


def _undecided_keys(moves: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the keys of a batch that the latest event per key does not decide."""
    is_insert = F.col("op") != "d"
    lacking = moves.where(is_insert & ~F.col("whole")).select("key")
    # the first half of a key change whose second half is not in the batch, or not a full image
    full_inserts = moves.where(is_insert & F.col("whole")).select(
        F.col("key").alias("other_key"), F.col("other_key").alias("key")
    )
    unpaired_deletes = moves.where(~is_insert).join(full_inserts, ["key", "other_key"], "left_anti")
    # a key with an insert and a later delete in one transaction: swaps and chains
    inserts = moves.where(is_insert).select(
        "key", F.col("order").alias("inserted_at"), F.col("transaction").alias("inserted_in")
    )
    is_same_transaction = F.coalesce(F.col("transaction") == F.col("inserted_in"), F.lit(True))
    reused_keys = (
        key_deletes(rows)
        .join(inserts, "key")
        .where((F.col("order") > F.col("inserted_at")) & is_same_transaction)
    )
    return (
        lacking.unionByName(unpaired_deletes.select("key"))
        .unionByName(reused_keys.select("key"))
        .distinct()
    )


def _occupied_keys(
    moves: DataFrame, rows: DataFrame, plan: TablePlan, stored: StoredTable
) -> DataFrame:
    """Return the keys at which rows are inserted while other rows may have them.

    Under deferred constraints the other row may be deleted in a later batch. Where positions
    identify the transaction, the rule records that two rows have the key (docs/merge-rule.md, Keys
    inside one transaction).
    """
    inserts = moves.where("op != 'd'").groupBy("key").agg(F.max("order").alias("inserted_at"))
    upserts = rows.where("op != 'd'").select("key", "order")
    older_upserts = upserts.join(inserts, "key").where(F.col("order") < F.col("inserted_at"))
    live_rows = stored.rows(plan.key_filter())
    if plan.target.keeps_deleted:
        live_rows = live_rows.where(~F.col(DELETED))
    stored_rows = existing_rows(live_rows, inserts.select("key"), plan.target)
    return older_upserts.select("key").unionByName(stored_rows.select("key")).distinct()


def _closure(seeds: DataFrame, links: DataFrame) -> DataFrame:
    """Return the seeds with every key that key changes connect to them; the result is computed."""
    reached = computed(seeds.where("key IS NOT NULL").distinct())
    count = reached.count()
    if not count:
        return reached
    with computed_once(links.select("key", "other_key").distinct()) as pairs:
        while True:
            forth = pairs.join(reached, "key").select(F.col("other_key").alias("key"))
            reached_back = reached.withColumnRenamed("key", "other_key")
            back = pairs.join(reached_back, "other_key").select("key")
            grown = computed(reached.unionByName(forth).unionByName(back).distinct())
            grown_count = grown.count()
            release(reached)
            if grown_count == count:
                return grown
            reached, count = grown, grown_count


def _resolved(
    rows: DataFrame,
    keys: DataFrame,
    plan: TablePlan,
    stored: StoredTable,
    *,
    few_keys: frozenset[str] | None,
    task_count: int,
) -> DataFrame:
    """Return the states of keys after the batch, and the rejected events: :data:`RESOLVED`."""
    target, table_id = plan.target, plan.table_batch.table_id
    tombstones = stored.tombstones.for_keys(table_id, keys).select(
        F.lit(RecordKind.TOMBSTONE).alias("what"),
        "key",
        F.col("deleted").alias("order"),
        F.col("moved_to").alias("other"),
    )
    transactions = stored.tombstones.transactions_of(table_id, keys).select(
        F.lit(RecordKind.TRANSACTIONS).alias("what"), "key", "transactions"
    )
    parts = [tombstones, transactions]
    stored_rows = stored.rows(key_filter(few_keys, target.columns, target.keys))
    if target.keeps_deleted:
        live_rows, deleted_rows = stored_rows.where(~F.col(DELETED)), stored_rows.where(DELETED)
        parts.append(_stored_rows(live_rows, keys, target, RecordKind.STORED_ROW))
        parts.append(_stored_rows(deleted_rows, keys, target, RecordKind.DELETED_ROW))
    else:
        parts.append(_stored_rows(stored_rows, keys, target, RecordKind.STORED_ROW))
    records = _operations(rows, target, keys)
    for part in parts:
        records = records.unionByName(part, allowMissingColumns=True)
    worker = partial(resolve_keys, target._replace(schemas={}), stored.table_tombstones)
    records = records.selectExpr(
        "what",
        "key",
        "`order`",
        "other",
        "transaction",
        "whole",
        "has",
        "values",
        "orders",
        "transactions",
    )
    if task_count == 1:
        return records.repartition(1).mapInArrow(worker, RESOLVED)
    links = (
        _moves(rows)
        .selectExpr("key", "other_key AS other")
        .unionByName(tombstones.select("key", "other"))
        .unionByName(transactions.select("key", "transactions"), allowMissingColumns=True)
    )
    numbered_keys = F.broadcast(_numbered(keys, links, task_count))
    records = records.join(numbered_keys, "key").repartition(task_count, "part").drop("part")
    return records.mapInArrow(worker, RESOLVED)


def _numbered(keys: DataFrame, links: DataFrame, part_count: int) -> DataFrame:
    """Return the keys, each with the number of a part that is equal for keys that links connect.

    Args:
        keys: The keys.
        links: Rows of ``key`` with ``other`` or ``transactions`` (``number_groups``).
        part_count: The number of parts of the keys without a link.
    """
    links = links.join(F.broadcast(keys), "key", "left_semi").distinct()
    numbers = links.repartition(1).mapInArrow(
        partial(number_groups, KEYS_PER_TASK), "key STRING, part INT"
    )
    part = F.coalesce("part", F.pmod(F.xxhash64("key"), F.lit(part_count)))
    return keys.join(numbers, "key", "left").select("key", part.alias("part"))


def rejected_changes(changed: ChangedKeys, plan: TablePlan) -> list[RejectedRows]:
    """Return the events of changed keys that the merge rule rejected."""
    positions_by_code: dict[str, set[str]] = {}
    states = changed.states.where("code IS NOT NULL")
    for row in states.select("code", "order", "key").collect():
        position_and_key = f"{row['order'][:-1].hex()}{row['key']}"
        positions_by_code.setdefault(row["code"], set()).add(position_and_key)
    position = F.lower(F.hex(F.expr(key_operations.POSITION)))
    rejected = []
    for code, positions in positions_by_code.items():
        reason_code = ReasonCode(code)
        is_rejected = [F.concat(position, key).isin(*positions) for key in ("key", "other_key")]
        rows = is_of_table(plan.table_batch, "data") & any_of(is_rejected)
        rejected.append(RejectedRows(rows, reason_code, reason_code.cause, len(positions)))
    return rejected


def tombstones_of(
    rows: DataFrame,
    changed: Mapping[str, ChangedKeys],
    tombstones: TombstoneTable,
    plans: Sequence[TablePlan],
) -> DataFrame:
    """Return the tombstones of a batch; those of changed keys come from their states."""
    batch_tombstones = tombstones.tombstones_of(rows)
    cleared = [(plan.table_batch.table_id, plan.cleared) for plan in plans if plan.cleared]
    if cleared:
        columns = {"table_id": "string", "truncated": "binary"}
        table_rows = literal_rows(rows.sparkSession, columns, cleared)
        batch_tombstones = batch_tombstones.unionByName(table_rows, allowMissingColumns=True)
    if not changed:
        return batch_tombstones
    changed_keys = [
        one.keys.select(F.lit(table_id).alias("table_id"), "key")
        for table_id, one in changed.items()
    ]
    others = batch_tombstones.join(
        F.broadcast(reduce(DataFrame.unionByName, changed_keys)), ["table_id", "key"], "left_anti"
    )
    times = {plan.table_batch.table_id: plan.table_batch.time_us for plan in plans}
    resolved = [
        _resolved_tombstones(one.states, table_id, times.get(table_id))
        for table_id, one in changed.items()
    ]
    return others.unionByName(reduce(DataFrame.unionByName, resolved), allowMissingColumns=True)


def _resolved_tombstones(states: DataFrame, table_id: str, time_us: int | None) -> DataFrame:
    """Return the tombstones of the keys of one table that the merge rule itself decided.

    Args:
        states: The states of the keys.
        table_id: The table.
        time_us: The newest time of the table in this batch, which is not before that of a delete.
    """
    return states.where(
        "code IS NULL AND (length(deleted) > 0 OR transactions IS NOT NULL)"
    ).select(
        F.lit(table_id).alias("table_id"),
        "key",
        F.expr(f"nullif(deleted, {EMPTY_ORDER})").alias("deleted"),
        "moved_to",
        F.timestamp_micros(F.lit(time_us).cast("bigint")).alias("source_time"),
        "transactions",
        "within",
        "until",
    )


def tombstone_keys(
    changed: Mapping[str, ChangedKeys], plans: Sequence[TablePlan]
) -> frozenset[tuple[str, str]] | None:
    """Return table and key of all tombstones with a key; ``None`` = unknown, or too many."""
    known_keys: set[tuple[str, str]] = set()
    for plan in plans:
        table_id, keys = plan.table_batch.table_id, plan.table_batch.keys
        more_keys = changed[table_id].few_keys if table_id in changed else frozenset()
        if keys is None or more_keys is None:
            return None
        known_keys.update((table_id, key) for key in keys | more_keys)
    return frozenset(known_keys)


def final_rows(states: DataFrame, plan: TablePlan) -> DataFrame:
    """Return the states of keys as rows of the table; ``LIVE`` is false for deleted rows."""
    target = plan.target
    columns = [
        value_of_text(F.try_element_at("values", F.lit(name)), kind).alias(name)
        for name, kind in target.columns.items()
    ]
    return states.where("code IS NULL").select(
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
        return F.to_json(F.struct(value.cast(json_type(kind)).alias("v")), JSON_OPTIONS)
    return value.cast("string")


def _texts(row: Column, target: Target) -> Column:
    names = F.array(*(F.lit(name) for name in target.columns))
    values = F.array(*(_as_text(row, kind, name) for name, kind in target.columns.items()))
    return F.map_from_arrays(names, values)


def _operations(rows: DataFrame, target: Target, keys: DataFrame) -> DataFrame:
    """Return the upserts and deletes of keys, with the values of their images as text.

    The before image of an update is a record of its own, before that of the update.
    """
    is_delete = F.col("op") == "d"
    is_key_change = (F.col("op") == "u") & F.col("other_key").isNotNull()
    schema_id = F.col("schema_id")

    def record(what: Column, order: Column, key: str, other_key: str, image: str) -> Column:
        return F.struct(
            what.alias("what"),
            order.alias("order"),
            F.col(key).alias("key"),
            F.col(other_key).alias("other"),
            F.col(image).alias("text"),
            F.col(f"{image}_missing").alias("missing"),
        )

    order, departure = F.col("order"), key_operations.departure_order()
    delete_of_old_key = record(F.lit(RecordKind.DELETE), departure, "other_key", "key", "before")
    upsert = F.when(F.col("op") == "c", F.lit(RecordKind.INSERT)).otherwise(
        F.lit(RecordKind.UPSERT)
    )
    operation = F.when(
        is_delete, record(F.lit(RecordKind.DELETE), order, "key", "other_key", "before")
    ).otherwise(record(upsert, order, "key", "other_key", "after"))
    before_image = record(F.lit(RecordKind.BEFORE_IMAGE), order, "key", "other_key", "before")
    has_before_image = (F.col("op") == "u") & F.col("before").isNotNull()
    records = rows.select(
        F.explode(
            F.when(is_key_change, F.array(operation, delete_of_old_key, before_image))
            .when(has_before_image, F.array(operation, before_image))
            .otherwise(F.array(operation))
        ).alias("s"),
        "schema_id",
        "transaction",
        "whole",
    ).select("s.*", "schema_id", "transaction", "whole")
    records = records.join(F.broadcast(keys), "key", "left_semi")
    row = latest_per_key.parsed_row(F.col("text"), schema_id, target)
    complete = F.col("what").isin(RecordKind.UPSERT, RecordKind.INSERT) & F.col("missing").isNull()
    complete = complete & (F.col("whole") | latest_per_key.names_all_columns(schema_id, target))
    row = with_defaults(row, F.col("order"), schema_id, target)
    return records.withColumn("row", row).select(
        "what",
        "key",
        "order",
        "other",
        "transaction",
        "whole",
        _carried_columns(target, complete).alias("has"),
        _texts(F.col("row"), target).alias("values"),
    )


def _carried_columns(target: Target, complete: Column) -> Column:
    """Return the columns that an event carries.

    A full row carries the defaults of columns that were added after it, too.
    """
    schema_id = F.col("schema_id")
    has = latest_per_key.carried_columns(schema_id, F.col("missing"), target, complete)
    is_upsert = F.col("what").isin(RecordKind.UPSERT, RecordKind.INSERT)
    with_default = names_where(
        (
            addition.column,
            lacks_column(F.col("order"), schema_id, addition, target.schemas_with(addition.column))
            & F.col("whole")
            & is_upsert,
        )
        for addition in target.additions
        if not addition.is_unknown
    )
    return F.concat(has, with_default)


def _stored_rows(table: DataFrame, keys: DataFrame, target: Target, what: str) -> DataFrame:
    return existing_rows(table, keys, target).select(
        F.lit(what).alias("what"),
        "key",
        "order",
        _texts(F.col("row"), target).alias("values"),
        "orders",
    )
