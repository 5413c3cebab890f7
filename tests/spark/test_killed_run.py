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

import pytest

DEMO = Path(__file__).resolve().parents[2] / "demo"
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
