# SPDX-License-Identifier: Apache-2.0
"""Kill pipelines with -9 at random times, run them again, and compare their tables with the oracle.

Each pipeline writes its own histories in one of the table formats, and is killed until a run
completes. A difference ends the soak and prints the seed of its data; the moment of a kill is not
repeatable, so many kills are needed.
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

import random_kills  # noqa: E402 - a module of the tests, whose folder is on the path now
from lake_tables import LAKES  # noqa: E402 - the same
from spark_settings import CHEAP  # noqa: E402 - the same

MOST_RUNS = 12


def is_over(until: float | None) -> bool:
    """Whether a time of the monotonic clock is past."""
    return until is not None and time.monotonic() >= until


def main() -> int:
    """Soak; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="the total number of kills")
    parser.add_argument("--seconds", type=float, help="the maximum duration")
    parser.add_argument("--seed", type=int, help="the seed of the data, to repeat a soak")
    options = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    until = None if options.seconds is None else time.monotonic() + options.seconds
    print(f"soak: {options.kills} kills, seed {seed}", flush=True)
    spark = session("changelane soak", master="local[2]", settings=CHEAP, lakes=LAKES)
    spark.sparkContext.setLogLevel("OFF")
    killed = rounds = 0
    while killed < options.kills and not is_over(until):
        chance = Random(f"{seed} {rounds}")  # noqa: S311 - data, no secrets
        rounds += 1
        with tempfile.TemporaryDirectory(prefix="changelane-soak-") as folder:
            name = LAKES[rounds % len(LAKES)]
            stream = random_kills.write(Path(folder), name, random_kills.drawn(chance))
            kill_count = 0
            for run in range(MOST_RUNS + 1):
                # the last run is not killed
                over = run == MOST_RUNS or is_over(until)
                if random_kills.killed_run(
                    stream, chance, longest_s=None if over else random_kills.LONGEST_S
                ):
                    break
                kill_count += 1
                print(f"round {rounds}, {name}: kill {kill_count}", flush=True)
            killed += kill_count
            wrong = random_kills.differences(spark, stream)
        print(f"round {rounds}, {name}: {kill_count} kills, {killed} in all", flush=True)
        if wrong:
            print(f"soak: these differ from the oracle: {', '.join(wrong)}; seed {seed}")
            return 1
    print(f"soak: ok, {killed} kills in {rounds} pipelines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
