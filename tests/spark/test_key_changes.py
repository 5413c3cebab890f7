"""Transactions that change keys, on lake tables (docs/merge-rule.md)."""

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any, Final

import lake_tables
import msgspec
import pytest
import yaml
from pyspark.sql import SparkSession
from spark_settings import lakes

from changelane.event import ChangeEvent, DataChange, HalfUpdate, Image, Transaction
from changelane.pipeline.config import parse
from changelane.schema import TableId
from changelane.spark.run.tables import run
from changelane.testing.key_change_histories import TABLE, Class, deliver, play

FOUND: Final = Path(__file__).parent / "key_changes"
"""Inputs that lost a row or kept one, and the rows that their sources had in the end."""
TABLES: Final = {
    "late-event-inside-away-and-back": TableId("shop", None, "a"),
    "swap-cut-by-a-batch": TableId("shop", None, "a"),
    "swap-in-the-first-transaction": TableId("shop", "public", "full"),
}
HISTORIES: Final = 40
BATCHES: Final = 3


@pytest.mark.parametrize("lake", lakes("delta"))
def test_inputs_that_lost_or_kept_a_row_end_as_at_their_source(
    spark: SparkSession, tmp_path: Path, lake: str
) -> None:
    for name, table in TABLES.items():
        folder = tmp_path / name
        shutil.copytree(FOUND / name, folder)
        told: Any = yaml.safe_load((folder / "pipeline.yaml").read_text())
        told["source"]["path"] = str(folder / "in")
        told["sink"] = {"type": lake, "path": str(folder / lake)}
        run(spark, parse(told))
        rows = lake_tables.table_of(spark, f"{folder}/{lake}", table)
        expected = json.loads((folder / "expected.json").read_text())
        got = [row.asDict() for row in rows.select(*expected[0]).orderBy("id").collect()]
        assert got == expected, name


def shifted(event: ChangeEvent, shift: int) -> ChangeEvent:
    """Return an event of other keys, in a transaction of its own."""

    def image(told: Image | None) -> Image | None:
        return None if told is None else {**told, "id": told["id"] + shift}

    if isinstance(event, HalfUpdate):
        return HalfUpdate(shifted(event.change, shift), image(event.other_key))
    assert isinstance(event, DataChange)
    within = event.transaction and Transaction(f"{event.transaction.id} of {shift}")
    return msgspec.structs.replace(
        event, before=image(event.before), after=image(event.after), transaction=within
    )


def test_tables_equal_memory_in_any_batches_and_orders(spark: SparkSession, tmp_path: Path) -> None:
    """Many histories share a table, each with keys of its own."""
    batches: list[list[ChangeEvent]] = [[] for _ in range(BATCHES)]
    for number in range(HISTORIES):
        chance = Random(f"spark {number}")
        one = Class(
            "sequence_by",
            deferred=number % 4 != 0,
            full=number % 8 != 0,
            permuted=number % 2 == 1,
            ids=True,
            single=False,
            halves=number % 3 == 0,
            by_key=number % 5 == 4,
        )
        told = deliver(chance, one, play(chance, one).events)
        cuts = sorted(chance.randrange(len(told) + 1) for _ in range(BATCHES - 1))
        for batch, first, last in zip(batches, [0, *cuts], [*cuts, len(told)], strict=True):
            batch.extend(shifted(e, 10 * number) for part in told[first:last] for e in part)
    lake = f"{tmp_path}/{lake_tables.LAKES[0]}"
    reports: Any = lake_tables.land(spark, lake, batches)
    expected = lake_tables.oracle(batches)
    assert lake_tables.read(spark, lake, TABLE, ("id",)) == lake_tables.remembered(expected, TABLE)
    refused = sum(report.quarantined.get("ambiguous_key_move", 0) for report in reports)
    assert refused == len(expected.quarantine)
