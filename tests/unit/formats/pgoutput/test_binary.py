# SPDX-License-Identifier: Apache-2.0
"""Values in PostgreSQL's binary form: their texts, and what is rejected.

The expected texts and bytes are those of the send functions of PostgreSQL 15.
"""

import struct

import pytest

from changelane import DecodeError, Message, get_codec
from changelane.formats.contract.postgres_text import logical_type
from changelane.formats.pgoutput import wire
from changelane.formats.pgoutput.binary import binary_text


def text_of(type_text, data):
    return binary_text(logical_type(type_text), type_text, data)


@pytest.mark.parametrize(
    ("type_text", "data", "text"),
    [
        ("boolean", b"\x01", "t"),
        ("smallint", struct.pack(">h", -2), "-2"),
        ("oid", struct.pack(">I", 4_000_000_000), "4000000000"),
        ("real", struct.pack(">f", 0.1), "0.1"),
        ("real", struct.pack(">f", 3.4028235e38), "3.4028235e+38"),
        ("double precision", struct.pack(">d", 1e-310), "1e-310"),
        ("real", struct.pack(">f", float("-inf")), "-Infinity"),
        ("double precision", struct.pack(">d", float("nan")), "NaN"),
        ("numeric", struct.pack(">HhHH4H", 4, 1, 0, 6, 12, 3456, 7890, 1200), "123456.789012"),
        ("numeric", struct.pack(">HhHHH", 1, -2, 0x4000, 8, 5), "-0.00000005"),
        ("numeric", struct.pack(">HhHHH", 1, 2, 0, 0, 7), "700000000"),
        ("numeric", struct.pack(">HhHH", 0, 0, 0, 2), "0.00"),
        ("numeric", struct.pack(">HhHH", 0, 0, 0xC000, 0), "NaN"),
        ("text", "é".encode(), "é"),
        ('"char"', b"\x00", ""),
        ("json", b'{"a":  1}', '{"a":  1}'),
        ("jsonb", b'\x01{"a": 1}', '{"a": 1}'),
        ("bytea", b"\x00\xff", r"\x00ff"),
        ("uuid", bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("bit varying(20)", struct.pack(">i", 9) + b"\xaa\x80", "101010101"),
        ("date", struct.pack(">i", 0), "2000-01-01"),
        ("date", struct.pack(">i", 8825), "2024-02-29"),
        ("date", struct.pack(">i", -730_485), "0001-01-01 BC"),
        ("date", struct.pack(">i", (1 << 31) - 1), "infinity"),
        ("time without time zone", struct.pack(">q", 86_400_000_000), "24:00:00"),
        ("time with time zone", struct.pack(">qi", 1_500_000, -19_800), "00:00:01.5+05:30"),
        ("time with time zone", struct.pack(">qi", 0, 28_801), "00:00:00-08:00:01"),
        ("timestamp without time zone", struct.pack(">q", -1), "1999-12-31 23:59:59.999999"),
        ("timestamp with time zone", struct.pack(">q", -(1 << 63)), "-infinity"),
        ("interval", struct.pack(">qii", -14_706_700_000, 3, 10), "10 mons 3 days -04:05:06.7"),
        ("integer[]", struct.pack(">iii", 0, 0, 23), "{}"),
        (
            "integer[]",
            struct.pack(">iiiiiii", 2, 1, 23, 2, 1, 1, 1) + struct.pack(">iii", 4, 5, -1),
            "{{5},{NULL}}",
        ),
        (
            "jsonb[]",
            struct.pack(">iiiiii", 1, 0, 3802, 1, 1, 3) + b"\x01[]",
            "{[]}",
        ),
    ],
)
def test_the_text_is_that_of_the_output_function(type_text, data, text):
    assert text_of(type_text, data) == text


@pytest.mark.parametrize(
    ("type_text", "data", "code"),
    [
        ("integer", b"\x00", "wrong_type"),
        ("boolean", b"\x02", "wrong_type"),
        ("real", b"\x00", "wrong_type"),
        ("numeric", struct.pack(">HhHHH", 1, 0, 0, 0, 10_000), "wrong_type"),
        ("numeric", struct.pack(">HhHH", 1, 0, 0, 0), "wrong_type"),
        ("jsonb", b"{}", "wrong_type"),
        ("uuid", b"\x00", "wrong_type"),
        ("bit(4)", struct.pack(">i", 9) + b"\xaa", "wrong_type"),
        ("text", b"\xff", "invalid_utf8"),
        ("integer[]", struct.pack(">iii", 7, 0, 23), "wrong_type"),
        (
            "integer[]",
            struct.pack(">iiiii", 1, 0, 23, 2, 1) + struct.pack(">ii", 4, 5),
            "wrong_type",
        ),
        ("integer[]", struct.pack(">iiiiii", 1, 0, 23, 1, 1, 9), "wrong_type"),
        (
            "integer[]",
            struct.pack(">iiiii", 1, 0, 23, 1, 1) + struct.pack(">ii", -1, -1),
            "wrong_type",
        ),
        ("money", b"\x00" * 8, "unknown_type"),
        ("inet", b"\x02\x20\x00\x04\x7f\x00\x00\x01", "unknown_type"),
    ],
)
def test_other_bytes_and_types_are_rejected(type_text, data, code):
    with pytest.raises(DecodeError) as caught:
        text_of(type_text, data)
    assert caught.value.code == code


def test_a_row_may_have_both_forms():
    columns = (wire.RelationColumn(True, "id", 23, -1), wire.RelationColumn(False, "note", 25, -1))
    relation = wire.relation_bytes(wire.RelationMessage(1, "public", "t", "d", columns))
    binary = b"b" + struct.pack(">Ii", 4, 7)
    text = b"t" + struct.pack(">I", 1) + b"a"
    row = b"I" + struct.pack(">I", 1) + b"N" + struct.pack(">H", 2) + binary + text
    (event,) = get_codec("pgoutput").decode(Message(relation + row))
    assert event.after == {"id": 7, "note": "a"}
