# SPDX-License-Identifier: Apache-2.0
"""A capture process whose capture log does not fit its parent, or the files of this machine."""

import threading
from pathlib import Path

import pytest

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine_config import EngineConfig, EngineStatus
from changelane.capture.engine_process import EngineRun, StatusStream
from changelane.capture.schema_history import SchemaHistory
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.storage import LocalFolder
from changelane.errors import ChangelaneError

CONNECTOR = ConnectorOptions(product="postgres", name="shop", host=".", database="d", user="u")


class Statuses(StatusStream):
    """Statuses that nobody reads."""

    def __init__(self) -> None:
        pass

    def write(self, status: EngineStatus) -> None:
        del status


def test_a_new_snapshot_of_another_capture_is_not_left_out(tmp_path: Path) -> None:
    log = LocalFolder(tmp_path / "log")
    writer = SegmentWriter(log, tmp_path / "spool")
    writer.publish({"lsn": 7})
    newest = writer.begin_history()
    config = EngineConfig(
        connector=CONNECTOR,
        log=log.label,
        work=str(tmp_path / "work"),
        jars=str(tmp_path),
        snapshot="spark",
    )
    # after the database did not answer, a process follows another one without its parent's checks
    with pytest.raises(ChangelaneError, match="waits for a new snapshot"):
        EngineRun(config, Statuses(), threading.Event()).run()
    assert CaptureLog(log).newest() == newest, "the changes of the new history have no first rows"


def test_schemas_of_an_earlier_capture_are_never_used(tmp_path: Path) -> None:
    log = LocalFolder(tmp_path / "log")
    first, second = (SchemaHistory(tmp_path / machine) for machine in ("first", "second"))

    def start(history: SchemaHistory, log_id: str = "log") -> SegmentWriter:
        writer = SegmentWriter(log, tmp_path / "spool")
        history.prepare(log_id, writer.newest, writer.epoch)
        history.file.touch()  # by the engine
        return writer

    for _ in range(2):
        start(first).publish({"pos": 1})
    start(first)  # it published nothing
    with pytest.raises(ChangelaneError, match="does not have the schemas"):
        start(second)
    SegmentWriter(log, tmp_path / "spool").begin_history()
    start(second).publish({"pos": 2})
    start(second).publish({"pos": 3})
    for _ in range(2):
        with pytest.raises(ChangelaneError, match="does not have the schemas"):
            start(first)
    with pytest.raises(ChangelaneError, match="does not have the schemas"):
        start(second, "another log")
    start(second)
    (tmp_path / "second" / "schema-history.json").unlink()  # as earlier versions left it
    start(second)
