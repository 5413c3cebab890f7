# SPDX-License-Identifier: Apache-2.0
"""Extended JSON: each form of each type, refusals, the texts of keys and columns."""

import decimal
import json

import pytest

from changelane import DecodeError
from changelane.formats.mongodb.extended_json import canonical, column_value, key_text, parse

OID = "67ab25755c0d5ac87eb8c632"
BINARY = {"$binary": {"base64": "AAE=", "subType": "05"}}


def parsed(value):
    return parse(json.dumps({"v": value}))["v"]


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (1, {"$numberInt": "1"}),
        (-(2**31), {"$numberInt": "-2147483648"}),
        (2**31, {"$numberLong": "2147483648"}),
        (1.5, {"$numberDouble": "1.5"}),
        ({"$numberInt": "-0"}, {"$numberInt": "0"}),
        ({"$numberDouble": "1E3"}, {"$numberDouble": "1000.0"}),
        ({"$numberDouble": "-Infinity"}, {"$numberDouble": "-Infinity"}),
        ({"$numberDecimal": "1.10E+3"}, {"$numberDecimal": "1.10E+3"}),
        ({"$oid": OID.upper()}, {"$oid": OID}),
        ({"$date": 5}, {"$date": {"$numberLong": "5"}}),
        ({"$date": "1970-01-01T01:00:00.005+01:00"}, {"$date": {"$numberLong": "5"}}),
        ({"$date": {"$numberLong": "-5"}}, {"$date": {"$numberLong": "-5"}}),
        ({"$binary": "AAE=", "$type": "5"}, BINARY),
        (BINARY, BINARY),
        (
            {"$regex": "a", "$options": "i"},
            {"$regularExpression": {"pattern": "a", "options": "i"}},
        ),
        ({"$code": "f", "$scope": {"a": 1}}, {"$code": "f", "$scope": {"a": {"$numberInt": "1"}}}),
        ({"$dbPointer": {"$ref": "c", "$id": {"$oid": OID}}},) * 2,
        ({"$ref": "c", "$id": 1}, {"$ref": "c", "$id": {"$numberInt": "1"}}),
        ({"$oid": OID, "x": None}, {"$oid": OID, "x": None}),
        ([{"$undefined": True}, {"$minKey": 1}, {"$maxKey": 1}],) * 2,
    ],
)
def test_a_value_has_its_canonical_form(value, form):
    assert parsed(value) == form
    assert canonical(form) == form


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        {"$oid": "x"},
        {"$numberInt": "2147483648"},
        {"$numberInt": 1},
        {"$numberLong": "1.0"},
        {"$numberDouble": "1e999"},
        {"$numberDouble": "inf"},
        {"$numberDecimal": "1" * 35},
        {"$date": "2025-02-12"},
        {"$date": "1970-01-01T00:00:00.0001Z"},
        {"$binary": "A", "$type": "0"},
        {"$binary": {"base64": "AAE="}},
        {"$uuid": "x"},
        {"$timestamp": {"t": -1, "i": 0}},
        {"$regularExpression": "a"},
        {"$minKey": True},
        {"$undefined": False},
    ],
)
def test_a_wrong_value_is_refused(value):
    with pytest.raises(DecodeError):
        parsed(value)


@pytest.mark.parametrize("text", ["", "1", "[]", "null", json.dumps({"$oid": OID}), '{"a":'])
def test_only_a_document_is_a_document(text):
    with pytest.raises(DecodeError):
        parse(text)


def test_equal_ids_have_equal_texts_and_others_do_not():
    ones = [1, {"$numberLong": "1"}, {"$numberDouble": "1.0"}, {"$numberDecimal": "1.00"}]
    assert {key_text(parsed(value)) for value in ones} == {"1"}
    others = ["1", 1.5, {"$numberDecimal": "1.5"}, {"$oid": OID}, OID, {"a": 1}, True]
    assert len({key_text(parsed(value)) for value in others}) == len(others)


@pytest.mark.parametrize(
    ("value", "column"),
    [
        ({"$oid": OID}, OID),
        ({"$numberDecimal": "3.140"}, decimal.Decimal("3.140")),
        ({"$numberDouble": "NaN"}, "NaN"),
        ({"$date": 0}, "1970-01-01T00:00:00.000Z"),
        ({"$date": -62135596800001}, "0000-12-31T23:59:59.999Z"),
        ({"$date": 253402300800001}, "+10000-01-01T00:00:00.001Z"),
        ({"$date": 2**60}, "+36536598-01-28T21:54:06.976Z"),
        ({"$uuid": "b84dbfe2-fe4c-4953-a225-990ea3700f29"}, "b84dbfe2-fe4c-4953-a225-990ea3700f29"),
        ({"$undefined": True}, None),
        ({"a": 1}, '{"a":{"$numberInt":"1"}}'),
        ([], "[]"),
    ],
)
def test_a_value_of_a_column_is_plain(value, column):
    assert column_value(parsed(value)) == column
