"""Iceberg tables in a REST catalog: a run that died goes on where it did."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import landed
import pytest
from pyspark.sql import SparkSession
from rest_catalog import rest
from test_crash import BATCHES, LOG, ONE, TWO
from test_keeping import dying_at_the_end

from changelane.config import load
from changelane.schema import TableId
from changelane.spark.apply.applier import Applier
from changelane.spark.lakes import lake_of
from changelane.spark.streams.pipeline import RunError, run

NAMES: Final = ("id", "a", "b")

pytestmark = pytest.mark.skipif("iceberg" not in landed.LAKES, reason="Iceberg is on Spark 4")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Path]:
    """A pipeline of one file a batch into a catalog."""
    (tmp_path / "in").mkdir()
    for number, batch in enumerate(BATCHES):
        lines = [m.value for event in batch for m in landed.CODEC.encode(event).messages]
        file = tmp_path / "in" / f"{number}.jsonl"
        file.write_bytes(b"\n".join(lines) + b"\n")
        os.utime(file, (number, number))  # Spark reads the oldest first
    source = {"type": "files", "path": "in", "format": "native-json", "max_files_per_batch": 1}
    maintenance = {"commits": 2, "small_files": 2, "keep": "0 seconds"}
    with rest(tmp_path) as catalog:
        sink = {
            "type": "iceberg",
            "path": "lake",
            "catalog": catalog,
            "namespace": "a `shop`",
            "location": f"{tmp_path}/far/{{table}}",
        }
        options = {"keyless": "append", "maintenance": maintenance}
        file = tmp_path / "pipeline.yaml"
        told = {"name": "shop", "source": source, "sink": sink, "options": options}
        file.write_text(json.dumps(told))
        yield file


def test_a_run_into_a_rest_catalog_goes_on_where_it_died(
    spark: SparkSession, pipeline: Path
) -> None:
    told = load(pipeline)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Applier, "_table", dying_at_the_end(Applier._table))
        with pytest.raises(RunError):
            run(spark, told)
    shutil.rmtree(told.checkpoint)
    report = run(spark, told, resume=True)
    # the batches that have no events were applied before: their files are known
    done = [(one.events, one.skipped) for one in report.batches if one.events]
    assert done == [(len(BATCHES[2]), 1)]
    assert run(spark, told).batches == []

    tables = lake_of(spark, told)
    assert sorted(tables.tables()) == [f"tables/shop.{name}" for name in ("log", "one", "two")]
    assert (pipeline.parent / "far" / "shop.one").is_dir()
    expected = landed.oracle(BATCHES)

    def rows(table: TableId) -> list[tuple[Any, ...]]:
        found = tables.read(f"tables/shop.{table.name}").select(*NAMES).orderBy("id")
        return [tuple(row) for row in found.collect()]

    wanted = {
        t: [tuple(row[n] for n in NAMES) for row in expected.rows(t)] for t in (ONE, TWO, LOG)
    }
    assert {table: sorted(rows(table)) for table in wanted} == {
        table: sorted(told) for table, told in wanted.items()
    }
