# SPDX-License-Identifier: Apache-2.0
"""The hashes of Kafka's and Canal's producers, on vectors that a JVM computed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane.profiles.partitioners import (
    INT_MIN,
    hash_partition,
    java_abs,
    java_hash,
    java_rem,
    kafka_partition,
    murmur2,
    xor_hash,
)

COUNTS = (1, 2, 3, 4, 6, 7, 8, 12, 16)

# org.apache.kafka.common.utils.UtilsTest (B 1.10)
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b'{"id":1004}': -1854425783,
}

# computed on a JVM (A 2.5): database or None, column values, partitions for COUNTS
COLUMN_HASHES = [
    ("test", ["1"], "0 1 0 3 3 4 3 3 3"),
    ("test", ["500000287"], "0 0 0 0 0 0 4 0 4"),
    ("inventory", ["101"], "0 0 2 2 2 4 2 2 2"),
    ("mytest", ["1", "2"], "0 1 2 3 5 4 3 11 3"),
    ("mytest", ["2", "1"], "0 1 2 3 5 4 3 11 3"),
    ("mytest", ["1", "1"], "0 0 1 2 4 3 2 10 2"),
    ("test", [""], "0 0 1 2 4 1 2 10 2"),
    ("test", ["中文"], "0 0 1 0 4 5 0 4 8"),
    ("test", ["😀"], "0 1 2 1 5 0 1 5 1"),
    (None, ["polygenelubricants"], "0 0 2 0 2 2 0 8 0"),
    (None, ["t_user"], "0 0 0 2 0 5 2 6 10"),
    ("shop.db", ["\ud800x"], "0 0 0 2 0 1 6 6 14"),
    ("a", ["-2147483648"], "0 1 2 3 5 4 3 11 11"),
]


@pytest.mark.parametrize("key", MURMUR2)
def test_murmur2_is_that_of_kafka(key):
    assert murmur2(key) == MURMUR2[key]


def test_the_default_partitioner_takes_31_bits_of_the_hash():
    assert kafka_partition(b'{"id":1004}', 12) == 9


@given(st.binary(max_size=40), st.integers(1, 64))
def test_every_key_has_a_partition(key, count):
    assert 0 <= kafka_partition(key, count) < count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("test", 3556498),
        ("inventory", -2020599460),
        ("t_user", -882651978),
        ("😀", 1772899),
        ("polygenelubricants", INT_MIN),
    ],
)
def test_java_hash_overflows_over_utf16_units(text, expected):
    assert java_hash(text) == expected


@pytest.mark.parametrize(("database", "values", "expected"), COLUMN_HASHES)
def test_column_hashes_give_canals_partitions(database, values, expected):
    start = 0 if database is None else java_hash(database)
    found = [hash_partition(xor_hash(values, start), count) for count in COUNTS]
    assert found == [int(number) for number in re.findall(r"\d+", expected)]


def test_the_least_number_stays_negative_until_its_remainder_is_taken():
    assert java_abs(INT_MIN) == INT_MIN
    assert java_rem(java_abs(INT_MIN), 3) == -2
    assert hash_partition(INT_MIN, 3) == 2


@given(st.text(st.characters(), max_size=20))
def test_java_hash_is_the_recurrence_of_its_documentation(text):
    data = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
    expected = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units))
    assert (java_hash(text) - expected) % (1 << 32) == 0
    assert INT_MIN <= java_hash(text) < -INT_MIN


@given(st.lists(st.text(max_size=5)), st.integers(1, 64), st.randoms())
def test_the_order_of_columns_does_not_matter(texts, count, random):
    shuffled = list(texts)
    random.shuffle(shuffled)
    found = hash_partition(xor_hash(texts, 7), count)
    assert found == hash_partition(xor_hash(shuffled, 7), count)
    assert 0 <= found < count
