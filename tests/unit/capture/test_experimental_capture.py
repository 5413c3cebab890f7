# SPDX-License-Identifier: Apache-2.0
"""The capture of SQL Server and Oracle as far as it needs no server.

The offsets are those that Debezium's own classes make (``test_capture_experimental.py``).
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane.capture.connect_config import connector_of, secret_keys
from changelane.capture.connectors import ConnectorOptions, connector_properties
from changelane.capture.database_capture import capture_figures
from changelane.capture.database_findings import database_findings
from changelane.capture.engine_failures import failure_of
from changelane.capture.engine_offset import position_text, source_partition
from changelane.capture.engine_records import EngineRecord, RecordRole
from changelane.capture.log_origin import write_origin
from changelane.capture.manifest import CapturedRecord, EngineOffset
from changelane.capture.products import captured_server_of
from changelane.capture.publication import Append, PublicationLimits, PublicationPlanner, Publish
from changelane.capture.segment_store import SegmentWriter
from changelane.capture.storage import LocalFolder
from changelane.errors import ConfigError
from changelane.pipeline.experimental_source import (
    ExperimentalSource,
    OracleSource,
    SqlServerSource,
)

# -- the properties of the connectors

SHARED = """\
binary.handling.mode=bytes
converter.replace.null.with.default=false
converter.schemas.enable=true
database.hostname=db
database.password=hidden
database.user=me
decimal.handling.mode=precise
errors.max.retries=0
event.converting.failure.handling.mode=fail
event.processing.failure.handling.mode=fail
extended.headers.enabled=false
header.converter.schemas.enable=false
heartbeat.interval.ms=10000
heartbeat.topics.prefix=__debezium-heartbeat
include.schema.changes=true
max.batch.size=2048
max.queue.size=8192
name=changelane
offset.flush.interval.ms=0
poll.interval.ms=100
provide.transaction.metadata=true
schema.history.internal.skip.unparseable.ddl=false
schema.history.internal=io.debezium.storage.file.history.FileSchemaHistory
skipped.operations=none
time.precision.mode=adaptive
tombstones.on.delete=true
topic.prefix=Shop
"""
SQLSERVER = r"""connector.class=io.debezium.connector.sqlserver.SqlServerConnector
data.query.mode=function
database.names=Shop
database.port=1433
driver.encrypt=true
driver.trustServerCertificate=true
table.include.list=(?-i:dbo\.orders),(?-i:dbo\.a\x{20}\x{fc})
"""
ORACLE = r"""connector.class=io.debezium.connector.oracle.OracleConnector
database.connection.adapter=logminer
database.dbname=Shop
database.pdb.name=PDB1
database.port=1521
interval.handling.mode=string
lob.enabled=true
log.mining.buffer.type=memory
table.include.list=(?-i:dbo\.orders),(?-i:dbo\.a\x{20}\x{fc})
"""


def source_of(product: str = "sqlserver", **changes: Any) -> ExperimentalSource:
    fields = {
        "experimental": True,
        "host": "db",
        "database": "Shop",
        "user": "me",
        "password": "hidden",
        "tables": ["dbo.orders", "dbo.a ü"],
        "segments": "log",
    } | changes
    return SqlServerSource(**fields) if product == "sqlserver" else OracleSource(**fields)


def options_of(product: str = "sqlserver", **changes: Any) -> ConnectorOptions:
    return captured_server_of(source_of(product, **changes)).connector_options(heartbeat_s=10)


@pytest.mark.parametrize(
    ("options", "text"),
    [(options_of(), SQLSERVER), (options_of("oracle", pdb="PDB1"), ORACLE)],
    ids=["sqlserver", "oracle"],
)
def test_properties_of_the_connector(options: ConnectorOptions, text: str) -> None:
    lines = [f"{name}={value}" for name, value in connector_properties(options).items()]
    assert sorted(lines) == sorted((SHARED + text).splitlines())


@pytest.mark.parametrize(
    ("sslmode", "encrypt", "trust"),
    [("disable", "false", "true"), ("prefer", "true", "true"), ("verify-full", "true", "false")],
)
def test_tls_of_sql_server_is_that_of_its_driver(sslmode: str, encrypt: str, trust: str) -> None:
    properties = connector_properties(options_of(sslmode=sslmode))
    assert properties["driver.encrypt"] == encrypt
    assert properties["driver.trustServerCertificate"] == trust


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("snapshot.mode", "would change what the capture log contains"),
        ("log.position.check.enable", "would change what the capture log contains"),
        ("data.query.mode", "changelane sets these properties"),
    ],
)
def test_a_property_that_would_lose_changes_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        connector_properties(options_of(debezium={name: "when_needed"}))


def test_connector_for_kafka_connect_has_no_secret() -> None:
    options = options_of(sslmode="verify-full", sslrootcert="root.pem")
    connector = connector_of(options, has_snapshot=True, secrets_file="/secrets")
    assert "hidden" not in str(connector)
    assert secret_keys(connector) == [
        "Shop-sqlserver.database.password",
        "Shop-sqlserver.driver.trustStore",
        "Shop-sqlserver.driver.trustStorePassword",
        "bootstrap.servers",
    ]
    assert connector.config["schema.history.internal.kafka.topic"] == "schema-history.Shop"
    own = options_of(sslrootcert="root.pem", debezium={"driver.trustStore": "mine"})
    with pytest.raises(ConfigError, match=r"sslrootcert and debezium\.driver\.trustStore are both"):
        connector_properties(own)


# -- transactions: Debezium notices the end of one of SQL Server by the next one

LIMITS = PublicationLimits(max_bytes=1, max_age_s=0, idle_s=0, end_s=60, open_bytes=10**6)


def lsn(number: int) -> str:
    return f"00000025:{number:08x}:0001"


def offset_of(commit: int, change: int, **others: Any) -> EngineOffset:
    return {"commit_lsn": lsn(commit), "change_lsn": lsn(change), "event_serial_no": 1, **others}


def record(role: RecordRole, offset: EngineOffset, value: str = "") -> EngineRecord:
    return EngineRecord(role, offset, CapturedRecord("t", None, value))


def records_of(sizes: list[int], has_idle_end: list[bool]) -> Iterator[EngineRecord]:
    """What the connector of SQL Server sends for transactions of some sizes."""
    last: EngineOffset | None = None
    for commit, size in enumerate(sizes, 1):
        for change in range(1, size + 1):
            offset = offset_of(commit, change, transaction_id=lsn(commit))
            if change == 1:
                if last is not None:
                    ended = {**offset, "transaction_id": last["transaction_id"]}
                    yield record(RecordRole.END, ended)
                yield record(RecordRole.BEGIN, offset)
            yield record(RecordRole.ROW, offset, f"{commit}.{change}")
            last = offset
            yield record(RecordRole.HEARTBEAT, offset)
        if has_idle_end[commit - 1] and last is not None:
            yield record(RecordRole.END, last)
            yield record(RecordRole.HEARTBEAT, offset_of(commit, size))
            last = None


class Log:
    """What is visible, and the offset from which the engine continues."""

    def __init__(self) -> None:
        self.visible: list[str] = []
        self.offset: EngineOffset | None = None
        self._pending: list[str] = []

    def execute(self, steps: Iterator[Any]) -> None:
        for step in steps:
            match step:
                case Append(records):
                    self._pending += [str(appended.value) for appended in records]
                case Publish(offset):
                    self.visible += self._pending
                    self._pending = []
                    self.offset = offset

    def crash(self) -> None:
        self._pending = []


def is_passed(row: EngineRecord, offset: EngineOffset | None) -> bool:
    """Whether a connector that starts at an offset skips a row."""
    if offset is None:
        return False
    names = ("commit_lsn", "change_lsn")
    return [str(row.offset[name]) for name in names] <= [str(offset[name]) for name in names]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_a_kill_loses_no_row_although_the_end_of_a_transaction_is_noticed_late(
    sizes: list[int], chance: Random
) -> None:
    idle_ends = [chance.random() < 0.3 for _ in sizes]
    stream, log = list(records_of(sizes, idle_ends)), Log()
    ends = {f"{commit}.{size}" for commit, size in enumerate(sizes, 1)}
    rows = [str(entry.record.value) for entry in stream if entry.role is RecordRole.ROW]
    for killed_after in (*(chance.randrange(len(stream)) for _ in range(3)), None):
        planner = PublicationPlanner(log.offset, limits=LIMITS, now_s=0)
        rest = [entry for entry in stream if not is_passed(entry, log.offset)]
        for now_s, entry in enumerate(rest[:killed_after], 1):
            log.execute(planner.accept([entry], now_s))
            log.execute(planner.tick(now_s))
            assert not log.visible or log.visible[-1] in ends, "a part of a transaction is visible"
        if killed_after is None:
            log.execute(planner.tick(len(rest) + 59))
            assert len(log.visible) >= len(rows) - sizes[-1]
            log.execute(planner.tick(len(rest) + 61))
        log.crash()
    assert log.visible == rows


def test_a_snapshot_of_sql_server_is_published_at_its_end() -> None:
    log, planner = Log(), PublicationPlanner(None, limits=LIMITS, now_s=0)
    first = offset_of(1, 1, snapshot="INITIAL", snapshot_completed=False)
    log.execute(planner.accept([record(RecordRole.ROW, first, "1")], 1))
    log.execute(planner.tick(1000))
    assert log.offset is None
    last = {**first, "snapshot_completed": True}
    log.execute(planner.accept([record(RecordRole.ROW, last, "2")], 1001))
    log.execute(planner.tick(1004))
    assert log.visible == ["1", "2"]
    assert log.offset == last


def test_a_transaction_of_oracle_ends_with_its_commit() -> None:
    log, planner = Log(), PublicationPlanner({"scn": "1"}, limits=LIMITS, now_s=0)
    inside: EngineOffset = {"scn": "5", "commit_scn": "4:1:07000a", "transaction_id": "0900"}
    end: EngineOffset = {"scn": "5", "commit_scn": "9:1:0900", "transaction_id": "0900"}
    rows = [record(RecordRole.BEGIN, inside), record(RecordRole.ROW, inside, "1")]
    log.execute(planner.accept([*rows, record(RecordRole.HEARTBEAT, inside)], 1))
    log.execute(planner.tick(1000))
    assert log.offset is None
    log.execute(planner.accept([record(RecordRole.END, end)], 1001))
    assert log.visible == ["1"]
    assert log.offset == {"scn": "5", "commit_scn": "9:1:0900"}


def test_positions_are_those_of_the_server() -> None:
    assert position_text("sqlserver", offset_of(1, 2)) == lsn(1)
    assert position_text("oracle", {"scn": "4711", "commit_scn": "4712:1"}) == "4711"
    assert position_text("oracle", {}) == ""
    assert source_partition(options_of()) == {"server": "Shop", "database": "Shop"}
    assert source_partition(options_of("oracle")) == {"server": "Shop"}


# -- failures


@pytest.mark.parametrize(
    ("product", "message", "reason", "is_retriable"),
    [
        ("sqlserver", "Login failed for user 'me'.", "rejects the login of user me", False),
        ("oracle", "ORA-01017: invalid credential", "rejects the login of user me", False),
        ("sqlserver", 'Cannot open database "Shop" requested', "there is no database Shop", False),
        ("oracle", "ORA-12514: Cannot connect. Service", "there is no database Shop", False),
        (
            "sqlserver",
            "The TCP/IP connection to the host db, port 1433 has failed. Connection refused",
            "Shop at db:1433 does not answer",
            True,
        ),
        (
            "oracle",
            "Unable to connect (primary): Failed to",
            "Shop at db:1521 does not answer",
            True,
        ),
        (
            "sqlserver",
            (
                "The connector is trying to read change stream starting at SqlServerOffsetContext "
                "[...], but this is no longer available on the server. Reconfigure the connector"
            ),
            "changes are lost. `changelane capture PIPELINE.yaml --new-snapshot`",
            False,
        ),
        (
            "oracle",
            "Online REDO LOG files or archive log files do not contain the offset scn 7. Please",
            "changes are lost. `changelane capture PIPELINE.yaml --new-snapshot`",
            False,
        ),
        (
            "oracle",
            "The archive log containing offset SCN: 7 has been deleted. A re-snapshot is required.",
            "changes are lost",
            False,
        ),
        ("oracle", "is not configured to use a archive log LOG_MODE", "DATABASE ARCHIVELOG", False),
        ("oracle", "Supplemental logging not properly configured", "(ALL) COLUMNS", False),
    ],
)
def test_an_error_of_the_connector_is_a_sentence_with_a_fix(
    product: str, message: str, reason: str, is_retriable: bool
) -> None:
    failure = failure_of(["the connector failed", message], options_of(product))
    assert reason in failure.reason
    assert failure.is_retriable is is_retriable


# -- the server, which is asked nothing


@pytest.mark.parametrize("product", ["sqlserver", "oracle"])
def test_check_warns_that_nothing_is_checked(product: str, tmp_path: Path) -> None:
    (finding,) = database_findings(source_of(product, segments=str(tmp_path)))
    assert finding.state == "warning"
    assert "changelane checks no setting" in finding.problem
    assert not [*tmp_path.iterdir()]


def test_another_table_needs_a_new_snapshot(tmp_path: Path) -> None:
    """Its rows from before may be missing: nobody knows."""
    former = source_of(segments=str(tmp_path))
    folder = LocalFolder(tmp_path)
    writer = SegmentWriter(folder, tmp_path / "spool")
    writer.publish(offset_of(1, 1))
    writer.close()
    write_origin(folder, captured_server_of(former).origin())
    assert [finding.defect for finding in database_findings(former)] == ["experimental"]
    more = source_of(segments=str(tmp_path), tables=["dbo.orders", "dbo.a ü", "dbo.new"])
    (error,) = (finding for finding in database_findings(more) if finding.severity == "error")
    assert (error.defect, error.about) == ("new_table", "table dbo.new")
    assert error.advice == "`changelane capture PIPELINE.yaml --new-snapshot` reads all rows again"
    other = source_of(segments=str(tmp_path), database="Other")
    assert "other_database" in {finding.defect for finding in database_findings(other)}


def test_the_server_is_in_no_figure(tmp_path: Path) -> None:
    """A metric would say that it answers, or that it does not."""
    source = source_of(segments=str(tmp_path))
    figures = capture_figures(source, consumer="shop")
    assert (figures.server, figures.problem) == (None, "")
    assert "unknown" in captured_server_of(source).log_lag(None).problem
