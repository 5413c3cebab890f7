# SPDX-License-Identifier: Apache-2.0
"""Tables that were renamed, in the change log and paused: it knows names, and not tables."""

from collections.abc import Sequence
from itertools import chain, count
from typing import Final

import lake_tables
import msgspec
import pytest
from pyspark.sql import SparkSession
from test_dispatch import DIRECT, LATER, dispatcher, held, take
from test_schema_changes import told

from changelane.event import ChangeEvent, DataChange, Op
from changelane.schema import TableId
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.apply.dispatch import MergeSchedule, TableDispatcher
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker
from changelane.spark.rows.schema import table_id_text
from changelane.spark.state.change_log import ChangeLog
from changelane.spark.state.paused_tables import PausedTables

T: Final = TableId("shop", None, "t")
U: Final = TableId("shop", None, "u")
OTHER: Final = TableId("shop", None, "other")
AT_THREE: Final = MergeSchedule(True, events=3, seconds=1e6)
"""A table is merged once three events wait for it."""


def row(place: int, table: TableId = T) -> DataChange:
    event = told(place, {"id": place, "a": 1}, table)
    assert isinstance(event, DataChange)
    return event


def keyless(batch: Sequence[ChangeEvent]) -> list[ChangeEvent]:
    return [
        msgspec.structs.replace(one, key=None) if isinstance(one, DataChange) else one
        for one in batch
    ]


def ids(spark: SparkSession, lake: str) -> dict[str, list[int]]:
    tables = open_lake(spark, lake, "iceberg")
    names = tables.tables()
    return {name: sorted(one["id"] for one in tables.read(name).collect()) for name in names}


RENAME: Final = told(10, "RENAME TABLE t TO u")
STORIES: Final[dict[str, list[list[ChangeEvent]]]] = {
    "the new name is due first": [[row(1)], [RENAME, *(row(n, U) for n in (11, 12, 13))]],
    "the old name is due first": [[row(1)], [row(2), row(3), RENAME, row(11, U)]],
    "the old name is used again": [
        [row(1), row(2), row(3)],
        [RENAME, row(11, U), row(20)],
        [row(21, U), row(22, U), row(23, U)],
    ],
}


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_what_waits_for_a_table_that_is_renamed_comes_to_it_once(
    spark: SparkSession, lake: str, story: str
) -> None:
    batches = STORIES[story]
    to = dispatcher(spark, lake, AT_THREE)
    for number, batch in enumerate(batches):
        take(spark, to, keyless(batch), number)
        to = dispatcher(spark, lake, AT_THREE)  # another process goes on
    to.merge(all_of_them=True)
    found = ids(spark, lake)
    wanted = [one.after["id"] for one in chain(*batches) if isinstance(one, DataChange)]
    assert sorted(chain(*found.values())) == sorted(wanted)
    assert found["tables/shop.t"] == [one for one in wanted if one != 20]
    assert held(spark, lake) == []


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_purge_leaves_what_the_waiting_rows_of_a_renamed_table_need(
    spark: SparkSession, lake: str
) -> None:
    def delete(place: int, table: TableId) -> DataChange:
        gone = row(place, table)
        return msgspec.structs.replace(
            gone, op=Op.DELETE, before=gone.after, after=None, source_time_ns=1
        )

    to = dispatcher(spark, lake, LATER)
    take(spark, to, [row(1), delete(5, T), RENAME, delete(50, U)], 0)
    to.merge(all_of_them=True)
    take(spark, to, [row(20, U)], 1)
    to._applier.maintenance_scheduler(None).purge_tombstones(before_us=2)
    to.merge(all_of_them=True)
    assert ids(spark, lake) == {"tables/shop.t": [1, 20]}


def resume(spark: SparkSession, lake: str, to: TableDispatcher) -> None:
    paused_tables = PausedTables(ChangeLog(open_lake(spark, lake, "iceberg")))
    (paused,) = paused_tables.tables().values()
    paused_tables.record(msgspec.structs.replace(paused, state="unpaused"))
    to.merge(all_of_them=True)
    assert to.paused == {}


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_paused_table_that_is_renamed_takes_all_that_waited(
    spark: SparkSession, lake: str
) -> None:
    to = dispatcher(spark, lake, DIRECT)
    take(spark, to, [row(1), row(2, OTHER)], 0)
    with pytest.MonkeyPatch.context() as patch:
        lake_tables.merges_fail(patch, "SELECT raise_error('no')", T)
        take(spark, to, [row(3), row(4, OTHER)], 1)
    take(spark, to, [RENAME, row(11, U), row(12, OTHER)], 2)
    assert ids(spark, lake) == {"tables/shop.other": [2, 4, 12], "tables/shop.t": [1]}
    resume(spark, lake, to)
    assert ids(spark, lake)["tables/shop.t"] == [1, 3, 11]


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_batch_that_comes_again_waits_once_though_the_pipeline_has_a_log_now(
    spark: SparkSession, lake: str
) -> None:
    to = dispatcher(spark, lake, DIRECT)
    take(spark, to, keyless([row(1), row(2, OTHER)]), 0)
    batch = keyless([row(3), row(4, OTHER)])
    with pytest.MonkeyPatch.context() as patch:
        lake_tables.merges_fail(patch, "SELECT raise_error('no')", T)
        take(spark, to, batch, 1)
    to = dispatcher(spark, lake, LATER)
    take(spark, to, batch, 1)
    resume(spark, lake, to)
    assert ids(spark, lake) == {"tables/shop.other": [2, 4], "tables/shop.t": [1, 3]}


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_who_resumes_one_name_of_a_table_resumes_it(spark: SparkSession, lake: str) -> None:
    to = dispatcher(spark, lake, DIRECT)
    take(spark, to, [row(1), row(2, OTHER)], 0)
    with pytest.MonkeyPatch.context() as patch:
        lake_tables.merges_fail(patch, "SELECT raise_error('no')", T)
        take(spark, to, [row(9), RENAME, row(11, U), row(12, OTHER)], 1)
    assert set(to.paused) == {"shop.t", "shop.u"}
    paused_tables = PausedTables(ChangeLog(open_lake(spark, lake, "iceberg")))
    paused_tables.record(
        msgspec.structs.replace(paused_tables.tables()[table_id_text(U)], state="unpaused")
    )
    take(spark, to, [row(13, U)], 2)
    assert to.paused == {}
    assert ids(spark, lake) == {"tables/shop.other": [2, 12], "tables/shop.t": [1, 9, 11, 13]}


@pytest.mark.parametrize("table", [T, U])
@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_what_a_table_refused_of_the_log_does_not_come_again(
    spark: SparkSession, lake: str, table: TableId
) -> None:
    strict = Applier(spark, lake, table_format="iceberg", tables_without_key="quarantine")
    to = TableDispatcher(open_lake(spark, lake, "iceberg"), strict, "test", AT_THREE)
    rows = [row(at, table) for at in (11, 12, 13)]
    report = take(spark, to, keyless([RENAME, *rows, row(14, OTHER)]), 0)
    assert report.quarantined == {"no_key": 3}
    assert table_id_text(table) not in dict(held(spark, lake))
    dispatcher(spark, lake, AT_THREE).merge(all_of_them=True)  # they may have no key now
    assert ids(spark, lake) == {"tables/shop.other": [14]}


@pytest.mark.parametrize("schedule", [DIRECT, LATER])
@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_tables_that_exchange_their_names_do_so_though_each_is_told_alone(
    spark: SparkSession, lake: str, schedule: MergeSchedule
) -> None:
    """One RENAME TABLE, which Debezium tells in a message a table, all at one position."""
    clauses = ("t TO other", "u TO t", "other TO u")
    rename = [told(10, f"RENAME TABLE {clause}") for clause in clauses]
    batches = [[row(1), row(2, U), rename[0]], [*rename[1:], row(11), row(12, U)]]
    offsets = count()
    for number, batch in enumerate(batches):
        texts = [m.value for one in batch for m in lake_tables.CODEC.encode(one).messages]
        kinds = "value binary, topic string, partition int, offset bigint"
        rows = [(text, "topic", 0, next(offsets)) for text in texts]
        events = decode(spark.createDataFrame(rows, kinds), "native-json")
        dispatcher(spark, lake, schedule).apply(events, Marker("test", "q", number))
    dispatcher(spark, lake, schedule).merge(all_of_them=True)
    assert ids(spark, lake) == {"tables/shop.t": [1, 12], "tables/shop.u": [2, 11]}
