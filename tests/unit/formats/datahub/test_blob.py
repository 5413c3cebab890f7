# SPDX-License-Identifier: Apache-2.0
"""StreamX JSON to events and back: every operation, image, type and time of the document."""

import base64
import copy
import datetime as dt
import json
import pickle
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane import DecodeError, EncodeError, Message, UnsupportedError, get_codec
from changelane.conversion.join_update_halves import JoinHalves
from changelane.conversion.stateful import run
from changelane.errors import ConfigError
from changelane.event import (
    Completeness,
    Control,
    DataChange,
    HalfUpdate,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.formats.datahub import streamx_wire
from changelane.position import PostgresPosition, SequencePosition, encode_order
from changelane.schema import Column, TableId, TableSchema
from changelane.testing import compare
from changelane.testing.event_strategies import data_changes
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import (
    UNAVAILABLE,
    Boolean,
    Bytes,
    Date,
    Float,
    InstantType,
    Integer,
    Json,
    String,
    Timestamp,
)
from changelane.types import Decimal as DecimalType

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "datahub-blob" / "dataworks-0.0.1"
BLOB = get_codec("datahub-blob")
TABLE = TableId("shop", None, "orders")


def message(op="INSERT", sequence="1605339516000000004", *, columns=None, **payload):
    """Return a message as the document describes it."""
    columns = {"id": "LONG", "name": "STRING"} if columns is None else columns
    told = {
        "schema": {
            "dataColumn": [{"name": name, "type": kind} for name, kind in columns.items()],
            "primaryKey": ["id"],
            "source": {"dbType": "mysql", "dbName": "shop", "tableName": "orders"},
        },
        "payload": {
            "op": op,
            "timestamp": {"eventTime": 1605339932000, "checkpointTime": 1605339932000},
        },
        "version": "0.0.1",
    }
    if sequence is not None:
        told["payload"]["sequenceId"] = sequence
    for name, value in payload.items():
        is_image = name in {"before", "after"} and value is not None
        told["payload"][name] = {"dataColumn": value} if is_image else value
    return told


def decode(told, **options):
    codec = get_codec("datahub-blob", **options) if options else BLOB
    return codec.decode(Message(json.dumps(told).encode()))


def one(told, **options):
    (event,) = decode(told, **options)
    return event


def refused(told, **options):
    with pytest.raises(DecodeError) as raised:
        decode(told, **options)
    return raised.value.code, raised.value.path


def written(event, *, on_loss="raise", **options):
    codec = get_codec("datahub-blob", **options)
    encoded = codec.encode(event, on_loss=on_loss)
    return [json.loads(m.value, parse_float=Decimal) for m in encoded.messages]


def losses(event, **options):
    return dict(get_codec("datahub-blob", **options).encode(event, on_loss="warn").losses)


ROW = {"id": 1, "name": "a"}
SCHEMA = TableSchema((Column("id", Integer(64)), Column("name", String())))


def change(op="c", sequence=5, **more):
    return DataChange(
        Op(op),
        TABLE,
        Key(("id",)),
        **{
            "before": ROW if op in "ud" else None,
            "after": None if op == "d" else ROW | {"name": "b"},
            "schema": SCHEMA,
            "position": None if sequence is None else SequencePosition(sequence),
            "source": Source("mysql", "streamx"),
            "source_time_ns": 1_605_339_932_000 * 10**6,
            **more,
        },
    )


# -- the samples of the document ---------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/value")), ids=lambda path: path.parent.name)
def test_every_sample_comes_back_as_it_was_but_for_blanks(path):
    told = path.read_bytes()
    (event,) = BLOB.decode(Message(told))
    (back,) = BLOB.encode(event).messages
    assert back.value == json.dumps(json.loads(told), separators=(",", ":")).encode()


def test_the_two_samples_of_an_update_are_one_update():
    halves = [
        event
        for name in ("update_before", "update_after")
        for event in BLOB.decode(Message((GOLDEN / name / "value").read_bytes()))
    ]
    (update,) = run(JoinHalves(), halves)
    assert update.op is Op.UPDATE
    assert update.before == {"name": "joe", "comment": "comment", "id": 1}
    assert update.after == {"name": "joe", "comment": "com1", "id": 1}
    assert update.position == SequencePosition(1605339516000000005)
    assert [m.value for m in BLOB.encode(update).messages] == [
        BLOB.encode(half).messages[0].value for half in halves
    ]


# -- operations and images ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "images", "expected"),
    [
        ("INSERT", {"after": ROW}, ("c", None, ROW)),
        ("UPDATE", {"after": ROW}, ("u", None, ROW)),
        ("UPDATE", {"before": {"id": 2}, "after": ROW}, ("u", {"id": 2}, ROW)),
        ("UPDATE_AFTER", {"before": {"id": 2}, "after": ROW}, ("u", {"id": 2}, ROW)),
        ("DELETE", {"before": ROW}, ("d", ROW, None)),
        ("DELETE", {"before": ROW, "after": None, "ddl": None}, ("d", ROW, None)),
        ("INSERT", {"after": ROW, "before": {}}, ("c", None, ROW)),
    ],
)
def test_operations_on_rows(op, images, expected):
    event = one(message(op, **images))
    assert (event.op.value, event.before, event.after) == expected
    assert event.table == TABLE
    assert event.key == Key(("id",), KeyOrigin.PAYLOAD)
    assert event.position == SequencePosition(1605339516000000004)
    assert event.source == Source("mysql", "streamx")
    assert event.details == {}


@pytest.mark.parametrize("op", ["UPDATE_BEFOR", "UPDATE_BEFORE"])
def test_the_row_before_an_update_is_half_of_it_in_both_spellings(op):
    half = one(message(op, before=ROW))
    assert isinstance(half, HalfUpdate)
    assert (half.change.op, half.change.before) == (Op.DELETE, ROW)
    assert half.pair == "1605339516000000004"


def test_the_row_after_an_update_is_half_of_it():
    half = one(message("UPDATE_AFTER", after=ROW))
    assert isinstance(half, HalfUpdate)
    assert (half.change.op, half.change.after) == (Op.CREATE, ROW)
    assert half.pair == "1605339516000000004"


@pytest.mark.parametrize("sequence", [None, "-1", ""])
def test_halves_without_a_sequence_are_not_joined_with_anything(sequence):
    told = message("UPDATE_BEFOR", sequence, before=ROW)
    assert refused(told) == ("missing_field", "$.payload.sequenceId")
    event = one(message("UPDATE_AFTER", sequence, after=ROW))
    assert (event.op, event.before, event.position) == (Op.UPDATE, None, None)


@pytest.mark.parametrize(
    ("op", "field"),
    [
        ("INSERT", "after"),
        ("UPDATE", "after"),
        ("UPDATE_AFTER", "after"),
        ("UPDATE_BEFOR", "before"),
        ("UPDATE_BEFORE", "before"),
        ("DELETE", "before"),
    ],
)
def test_an_operation_without_the_image_it_needs_is_refused(op, field):
    assert refused(message(op)) == ("missing_image", f"$.payload.{field}")
    assert refused(message(op, **{field: None})) == ("missing_image", f"$.payload.{field}")
    assert decode(message(op, **{field: ROW}))


@pytest.mark.parametrize(
    ("op", "field"),
    [
        ("INSERT", "before"),
        ("DELETE", "after"),
        ("UPDATE_BEFOR", "after"),
        ("ALTER", "after"),
        ("MHEARTBEAT", "before"),
    ],
)
def test_an_image_that_the_operation_does_not_have_is_refused(op, field):
    images = {"before": ROW, "after": ROW} if op in streamx_wire.ROWS else {field: ROW}
    assert refused(message(op, **images)) == ("unexpected_image", f"$.payload.{field}")


@pytest.mark.parametrize("op", ["insert", "Insert", "UPSERT", "", "mheartbeat", "REPLACE"])
def test_operations_are_case_sensitive_and_unknown_ones_are_refused(op):
    assert refused(message(op, after=ROW)) == ("unknown_operation", "$.payload.op")


@pytest.mark.parametrize(
    ("op", "action"),
    [
        ("CREATE", "create"),
        ("ALTER", "alter"),
        ("ERASE", "drop"),
        ("RENAME", "rename"),
        ("CINDEX", "create_index"),
        ("DINDEX", "drop_index"),
        ("QUERY", "other"),
    ],
)
def test_ddl_is_a_schema_change_with_its_statement(op, action):
    told = message(op, ddl={"text": "ALTER TABLE orders ADD c INT"})
    event = one(told)
    assert isinstance(event, SchemaChange)
    assert (event.action, event.ddl) == (action, "ALTER TABLE orders ADD c INT")
    assert (event.table, event.key.columns) == (TABLE, ("id",))
    assert [column.name for column in event.schema.columns] == ["id", "name"]
    assert written(event)[0]["payload"]["op"] == op


def test_a_truncate_is_a_truncate():
    event = one(message("TRUNCATE", ddl={"text": "TRUNCATE TABLE orders"}))
    assert isinstance(event, Truncate)
    assert (event.table, event.ddl) == (TABLE, "TRUNCATE TABLE orders")
    assert event.position == SequencePosition(1605339516000000004)
    (back,) = written(event)
    assert (back["payload"]["op"], back["payload"]["ddl"]) == (
        "TRUNCATE",
        {"text": "TRUNCATE TABLE orders"},
    )


@pytest.mark.parametrize(
    ("op", "status"), [("TRANSACTION_BEGIN", "begin"), ("TRANSACTION_END", "commit")]
)
def test_transactions_begin_and_end_without_a_name(op, status):
    event = one(message(op))
    assert isinstance(event, TransactionMarker)
    assert (event.status, event.transaction) == (status, Transaction(""))
    assert written(event)[0]["payload"]["op"] == op


def test_the_name_of_a_transaction_is_a_loss_and_a_rollback_has_no_message():
    marker = TransactionMarker("begin", Transaction("7", size=2))
    assert losses(marker).keys() == {"transaction.id", "transaction.size"}
    rollback = TransactionMarker("rollback", Transaction(""))
    assert written(rollback, on_loss="warn") == []
    assert losses(rollback).keys() == {"event:transaction"}


@pytest.mark.parametrize("op", ["GTID", "XACOMMIT", "XAROLLBACK"])
def test_what_is_none_of_these_is_kept_as_a_control_event(op):
    event = one(message(op, ddl={"text": "x"}))
    assert isinstance(event, Control)
    assert (event.type, event.text, event.table) == (op, "x", TABLE)
    assert written(event)[0]["payload"]["op"] == op
    assert losses(Control("OTHER")).keys() == {"event:control"}


def test_a_heartbeat_needs_neither_table_nor_sequence():
    told = {
        "schema": {},
        "payload": {
            "op": "MHEARTBEAT",
            "timestamp": {"eventTime": 1605339953629, "checkpointTime": 1605339953629},
        },
        "version": "0.0.1",
    }
    event = one(told)
    assert event == Watermark(
        "heartbeat", source=Source(connector="streamx"), source_time_ns=1605339953629 * 10**6
    )
    assert written(event) == [told]


def test_every_operation_of_the_document_is_known():
    document = """INSERT UPDATE DELETE TRANSACTION_BEGIN TRANSACTION_END CREATE ALTER ERASE QUERY
        TRUNCATE RENAME CINDEX DINDEX GTID XACOMMIT XAROLLBACK MHEARTBEAT UPDATE_BEFOR UPDATE_AFTER
        """
    assert set(document.split()) | {"UPDATE_BEFORE"} == streamx_wire.OPERATIONS
    for op in streamx_wire.OPERATIONS:
        _, needed, _ = streamx_wire.ROWS.get(op, (None, (), ()))
        assert decode(message(op, **dict.fromkeys(needed, ROW)))


# -- ddl ---------------------------------------------------------------------------------------


def test_the_serialised_statement_is_handed_on_and_never_read():
    class Gadget:
        def __reduce__(self):
            return (pytest.fail, ("the serialised object was loaded",))

    java = base64.b64encode(b"\xac\xed\x00\x05" + pickle.dumps(Gadget())).decode()
    for text in (java, "rO0ABX", "not Base64 at all \u8868", ""):
        event = one(message("ALTER", ddl={"text": "alter", "ddlMeta": text}))
        assert event.details == {"ddlMeta": text}
        assert written(event)[0]["payload"]["ddl"] == {"text": "alter", "ddlMeta": text}


def test_nothing_is_made_up_for_a_serialised_statement():
    event = SchemaChange(TABLE, "alter", "ALTER TABLE orders ADD c INT")
    assert written(event)[0]["payload"]["ddl"] == {"text": "ALTER TABLE orders ADD c INT"}


def test_a_statement_beside_a_row_is_kept():
    event = one(message(after=ROW, ddl={"text": "x", "ddlMeta": "y"}))
    assert event.details == {"ddl": "x", "ddlMeta": "y"}
    assert written(event)[0]["payload"]["ddl"] == {"text": "x", "ddlMeta": "y"}


def test_an_action_that_streamx_does_not_have_is_written_as_a_query():
    assert losses(SchemaChange(TABLE, "comment", "COMMENT ON t")).keys() == {"action"}


# -- types -------------------------------------------------------------------------------------

VALUES = [
    ("BOOLEAN", True, True),
    ("BOOLEAN", "false", False),
    ("LONG", 2**63 - 1, 2**63 - 1),
    ("LONG", "-9223372036854775808", -(2**63)),
    ("DOUBLE", 1.5, Decimal("1.5")),
    ("DOUBLE", 7, Decimal(7)),
    ("DOUBLE", "1.100000", Decimal("1.100000")),
    (
        "DOUBLE",
        "123456789012345678901234.00000000001",
        Decimal("123456789012345678901234.00000000001"),
    ),
    ("DATE", 1590315269000, dt.datetime(2020, 5, 24, 10, 14, 29, tzinfo=dt.UTC)),
    ("DATE", -1, dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC)),
    ("DATE", "1590315269001", dt.datetime(2020, 5, 24, 10, 14, 29, 1000, tzinfo=dt.UTC)),
    ("DATE", -62135625943000, "0000-12-31T15:54:17.000Z"),  # 0001-01-01 in Shanghai
    ("DATE", 253402300800001, "+10000-01-01T00:00:00.001Z"),
    ("BYTES", "dGV4dDEyMw==", b"text123"),
    ("BYTES", "dGV4dDEyMw", b"text123"),
    ("BYTES", "", b""),
    ("STRING", "", ""),
    ("STRING", "表", "表"),
]


@pytest.mark.parametrize(("kind", "told", "value"), VALUES)
def test_values_of_the_six_types(kind, told, value):
    event = one(message(after={"id": 1, "v": told}, columns={"id": "LONG", "v": kind}))
    assert event.after["v"] == value
    assert isinstance(event.after["v"], type(value))
    assert event.schema.by_name["v"].source_type == kind
    assert str(event.after["v"]) == str(value) or kind == "DATE"


def test_there_are_six_types_and_others_are_refused():
    columns = dict.fromkeys("abcdef")
    kinds = ["BOOLEAN", "DOUBLE", "DATE", "BYTES", "LONG", "STRING"]
    row = dict.fromkeys(columns)
    event = one(message(after=row, columns=dict(zip(columns, kinds, strict=True))))
    assert event.after == row
    for kind in ("INT", "long", "DECIMAL", ""):
        told = message(after=row, columns={"a": kind})
        assert refused(told) == ("unknown_type", "$.schema.dataColumn[0].type")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("BOOLEAN", 1),
        ("BOOLEAN", "yes"),
        ("LONG", 2**63),
        ("LONG", 1.5),
        ("LONG", True),
        ("LONG", "1 "),
        ("DOUBLE", "NaN"),
        ("DOUBLE", "1,5"),
        ("DOUBLE", True),
        ("DATE", "2020-05-24"),
        ("DATE", 10**15),  # microseconds
        ("BYTES", "dGV4dDEyMw=x"),
        ("BYTES", "_-"),
        ("BYTES", 1),
        ("STRING", 1),
        ("STRING", {"a": 1}),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused_with_its_place(kind, told):
    told = message(after={"id": 1, "v": told}, columns={"id": "LONG", "v": kind})
    assert refused(told) == ("wrong_type", "$.payload.after.dataColumn.v")


def test_a_double_is_a_binary_float_by_choice_and_more_digits_are_refused():
    def read(value):
        told = message(after={"v": value}, columns={"v": "DOUBLE"})
        return one(told, double="float").after["v"]

    assert [read(0.1), read("1.100000"), read(3)] == [0.1, 1.1, 3.0]
    assert {type(read(3)), type(read("2"))} == {float}
    for value in ("0.1234567890123456789", "1e400"):
        with pytest.raises(DecodeError):
            read(value)
    assert losses(
        change(schema=TableSchema((Column("id", DecimalType()),)), after={"id": Decimal("1.1")}),
        double="float",
    ) == {"type:decimal": "no such type; the value is written as text"}


def test_columns_that_the_schema_does_not_list_are_refused():
    told = message(after=ROW | {"more": 1})
    assert refused(told) == ("malformed", "$.payload.after.dataColumn")
    told = message(after=ROW)
    told["schema"]["dataColumn"].append({"name": "id", "type": "LONG"})
    assert refused(told) == ("malformed", "$.schema.dataColumn[2].name")


def test_without_columns_values_are_what_json_says():
    told = message(after={"id": 1, "n": 1.50, "t": ["x"]})
    del told["schema"]["dataColumn"]
    event = one(told)
    assert event.schema is None
    assert event.after_holds is Completeness.FULL
    assert event.after == {"id": 1, "n": Decimal("1.5"), "t": ["x"]}


def test_a_missing_column_is_absent_or_null_as_told():
    told = message(after={"id": 1})
    assert one(told, missing_columns="absent").after == {"id": 1}
    assert one(told, missing_columns="null").after == {"id": 1, "name": None}
    assert one(message(after={"id": 1, "name": None})).after == {"id": 1, "name": None}


@pytest.mark.parametrize("op", ["UPDATE", "UPDATE_AFTER"])
def test_a_column_that_is_missing_in_a_message_without_null_became_null(op):
    # the samples omit `ddl`, which "is null", as fastjson does by default
    told = message(op, before={"id": 1, "name": "ann"}, after={"id": 1})
    event = one(told)
    assert (event.before, event.after) == ({"id": 1, "name": "ann"}, {"id": 1, "name": None})
    told["payload"]["ddl"] = None
    assert one(told).after == {"id": 1}
    half = message("UPDATE_AFTER", after={"id": 1})
    assert one(half).change.after == {"id": 1, "name": None}


def test_a_message_with_a_null_column_has_no_omitted_null():
    columns = {"id": "LONG", "name": "STRING", "note": "STRING"}
    event = one(message("UPDATE", after={"id": 1, "name": None}, columns=columns))
    assert event.after == {"id": 1, "name": None}


def test_a_missing_column_of_a_before_image_stays_missing():
    event = one(message("DELETE", before={"id": 1}))
    assert event.before == {"id": 1}


def test_an_unchanged_column_is_written_beside_a_null_part():
    schema = TableSchema((Column("id", Integer(64)), Column("note", String())))
    event = DataChange(Op.UPDATE, TABLE, after={"id": 1}, schema=schema)
    (written,) = BLOB.encode(event).messages
    assert json.loads(written.value)["payload"]["ddl"] is None
    assert BLOB.decode(written)[0].after == {"id": 1}
    full = msgspec.structs.replace(event, after={"id": 1, "note": "x"})
    (written,) = BLOB.encode(full).messages
    assert b"null" not in written.value


def test_the_row_id_of_oracle_is_no_column_of_the_table():
    columns = {"id": "LONG", "rowid": "STRING"}
    told = message("DELETE", before={"id": 1, "rowid": "AAAR3sAAEAAAACXAAA"}, columns=columns)
    assert one(told).before["rowid"] == "AAAR3sAAEAAAACXAAA"  # MySQL may have such a column
    told["schema"]["source"]["dbType"] = "Oracle"
    event = one(told)
    assert event.before == {"id": 1}
    assert event.schema.names == {"id"}
    assert event.details == {"rowid": "AAAR3sAAEAAAACXAAA"}
    assert one(told, keep_rowid=True).before == {"id": 1, "rowid": "AAAR3sAAEAAAACXAAA"}
    told["schema"]["primaryKey"] = ["rowid"]
    assert one(told).before == {"id": 1, "rowid": "AAAR3sAAEAAAACXAAA"}


def test_a_row_of_oracle_that_moved_keeps_both_row_ids():
    columns = {"id": "LONG", "rowid": "STRING"}
    before, after = {"id": 1, "rowid": "AAA"}, {"id": 2, "rowid": "BBB"}
    told = message("UPDATE_AFTER", before=before, after=after, columns=columns)
    told["schema"]["source"]["dbType"] = "Oracle"
    assert one(told).details == {"rowid": "BBB", "rowidBefore": "AAA"}
    told["payload"]["before"]["dataColumn"]["rowid"] = "BBB"
    assert one(told).details == {"rowid": "BBB"}


# -- sequence and times ------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", ["-5", -2, "-01", "1 ", "\u0661", "9" * 37])
def test_a_sequence_is_made_of_digits(sequence):
    assert refused(message("INSERT", sequence, after=ROW)) == (
        "wrong_type",
        "$.payload.sequenceId",
    )


def test_a_position_that_is_no_sequence_is_a_loss():
    for op in ("c", "u"):
        encoded = BLOB.encode(change(op, -5), on_loss="ignore")
        assert ("position", "a sequence consists of at most 36 digits") in encoded.losses
        assert all("sequenceId" not in json.loads(m.value)["payload"] for m in encoded.messages)


def test_a_full_load_has_the_sequence_minus_one_and_merges_with_increments_by_it():
    times = {"eventTime": -1, "checkpointTime": -1, "systemTime": 1731661820245}
    loaded = [
        message(sequence="-1", after={"id": 1, "name": "loaded"}, timestamp=times, ddl=None),
        message(sequence="-1", after={"id": 2, "name": "loaded"}, timestamp=times, ddl=None),
    ]
    row = one(loaded[0])
    assert (row.op, row.position) == (Op.READ, SequencePosition(-1))
    assert row.source.snapshot == "true"
    assert row.source_time_ns is None
    assert row.process_time_ns == 1731661820245 * 10**6
    late = message("DELETE", "7", before={"id": 1, "name": "x"})
    newer = message("UPDATE", "9", after={"id": 2, "name": "newer"})
    for order in ([*loaded, late, newer], [newer, late, *loaded]):
        tables = MemoryTables()
        for told in order:
            tables.apply(decode(told))
        assert tables.rows(TABLE) == [{"id": 2, "name": "newer"}]
    assert written(row)[0]["payload"]["sequenceId"] == "-1"
    assert written(row)[0]["payload"]["timestamp"] == times


def test_sequences_compare_as_numbers():
    positions = [
        one(message(sequence=sequence, after=ROW)).position
        for sequence in ("999", "1000", 1001, "1605339516000000004", "00000000000000000000002")
    ]
    assert [position.value for position in positions] == [999, 1000, 1001, 1605339516000000004, 2]
    assert encode_order(positions[0]) < encode_order(positions[1]) < encode_order(positions[3])


@pytest.mark.parametrize("sequence", ["abc", "1.5", " 1", "\u0661", "9" * 40, "1-2"])
def test_a_sequence_that_is_not_made_of_digits_is_refused(sequence):
    assert refused(message(sequence=sequence, after=ROW)) == ("wrong_type", "$.payload.sequenceId")


def test_a_row_without_a_sequence_has_no_position():
    assert one(message(sequence=None, after=ROW)).position is None


def test_the_three_times_are_kept_apart():
    times = {"eventTime": 1, "systemTime": 2, "checkpointTime": 3}
    event = one(message(after=ROW, timestamp=times))
    assert (event.source_time_ns, event.process_time_ns) == (1_000_000, 2_000_000)
    assert event.details == {"checkpointTime": 3}
    assert written(event)[0]["payload"]["timestamp"] == times
    event = one(message(after=ROW, timestamp={"eventTime": 1}))
    assert (event.process_time_ns, event.details) == (None, {})
    told = message(after=ROW, timestamp={"systemTime": 2})
    assert refused(told) == ("wrong_type", "$.payload.timestamp")
    told = message(after=ROW, timestamp={"eventTime": 10**15})
    assert refused(told) == ("value_out_of_range", "$.payload.timestamp.eventTime")


def test_a_start_skips_what_lies_before_its_checkpoint():
    def kept(start, times):
        return len(decode(message(after=ROW, timestamp=times), start_checkpoint_ms=start))

    assert kept(10, {"eventTime": 20, "checkpointTime": 9}) == 0
    assert kept(10, {"eventTime": 9, "checkpointTime": 10}) == 1
    assert kept(10, {"eventTime": 9}) == 0
    assert kept(10, {"eventTime": 10}) == 1
    assert kept(10, {"eventTime": -1, "checkpointTime": -1}) == 1


def test_what_the_document_has_beyond_the_model_is_kept():
    told = message(after=ROW)
    told["version"] = "1.0.0"
    told["schema"]["source"] |= {"dbVersion": "8.0.36", "schemaName": "public"}
    event = one(told)
    assert event.details == {"dbVersion": "8.0.36", "version": "1.0.0"}
    assert event.table == TableId("shop", "public", "orders")
    (back,) = written(event)
    assert back["version"] == "1.0.0"
    assert back["schema"]["source"] == told["schema"]["source"] | {"dbType": "MySQL"}


# -- writing -----------------------------------------------------------------------------------


def test_an_update_is_written_as_two_messages_or_as_one():
    event = change("u")
    before, after = written(event)
    assert [m["payload"]["op"] for m in (before, after)] == ["UPDATE_BEFOR", "UPDATE_AFTER"]
    assert before["payload"]["sequenceId"] == after["payload"]["sequenceId"] == "5"
    assert before["payload"]["before"] == {"dataColumn": ROW}
    assert "after" not in before["payload"]
    assert after["payload"]["after"] == {"dataColumn": {"id": 1, "name": "b"}}
    (single,) = written(event, updates="one")
    assert single["payload"]["op"] == "UPDATE_AFTER"
    assert single["payload"].keys() >= {"before", "after"}


def test_an_update_that_nothing_would_join_is_written_as_one_message():
    (single,) = written(change("u", None))
    assert (single["payload"]["op"], "sequenceId" in single["payload"]) == ("UPDATE_AFTER", False)
    (single,) = written(change("u", before=None))
    assert (single["payload"]["op"], single["payload"]["sequenceId"]) == ("UPDATE", "5")


def test_half_an_update_is_written_as_it_came_and_another_producer_s_is_a_loss():
    half = HalfUpdate(change("d"), pair="5")
    assert written(half)[0]["payload"]["op"] == "UPDATE_BEFOR"
    assert written(HalfUpdate(change("c"), pair="5"))[0]["payload"]["op"] == "UPDATE_AFTER"
    moved = HalfUpdate(change("d"), {"id": 2})
    assert losses(moved).keys() == {"half"}
    assert written(moved, on_loss="warn")[0]["payload"]["op"] == "DELETE"
    assert losses(HalfUpdate(change("d"), pair="x")).keys() == {"pair"}
    assert losses(HalfUpdate(change("d"), {"id": 2}, pair="5")).keys() == {"other_key"}


def test_the_position_of_a_snapshot_row_is_the_full_load():
    event = change("r", 7, before=None, source=Source("mysql", "streamx", snapshot="true"))
    assert losses(event).keys() == {"position"}
    assert losses(msgspec.structs.replace(event, position=SequencePosition(-1))) == {}
    assert losses(change(sequence=-1)).keys() == {"position"}
    assert losses(change(position=SequencePosition(7, row=1))).keys() == {"position.row"}
    assert losses(change(position=PostgresPosition(7))).keys() == {"position"}


def test_a_number_that_long_does_not_hold_makes_its_column_text():
    schema = TableSchema((Column("id", Integer(64, unsigned=True)),))
    event = change("u", schema=schema, before={"id": 1}, after={"id": 2**64 - 1})
    told = written(event, on_loss="warn")
    assert losses(event).keys() == {"value:uint64"}
    for message_, field, value in zip(
        told, ("before", "after"), ("1", str(2**64 - 1)), strict=True
    ):
        assert message_["schema"]["dataColumn"] == [{"name": "id", "type": "STRING"}]
        assert message_["payload"][field] == {"dataColumn": {"id": value}}
    event = change(schema=schema, after={"id": 2**63 - 1})
    assert written(event)[0]["schema"]["dataColumn"] == [{"name": "id", "type": "LONG"}]


def test_decimals_are_numbers_where_a_binary_float_is_the_same_and_else_text():
    def value(text):
        schema = TableSchema((Column("n", DecimalType()),))
        event = change(schema=schema, after={"n": Decimal(text)})
        (told,) = BLOB.encode(event).messages
        return told.value.partition(b'"n":')[2].partition(b"}")[0].decode()

    assert [value(text) for text in ("1.10", "-0.5", "0.1234567890123456789", "1E+400")] == [
        "1.10",
        "-0.5",
        '"0.1234567890123456789"',
        '"1E+400"',
    ]


NAIVE = dt.datetime(2020, 5, 24, 10, 14, 29, 123456)


@pytest.mark.parametrize(
    ("kind", "value", "zone", "told", "lost"),
    [
        (InstantType(6), NAIVE.replace(tzinfo=dt.UTC), "UTC", 1590315269123, "value:instant"),
        (Timestamp(0), NAIVE.replace(microsecond=0), "+08:00", 1590286469000, "type:timestamp"),
        (Date(), dt.date(2020, 5, 24), "Asia/Shanghai", 1590249600000, "type:date"),
        (Float(64), 1.5, "UTC", Decimal("1.5"), "type:float"),
        (Json(), '{"a":1}', "UTC", '{"a":1}', "type:json"),
    ],
)
def test_what_a_type_narrows_is_written_and_told(kind, value, zone, told, lost):
    event = change(schema=TableSchema((Column("v", kind),)), after={"v": value})
    assert losses(event, time_zone=zone).keys() == {lost}
    (got,) = written(event, on_loss="warn", time_zone=zone)
    assert got["payload"]["after"]["dataColumn"] == {"v": told}
    with pytest.raises(UnsupportedError):
        written(event, time_zone=zone)


@pytest.mark.parametrize(
    ("hour", "zone", "is_told"),
    [(2, "America/New_York", True), (3, "America/New_York", False), (2, "UTC", False)],
)
def test_a_local_time_that_the_zone_skips_is_told(hour, zone, is_told):
    value = dt.datetime(2024, 3, 10, hour, 30)
    event = change(schema=TableSchema((Column("v", Timestamp(0)),)), after={"v": value})
    assert ("value:timestamp" in losses(event, time_zone=zone)) is is_told


def test_what_cannot_be_written_is_told():
    assert losses(change(source_time_ns=-1)).keys() == {"source_time"}
    assert losses(change(after={"id": 1, "name": UNAVAILABLE})).keys() == {"unavailable"}
    assert losses(change(after=ROW | {"more": 1})).keys() == {"column"}
    assert losses(change(details={"rowid": "x", "version": 1})).keys() == {
        "details.rowid",
        "details.version",
    }
    assert losses(change(details={"checkpointTime": "x"})).keys() == {"details.checkpointTime"}
    with pytest.raises(EncodeError, match="'id' has a value that is not of its type"):
        written(change(after={"id": "secret", "name": "a"}))
    with pytest.raises(ConfigError, match="Nowhere"):
        get_codec("datahub-blob", time_zone="Nowhere/Else")
    assert written(change(), time_zone="GMT")


EXACT = msgspec.structs.replace(
    BLOB.carries, types=frozenset({Boolean, Bytes, DecimalType, InstantType, Integer, String})
)


@given(data_changes(EXACT))
def test_what_the_six_types_hold_comes_back_whole(event):
    found = BLOB.encode(event, on_loss="warn")
    allowed = {"position", "value:uint64", "value:instant", "source.snapshot"}
    assert {field for field, _ in found.losses} <= allowed
    got = compare.decode_all(BLOB, found.messages)
    assert len(got) == 1
    if not found.losses:
        assert compare.differences(got[0], event, EXACT) == ()


@given(st.permutations(range(6)))
def test_updates_that_come_mixed_are_joined_by_their_sequence(order):
    told = []
    for number in range(3):
        before = {"id": number, "name": "old"}
        told.append(message("UPDATE_BEFOR", str(number + 1), before=before))
        told.append(message("UPDATE_AFTER", str(number + 1), after=before | {"name": "new"}))
    events = run(JoinHalves(), (one(copy.deepcopy(told[index])) for index in order))
    assert sorted((e.op, e.before["id"], e.after["id"]) for e in events) == [
        (Op.UPDATE, number, number) for number in range(3)
    ]


def test_a_tombstone_is_no_message_of_streamx():
    (event,) = BLOB.decode(Message(None))
    assert event.table == TableId()


def test_the_tables_of_a_database_share_a_topic():
    told = {}
    for table, columns in [("orders", {"id": "LONG"}), ("notes", {"id": "STRING", "at": "DATE"})]:
        part = message(after=dict.fromkeys(columns), columns=columns)
        part["schema"]["source"]["tableName"] = table
        told[table] = part
    for _ in range(2):
        for table, part in told.items():
            event = one(copy.deepcopy(part))
            assert event.table == TableId("shop", None, table)
            assert (
                event.schema.names
                == event.after.keys()
                == set(part["payload"]["after"]["dataColumn"])
            )


def test_readers_that_take_a_missing_column_for_null_get_null():
    codec = get_codec("datahub-blob", missing_columns="null")
    schema = TableSchema((Column("id", Integer(64)), Column("note", String())))
    event = DataChange(Op.UPDATE, TableId(name="t"), after={"id": 1}, schema=schema)
    assert "absent" in dict(codec.encode(event, on_loss="ignore").losses)
