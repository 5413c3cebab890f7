# SPDX-License-Identifier: Apache-2.0
"""`changelane run`, killed with -9 at any moment and run again, ends like the oracle."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import kills
import landed
import pytest
from cheap import EFFORT
from click.testing import CliRunner
from killed import POINTS
from pyspark.sql import SparkSession
from test_crash import BATCHES

from changelane.cli import main

HERE = Path(__file__).resolve().parent
NAMED = {
    "delta": [
        "between two tables",
        "in maintenance, after old versions expired",
    ],
    "iceberg": [
        "after the quarantine",
        "after the side table",
        "after the commits, before the checkpoint",
        "in maintenance, before old versions expire",
    ],
}
"""Each start of a JVM costs seconds: each point on one format, on both with more effort."""
if EFFORT > 1:
    NAMED = {key: [name for name in POINTS if name != "never"] for key in NAMED}
KILLS = 4
"""Ten with those that are named; ``make soak`` does hundreds."""


def finish(stream: kills.Stream) -> None:
    done = CliRunner().invoke(main, ["run", str(stream.file)])
    assert done.exit_code == 0, done.output


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("table_format", NAMED)
def test_a_run_that_is_killed_at_each_step_ends_like_the_oracle(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    stream = kills.write(tmp_path, table_format, BATCHES)
    for point in NAMED[table_format]:
        done = subprocess.run(
            [sys.executable, str(HERE / "killed.py"), point, str(stream.file)],
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        assert done.returncode == -signal.SIGKILL, f"{point}: {done.stderr[-2000:]}"
    finish(stream)
    assert kills.differences(spark, stream) == []


@pytest.mark.timeout(1500)
def test_a_run_that_is_killed_again_and_again_ends_like_the_oracle(
    spark: SparkSession, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    stream = kills.write(tmp_path, chance.choice(landed.LAKES), kills.drawn(chance))
    ended = [kills.killed_run(stream, chance) for _ in range(KILLS)]
    assert not all(ended), f"no run was killed in its middle, seed {seed}"
    finish(stream)
    assert kills.differences(spark, stream) == [], f"seed {seed}"
