"""Two runs of one pipeline: the newer one goes on, the older one stops before it writes."""

from pathlib import Path
from typing import Any, Final

import landed
import pytest
from pyspark.sql import SparkSession

from changelane.event import DataChange, Key, Op
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.lake import Marker
from changelane.spark.lakes import lake as open_lake
from changelane.spark.ledgers.fence import FencedError
from changelane.types import Integer

TABLE: Final = TableId("shop", None, "orders")
SCHEMA: Final = TableSchema((Column("id", Integer()), Column("v", Integer())))


def insert(id: int, v: int) -> Any:
    image = {"id": id, "v": v}
    return DataChange(
        Op.CREATE, TABLE, Key(("id",)), after=image, schema=SCHEMA, position=SequencePosition(v)
    )


def run(spark: SparkSession, lake: str, pipeline: str = "shop") -> Applier:
    applier = Applier(spark, lake, table_format=Path(lake).name)
    applier.raise_fence(pipeline)
    return applier


def write(spark: SparkSession, applier: Applier, event: Any, batch: int) -> None:
    told = decode(landed.messages(spark, [event]), "native-json")
    applier.apply(told, Marker("shop", "query", batch))


def rows(spark: SparkSession, lake: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(one)[:2] for one in landed.table_of(spark, lake, TABLE).collect())


def test_an_older_run_stops_when_a_newer_one_began(spark: SparkSession, lake: str) -> None:
    older = run(spark, lake)
    write(spark, older, insert(1, 1), 0)
    newer = run(spark, lake)
    with pytest.raises(FencedError, match=r"run 2 of this (pipeline|folder) writes these tables"):
        write(spark, older, insert(1, 2), 1)
    write(spark, newer, insert(2, 3), 1)
    with pytest.raises(FencedError):
        write(spark, older, insert(1, 4), 2)
    assert rows(spark, lake) == [(1, 1), (2, 3)]


def test_a_table_fences_off_a_run_that_passed_the_first_check(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer run begins after the older one looked at the side table."""
    older = run(spark, lake)
    write(spark, older, insert(1, 1), 0)
    plans = Applier._plans

    def late(self: Applier, *told: Any) -> Any:
        monkeypatch.setattr(Applier, "_plans", plans)
        write(spark, run(spark, lake), insert(2, 2), 1)
        return plans(self, *told)

    monkeypatch.setattr(Applier, "_plans", late)
    with pytest.raises(FencedError):
        write(spark, older, insert(1, 3), 1)
    assert rows(spark, lake) == [(1, 1), (2, 2)]


def test_pipelines_of_other_names_fence_each_other_only_where_a_table_has_one_writer(
    spark: SparkSession, lake: str
) -> None:
    one = run(spark, lake, "one")
    write(spark, one, insert(1, 1), 0)
    other = run(spark, lake, "o'ther `one`")
    if open_lake(spark, lake, Path(lake).name).has_one_writer:
        with pytest.raises(FencedError, match="of this folder"):
            write(spark, one, insert(2, 2), 1)
        write(spark, other, insert(2, 2), 1)
    else:
        write(spark, one, insert(2, 2), 1)
    assert rows(spark, lake) == [(1, 1), (2, 2)]
