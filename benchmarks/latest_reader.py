# SPDX-License-Identifier: Apache-2.0
"""Counts the newest rows of a table again and again, until it is stopped.

Usage: latest_reader.py PIPELINE.yaml TABLE KIND

It prints a line of JSON for each count: the time, in seconds since 1970, and the number of rows.
"""

import json
import sys
import time

from changelane.pipeline.config import load
from changelane.spark import latest_tables, session


def main(file: str, table: str, kind: str) -> None:
    """Count until the process is stopped."""
    pipeline = load(file)
    spark = session("benchmark: newest rows", lakes=[kind])
    spark.sparkContext.setLogLevel("OFF")
    while True:
        (rows,) = latest_tables(pipeline, [table], spark=spark).tables.values()
        count = rows.count()
        print(json.dumps([time.time(), count]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
