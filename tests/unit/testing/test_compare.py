# SPDX-License-Identifier: Apache-2.0
"""What the conformance kit takes for a difference."""

import msgspec
import pytest

from changelane.event import DataChange, Op, Truncate
from changelane.formats.contract.capabilities import Carries, SchemaDetail
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.compare import differences
from changelane.types import Bits, Bytes, LogicalType, String, Time, Timestamp, TimeTz, Value

TYPED = Carries(schema=SchemaDetail.SOURCE_TYPES)
NULLS = msgspec.structs.replace(TYPED, untyped_nulls=True)


def change(kind: LogicalType, value: Value) -> DataChange:
    schema = TableSchema((Column("c", kind),))
    return DataChange(Op.CREATE, TableId(name="t"), after={"c": value}, schema=schema)


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (Time(3), "01:02:03.120", "01:02:03.12"),
        (Time(3), "01:02:03.000", "01:02:03"),
        (TimeTz(6), "01:02:03.100000Z", "01:02:03.1Z"),
        (Timestamp(6), "-4712-01-01T00:00:00.000000", "-4712-01-01T00:00:00"),
        (Bits(), "0001", "1"),
        (Bits(), "000", "0"),
    ],
)
def test_insignificant_zeros_are_no_difference(kind, one, two):
    assert not differences(change(kind, one), change(kind, two), TYPED)


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (Time(3), "01:02:03.120", "01:02:03.1"),
        (Time(3), "01:02:30", "01:02:3"),
        (Bits(4), "0001", "1"),
        (Bits(), "0010", "1"),
        (String(), "01:02:03.120", "01:02:03.12"),
    ],
)
def test_all_other_characters_are_a_difference(kind, one, two):
    assert differences(change(kind, one), change(kind, two), TYPED)


def test_the_type_of_nulls_differs_unless_it_is_declared_that_it_may():
    text, data = change(String(), None), change(Bytes(), None)
    assert differences(text, data, TYPED)
    assert not differences(text, data, NULLS)
    assert differences(change(String(), "a"), change(Bytes(), "a"), NULLS)


def test_a_statement_that_a_format_makes_for_a_truncate_is_no_difference():
    plain, made = Truncate(TableId(name="t")), Truncate(TableId(name="t"), "TRUNCATE t")
    assert not differences(made, plain, TYPED)
    assert differences(plain, made, TYPED)
