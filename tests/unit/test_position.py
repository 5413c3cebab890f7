# SPDX-License-Identifier: Apache-2.0
"""Bytes of orders compare like positions do."""

import datetime as dt
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane.errors import UnorderedError
from changelane.position import (
    DELETE_PHASE,
    ORDER_VERSION,
    UPSERT_PHASE,
    LsnPosition,
    MySqlPosition,
    OffsetPosition,
    PostgresPosition,
    ScnPosition,
    SequencePosition,
    TimePosition,
    at_phase,
    domain_of,
    domain_text,
    encode_order,
    epoch_of,
    is_comparable,
    order_text,
    phase_of,
)

U32, U64 = (1 << 32) - 1, (1 << 64) - 1
small, large = st.integers(0, U32), st.integers(0, U64)
near = st.integers(0, 3)  # often equal, so that the later parts decide
wide, narrow = st.one_of(near, large), st.one_of(near, small)

ONE_OF_EACH = [
    MySqlPosition("binlog.000001", 4),
    PostgresPosition(1),
    ScnPosition(1),
    LsnPosition("00000001:00000002:0003"),
    SequencePosition(1),
    OffsetPosition("t", 0, 1),
    TimePosition(1, 1),
]


def _agree(make: Any, one: Any, other: Any) -> None:
    first, second = encode_order(make(*one)), encode_order(make(*other))
    assert (first < second) == (one < other)
    assert (first == second) == (one == other)
    assert len(first) == len(second)


@given(*[st.tuples(wide, wide, narrow)] * 2)
def test_mysql_positions_compare_by_file_number_position_and_row(one: Any, other: Any) -> None:
    _agree(lambda file, pos, row: MySqlPosition(f"binlog.{file:06d}", pos, row), one, other)


def test_binary_log_files_compare_as_numbers_beyond_six_digits() -> None:
    low, high = (MySqlPosition(name, 4) for name in ("binlog.999999", "binlog.1000000"))
    assert encode_order(low) < encode_order(high)


@given(*[st.tuples(wide, wide, narrow)] * 2)
def test_postgres_positions_compare_by_commit_lsn_and_row(one: Any, other: Any) -> None:
    _agree(lambda commit, lsn, row: PostgresPosition(lsn, commit, row), one, other)


def test_postgres_lsn_printed_as_a_signed_number_is_unsigned() -> None:
    assert encode_order(PostgresPosition(-1)) > encode_order(PostgresPosition((1 << 63) - 1))


@given(*[st.tuples(st.integers(0, (1 << 128) - 1), wide, wide)] * 2)
def test_scn_positions_compare_by_commit_scn_and_statement(one: Any, other: Any) -> None:
    _agree(lambda commit, scn, ssn: ScnPosition(scn, commit, ssn=ssn), one, other)


@given(*[st.tuples(wide, wide, wide)] * 2)
def test_scn_record_sets_compare_as_hexadecimal_numbers(one: Any, other: Any) -> None:
    def make(*parts: int) -> ScnPosition:
        return ScnPosition(1, rs_id=" " + ".".join(f"{part:x}" for part in parts))

    _agree(make, one, other)


@given(*[st.tuples(st.tuples(wide, wide, wide), st.tuples(wide, wide, wide), wide)] * 2)
def test_lsn_positions_compare_segment_by_segment(one: Any, other: Any) -> None:
    def make(commit: Any, changed: Any, serial: int) -> LsnPosition:
        return LsnPosition(
            ":".join(f"{part:08x}" for part in commit),
            ":".join(f"{part:x}" for part in changed),
            serial,
        )

    _agree(make, one, other)


@given(*[st.tuples(st.integers(-(1 << 127), (1 << 127) - 1), narrow)] * 2)
def test_sequences_compare_as_signed_numbers(one: Any, other: Any) -> None:
    _agree(SequencePosition, one, other)


@given(*[st.one_of(st.floats(allow_nan=False), st.sampled_from([-0.0, 0.0]))] * 2)
def test_sequences_of_floats_compare_as_floats(one: float, other: float) -> None:
    first, second = (encode_order(SequencePosition.of(value)) for value in (one, other))
    assert (first < second) == (one < other)
    assert (first == second) == (one == other)


@given(st.lists(st.datetimes(), min_size=2, max_size=2))
def test_sequences_of_timestamps_compare_by_the_calendar(values: list[dt.datetime]) -> None:
    first, second = (encode_order(SequencePosition.of(value)) for value in values)
    assert (first < second) == (values[0] < values[1])


@given(*[st.tuples(wide, narrow)] * 2)
def test_offsets_of_one_partition_compare_as_numbers(one: Any, other: Any) -> None:
    _agree(lambda offset, row: OffsetPosition("t", 3, offset, row), one, other)


@given(
    *[
        st.tuples(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3), wide, narrow)
        for _ in "ab"
    ]
)
def test_times_compare_before_1970_too_and_ties_by_offset_and_row(one: Any, other: Any) -> None:
    _agree(TimePosition, one, other)


def test_offsets_are_comparable_inside_one_partition_of_one_epoch() -> None:
    def order(topic: str, partition: int, epoch: int = 0) -> bytes:
        return encode_order(OffsetPosition(topic, partition, 1), epoch=epoch)

    assert is_comparable(order("t", 0), order("t", 0))
    assert not is_comparable(order("t", 0), order("t", 1))
    assert not is_comparable(order("t", 0), order("u", 0))
    assert is_comparable(order("t", 0), order("t", 1, epoch=1))


def test_positions_of_different_domains_are_not_comparable() -> None:
    for one, other in itertools.combinations(map(encode_order, ONE_OF_EACH), 2):
        assert not is_comparable(one, other)
    assert len({domain_of(encode_order(position)) for position in ONE_OF_EACH}) == len(ONE_OF_EACH)


def test_orders_of_a_capture_log_compare_with_each_other_only() -> None:
    of_logs = (MySqlPosition, PostgresPosition, ScnPosition, LsnPosition)
    for position in ONE_OF_EACH:
        order, captured = (encode_order(position, captured=flag) for flag in (False, True))
        is_log_position = isinstance(position, of_logs)
        assert is_comparable(order, captured) is not is_log_position
        assert (order == captured) is not is_log_position
        assert order[2:] == captured[2:]
        assert domain_of(order) == domain_of(captured) == position.code
        assert order_text(order) == order_text(captured)
        assert ("in a capture log" in domain_text(captured)) is is_log_position
        assert "capture log" not in domain_text(order)


@pytest.mark.parametrize("position", ONE_OF_EACH, ids=lambda position: type(position).__name__)
def test_order_starts_with_version_and_domain_and_ends_with_the_phase(position: Any) -> None:
    left, arrived = (encode_order(position, phase=phase) for phase in (DELETE_PHASE, UPSERT_PHASE))
    assert left[0] == ORDER_VERSION
    assert left[1] == position.code
    assert left < arrived
    assert (phase_of(left), phase_of(arrived)) == (DELETE_PHASE, UPSERT_PHASE)
    assert at_phase(left, UPSERT_PHASE) == arrived
    assert at_phase(arrived, DELETE_PHASE) == left


@given(wide, wide, st.booleans())
def test_a_snapshot_is_below_the_stream_of_its_epoch_and_epochs_dominate(
    one: int, other: int, is_snapshot: bool
) -> None:
    snapshot = encode_order(PostgresPosition(one), epoch=1, snapshot=True)
    stream = encode_order(PostgresPosition(other), epoch=1, phase=DELETE_PHASE)
    assert snapshot < stream
    later = encode_order(PostgresPosition(0), epoch=2, snapshot=is_snapshot, phase=DELETE_PHASE)
    assert stream < later
    assert epoch_of(later) == 2


@pytest.mark.parametrize(
    "position",
    [
        MySqlPosition("binlog", 1),
        MySqlPosition("binlog.x1", 1),
        MySqlPosition("binlog.000001", -1),
        MySqlPosition("binlog.000001", U64 + 1),
        MySqlPosition("binlog.000001", 1, U32 + 1),
        PostgresPosition(1, row=U32 + 1),
        ScnPosition(1 << 128),
        ScnPosition(-1),
        ScnPosition(1, rs_id="x.y.z"),
        LsnPosition("x"),
        LsnPosition("1:2:3:4"),
        LsnPosition("1", "1", -1),
        SequencePosition(1 << 127),
        OffsetPosition("t", 0, -1),
        OffsetPosition("t", -1, 1),
        TimePosition(1 << 63, 1),
        TimePosition(1, -1),
    ],
    ids=repr,
)
def test_what_is_out_of_range_has_no_order(position: Any) -> None:
    with pytest.raises(UnorderedError):
        encode_order(position)


@pytest.mark.parametrize("value", [None, True, "17", float("nan"), b"1"])
def test_what_does_not_sort_is_no_sequence(value: object) -> None:
    with pytest.raises(UnorderedError):
        SequencePosition.of(value)


def test_an_epoch_out_of_range_has_no_order() -> None:
    with pytest.raises(UnorderedError):
        encode_order(PostgresPosition(1), epoch=U32 + 1)
