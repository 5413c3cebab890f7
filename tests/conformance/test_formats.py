# SPDX-License-Identifier: Apache-2.0
"""Every format passes the conformance kit by being in the registry."""

from pathlib import Path

import pytest

from changelane import formats, get_codec
from changelane.event import Op, Source
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.testing import (
    EVENT_CHECKS,
    SUITE_CHECKS,
    check_decode_golden,
    check_encode_golden,
    check_minimum,
    check_pair,
    golden,
)
from changelane.testing.conformance import EFFORT, check_honesty
from changelane.types import (
    Array,
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    GeometryType,
    InstantType,
    Integer,
    Interval,
    Json,
    Map,
    Record,
    Set,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Unknown,
    Uuid,
    Xml,
    Year,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
NAMES = formats.names()
CASES = golden.native_names(GOLDEN)
SUITE = [event for name in CASES for event in golden.native_events(GOLDEN, name)]
CAPTURED = [path for name in NAMES for path in golden.captured(GOLDEN, name)]

SQL_TYPES = {Boolean, Bytes, Date, Decimal, Float, Integer, String, Time, Timestamp, InstantType}
MYSQL_TYPES = SQL_TYPES - {Boolean} | {Bits, Enum, GeometryType, Json, Set, Year}
NATIVE_TYPES = {Array, Interval, Map, Record, Text, TimeTz, Unknown, Uuid, Xml}

# What the producers' documents say that a format can express. It is written by hand, from the
# specifications, so that a declaration cannot promise less to pass.
MINIMUM = {
    "datahub-blob": Carries(
        operations=frozenset(Op),
        kinds=frozenset({"half", "schema", "truncate", "transaction", "watermark", "control"}),
        before=True,
        absent=True,
        schema=SchemaDetail.SOURCE_TYPES,
        types=frozenset({Boolean, Bytes, Decimal, Float, InstantType, Integer, String}),
        pair=True,
        key=True,
        key_change=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"sequence"}),
        source=frozenset({"product", "snapshot"}),
        stamp=Source(connector="streamx"),
        source_time="ms",
        process_time="ms",
        details=True,
    ),
    "datahub-tuple": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"half"}),
        before=True,
        absent_means=AbsentMeans.NULL,
        types=frozenset({Boolean, Integer, String}),
        pair=True,
        key_change=True,
        table=frozenset({"name"}),
        positions=frozenset({"sequence"}),
        stamp=Source(connector="datahub"),
        source_time="ms",
    ),
    "canal-json": Carries(
        operations=frozenset(Op),
        kinds=frozenset({"schema", "truncate"}),
        before=True,
        absent=True,
        schema=SchemaDetail.SOURCE_TYPES,
        types=frozenset(MYSQL_TYPES),
        extremes=frozenset({Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"database", "name"}),
        stamp=Source(product="mysql", connector="canal"),
        source_time="ms",
        process_time="ms",
        text_only=True,
    ),
    "cdl-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        before=True,
        unavailable=True,
        schema=SchemaDetail.FULL,
        types=frozenset({Boolean, Date, Decimal, Float, Integer, Json, String, Timestamp}),
        key=True,
        table=frozenset({"schema", "name"}),
        positions=frozenset({"postgresql"}),
        transaction=frozenset({"id"}),
        source=frozenset({"product"}),
        stamp=Source(connector="cdl"),
        source_time="ms",
    ),
    "cdl-debezium-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        before=True,
        unavailable=True,
        schema=SchemaDetail.FULL,
        types=frozenset({Boolean, Date, Decimal, Float, Integer, Json, String, Timestamp}),
        key=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"postgresql"}),
        transaction=frozenset({"id"}),
        source=frozenset({"product", "server", "snapshot"}),
        products=frozenset({"postgresql", "opengauss", "drs-opengauss-json"}),
        stamp=Source(connector="cdl-debezium", version="1.4.0.Final"),
        source_time="ms",
        process_time="ms",
    ),
    "arcion-json": Carries(
        operations=frozenset(Op),
        kinds=frozenset({"tombstone"}),
        before=True,
        absent=True,
        schema=SchemaDetail.FULL,
        types=frozenset({Integer, String}),
        key=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"mysql"}),
        source=frozenset({"product", "snapshot"}),
        stamp=Source(connector="arcion"),
        source_time="ms",
        process_time="ms",
    ),
    "debezium-flat-json": Carries(
        operations=frozenset(Op),
        unavailable=True,
        schema=SchemaDetail.FULL,
        types=frozenset(SQL_TYPES | {Array, Enum, GeometryType, Json, Map, Set, Uuid, Xml, Year}),
        extremes=frozenset({Extreme.NON_FINITE}),
        key=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"mysql", "postgresql", "scn", "lsn"}),
        transaction=frozenset({"id", "order", "table_order"}),
        source=frozenset({"product", "server", "version", "snapshot"}),
        stamp=Source(connector="debezium"),
        source_time="ns",
        process_time="ns",
    ),
    "debezium-json": Carries(
        operations=frozenset(Op),
        kinds=frozenset({"schema", "truncate", "transaction", "watermark", "message", "tombstone"}),
        before=True,
        unavailable=True,
        schema=SchemaDetail.FULL,
        types=frozenset(SQL_TYPES | {Array, Enum, GeometryType, Json, Map, Set, Uuid, Xml, Year}),
        extremes=frozenset({Extreme.NON_FINITE}),
        key=True,
        key_change=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"mysql", "postgresql", "scn", "lsn"}),
        transaction=frozenset({"id", "order", "table_order"}),
        source=frozenset({"product", "server", "version", "snapshot"}),
        stamp=Source(connector="debezium"),
        source_time="ns",
        process_time="ns",
    ),
    "shareplex-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        before=True,
        partial_before=True,
        partial_after=True,
        absent=True,
        types=frozenset({String}),
        key_change=True,
        table=frozenset({"schema", "name"}),
        positions=frozenset({"scn"}),
        transaction=frozenset({"id", "order", "size", "last"}),
        stamp=Source(product="oracle", connector="shareplex"),
        source_time="s",
        process_time="s",
        text_only=True,
    ),
    "lindorm-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        before=True,
        absent_means=AbsentMeans.NULL,
        schema=SchemaDetail.FULL,
        types=frozenset({Boolean, Bytes, Float, Integer, String}),
        key=True,
        table=frozenset({"database", "schema", "name"}),
        stamp=Source(product="lindorm", connector="lindorm"),
        source_time="ms",
        process_time="ms",
    ),
    # specs A section 1, and its capability table in section 5
    "dts-avro": Carries(
        operations=frozenset(Op),
        kinds=frozenset({"schema", "truncate", "transaction", "watermark", "control"}),
        before=True,
        partial_before=True,
        absent=True,
        schema=SchemaDetail.SOURCE_TYPES,
        untyped_nulls=True,
        types=frozenset(SQL_TYPES | MYSQL_TYPES | {Interval, Text, TimeTz, Uuid, Xml}),
        extremes=frozenset({Extreme.NON_FINITE, Extreme.NON_FINITE_DECIMAL, Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"mysql"}),
        transaction=frozenset({"id"}),
        source=frozenset({"product"}),
        stamp=Source(connector="dts"),
        source_time="ms",
        process_time="ms",
        details=True,
        text_only=True,
    ),
    # Maxwell's documentation of its data format, and its class RowMap
    "maxwell-json": Carries(
        operations=frozenset(Op),
        kinds=frozenset({"schema", "control"}),
        before=True,
        absent=True,
        types=frozenset({Enum, Integer, String, Time, Year}),
        key=True,
        key_change=True,
        table=frozenset({"database", "name"}),
        positions=frozenset({"mysql"}),
        shared_positions=frozenset({"mysql"}),
        transaction=frozenset({"id", "order", "last"}),
        stamp=Source(product="mysql", connector="maxwell"),
        source_time="s",
        process_time="us",
        details=True,
    ),
    # Oracle's "Using the Pluggable Formatters", operation formatters
    "ogg-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"truncate", "control"}),
        before=True,
        partial_before=True,
        partial_after=True,
        absent=True,
        types=frozenset({Integer, String}),
        key=True,
        key_change=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"sequence"}),
        stamp=Source(connector="goldengate"),
        details=True,
    ),
    # the user guide's "Using Apache Kafka as a target for AWS DMS"
    "aws-dms-json": Carries(
        operations=frozenset(Op),
        before=True,
        partial_before=True,
        absent_means=AbsentMeans.NULL,
        types=frozenset({Boolean, Integer, String}),
        key_change=True,
        table=frozenset({"schema", "name"}),
        positions=frozenset({"sequence"}),
        transaction=frozenset({"id", "order"}),
        stamp=Source(connector="dms"),
        source_time="us",
        process_time="us",
        details=True,
    ),
    # Qlik's help: "Metadata and data messages"
    "qlik-json": Carries(
        operations=frozenset(Op),
        before=True,
        absent_means=AbsentMeans.NULL,
        types=frozenset({String}),
        key_change=True,
        table=frozenset({"schema", "name"}),
        positions=frozenset({"sequence"}),
        transaction=frozenset({"id", "order", "last"}),
        source=frozenset({"snapshot"}),
        stamp=Source(connector="qlik"),
        source_time="ms",
        details=True,
        text_only=True,
    ),
    # wal2json's README: "Parameters", and messages of 2.5 with PostgreSQL 15
    "wal2json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"truncate", "transaction", "message"}),
        before=True,
        absent=True,
        unavailable=True,
        partial_after=True,
        partial_schema=True,
        schema=SchemaDetail.SOURCE_TYPES,
        types=frozenset(SQL_TYPES | {Array, Bits, Interval, Json, Text, TimeTz, Uuid, Xml}),
        extremes=frozenset({Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"schema", "name"}),
        positions=frozenset({"sequence"}),
        shared_positions=frozenset({"sequence"}),
        transaction=frozenset({"id"}),
        stamp=Source(product="postgresql", connector="wal2json"),
        source_time="us",
        text_only=True,
    ),
    # PostgreSQL's manual: "Logical Replication Message Formats"
    "pgoutput": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"truncate", "transaction", "message"}),
        before=True,
        unavailable=True,
        schema=SchemaDetail.SOURCE_TYPES,
        types=frozenset(SQL_TYPES | {Array, Bits, Interval, Json, Text, TimeTz, Uuid, Xml}),
        extremes=frozenset({Extreme.NON_FINITE, Extreme.NON_FINITE_DECIMAL, Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"schema", "name"}),
        positions=frozenset({"sequence"}),
        transaction=frozenset({"id"}),
        stamp=Source(product="postgresql", connector="pgoutput"),
        source_time="us",
        text_only=True,
    ),
    # Canal's CanalProtocol.proto and EntryProtocol.proto
    "canal-protobuf": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"schema", "truncate", "transaction", "watermark", "control"}),
        before=True,
        partial_before=True,
        absent=True,
        schema=SchemaDetail.SOURCE_TYPES,
        types=frozenset(MYSQL_TYPES),
        extremes=frozenset({Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"database", "name"}),
        positions=frozenset({"mysql"}),
        transaction=frozenset({"id"}),
        stamp=Source(product="mysql", connector="canal"),
        source_time="ms",
        details=True,
        text_only=True,
    ),
    # Flink CDC 2.1, "Changelog JSON Format"
    "changelog-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"half"}),
        before=True,
        absent_means=AbsentMeans.NULL,
        types=frozenset({Boolean, Integer, String}),
        key_change=True,
        table=frozenset({"name"}),
        stamp=Source(connector="flink"),
    ),
    # Flink, "Upsert Kafka SQL Connector"
    "plain-json": Carries(
        operations=frozenset(Op),
        absent_means=AbsentMeans.NULL,
        types=frozenset({Boolean, Integer, String}),
        key=True,
        requires_key=True,
        table=frozenset({"name"}),
    ),
    # the API reference of DynamoDB Streams: Record, StreamRecord, AttributeValue
    "dynamodb-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        before=True,
        absent_means=AbsentMeans.NULL,
        types=frozenset({Boolean, Bytes, Integer, String}),
        key=True,
        table=frozenset({"name"}),
        positions=frozenset({"sequence"}),
        stamp=Source(product="dynamodb", connector="dynamodb-streams"),
        source_time="us",
        details=True,
    ),
    # Datastream's "Events and streams" and "Unified types"
    "datastream-json": Carries(
        operations=frozenset(Op),
        absent_means=AbsentMeans.NULL,
        types=frozenset({Boolean, Integer, String}),
        key=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"mysql", "postgresql", "scn", "lsn"}),
        shared_positions=frozenset({"mysql", "scn"}),
        transaction=frozenset({"id"}),
        source=frozenset({"product", "server"}),
        stamp=Source(connector="datastream"),
        source_time="ms",
        process_time="ms",
        details=True,
    ),
    # Spanner's "Change streams partitions, records, and queries"
    "spanner-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        before=True,
        partial_before=True,
        partial_after=True,
        absent=True,
        partial_schema=True,
        schema=SchemaDetail.SOURCE_TYPES,
        types=frozenset({Array, Boolean, Bytes, Date, Decimal, Float, InstantType, Integer, Json})
        | {String, Uuid},
        extremes=frozenset({Extreme.NON_FINITE}),
        key=True,
        table=frozenset({"schema", "name"}),
        positions=frozenset({"sequence"}),
        shared_positions=frozenset({"sequence"}),
        transaction=frozenset({"id"}),
        stamp=Source(product="spanner", connector="spanner-change-streams"),
        source_time="ns",
        details=True,
    ),
    # Debezium's documentation of the connector for MongoDB: a row is a document
    "debezium-mongodb-json": Carries(
        operations=frozenset(Op),
        before=True,
        types=frozenset({Json, String}),
        key=True,
        table=frozenset({"database", "name"}),
        positions=frozenset({"sequence"}),
        shared_positions=frozenset({"sequence"}),
        transaction=frozenset({"id", "order", "table_order"}),
        source=frozenset({"server", "version", "snapshot"}),
        stamp=Source(product="mongodb", connector="debezium"),
        source_time="ms",
        process_time="ms",
        details=True,
    ),
    # the plugin's pg_logicaldec.proto and decoderbufs.c: keys and positions are not in messages
    "decoderbufs": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"transaction"}),
        before=True,
        partial_before=True,
        unavailable=True,
        schema=SchemaDetail.SOURCE_TYPES,
        types=frozenset(SQL_TYPES | {Array, Bits, Json, Text, Uuid, Xml}),
        extremes=frozenset(Extreme),
        key_change=True,
        table=frozenset({"schema", "name"}),
        transaction=frozenset({"id"}),
        stamp=Source(product="postgresql", connector="decoderbufs"),
        source_time="us",
        text_only=True,
    ),
    # MongoDB's manual, "Change Events": a row is a document
    "mongodb-change-stream-json": Carries(
        operations=frozenset(Op),
        before=True,
        types=frozenset({Json, String}),
        key=True,
        table=frozenset({"database", "name"}),
        positions=frozenset({"sequence"}),
        shared_positions=frozenset({"sequence"}),
        transaction=frozenset({"id"}),
        source=frozenset({"snapshot"}),
        stamp=Source(product="mongodb", connector="change-streams"),
        source_time="ms",
        details=True,
    ),
    # "TiCDC Open Protocol" of TiDB's documentation
    "ticdc-open-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"schema", "truncate", "watermark"}),
        before=True,
        absent_means=AbsentMeans.ERROR,
        schema=SchemaDetail.SOURCE_TYPES,
        types=frozenset(MYSQL_TYPES - {Enum, GeometryType, Set}),
        extremes=frozenset({Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"database", "name"}),
        positions=frozenset({"sequence"}),
        shared_positions=frozenset({"sequence"}),
        stamp=Source(product="tidb", connector="ticdc"),
        source_time="ms",
        details=True,
        text_only=True,
    ),
    # "TiCDC Simple Protocol" of TiDB's documentation
    "ticdc-simple-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"schema", "truncate", "watermark"}),
        before=True,
        absent_means=AbsentMeans.ERROR,
        types=frozenset({String}),
        key_change=True,
        table=frozenset({"database", "name"}),
        positions=frozenset({"sequence"}),
        shared_positions=frozenset({"sequence"}),
        stamp=Source(product="tidb", connector="ticdc"),
        source_time="ms",
        process_time="ms",
        details=True,
        text_only=True,
    ),
    # "TiCDC Avro Protocol" of TiDB's documentation: deletes are keys without a time stamp
    "ticdc-avro": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        absent_means=AbsentMeans.ERROR,
        schema=SchemaDetail.SOURCE_TYPES,
        types=frozenset(MYSQL_TYPES - {GeometryType}),
        extremes=frozenset({Extreme.TEMPORAL_TEXT}),
        key=True,
        requires_key=True,
        table=frozenset({"database", "name"}),
        shared_positions=frozenset({"sequence"}),
        stamp=Source(product="tidb", connector="ticdc"),
        source_time="ms",
        details=True,
        text_only=True,
    ),
    # CockroachDB's documentation, "Changefeed Messages" and "Changefeed Message Envelope"
    "cockroachdb-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"watermark"}),
        before=True,
        absent_means=AbsentMeans.NULL,
        types=frozenset({Boolean, Integer, String, Uuid}),
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"sequence"}),
        shared_positions=frozenset({"sequence"}),
        stamp=Source(product="cockroachdb", connector="cockroachdb"),
        source_time="ns",
        details=True,
    ),
    "native-json": Carries(
        pair=True,
        operations=frozenset(Op),
        kinds=frozenset(
            {
                "half",
                "schema",
                "truncate",
                "transaction",
                "watermark",
                "message",
                "tombstone",
                "control",
            }
        ),
        before=True,
        partial_before=True,
        partial_after=True,
        absent=True,
        unavailable=True,
        schema=SchemaDetail.FULL,
        column_flags=True,
        unknown_nullability=True,
        types=frozenset(SQL_TYPES | MYSQL_TYPES | NATIVE_TYPES),
        extremes=frozenset({Extreme.NON_FINITE, Extreme.NON_FINITE_DECIMAL, Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"mysql", "postgresql", "scn", "lsn", "sequence", "offset", "time"}),
        transaction=frozenset({"id", "order", "table_order", "size", "last"}),
        source=frozenset({"product", "connector", "server", "version", "snapshot"}),
        source_time="ns",
        process_time="ns",
        details=True,
    ),
}

EXEMPT: dict[tuple[str, str], str] = {}
"""(format, check) -> why; at most three for each format."""


def run(check, name, *arguments):
    if (name, check.__name__) in EXEMPT:
        pytest.skip(EXEMPT[name, check.__name__])
    check(get_codec(name), *arguments)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", EVENT_CHECKS, ids=lambda check: check.__name__)
def test_format(check, name):
    run(check, name)


OPTIONS = [
    ("arcion-json", {"after_image": "updated"}),
    ("aws-dms-json", {"absent": "unchanged", "nulls": "written"}),
    ("canal-json", {"dialect": "flink"}),
    ("canal-json", {"dialect": "ticdc"}),
    ("cdl-json", {"before_image": "full"}),
    ("datahub-blob", {"missing_columns": "null"}),
    ("debezium-flat-json", {"delete_tombstone_handling_mode": "rewrite"}),
    ("debezium-json", {"before_image": "full"}),
    ("decoderbufs", {"replica_identity": "full"}),
    ("lindorm-json", {"schema": "none"}),
    ("maxwell-json", {"row_image": "full"}),
    ("ogg-json", {"row_image": "full"}),
    ("shareplex-json", {"dialect": "native"}),
    ("shareplex-json", {"key_image": "full"}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_format_with_options(name, options):
    check_honesty(get_codec(name, **options), examples=5)


@pytest.mark.parametrize("name", MINIMUM)
def test_a_declaration_names_at_least_the_minimum(name):
    check_minimum(get_codec(name).carries, MINIMUM[name])


def test_every_format_of_ours_has_a_minimum():
    assert MINIMUM.keys() == formats.FORMATS.keys()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", SUITE_CHECKS, ids=lambda check: check.__name__)
def test_format_on_the_suite(check, name):
    run(check, name, SUITE)


def _pairs() -> list[tuple[str, str]]:
    """Return each format with itself, the native one and some others; with EFFORT=10 with all.

    What is lost between two formats follows from their two declarations, so that the number of
    pairs may grow with the formats and not with their square.
    """
    distances = range(len(NAMES)) if EFFORT >= 10 else (0, 1, 3, 8)
    ring = {(a, NAMES[(i + far) % len(NAMES)]) for i, a in enumerate(NAMES) for far in distances}
    native = {pair for name in NAMES for pair in [(name, "native-json"), ("native-json", name)]}
    return sorted(ring | native)


@pytest.mark.parametrize(("name", "other"), _pairs())
def test_pair(name, other):
    check_pair(get_codec(name), get_codec(other), SUITE, examples=4)


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: "/".join(path.parts[-3:]))
def test_decode_golden(path):
    case = golden.read_case(path)
    check_decode_golden(get_codec(path.parts[-3], **case.options), case)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_encode_golden(name, case, writes_golden):
    check_encode_golden(get_codec(name), GOLDEN, case, write=writes_golden)


def test_exemptions_are_few_and_written():
    for name in NAMES:
        assert sum(exempt == name for exempt, _ in EXEMPT) <= 3
    assert all(len(reason) > 20 for reason in EXEMPT.values())
