# SPDX-License-Identifier: Apache-2.0
"""The figures of a capture log on storage, and of a server that answers or does not."""

import time
from pathlib import Path

from changelane.capture.capture_figures import (
    CaptureFigures,
    ReadLag,
    figure_lines,
    read_capture_figures,
)
from changelane.capture.captured_server import LogLag
from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine_records import EngineRecord, RecordRole
from changelane.capture.manifest import CapturedRecord, EngineOffset
from changelane.capture.publication import PublicationLimits, PublicationPlanner
from changelane.capture.publisher import LogPublisher
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.storage import LocalFolder
from changelane.errors import UnreachableError


def publish(folder: Path, record_counts: list[int], source_time_ms: int) -> CaptureLog:
    writer = SegmentWriter(LocalFolder(folder / "log"), folder / "spool")
    for count in record_counts:
        for _ in range(count):
            writer.append(CapturedRecord("shop.public.t", "1", "{}"))
        writer.publish({"lsn": 5, "ts_usec": source_time_ms * 1000}, detail={"position": "0/5"})
    writer.close()
    return CaptureLog(LocalFolder(folder / "log"))


def figures_of(log: CaptureLog, read_lag: ReadLag | None = None) -> CaptureFigures:
    return read_capture_figures(log, consumer="shop", read_lag=read_lag)


def test_figures_of_an_empty_log_are_unknown(tmp_path: Path) -> None:
    figures = figures_of(CaptureLog(LocalFolder(tmp_path / "log")))
    assert figures.manifest is None
    assert figures.record_count == 0
    assert figures.age_s(time.time() * 1000) is None
    assert figure_lines(figures, label="db", now_ms=0) == [f"capture log {tmp_path}/log: empty"]


def test_delays_are_measured_from_the_source(tmp_path: Path) -> None:
    source_ms = int(time.time() * 1000) - 5000
    log = publish(tmp_path, [3, 0, 4], source_ms)
    figures = figures_of(log)
    assert (figures.manifest, figures.record_count, figures.position) == (3, 7, "0/5")
    assert figures.publish_delay_ms is not None
    assert 5000 <= figures.publish_delay_ms < 60_000
    assert (figures.pending_record_count, figures.apply_delay_ms) == (7, None)
    log.set_consumed("shop", 1)
    figures = figures_of(log)
    assert (figures.applied_manifest, figures.pending_record_count) == (1, 4)
    assert figures.apply_delay_ms is not None
    assert 5000 <= figures.apply_delay_ms < 60_000


def test_the_oldest_delay_is_that_of_the_first_change_of_a_manifest(tmp_path: Path) -> None:
    folder, now_ms = LocalFolder(tmp_path / "log"), int(time.time() * 1000)
    writer = SegmentWriter(folder, tmp_path / "spool")
    options = ConnectorOptions(product="oracle", name="shop", host="h", database="d", user="u")
    planner = PublicationPlanner({"scn": "1"}, limits=PublicationLimits(max_age_s=9), now_s=0)
    publisher = LogPublisher(writer, planner, options, lambda _: None, folder)

    def write(*seconds_ago: int) -> None:
        """Publish changes of one transaction, and a tombstone."""
        inside: EngineOffset = {"scn": str(seconds_ago), "transaction_id": "7"}
        values = [
            f'{{"payload":{{"source":{{"ts_ms":{now_ms - ago * 1000}}}}}}}' for ago in seconds_ago
        ]
        records = [CapturedRecord("shop.S.T", "1", value) for value in (*values, None)]
        rows = [EngineRecord(RecordRole.ROW, inside, record) for record in records]
        end = EngineRecord(RecordRole.END, inside, CapturedRecord("shop.transaction", None, "{}"))
        publisher.write([*rows, end], lambda _: None)

    write(60, 40)
    write(50)
    publisher.finish()
    figures = figures_of(CaptureLog(folder))
    assert figures.oldest_publish_delay_ms is not None
    assert 60_000 <= figures.oldest_publish_delay_ms < 120_000
    assert figures.publish_delay_ms is figures.oldest_apply_delay_ms is None
    CaptureLog(folder).set_consumed("shop", 1)
    figures = figures_of(CaptureLog(folder))
    assert figures.oldest_apply_delay_ms is not None
    assert 60_000 <= figures.oldest_apply_delay_ms < 120_000
    (line,) = figure_lines(figures, label="db", now_ms=now_ms)
    assert "first change of its manifest 6" in line
    writer.close()


def test_a_manifest_without_a_change_has_no_oldest_delay(tmp_path: Path) -> None:
    figures = figures_of(publish(tmp_path, [3], 1))
    assert figures.oldest_publish_delay_ms is None


def test_start_of_a_pipeline_does_not_change_the_time_of_its_last_batch(tmp_path: Path) -> None:
    log = publish(tmp_path, [3], int(time.time() * 1000))
    log.set_consumed("shop", 1)
    applied = log.applied_by("shop")
    time.sleep(0.01)
    log.set_consumed("shop", 1)  # a run that begins after its last batch
    assert log.applied_by("shop") == applied


def test_figures_of_an_applied_manifest_that_expired_are_unknown(tmp_path: Path) -> None:
    log = publish(tmp_path, [3, 0], int(time.time() * 1000))
    log.set_consumed("shop", 1)
    time.sleep(0.01)
    assert log.delete_expired(retention_s=0) == 1
    figures = figures_of(log)
    assert figures.applied_manifest == 1
    assert figures.pending_record_count is figures.apply_delay_ms is None


def test_server_without_an_answer_is_a_line(tmp_path: Path) -> None:
    log = publish(tmp_path, [2], 0)

    def read_lag(_offset: EngineOffset | None) -> LogLag:
        raise UnreachableError("the server does not answer")

    figures = figures_of(log, read_lag)
    assert figures.record_count == 2
    lines = figure_lines(figures, label="the database", now_ms=time.time() * 1000)
    assert lines[1] == "the database: the server does not answer"


def test_server_is_asked_with_the_position_of_the_newest_manifest(tmp_path: Path) -> None:
    asked_offsets = []

    def read_lag(offset: EngineOffset | None) -> LogLag:
        asked_offsets.append(offset)
        return LogLag(lag_bytes=3000, headroom_bytes=1 << 20, retained_bytes=4096, slot="s")

    figures_of(CaptureLog(LocalFolder(tmp_path / "log")), read_lag)
    figures = figures_of(publish(tmp_path, [1], 1), read_lag)
    assert asked_offsets == [None, {"lsn": 5, "ts_usec": 1000}]
    assert figure_lines(figures, label="db", now_ms=0)[1] == (
        "db: slot s, 2.9 kB of the log not captured, 4.0 kB kept, 1.0 MB until the slot may be lost"
    )
