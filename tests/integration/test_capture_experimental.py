# SPDX-License-Identifier: Apache-2.0
"""SQL Server and Oracle with Debezium's real connectors, as far as it is possible without a server.

The connectors accept our configuration, and fail with a sentence if no server answers. Records that
their own classes make go through the capture into segments, and a restart finds its offset.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

pytest.importorskip("jpype", reason="jpype1 is not installed: changelane[capture]")

import connector_records
from connector_validation import validation_errors

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine_records import EngineRecord, RecordRoles
from changelane.capture.jvm_engine import check_partition
from changelane.capture.manifest import CapturedRecord, EngineOffset
from changelane.capture.products import captured_server_of
from changelane.capture.publication import PublicationLimits, PublicationPlanner
from changelane.capture.publisher import LogPublisher
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.storage import LocalFolder
from changelane.codec import get_codec
from changelane.conversion.message_files import read_record
from changelane.errors import ConfigError
from changelane.event import ChangeEvent, DataChange, Op
from changelane.pipeline.experimental_source import OracleSource, SqlServerSource
from changelane.position import LsnPosition, Position, ScnPosition, encode_order

PRODUCTS = ("sqlserver", "oracle")
PASSWORD = "a pass-word of the test"


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def options_of(product: str, folder: Path) -> ConnectorOptions:
    fields = {
        "experimental": True,
        "host": "127.0.0.1",
        "database": "Shop",
        "topic_prefix": "shop",
        "user": "me",
        "tables": ["dbo.orders"],
        "segments": str(folder),
    }
    source = SqlServerSource(**fields) if product == "sqlserver" else OracleSource(**fields)
    return captured_server_of(source).connector_options(heartbeat_s=10)


def jars_of(product: str) -> str:
    from changelane.spark.runtime.jars import fetch_debezium

    return str(fetch_debezium(product))


def run_connector(options: ConnectorOptions, folder: Path, *arguments: str) -> Any:
    """Return what the program ``connector_records.py`` prints."""
    program = connector_records.__file__
    process = subprocess.run(
        [sys.executable, program, jars_of(options.product), str(folder), *arguments],
        input=msgspec.json.encode(options),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr.decode()[-2000:]
    return json.loads(process.stdout)


def pipeline_file(product: str, folder: Path, port: int, **source: Any) -> Path:
    file = folder / "shop.yaml"
    source = {
        "type": product,
        "experimental": True,
        "host": "127.0.0.1",
        "port": port,
        "database": "Shop",
        "user": "me",
        "password": "${PASSWORD_OF_TEST}",
        "tables": ["dbo.orders"],
        "segments": str(folder / "log"),
        # Microsoft's driver tries for half a minute
        "debezium": {"driver.loginTimeout": "1"} if product == "sqlserver" else {},
        **source,
    }
    sink = {"type": "delta", "path": str(folder / "lake")}
    file.write_bytes(msgspec.json.encode({"name": "shop", "source": source, "sink": sink}))
    return file


def run_changelane(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "changelane", *words],
        env={**os.environ, "PASSWORD_OF_TEST": PASSWORD},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("product", PRODUCTS)
def test_connector_accepts_the_printed_configuration(
    product: str, tmp_path: Path, closed_port: int
) -> None:
    file = pipeline_file(product, tmp_path, closed_port)
    printed = run_changelane("capture", "config", str(file))
    assert printed.returncode == 0, printed.stderr
    assert PASSWORD not in printed.stdout + printed.stderr
    config = json.loads(printed.stdout)["config"]
    assert set(validation_errors(product, config, PASSWORD)) == {"database.hostname"}
    wrong = {**config, "time.precision.mode": "exact", "snapshot.mode": "sometimes"}
    errors = validation_errors(product, wrong, PASSWORD)
    assert set(errors) >= {"time.precision.mode", "snapshot.mode"}


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_server_that_does_not_answer_is_one_sentence(
    product: str, tmp_path: Path, closed_port: int
) -> None:
    jars_of(product)
    result = run_changelane("capture", str(pipeline_file(product, tmp_path, closed_port)))
    assert result.returncode == 1
    warning, error = result.stderr.splitlines()
    assert "the capture is experimental" in warning
    assert error.startswith(f"Error: the database Shop at 127.0.0.1:{closed_port} does not answer")
    assert PASSWORD not in result.stderr
    files = [file for file in (tmp_path / "log").rglob("*") if file.is_file()]
    assert not [file for file in files if PASSWORD.encode() in file.read_bytes()]
    assert CaptureLog(LocalFolder(tmp_path / "log")).newest() is None


def test_records_of_a_database_with_another_name_are_refused() -> None:
    """SQL Server ignores the case of names, and Debezium stores its offset under the real one."""
    expected = {"server": "shop", "database": "shop"}
    check_partition(dict(expected), expected)
    with pytest.raises(ConfigError, match="captures server shop, database Shop, and not"):
        check_partition({"server": "shop", "database": "Shop"}, expected)


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_lost_position_is_never_replaced_by_a_new_snapshot(product: str, tmp_path: Path) -> None:
    """The capture sets `initial` or `no_data`; the error has a sentence of its own."""
    modes = run_connector(options_of(product, tmp_path), tmp_path, "--lost")
    assert modes == {"initial": False, "no_data": False, "when_needed": True}


class Engine:
    """The side of the engine: its records, and the offsets that it gets back."""

    def __init__(self, options: ConnectorOptions, records: list[Mapping[str, Any]]) -> None:
        roles = RecordRoles(options)
        self.records = [
            EngineRecord(
                roles.role_of(part["topic"], part["value"]),
                part["offset"],
                CapturedRecord(part["topic"], part["key"], part["value"]),
            )
            for part in records
        ]
        self.acknowledged: list[EngineOffset] = []


def captured_events(folder: LocalFolder) -> list[ChangeEvent]:
    """Return the events of all records of a capture log."""
    log, decode = CaptureLog(folder), get_codec("debezium-json").decode
    newest = log.newest()
    events: list[ChangeEvent] = []
    for sequence in range(1, 1 + (0 if newest is None else newest.sequence)):
        for segment in log.manifest(sequence).segments:
            content = folder.read(f"segments/{segment.name}")
            for line in zstandard.ZstdDecompressor().stream_reader(content).read().splitlines():
                events += decode(read_record(line))
    return events


@pytest.mark.parametrize("product", PRODUCTS)
def test_records_become_segments_and_a_restart_finds_the_offset_of_the_manifest(
    product: str, tmp_path: Path
) -> None:
    folder, work = tmp_path / "log", tmp_path / "work"
    work.mkdir()
    options = options_of(product, folder)
    engine = Engine(options, run_connector(options, work))
    writer = SegmentWriter(LocalFolder(folder), work / "spool")
    limits = PublicationLimits(max_age_s=0, idle_s=0, end_s=0)
    planner = PublicationPlanner(None, limits=limits, now_s=0)
    publisher = LogPublisher(writer, planner, options, lambda _: None, LocalFolder(folder))
    for record in engine.records:
        publisher.write([record], engine.acknowledged.append)
    publisher.tick()
    publisher.finish()
    writer.close()
    events = captured_events(LocalFolder(folder))
    changes = [event for event in events if isinstance(event, DataChange)]
    assert [(change.op, dict(change.after or {})) for change in changes] == [
        (Op.CREATE, {"id": number, "note": note}) for _, number, note in connector_records.ROWS
    ]
    assert [change.transaction and change.transaction.order for change in changes] == [1, 2, 1]
    positions = [change.position for change in changes]
    kind: type[Position] = LsnPosition if product == "sqlserver" else ScnPosition
    assert {type(position) for position in positions} == {kind}
    orders = [encode_order(position, captured=True) for position in positions if position]
    assert all(one < other for one, other in pairwise(orders))
    # each transaction was acknowledged alone, up to its last row
    newest = CaptureLog(LocalFolder(folder)).newest()
    assert newest is not None
    assert newest.engine_offset == engine.acknowledged[-1]
    assert len(engine.acknowledged) == 2
    first, last = engine.acknowledged
    if product == "sqlserver":
        assert [first["commit_lsn"], last["commit_lsn"]] == list(connector_records.COMMITS.values())
        assert first["change_lsn"] == engine.records[2].offset["change_lsn"]
        end = engine.records[3].offset
        assert end["commit_lsn"] == last["commit_lsn"], "Debezium's END is behind the next row"
    else:
        assert str(first["commit_scn"]).startswith("6001:1")
        assert str(last["commit_scn"]).startswith("6002:1")
    assert not [name for name in (*first, *last) if name.startswith("transaction_")]
    stored = run_connector(options, work, "--stored", json.dumps(newest.engine_offset))
    assert stored == newest.engine_offset
