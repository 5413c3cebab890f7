# SPDX-License-Identifier: Apache-2.0
"""A database whose single tables are read while it changes, and the capture log of it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from snapshot_records import records_of

from changelane.capture.database_capture import DatabaseCapture
from changelane.capture.segment_store import CaptureLog
from changelane.capture.snapshot.table_requests import read_requests
from changelane.capture.storage import LocalFolder
from changelane.pipeline.database_source import DatabaseSource

SMALL_CHUNKS: Final[dict[str, Any]] = {
    "publish_interval": "1 second",
    "memory": "256m",
    "snapshot_readers": 1,
    "snapshot_chunk_rows": 100,
}
"""Options of a source whose tables are read in many chunks."""


class CapturedTables:
    """A database, and captures of it.

    Args:
        source: The database; its capture log is in *folder*.
        folder: The folder of the test.
        wait_s: The longest time until all requests are complete, seconds.
    """

    def __init__(self, source: DatabaseSource, folder: Path, wait_s: float) -> None:
        self.source = source
        self.log = CaptureLog(LocalFolder(folder / "log"))
        self.notes: list[str] = []
        self._wait_s = wait_s

    @contextmanager
    def captured(
        self, source: DatabaseSource | None = None, *, is_until_now: bool = False
    ) -> Iterator[DatabaseCapture]:
        from changelane.spark.runtime.jars import fetch_debezium

        jars = fetch_debezium(self.source.type_name)
        with DatabaseCapture(source or self.source, jars, notify=self.notes.append) as capture:
            capture.start(is_until_now=is_until_now)
            yield capture

    def wait_for_requests(self, capture: DatabaseCapture) -> None:
        deadline = time.monotonic() + self._wait_s
        while requests := read_requests(self.log.folder):
            capture.check()
            assert not [request.error for request in requests if request.error], self.notes
            assert time.monotonic() < deadline, self.notes
            time.sleep(0.1)  # the capture reads the requests meanwhile

    def reads_of(self, name: str) -> int:
        records = [r for r in records_of(self.log) if r.value and '"op":"r"' in r.value]
        return sum(f'"table":"{name}"' in (record.value or "") for record in records)
