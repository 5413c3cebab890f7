# SPDX-License-Identifier: Apache-2.0
"""Kill pipelines with -9 at random times, run them again, and compare their tables with the oracle.

Each pipeline lands histories of its own in one of the table formats and is killed until a run comes
to its end by itself. A difference ends the soak and names the seed that repeats its data; the
moment of a kill is not repeatable, which is the point of killing often.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random, SystemRandom

from changelane.spark import session

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "spark"))

import kills  # noqa: E402 - it lies beside the tests, whose folder comes first
from lake_tables import LAKES  # noqa: E402 - it lies there, too
from spark_settings import CHEAP  # noqa: E402 - it lies there, too

MOST_RUNS = 12


def is_over(until: float | None) -> bool:
    """Say whether a time of the monotonic clock has come."""
    return until is not None and time.monotonic() >= until


def main() -> int:
    """Soak; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="how many kills in all")
    parser.add_argument("--seconds", type=float, help="end after so many seconds")
    parser.add_argument("--seed", type=int, help="repeat the data of a soak")
    told = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if told.seed is None else told.seed
    until = None if told.seconds is None else time.monotonic() + told.seconds
    print(f"soak: {told.kills} kills, seed {seed}", flush=True)
    spark = session("changelane soak", master="local[2]", settings=CHEAP, lakes=LAKES)
    spark.sparkContext.setLogLevel("OFF")
    killed = rounds = 0
    while killed < told.kills and not is_over(until):
        chance = Random(f"{seed} {rounds}")  # noqa: S311 - data, no secrets
        rounds += 1
        with tempfile.TemporaryDirectory(prefix="changelane-soak-") as folder:
            name = LAKES[rounds % len(LAKES)]
            stream = kills.write(Path(folder), name, kills.drawn(chance))
            here = 0
            for run in range(MOST_RUNS + 1):
                # the last run is left alone
                over = run == MOST_RUNS or is_over(until)
                if kills.killed_run(stream, chance, longest_s=None if over else kills.LONGEST_S):
                    break
                here += 1
                print(f"round {rounds}, {name}: kill {here}", flush=True)
            killed += here
            wrong = kills.differences(spark, stream)
        print(f"round {rounds}, {name}: {here} kills, {killed} in all", flush=True)
        if wrong:
            print(f"soak: these differ from the oracle: {', '.join(wrong)}; seed {seed}")
            return 1
    print(f"soak: ok, {killed} kills in {rounds} pipelines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
