# SPDX-License-Identifier: Apache-2.0
"""`changelane run`, killed with -9 at any moment and run again, ends like the oracle."""

import random
from pathlib import Path

import lake_tables
import pytest
import random_kills
from crash_points import POINTS
from pyspark.sql import SparkSession

from changelane.testing.conformance import EFFORT

NAMED = {
    "delta": [
        "after the files are listed, before the batch",
        "between two tables",
        "in maintenance, after old versions expired",
    ],
    "iceberg": [
        "after the quarantine",
        "after the side table",
        "after the commits, before the checkpoint",
        "in maintenance, before old versions expire",
    ],
    "hudi": [
        # test_hudi.py has the one between two tables
        "after the quarantine",
        "after the side table",
        "after the commits, before the checkpoint",
    ],
}
NAMED = {name: NAMED[name] for name in lake_tables.LAKES}
"""Each start of a JVM costs seconds: each point on one format, on both with more effort."""
if EFFORT > 1:
    # what Hudi's maintenance does is part of its commits
    NAMED = {
        key: [n for n in POINTS if n != "never" and (key != "hudi" or "maintenance" not in n)]
        for key in NAMED
    }
KILLS = 2
"""Nine with those that are named; ``make soak`` does hundreds."""


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("table_format", NAMED)
def test_a_run_that_is_killed_at_each_step_ends_like_the_oracle(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    # the second batch is the first one that is followed by maintenance
    stream = random_kills.write(tmp_path, table_format, random_kills.FEW[:2])
    random_kills.killed_at(stream, NAMED[table_format])
    random_kills.finish(stream)
    assert random_kills.differences(spark, stream) == []


@pytest.mark.timeout(1500)
def test_a_run_that_is_killed_again_and_again_ends_like_the_oracle(
    spark: SparkSession, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    stream = random_kills.write(
        tmp_path, chance.choice(lake_tables.LAKES), random_kills.drawn(chance, files=3, histories=3)
    )
    ended = [random_kills.killed_run(stream, chance, longest_s=6) for _ in range(KILLS)]
    assert not all(ended), f"no run was killed in its middle, seed {seed}"
    random_kills.finish(stream)
    assert random_kills.differences(spark, stream) == [], f"seed {seed}"
