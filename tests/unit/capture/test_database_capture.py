# SPDX-License-Identifier: Apache-2.0
"""What a user sees of a capture that waits for its database."""

from collections.abc import Collection
from pathlib import Path

import pytest

from changelane.capture import database_capture
from changelane.capture.database_capture import DatabaseCapture
from changelane.capture.database_findings import database_findings
from changelane.capture.engine import CaptureEngine, CaptureError, CaptureStatus
from changelane.capture.log_origin import LogOrigin, write_origin
from changelane.capture.storage import LocalFolder
from changelane.errors import ConfigError, UnreachableError
from changelane.pipeline.postgres_source import PostgresSource


class FakeEngine(CaptureEngine):
    """An engine whose status a test sets."""

    def __init__(self) -> None:
        self.shown = CaptureStatus(state="running")

    @property
    def status(self) -> CaptureStatus:
        return self.shown


def test_a_capture_that_waits_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    source = PostgresSource(
        host="db", user="me", database="shop", tables=["public.*"], segments=str(tmp_path)
    )
    capture = DatabaseCapture(source, tmp_path, notify=notes.append)
    engine = FakeEngine()
    monkeypatch.setattr(capture, "_engine", engine)
    waiting = CaptureStatus(state="waiting", reason="db:5432 does not answer")
    for status in (waiting, waiting, CaptureStatus(state="starting"), waiting):
        engine.shown = status
        capture.check()
    assert notes == ["the capture waits and tries again: db:5432 does not answer"]
    for status in (CaptureStatus(state="running"), waiting):
        engine.shown = status
        capture.check()
    assert len(notes) == 2
    engine.shown = CaptureStatus(state="failed", reason="wal_level is replica")
    with pytest.raises(CaptureError, match="wal_level is replica"):
        capture.check()


class FakeServer:
    """A server with a partitioned table, which does not answer once."""

    def __init__(self) -> None:
        self.partitions = {"11": "public.t_1"}
        self.answers = iter([True, False])

    def origin(self) -> LogOrigin:
        if not next(self.answers, True):
            raise UnreachableError("db:5432 does not answer")
        return LogOrigin(
            server="shop",
            database="shop",
            identity="1",
            tables={"public.t": "1"},
            partitions={"public.t": self.partitions},
        )

    def attached_partitions(self, numbers: Collection[str]) -> set[str]:
        return set(numbers)


def test_a_capture_that_runs_warns_once_of_a_partition_that_was_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_capture, "_RETENTION_INTERVAL_S", 0)
    notes: list[str] = []
    source = PostgresSource(
        host="db", user="me", database="shop", tables=["public.*"], segments=str(tmp_path)
    )
    capture = DatabaseCapture(source, tmp_path, notify=notes.append)
    server = FakeServer()
    write_origin(LocalFolder(tmp_path), server.origin())
    monkeypatch.setattr(capture, "_engine", FakeEngine())
    monkeypatch.setattr(capture, "_server", server)
    for _ in range(3):
        capture.check()
    assert notes == []
    server.partitions = {**server.partitions, "12": "public.late"}
    for _ in range(3):
        capture.check()
    (note,) = notes
    assert "table public.t: attached with rows: public.late" in note


def test_a_check_names_the_folder_that_an_object_store_needs() -> None:
    source = PostgresSource(
        host=".", user="me", database="shop", tables=["public.*"], segments="s3://bucket/shop"
    )
    with pytest.raises(ConfigError, match=r"set source\.engine_folder to a folder"):
        database_findings(source)
