# SPDX-License-Identifier: Apache-2.0
"""Runs a pipeline and kills itself with -9 the first time it reaches a named point.

Usage: crash_points.py POINT PIPELINE.yaml    POINT is one of POINTS, or "never"
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from changelane.cli import main
from changelane.spark.apply.applier import Applier
from changelane.spark.apply.table_writer import TableWriter
from changelane.spark.lake.delta import Delta
from changelane.spark.lake.iceberg import Iceberg
from changelane.spark.state.file_log import FileLog
from changelane.spark.state.quarantine import Quarantine
from changelane.spark.state.tombstones import TombstoneTable


def die() -> None:
    # with the driver's JVM and the Python workers
    os.killpg(os.getpgrp(), signal.SIGKILL)


def after(*methods: tuple[type, str]) -> Callable[[], None]:
    def patch() -> None:
        for owner, name in methods:
            setattr(owner, name, dying(getattr(owner, name)))

    def dying(method: Callable[..., Any]) -> Callable[..., Any]:
        def last(*arguments: Any, **options: Any) -> Any:
            method(*arguments, **options)
            die()

        return last

    return patch


def between_tables() -> None:
    method = TableWriter.write
    done = []

    def dying(self: Any, batch: Any, one: Any, **more: Any) -> Any:
        if done:
            die()
        result = method(self, batch, one, **more)
        done.append(one)
        return result

    TableWriter.write = dying
    # one after the other, so that there is a between
    import changelane.spark.apply.applier

    changelane.spark.apply.applier.MAX_TABLES_AT_ONCE = 1


POINTS: Final[dict[str, Callable[[], None]]] = {
    "after the files are listed, before the batch": after((FileLog, "start_batch")),
    "after the quarantine": after((Quarantine, "record")),
    "after the side table": after((TombstoneTable, "record")),
    "between two tables": between_tables,
    "after the commits, before the checkpoint": after((Applier, "apply")),
    "in maintenance, before old versions expire": after((Delta, "compact"), (Iceberg, "compact")),
    "in maintenance, after old versions expired": after((Delta, "expire"), (Iceberg, "expire")),
    "never": lambda: None,
}

if __name__ == "__main__":
    POINTS[sys.argv[1]]()
    main(["run", sys.argv[2], "--master", "local[2]"])
