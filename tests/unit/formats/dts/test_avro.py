# SPDX-License-Identifier: Apache-2.0
"""The binary form of DTS records: the schema, fastavro as the other reader, and hostile bytes."""

import io
import time
import tracemalloc

import fastavro
import pytest
from dts_records import (
    V1,
    V2,
    character,
    date_time,
    decode,
    integer,
    read_by_fastavro,
    record,
)
from fastavro.schema import to_parsing_canonical_form
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane import DecodeError, Message, get_codec
from changelane.formats.contract import avro_binary
from changelane.formats.dts import avro
from changelane.formats.dts.record import read_head
from changelane.testing.conformance import EFFORT

BOMBS = [
    b"\xff" * 9 + b"\x01",  # the least number of 64 bits
    b"\xfe" + b"\xff" * 8 + b"\x01",  # the greatest
    b"\xff" * 40,  # longer than 64 bits
    b"\x80" * 10 + b"\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00",  # 0 in ten bytes
    b"\x80\xa8\xd6\xb9\x07",  # a billion
    b"\xff\xa7\xd6\xb9\x07",  # minus a billion
    b"\x01",  # minus one
]


def test_the_schema_is_the_published_one(corpus):
    folder = corpus / "dts-avro" / "avsc"
    names = """Integer Character Decimal Float Timestamp DateTime TimestampWithTimeZone
        BinaryGeometry TextGeometry BinaryObject TextObject EmptyObject Field Record""".split()
    paths = [str(folder / f"{avro.NAMESPACE}.{name}.avsc") for name in names]
    told = fastavro.schema.load_schema_ordered(paths)
    value = read_by_fastavro(record(afterImages=[integer(7)]))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, told, value)
    assert out.getvalue() == record(afterImages=[integer(7)])
    for name, listed in (("Operation", avro.OPERATIONS), ("SourceType", avro.SOURCE_TYPES)):
        symbols = ",".join(f'"{symbol}"' for symbol in listed)
        text = f'{{"name":"{avro.NAMESPACE}.{name}","type":"enum","symbols":[{symbols}]}}'
        assert text in to_parsing_canonical_form(told)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
longs = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=25 * EFFORT, deadline=None, derandomize=True, database=None)
@given(
    st.fixed_dictionaries(
        {
            "version": st.integers(-(2**31), 2**31 - 1),
            "id": longs,
            "sourceTimestamp": longs,
            "sourcePosition": texts,
            "safeSourcePosition": texts,
            "sourceTxid": texts,
            "source": st.sampled_from(avro.SOURCE_TYPES),
            "operation": st.sampled_from(avro.OPERATIONS),
            "objectName": st.none() | texts,
            "processTimestamps": st.none() | st.lists(longs, max_size=3),
            "tags": st.dictionaries(texts, texts, max_size=3),
        }
    )
)
def test_a_head_is_what_fastavro_says(told):
    data = record(**told)
    head, end = read_head(data)
    told.pop("version")
    told["sourceType"] = told.pop("source")
    for name, value in told.items():
        assert getattr(head, name) == value
    assert head.sourceVersion == "8.0.28"
    assert data[end:] == record()[-len(data[end:]) :]


@given(longs)
@settings(max_examples=40 * EFFORT, deadline=None, derandomize=True, database=None)
def test_numbers_of_64_bits_are_written_as_fastavro_does(number):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    assert avro_binary.long_of(number) == out.getvalue()
    assert avro_binary.read_long(out.getvalue(), 0) == (number, len(out.getvalue()))


def test_blocks_with_a_size_are_read():
    """A negative count is followed by the size of the block in bytes."""
    fields = [{"name": name, "dataTypeNumber": 3} for name in "ab"]
    plain = record(fields=fields, afterImages=[integer(1), None])
    image = b"\x04\x04" + b"\x02\x08\x021" + b"\x00" + b"\x00"
    assert image in plain
    for blocks in (
        b"\x04\x03\x0a" + b"\x02\x08\x021" + b"\x00" + b"\x00",
        b"\x04\x02" + b"\x02\x08\x021" + b"\x02" + b"\x00" + b"\x00",
    ):
        data = plain.replace(image, blocks)
        assert read_by_fastavro(data) == read_by_fastavro(plain)
        assert decode(data).after == {"a": 1, "b": None}


def hostile():
    """Records in which a number at one place is a bomb: a length, a count or a branch."""
    fields = [
        {"name": name, "dataTypeNumber": kind} for name, kind in (("a", 3), ("b", 253), ("c", 12))
    ]
    image = [integer(1), character(b"s3cr3t"), date_time(2020, 1, 1, 0, 0, 0, 0)]
    tags = {"pk_uk_info": '{"PRIMARY":["a"]}'}
    data = record(fields=fields, afterImages=image, tags=tags, processTimestamps=[1, 2])
    return [data[:at] + bomb + data[at + 1 :] for at in range(len(data)) for bomb in BOMBS]


def test_lengths_and_counts_of_billions_cost_no_time_and_no_memory():
    codec = get_codec("dts-avro")
    cases = hostile()
    tracemalloc.start()
    start = time.monotonic()
    for data in cases:
        try:
            codec.decode(Message(data))
        except DecodeError as error:
            assert "s3cr3t" not in str(error)  # noqa: PT017
    took = time.monotonic() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 20
    assert peak < 20_000_000


@pytest.mark.parametrize("schema", [V1, V2])
def test_a_record_that_is_cut_off_is_refused_or_of_the_first_version(schema):
    data = record(schema=schema, afterImages=[integer(1)])
    whole = len(record(schema=V1, afterImages=[integer(1)]))
    for length in range(3, len(data)):
        if length == whole:
            assert decode(data[:length]).after == {"c": 1}
            continue
        with pytest.raises(DecodeError) as error:
            decode(data[:length])
        assert error.value.code in {"malformed_avro", "wrong_type"}


def test_what_our_reader_accepts_fastavro_accepts_too():
    codec = get_codec("dts-avro", strict=True)
    data = record(afterImages=[integer(1)], tags={"a": "b"})
    accepted = 0
    for at in range(len(data)):
        for byte in range(0, 256, 5):
            changed = data[:at] + bytes([byte]) + data[at + 1 :]
            try:
                codec.decode(Message(changed))
            except DecodeError:
                continue
            accepted += 1
            stream = io.BytesIO(changed)
            fastavro.schemaless_reader(stream, V2)
            assert stream.tell() == len(changed)
    assert accepted > 100
