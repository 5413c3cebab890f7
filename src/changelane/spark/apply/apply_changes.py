# SPDX-License-Identifier: Apache-2.0
"""``apply_changes`` for any DataFrame, inside or outside a stream."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.errors import ConfigError
from changelane.schema import TableId
from changelane.spark.apply.applier import Applier
from changelane.spark.lake.interface import Marker
from changelane.spark.lake.modes import HISTORY, UPSERT, Modes, TableMode
from changelane.spark.rows.batch_stats import BatchReport
from changelane.spark.rows.from_dataframe import Expression, TargetOptions, sequenced_events
from changelane.spark.rows.key_operations import POSITION
from changelane.spark.runtime.computed import computed_once

_SCD: Final = {"1": UPSERT, "2": HISTORY}


def apply_changes(
    events: DataFrame,
    path: str,
    *,
    target: str | TableId | None = None,
    keys: Sequence[str] | None = None,
    sequence_by: Expression | None = None,
    ignore_null_updates: bool = False,
    apply_as_deletes: Expression | None = None,
    apply_as_truncates: Expression | None = None,
    column_list: Sequence[str] | None = None,
    except_column_list: Sequence[str] | None = None,
    stored_as_scd_type: Literal[1, 2, "1", "2"] | None = None,
    track_history_column_list: Sequence[str] | None = None,
    track_history_except_column_list: Sequence[str] | None = None,
    mode: str | None = None,
    table_format: str = "delta",
    name: str = "apply_changes",
    query: str | None = None,
    batch: int = 0,
    epoch: int = 0,
    tables_without_key: str = "quarantine",
    source_servers: str = "single",
) -> BatchReport:
    """Apply changes to tables: event rows, or the rows of any DataFrame with a sequence.

    Event rows (of :func:`changelane.spark.decode`) are applied to the table of their source. Other
    rows are applied to *target*: each is the row of its key as of *sequence_by*. Applying the same
    rows again, in any order and in any parts, changes nothing.

    Args:
        events: The rows; in ``foreachBatch``, those of the batch.
        path: The folder of the tables.
        target: The name of the table of plain rows.
        keys: Its key columns.
        sequence_by: The order of the rows of a key: a column, or an SQL expression or ``Column``,
            of whole numbers, decimals, dates, timestamps, text, or structs of these. A row with a
            NULL sequence is quarantined. Of two rows of a key with equal sequences the greater
            value of each column wins, and a row wins over a delete; the conflict is counted.
        ignore_null_updates: Whether a column keeps its value where a row has NULL.
        apply_as_deletes: The condition of rows that delete the row of their key.
        apply_as_truncates: The condition of rows that delete all rows that are not newer.
        column_list: The columns of the table; without, all columns of the rows.
        except_column_list: The columns that the table does not get.
        stored_as_scd_type: 1 keeps the latest row of a key (``mode="upsert"``), 2 every version
            of the row (``mode="history"``).
        track_history_column_list: With type 2, the columns whose changes make versions.
        track_history_except_column_list: The columns whose changes make none.
        mode: ``upsert`` (the default), ``history`` or ``append``.
        table_format: ``delta``, ``iceberg`` or ``hudi``.
        name: The name of the stream in the commits of the tables.
        query: The id of the stream's checkpoint. Batches of one query have increasing numbers; a
            table skips a batch that it has already. Without, the call is a stream of its own.
        batch: The number of the batch in the query.
        epoch: The epoch of plain rows' orders (docs/merge-rule.md, Orders).
        tables_without_key: ``quarantine`` rejects the events of tables without a key; ``append``
            adds rows, a repeated event once where its position identifies it
            (:mod:`changelane.spark.apply.deduplication`).
        source_servers: ``single``: one server feeds a table, and events of another server are
            quarantined; ``multiple``: several servers with disjoint keys.

    Raises:
        ConfigError: Arguments do not fit each other or the rows.
    """
    if events.isStreaming:
        msg = "a streaming DataFrame: call apply_changes for each batch, in foreachBatch"
        raise ConfigError(msg)
    plain = None
    if _is_plain(
        needed={"target": target, "keys": keys, "sequence_by": sequence_by},
        optional={
            "apply_as_deletes": apply_as_deletes,
            "apply_as_truncates": apply_as_truncates,
            "column_list": column_list,
            "except_column_list": except_column_list,
            "ignore_null_updates": ignore_null_updates or None,
        },
    ):
        plain = TargetOptions(
            target if isinstance(target, TableId) else TableId(name=target),
            [keys] if isinstance(keys, str) else list(keys or ()),
            "" if sequence_by is None else sequence_by,
            apply_as_deletes,
            apply_as_truncates,
            column_list,
            except_column_list,
            ignore_null_updates,
            epoch,
        )
    table_mode = _mode(
        mode, stored_as_scd_type, track_history_column_list, track_history_except_column_list
    )
    marker = Marker(name, query or uuid.uuid4().hex, batch)
    event_rows, sequence = events, None
    if plain is not None:
        event_rows, sequence, target_columns = sequenced_events(events, plain)
        _check_tracked(table_mode, events.columns, target_columns)
    applier = Applier(
        events.sparkSession,
        path,
        table_format=table_format,
        tables_without_key=tables_without_key,
        source_servers=source_servers,
        modes=Modes(table_mode),
        sequence=sequence,
    )
    # the rows may come from a table that this program or another one writes meanwhile
    with computed_once(event_rows) as computed_rows:
        conflicts = (
            0
            if plain is None
            else _conflict_count(computed_rows, ignores_nulls=plain.ignore_null_updates)
        )
        report = applier.apply(computed_rows, marker)
    report.conflicts = conflicts
    return report


def _is_plain(*, needed: Mapping[str, object], optional: Mapping[str, object]) -> bool:
    """Return whether the rows are plain rows, by the arguments that only these have."""
    argument_names = [name for name, value in {**needed, **optional}.items() if value is not None]
    lacking = [name for name, value in needed.items() if value is None]
    if argument_names and lacking:
        msg = (
            f"{', '.join(argument_names)}: rows that are not event rows also need "
            f"{', '.join(lacking)}; event rows have all of that themselves"
        )
        raise ConfigError(msg)
    return bool(argument_names)


def _mode(
    mode: str | None,
    scd_type: int | str | None,
    track: Sequence[str] | None,
    track_except: Sequence[str] | None,
) -> TableMode:
    if scd_type is not None and str(scd_type) not in _SCD:
        raise ConfigError("stored_as_scd_type is 1 or 2")
    stored = None if scd_type is None else _SCD[str(scd_type)]
    if None not in (mode, stored) and mode != stored:
        raise ConfigError(f"stored_as_scd_type {scd_type} is the mode {stored}, not {mode}")
    if track is not None and track_except is not None:
        msg = "track_history_column_list and track_history_except_column_list: give one of them"
        raise ConfigError(msg)
    table_mode = TableMode(
        mode or stored or UPSERT,
        None if track is None else tuple(track),
        None if track_except is None else tuple(track_except),
    )
    if table_mode.is_tracked and table_mode.name != HISTORY:
        raise ConfigError("columns to track need stored_as_scd_type=2")
    return table_mode


def _check_tracked(mode: TableMode, columns: Sequence[str], target_columns: Sequence[str]) -> None:
    tracked = [(name, target_columns) for name in mode.track or ()]
    untracked = [(name, columns) for name in mode.track_except or ()]
    for name, known_columns in (*tracked, *untracked):
        if name.lower() not in map(str.lower, known_columns):
            raise ConfigError(f"there is no column {name!r} to track")


def _conflict_count(events: DataFrame, *, ignores_nulls: bool) -> int:
    """Return the number of keys and sequences with rows that differ.

    A delete differs from a row, and not from another delete.

    Args:
        events: The event rows of plain rows.
        ignores_nulls: Whether a NULL is no value, so that it differs from none.
    """
    sequence = F.expr(POSITION).alias("at")
    changes = events.where("kind = 'data'").select("key", sequence, "op", "after")
    by_key, has_both = changes.groupBy("key", "at"), F.min("op") != F.max("op")
    if not ignores_nulls:
        differs = has_both | (F.min("after") != F.max("after"))
        return by_key.agg(differs.alias("differs")).where("differs").count()
    image = F.from_json("after", "map<string,string>", {"maxStringLen": str(1 << 30)})
    values = changes.select("key", "at", F.explode(image).alias("column", "value"))
    differs = F.min("value") != F.max("value")
    differing = values.groupBy("key", "at", "column").agg(differs.alias("differs"))
    differing = differing.drop("column").union(by_key.agg(has_both.alias("differs")))
    return differing.where("differs").select("key", "at").distinct().count()
