# SPDX-License-Identifier: Apache-2.0
"""Kill pipelines with -9 at random times, run them again, and compare their tables.

Each pipeline of files writes its own histories in one of the table formats, is killed until a run
completes, and is compared with the oracle. Each pipeline of a captured database (PostgreSQL and
MariaDB in turn, where they are installed) is compared with the database, which changes all the
time; its engine, its Spark and the database are killed. A difference ends the soak and prints the
seed, which decides the database, the table format, the changes and what is killed: `--seed SEED
--seeds 1 --kills 0` repeats it. The moment of a kill is not repeatable, so many are needed.
"""

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from random import Random, SystemRandom

from pyspark.sql import SparkSession

from changelane.spark import session

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / folder) for folder in ("spark", "support")]

import captured_kills  # noqa: E402 - a module of the tests, whose folder is on the path now
import random_kills  # noqa: E402 - the same
from lake_tables import LAKES  # noqa: E402 - the same
from spark_settings import CHEAP  # noqa: E402 - the same

MOST_RUNS = 12
KILLS_PER_DATABASE = 8
LONGEST_S = 15
FILES = "files"
PARTITIONS = {"spark.sql.shuffle.partitions": "2"}
"""The only setting of Spark for captured databases: their transactions are large."""


def is_over(until: float | None) -> bool:
    """Whether a time of the monotonic clock is past."""
    return until is not None and time.monotonic() >= until


def soak_files(spark: SparkSession, name: str, chance: Random, until: float | None) -> int:
    """Kill a pipeline of files until it completes; return the number of kills.

    Raises:
        DifferenceError: A table differs from the oracle.
    """
    kill_count = 0
    with tempfile.TemporaryDirectory(prefix="changelane-soak-") as folder:
        stream = random_kills.write(Path(folder), name, random_kills.drawn(chance))
        for run in range(MOST_RUNS + 1):
            # the last run is not killed
            over = run == MOST_RUNS or is_over(until)
            if random_kills.killed_run(
                stream, chance, longest_s=None if over else random_kills.LONGEST_S
            ):
                break
            kill_count += 1
            print(f"{name}: kill {kill_count}", flush=True)
        if wrong := random_kills.differences(spark, stream):
            raise DifferenceError(f"these differ from the oracle: {', '.join(wrong)}")
    return kill_count


def soak_database(spark: SparkSession, seed: int, products: list[str], until: float | None) -> int:
    """Kill the runs of a captured database some times; return the number of kills.

    Raises:
        DifferenceError: A table differs from that of the database.
    """
    product, name = products[seed % len(products)], LAKES[seed // len(products) % len(LAKES)]
    print(f"{product} to {name}, seed {seed}", flush=True)
    chance = Random(seed)  # noqa: S311 - data, no secrets
    with (
        tempfile.TemporaryDirectory(prefix="changelane-soak-") as folder,
        captured_kills.shop_of(product, name, Path(folder), settings=PARTITIONS) as shop,
    ):
        show = partial(print, flush=True)
        kill_count = captured_kills.killed_rounds(
            shop,
            chance,
            captured_kills.drawn_kills(chance, KILLS_PER_DATABASE),
            longest_s=LONGEST_S,
            show=show,
            is_over=partial(is_over, until),
        )
        show("the comparison")
        if wrong := captured_kills.differences(spark, shop):
            raise DifferenceError(f"these differ from {product}: {'; '.join(wrong)}")
    return kill_count


class DifferenceError(Exception):
    """A table is not as it should be."""


def main() -> int:
    """Soak; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--kills", type=int, default=200, help="the number of kills of pipelines of files"
    )
    parser.add_argument(
        "--seeds", type=int, default=20, help="the number of pipelines of captured databases"
    )
    parser.add_argument(
        "--seconds", type=float, help="the time for kills; the last pipeline still ends after it"
    )
    parser.add_argument("--seed", type=int, help="the first seed, to repeat a soak")
    parser.add_argument(
        "--source", choices=[FILES, *captured_kills.PRODUCTS], help="only this kind of source"
    )
    options = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    until = None if options.seconds is None else time.monotonic() + options.seconds
    products = [
        product
        for product in captured_kills.installed_products()
        if options.source in {None, product}
    ]
    kills = options.kills if options.source in {None, FILES} else 0
    seeds = options.seeds if products else 0
    print(f"soak: {kills} kills, {seeds} databases, seed {seed}", flush=True)
    spark = session("changelane soak", master="local[2]", settings=CHEAP, lakes=LAKES)
    spark.sparkContext.setLogLevel("OFF")
    killed = killed_by_seeds = rounds = 0
    # a pipeline of files and one of a database in turn
    while (killed < kills or rounds < seeds) and not is_over(until):
        this_seed = seed + rounds
        try:
            if rounds < seeds:
                killed_by_seeds += soak_database(spark, this_seed, products, until)
            if killed < kills:
                name = LAKES[rounds % len(LAKES)]
                chance = Random(this_seed)  # noqa: S311 - data, no secrets
                killed += soak_files(spark, name, chance, until)
        except (DifferenceError, RuntimeError) as error:
            print(f"soak: seed {this_seed}: {error}", flush=True)
            return 1
        rounds += 1
        print(
            f"round {rounds}: {killed} kills of files, {killed_by_seeds} of databases", flush=True
        )
    databases = min(rounds, seeds)
    print(f"soak: ok, {killed} kills of files; {databases} databases, {killed_by_seeds} kills")
    return 0


if __name__ == "__main__":
    sys.exit(main())
