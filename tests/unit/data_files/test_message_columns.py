# SPDX-License-Identifier: Apache-2.0
"""Messages in the columns of Parquet and Avro files, as Spark and Kafka Connect write them."""

import io
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_file_rows import messages, opened

from changelane.data_files.message_columns import has_messages
from changelane.errors import DecodeError
from changelane.message import Message
from changelane.spark.rows.builder import row_builder
from changelane.spark.sources.file_reader import record_rows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def written(**columns: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def test_messages_of_sparks_kafka_source_have_all_their_parts() -> None:
    data = written(
        key=pa.array([b"k", None]),
        value=pa.array([b"\x00\xff", None]),
        topic=["shop", "shop"],
        partition=pa.array([3, 3], pa.int32()),
        offset=pa.array([17, 2**62], pa.int64()),
        timestamp=pa.array([1_795_248_615_183_000, None], pa.timestamp("us", "UTC")),
        timestampType=pa.array([0, 0], pa.int32()),
        headers=pa.array(
            [[{"key": "h", "value": b"x"}, {"key": "h", "value": None}], None], HEADERS
        ),
    )
    assert messages(data, "x.parquet", None) == [
        Message(b"\x00\xff", b"k", (("h", b"x"), ("h", None)), "shop", 3, 17, 1_795_248_615_183),
        Message(None, None, (), "shop", 3, 2**62),
    ]


def test_spark_writes_timestamps_as_int96() -> None:
    stream = io.BytesIO()
    table = pa.table({"value": ["v"], "timestamp": pa.array([1_500], pa.timestamp("ms"))})
    pq.write_table(table, stream, use_deprecated_int96_timestamps=True)
    (message,) = messages(stream.getvalue(), "x.parquet", None)
    assert message.timestamp_ms == 1_500


def test_messages_without_an_offset_have_the_place_of_their_row() -> None:
    assert messages(written(value=["a", "b"], topic=["t", "t"]), "d/x.parquet", None) == [
        Message(b"a", None, (), "d/x.parquet", 0, 0),
        Message(b"b", None, (), "d/x.parquet", 0, 1),
    ]


def test_messages_of_avro_files_with_headers_as_a_map() -> None:
    fields = [
        {"name": "key", "type": ["null", "string"]},
        {"name": "value", "type": ["null", "bytes"]},
        {"name": "offset", "type": "long"},
        {"name": "timestamp", "type": "long"},
        {"name": "headers", "type": ["null", {"type": "map", "values": ["null", "bytes"]}]},
    ]
    record = {"key": "k", "value": b"v", "offset": 5, "timestamp": 7, "headers": {"h": b"x"}}
    stream = io.BytesIO()
    fastavro.writer(stream, {"type": "record", "name": "r", "fields": fields}, [record])
    assert messages(stream.getvalue(), "x.avro", None) == [
        Message(b"v", b"k", (("h", b"x"),), "x.avro", 0, 5, 7)
    ]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"id": [1]}, "no column `value`"),
        ({"value": pa.array([{"id": 1}])}, "column `value` has the type record"),
        ({"value": ["v"], "offset": ["1"]}, "column `offset` has the type string"),
        ({"value": ["v"], "partition": [1.5]}, "column `partition` has the type float64"),
    ],
)
def test_a_file_without_messages_names_the_option_for_rows(columns: Any, reason: str) -> None:
    with pytest.raises(DecodeError, match=rf"{reason}.*set source\.rows"):
        list(opened(written(**columns), "x.parquet", None).messages())


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"value": ["a"], "offset": [-1], "topic": ["t"]}, "value_out_of_range"),
        ({"value": ["a"], "offset": [1], "partition": [2**40]}, "value_out_of_range"),
        (
            {"value": ["a"], "headers": pa.array([[{"value": b""}]], HEADERS)},
            "not_a_record",
        ),
        ({"value": ["a"], "headers": pa.array([[7]])}, "not_a_record"),
    ],
)
def test_a_row_that_is_no_valid_message_is_rejected_again_and_again(
    columns: Any, code: str
) -> None:
    (read,) = opened(written(**columns), "x.parquet", None).messages()
    assert read.error is not None
    assert (read.error.code, read.is_line) == (code, True)
    line = read.message.value or b""
    assert b'"value":"a"' in line
    builder = row_builder("native-json", {})
    ((kind, *_),) = record_rows(builder, line, ("x.parquet", 0, 0))
    assert kind == "error"


@pytest.mark.parametrize(
    ("name", "value"),
    [("value", 5), ("key", 5), ("key", True), ("topic", 5), ("offset", "x"), ("headers", 5)],
)
def test_a_value_of_a_union_that_is_none_of_messages_is_rejected(name: str, value: Any) -> None:
    kinds = {"value": "bytes", name: ["null", "string", "long", "boolean"]}
    fields = [{"name": field, "type": kind} for field, kind in kinds.items()]
    schema = {"type": "record", "name": "r", "fields": fields}
    stream = io.BytesIO()
    fastavro.writer(
        stream, schema, [{"value": b"v"} | {name: value}, {"value": b"v"} | {name: None}]
    )
    wrong, right = opened(stream.getvalue(), "x.avro", None).messages()
    assert wrong.error is not None
    assert (wrong.error.code, wrong.error.path) == ("wrong_type", f"$.{name}")
    builder = row_builder("native-json", {})
    ((kind, *_),) = record_rows(builder, wrong.message.value or b"", ("x.avro", 0, 0))
    assert kind == "error"
    assert right.error is None


def test_a_csv_file_has_no_messages() -> None:
    with pytest.raises(DecodeError, match=r"set source\.rows"):
        opened(b"value\nx\n", "x.csv", None)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"value": ["v"]}, True),
        ({"key": ["k"], "value": [b"v"], "offset": [1]}, True),
        ({"key": ["k"], "value": ["v"], "price": [1]}, False),
        ({"value": [1]}, False),
        ({"id": [1]}, False),
    ],
)
def test_columns_tell_messages_from_rows(columns: Any, *, expected: bool) -> None:
    assert has_messages(opened(written(**columns), "x.parquet", None).rows.columns) is expected
