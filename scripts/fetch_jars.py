# SPDX-License-Identifier: Apache-2.0
"""Fetch Spark's jars into the folder that changelane's Spark sessions use.

Usage: fetch_jars.py NAME...   (names of PACKAGES in spark/runtime/jars.py for the installed Spark,
"broker", or "debezium")

It runs an empty program with spark-submit, which resolves the packages. So the fetched files and
their repositories are those of a session with the same settings.
"""

import sys
from collections.abc import Callable
from functools import partial

from changelane.errors import ConfigError
from changelane.spark.runtime.jars import (
    fetch_broker,
    fetch_debezium,
    fetch_packages,
    ivy_dir,
    packages,
    spark_packages,
)


def main() -> None:
    """Check the names and fetch the jars."""
    names = sys.argv[1:]
    tools: dict[str, Callable[[], object]] = {
        "broker": fetch_broker,
        "debezium": partial(fetch_debezium, "postgres"),
    }
    known = [*spark_packages(), *tools]
    if not names or not set(names) <= set(known):
        sys.exit(f"usage: fetch_jars.py NAME..., each one of: {', '.join(known)}")
    print(
        f"changelane: fetching Spark's jars once ({', '.join(names)}; about 1 minute)", flush=True
    )
    try:
        if spark := [name for name in names if name not in tools]:
            fetch_packages(packages(*spark), ivy_dir())
        for name in names:
            if name in tools:
                tools[name]()
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
