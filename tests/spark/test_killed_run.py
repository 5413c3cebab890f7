# SPDX-License-Identifier: Apache-2.0
"""`changelane run`, killed with -9 at any moment and run again, ends like the databases."""

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import landed
import pytest
from killed import POINTS
from pyspark.sql import SparkSession
from test_crash import BATCHES, LOG, ONE, TWO

HERE = Path(__file__).resolve().parent
DEMO = HERE.parents[1] / "demo"
KILLS = 2


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "changelane", "run", *words, "--master", "local[2]"]


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("changelane_demo", DEMO / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_that_is_killed_again_and_again_ends_like_the_database(spark, demo, tmp_path):
    seed = random.randrange(1 << 32)
    choice = random.Random(seed)
    lake = tmp_path / "lake"
    environment = os.environ | {"DEMO_LAKE": str(lake)}
    killed = 0
    for _ in range(KILLS):
        run = subprocess.Popen(
            command(str(DEMO / "shop.yaml")),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        # from before the first commit to between the last ones
        started = lake / "_changelane" / "quarantine" / "_delta_log"
        until = time.monotonic() + 60
        while not started.exists() and run.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(choice.uniform(0, 12))
        if run.poll() is None:
            killed += 1
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
    assert killed, f"no run was killed in its middle, seed {seed}"
    done = subprocess.run(
        command(str(DEMO / "shop.yaml"), "--output", "json"),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-2000:]}"
    for name in ("customers", "products"):
        table = spark.read.format("delta").load(f"{lake}/tables/shop.public.{name}")
        _, keys = demo.TABLES[name]
        assert demo.shown_rows(table, keys) == demo.expected(name), f"seed {seed}"
    quarantine = spark.read.format("delta").load(f"{lake}/_changelane/quarantine")
    assert [row["code"] for row in quarantine.collect()] == ["truncated"]


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_run_that_is_killed_at_each_step_ends_like_the_oracle(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    lake = str(tmp_path / table_format)
    source = tmp_path / "in"
    source.mkdir()
    for number, batch in enumerate(BATCHES):
        lines = [m.value for event in batch for m in landed.CODEC.encode(event).messages]
        (source / f"{number}.jsonl").write_bytes(b"\n".join([*lines, b"{broken"]) + b"\n")
        os.utime(source / f"{number}.jsonl", (number, number))  # Spark reads the oldest first
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(
        "name: killed\n"
        f"source: {{type: files, path: in, format: native-json, max_files_per_batch: 1}}\n"
        f"sink: {{type: {table_format}, path: {table_format}}}\n"
        "options: {keyless: append}\n"
    )
    for point in POINTS:
        done = subprocess.run(
            [sys.executable, str(HERE / "killed.py"), point, str(pipeline)],
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        wanted = 0 if point == "never" else -signal.SIGKILL
        assert done.returncode == wanted, f"{point}: {done.stderr[-2000:]}"
    tables = landed.oracle(BATCHES)
    for table in (ONE, TWO):
        assert landed.read(spark, lake, table, ("id",)) == landed.remembered(tables, table)
    assert landed.table_of(spark, lake, LOG).count() == len(tables.rows(LOG))
    aside = landed.table_of(spark, lake, "_changelane/quarantine").collect()
    assert [row["code"] for row in aside] == ["malformed_json"] * len(BATCHES)
