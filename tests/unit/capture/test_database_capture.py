# SPDX-License-Identifier: Apache-2.0
"""What a user sees of a capture that waits for its database."""

from pathlib import Path

import pytest

from changelane.capture.database_capture import DatabaseCapture, database_findings
from changelane.capture.engine import CaptureEngine, CaptureError, CaptureStatus
from changelane.errors import ConfigError
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


def test_a_check_names_the_folder_that_an_object_store_needs() -> None:
    source = PostgresSource(
        host=".", user="me", database="shop", tables=["public.*"], segments="s3://bucket/shop"
    )
    with pytest.raises(ConfigError, match=r"set source\.engine_folder to a folder"):
        database_findings(source)
