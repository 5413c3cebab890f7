# SPDX-License-Identifier: Apache-2.0
"""Kill pipelines with -9 at random times, run them again, and compare their tables with the oracle.

Each pipeline of files writes its own histories in one of the table formats, and is killed until a
run completes. Each pipeline of a captured database (PostgreSQL and MariaDB in turn, where they are
installed) is compared with the database, which changes all the time; its engine, its Spark and the
database are killed. A difference ends the soak and prints the seed of its data; the moment of a
kill is not repeatable, so many kills are needed.
"""

import argparse
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random, SystemRandom

from pyspark.sql import SparkSession

from changelane.spark import session

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / folder) for folder in ("spark", "support")]

import captured_kills  # noqa: E402 - a module of the tests, whose folder is on the path now
import mariadb_server  # noqa: E402 - the same
import postgres_server  # noqa: E402 - the same
import random_kills  # noqa: E402 - the same
from lake_tables import LAKES  # noqa: E402 - the same
from spark_settings import CHEAP  # noqa: E402 - the same

MOST_RUNS = 12
KILLS_PER_DATABASE = 6
FILES = "files"
PRODUCTS = ("postgres", "mariadb")


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


def soak_database(
    spark: SparkSession, product: str, name: str, chance: Random, *, kills: int, until: float | None
) -> int:
    """Kill the runs of a captured database some times; return the number of kills.

    Raises:
        DifferenceError: A table differs from that of the database.
    """
    with (
        tempfile.TemporaryDirectory(prefix="changelane-soak-") as folder,
        captured_kills.shop_of(product, name, Path(folder)) as shop,
    ):
        show = partial(print, flush=True)
        counts = captured_kills.killed_rounds(shop, chance, kills, show, partial(is_over, until))
        show("the comparison")
        if wrong := captured_kills.differences(spark, shop):
            msg = f"these differ from {product}: {', '.join(wrong)}, after {dict(counts)}"
            raise DifferenceError(msg)
    return counts.total()


class DifferenceError(Exception):
    """A table is not as it should be."""


def main() -> int:
    """Soak; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="the total number of kills")
    parser.add_argument(
        "--seconds", type=float, help="the time for kills; the last pipeline still ends after it"
    )
    parser.add_argument("--seed", type=int, help="the seed of the data, to repeat a soak")
    parser.add_argument("--source", choices=[FILES, *PRODUCTS], help="only this kind of source")
    options = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    until = None if options.seconds is None else time.monotonic() + options.seconds
    sources = [options.source] if options.source else [FILES, *installed_products()]
    print(f"soak: {options.kills} kills, seed {seed}, {', '.join(sources)}", flush=True)
    spark = session("changelane soak", master="local[2]", settings=CHEAP, lakes=LAKES)
    spark.sparkContext.setLogLevel("OFF")
    killed = rounds = 0
    while killed < options.kills and not is_over(until):
        chance = Random(f"{seed} {rounds}")  # noqa: S311 - data, no secrets
        source, name = sources[rounds % len(sources)], LAKES[rounds // len(sources) % len(LAKES)]
        rounds += 1
        try:
            kill_count = (
                soak_files(spark, name, chance, until)
                if source == FILES
                else soak_database(
                    spark,
                    source,
                    name,
                    chance,
                    kills=min(KILLS_PER_DATABASE, options.kills - killed),
                    until=until,
                )
            )
        except (DifferenceError, RuntimeError) as error:
            print(f"soak: round {rounds}, {source} to {name}, seed {seed}: {error}", flush=True)
            return 1
        killed += kill_count
        text = f"round {rounds}, {source} to {name}: {kill_count} kills, {killed} in all"
        print(text, flush=True)
    print(f"soak: ok, {killed} kills in {rounds} pipelines")
    return 0


def installed_products() -> list[str]:
    """Return the databases that are installed."""
    products = []
    for product, find in (
        ("postgres", postgres_server.programs_folder),
        ("mariadb", mariadb_server.server_program),
    ):
        with suppress(postgres_server.NotInstalledError, mariadb_server.NotInstalledError):
            find()
            products.append(product)
    return products


if __name__ == "__main__":
    sys.exit(main())
