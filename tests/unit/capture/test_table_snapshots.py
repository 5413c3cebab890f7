# SPDX-License-Identifier: Apache-2.0
"""Requests for single tables: one at a time, and what a capture does with them."""

import threading
from pathlib import Path

import pytest

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.segment_store import SegmentWriter
from changelane.capture.snapshot.table_requests import (
    TableRequest,
    create_request,
    read_request,
    read_requests,
    record_error,
)
from changelane.capture.snapshot.table_snapshots import TableDatabase, TableSnapshots
from changelane.capture.storage import LocalFolder
from changelane.errors import ConfigError
from changelane.pipeline.postgres_source import PostgresSource


def request_of(table: str, history: int = 0) -> TableRequest:
    return TableRequest(kind="redo", table=table, history=history, created_ms=1)


def test_a_table_has_one_request_until_it_is_complete_or_failed(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    first = request_of('public."A/../\'b"')
    create_request(folder, first)
    create_request(folder, request_of("public.a"))
    with pytest.raises(ConfigError, match="is not complete yet"):
        create_request(folder, request_of(first.table))
    assert read_request(folder, first.table) == first
    record_error(folder, first, "no")
    second = request_of(first.table)
    create_request(folder, second)
    assert second in read_requests(folder)
    assert len(read_requests(folder)) == 2


def test_requests_of_another_history_and_of_unknown_tables_are_not_executed(
    tmp_path: Path,
) -> None:
    folder = LocalFolder(tmp_path / "log")
    writer = SegmentWriter(folder, tmp_path / "spool")
    writer.publish({"lsn": 1})
    writer.begin_history()
    writer.publish({"lsn": 2})
    writer.close()
    create_request(folder, request_of("public.a"))
    create_request(folder, request_of("public.b", history=1))
    notes: list[str] = []
    stop = threading.Event()

    def note(text: str) -> None:
        notes.append(text)
        stop.set()

    class NoTables(TableDatabase):
        """Tables that nothing asks for."""

    snapshots = TableSnapshots(
        NoTables(),
        PostgresSource(host="h", user="u", database="d", tables=["public.*"], segments="x"),
        ConnectorOptions(product="postgres", name="s", host="h", database="d", user="u"),
        folder=folder,
        work=tmp_path,
        jars=tmp_path,
        notify=note,
        include=lambda _: False,
        stop=stop,
    )
    assert snapshots.has_work
    snapshots.start()
    assert stop.wait(10)
    snapshots.stop()
    assert not snapshots.has_work
    assert [request.table for request in read_requests(folder)] == ["public.b"]
    assert notes == ["the snapshot of public.b waits: no pattern of tables matches it"]
