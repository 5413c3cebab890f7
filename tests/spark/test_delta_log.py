# SPDX-License-Identifier: Apache-2.0
"""What the log of a Delta table tells, with the checksums of its versions and without them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Final

import pytest
from pyspark.sql import SparkSession
from spark_settings import lakes

from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import MaintainedLake, Marker

NAME: Final = "tables/orders"


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("kind", [name for name in lakes("delta") if name == "delta"])
def test_markers_and_sizes_need_no_checksums(
    spark: SparkSession, tmp_path: Path, kind: str, *, is_stored: bool
) -> None:
    """Other writers store no checksums, or somebody deletes them."""
    tables = open_lake(spark, str(tmp_path), kind)
    assert isinstance(tables, MaintainedLake)
    log = Path(tables.path(NAME).removeprefix("file:"), "_delta_log")

    def forget_log() -> None:
        if not is_stored:
            for path in log.glob("*.crc"):
                path.unlink()
        jvm = spark._jvm
        assert jvm is not None
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    tables.create(NAME, {"id": "BIGINT"}, {})
    forget_log()
    assert tables.is_known_empty(NAME) == is_stored
    assert tables.size(NAME) == 0
    first, second = Marker("a", "q", 3), Marker("b", "q", 8)
    assert tables.last_batch(NAME, first) is None
    for marker in (first, second, Marker("a", "q", 5)):
        session = tables.commit_session(marker, {})
        tables.append(session, NAME, spark.range(10))
        assert list(log.glob("0*.crc"))
        forget_log()
    assert not tables.is_known_empty(NAME)
    assert tables.size(NAME) == sum(path.stat().st_size for path in log.parent.rglob("*.parquet"))
    assert [tables.last_batch(NAME, marker) for marker in (first, second)] == [5, 8]
    assert tables.last_batch(NAME, Marker("c", "q", 0)) is None


@pytest.mark.parametrize("kind", [name for name in lakes("delta") if name == "delta"])
def test_threads_create_a_table_at_the_same_moment(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """As the histories of a batch do with the table of their tombstones."""
    tables = open_lake(spark, str(tmp_path), kind)
    barrier = Barrier(4)

    def create(_: int) -> None:
        barrier.wait()
        tables.create(NAME, {"id": "BIGINT"}, {})

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(create, range(4))) == [None] * 4
    assert tables.columns(NAME) == {"id": "bigint"}
