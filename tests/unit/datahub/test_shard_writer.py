"""Records to shards: none lost, none overtaken, whatever the service does."""

from collections import defaultdict
from typing import Any

import pytest
from datahub_fake import FakeService, Time, even_shards
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane.datahub.service import RANGE, Reaction, ServiceError, Shard, Shards
from changelane.datahub.shard_writer import Limits, Record, WriteError, Writer
from changelane.profiles.datahub import hash_of
from changelane.testing.conformance import EFFORT

FAULTS = st.lists(
    st.sampled_from(["", "", "limit", "down", "lost", "split", "part1", "part2", "part3"]),
    max_size=30,
)


def record(key: int, number: int, size: int = 10) -> Record:
    text = f"key {key}"
    return Record(f"{key}-{number}".encode(), size, hash_of(text), text, number)


def writer(service: FakeService, time: Time, limits: Limits | None = None, **more: Any) -> Writer:
    return Writer(service, "t", limits or Limits(records=7, bytes=100), time.patience(), **more)


@settings(max_examples=120 * EFFORT)
@given(
    keys=st.lists(st.integers(0, 12), max_size=120),
    shards=st.integers(1, 5),
    faults=FAULTS,
    bad=st.sets(st.integers(0, 120), max_size=5),
    writes_all_or_none=st.booleans(),
    records=st.integers(1, 9),
    held=st.sampled_from([30, 200, 10_000]),
)
def test_every_record_is_written_in_its_order_or_refused_once(
    *, keys, shards, faults, bad, writes_all_or_none, records, held
):
    service = FakeService(
        even_shards(shards),
        faults=faults,
        bad=lambda one: int(bytes(one).partition(b"-")[2]) in bad,
        writes_all_or_none=writes_all_or_none,
    )
    limits = Limits(records=records, bytes=70, buffered_bytes=held)
    written_by = writer(service, Time(), limits)
    refused = [r for n, key in enumerate(keys) for r in written_by.add(record(key, n))]
    refused += written_by.flush()

    assert sorted(r.record.origin for r in refused) == sorted(n for n in bad if n < len(keys))
    assert {r.error.code for r in refused} <= {"MalformedRecord"}
    told: dict[str, list[int]] = defaultdict(list)
    for one in service.of("t"):
        key, _, number = one.decode().partition("-")
        told[key].append(int(number))
    expected = defaultdict(list)
    for n, key in enumerate(keys):
        if n not in bad:
            expected[str(key)].append(n)
    assert told.keys() == expected.keys()
    for key, numbers in told.items():
        # an answer that was lost brings records again: the first of each and the last of each
        # stand in their order
        assert list(dict.fromkeys(numbers)) == expected[key]
        assert list(dict.fromkeys(reversed(numbers)))[::-1] == expected[key]
        if "lost" not in faults:
            assert numbers == expected[key], "only what failed is sent again"
    assert all(count <= min(records, 7) for _, count in service.puts), "70 bytes are 7 records"


@settings(max_examples=120 * EFFORT)
@given(
    keys=st.lists(st.integers(0, 5), max_size=80),
    shards=st.integers(1, 4),
    faults=FAULTS,
    bad=st.sets(st.integers(0, 80), max_size=5),
    writes_all_or_none=st.booleans(),
    records=st.integers(1, 9),
)
def test_what_waits_behind_a_refused_record_of_its_key_is_not_written(
    *, keys, shards, faults, bad, writes_all_or_none, records
):
    service = FakeService(
        even_shards(shards),
        faults=faults,
        bad=lambda one: int(bytes(one).partition(b"-")[2]) in bad,
        writes_all_or_none=writes_all_or_none,
    )
    limits = Limits(records=records, bytes=70, buffered_bytes=200)
    written_by = writer(service, Time(), limits, group=lambda one: one.order)
    waits: set[str] = set()
    aside: list[int] = []
    for n, key in enumerate(keys):
        if f"key {key}" in waits:
            aside.append(n)  # as Delivery does with what comes later
            continue
        told = written_by.add(record(key, n))
        waits |= {one.record.order for one in told}
        aside += [one.record.origin for one in told]
    aside += [one.record.origin for one in written_by.flush()]

    first = {key: min((n for n in bad if keys[n : n + 1] == [key]), default=999) for key in keys}
    assert sorted(aside) == [n for n, key in enumerate(keys) if n >= first[key]]
    told_of = {int(one.partition(b"-")[2]) for one in service.of("t")}
    assert told_of == {n for n, key in enumerate(keys) if n < first[key]}


def test_where_a_part_of_a_request_may_fail_no_request_holds_two_records_of_a_key():
    service = FakeService(even_shards(1), faults=["part2"], writes_all_or_none=False)
    written_by = writer(service, Time())
    for number, key in enumerate([1, 2, 3, 1, 2]):
        written_by.add(record(key, number))
    written_by.flush()
    assert service.of("t") == [b"2-1", b"1-0", b"3-2", b"1-3", b"2-4"]
    assert [count for _, count in service.puts] == [3, 2, 2]


def test_a_full_request_goes_at_once_and_the_rest_with_the_flush():
    service = FakeService(even_shards(1))
    written_by = writer(service, Time())
    for number in range(10):
        written_by.add(record(number, number))
    assert service.puts == [("0", 7)]
    written_by.flush()
    assert service.puts == [("0", 7), ("0", 3)]


def test_a_record_larger_than_a_request_goes_alone():
    service = FakeService(even_shards(1))
    written_by = writer(service, Time())
    written_by.add(record(1, 1))
    written_by.add(record(1, 2, size=1000))
    written_by.flush()
    assert [count for _, count in service.puts] == [1, 1]


def test_shards_are_chosen_by_their_ranges_of_hash_keys():
    shards = Shards(even_shards(3))
    assert [shards.of(p) for p in (0, RANGE // 3 - 1, RANGE // 3, RANGE - 1)] == [*"0012"]
    half = Shards([Shard("a", 0, 100, "CLOSED"), Shard("b", 0, 50, "ACTIVE")])
    assert half.of(49) == "b"
    assert half.of(50) is None
    assert Shards([]).of(0) is None


def test_waits_grow_to_a_limit_and_begin_anew_after_a_success():
    time = Time()
    service = FakeService(even_shards(1), faults=["limit"] * 9 + ["", "down"])
    written_by = writer(service, time, Limits(records=1))
    written_by.add(record(1, 1))
    assert time.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    written_by.add(record(1, 2))
    written_by.add(record(1, 3))
    assert time.slept[9:] == [0.1]


def test_a_service_that_takes_nothing_for_too_long_ends_the_batch_and_nothing_is_written():
    time = Time()
    service = FakeService(even_shards(1), faults=["limit"] * 1000)
    written_by = writer(service, time)
    written_by.add(record(1, 1))
    with pytest.raises(WriteError, match=r"topic t: no progress for 3\d\d seconds: .* Limit"):
        written_by.flush()
    assert 300 <= time.now < 311
    assert not service.written


def test_what_only_a_person_can_mend_ends_at_once():
    service = FakeService(even_shards(1), faults=["denied"])
    written_by = writer(service, Time())
    written_by.add(record(1, 1))
    with pytest.raises(ServiceError, match="NoPermission"):
        written_by.flush()


def test_one_bad_record_of_many_costs_few_requests():
    bad = b"1-700"
    service = FakeService(even_shards(1), bad=lambda one: one == bad)
    written_by = writer(service, Time(), Limits(records=1000, bytes=10**6))
    refused = [r for n in range(1000) for r in written_by.add(record(1, n))] + written_by.flush()
    assert [r.record.content for r in refused] == [bad]
    assert len(service.written) == 999
    assert len(service.puts) < 30


def test_shards_that_do_not_cover_all_keys_are_refused():
    service = FakeService([Shard("0", 0, 10, "ACTIVE")])
    written_by = writer(service, Time())
    with pytest.raises(WriteError, match="expansion mode"):
        written_by.add(record(1, 1))
    with pytest.raises(WriteError, match="expansion mode"):
        writer(FakeService([]), Time())


def test_a_notice_goes_to_each_shard():
    service = FakeService(even_shards(3))
    written_by = writer(service, Time())
    written_by.add_to_each(Record(b"beat", 4, 0, ""))
    written_by.flush()
    assert service.written == [("t", shard, b"beat") for shard in "012"]


@pytest.mark.parametrize(
    ("code", "status", "fate"),
    [
        ("LimitExceeded", 400, Reaction.RETRY),
        ("InternalServerError", 500, Reaction.RETRY),
        (None, 502, Reaction.RETRY),
        ("Whatever", 429, Reaction.RETRY),
        ("InvalidShardOperation", 400, Reaction.REASSIGN),
        ("NoSuchShard", 404, Reaction.REASSIGN),
        ("MalformedRecord", 400, Reaction.REJECT),
        ("InvalidParameter", 400, Reaction.REJECT),
        (None, 413, Reaction.REJECT),
        ("NoSuchTopic", 404, Reaction.FAIL),
        ("NoPermission", 403, Reaction.FAIL),
        ("Unauthorized", 401, Reaction.FAIL),
        ("SomethingNew", 400, Reaction.FAIL),
    ],
)
def test_what_to_do_follows_from_the_error_code_of_the_service(
    code: Any, status: int, fate: Reaction
) -> None:
    assert ServiceError(code, status).reaction is fate


def test_an_error_contains_codes_but_no_values():
    assert str(ServiceError("value 'Ann' of row 3", 400)) == "DataHub answers unknown (status 400)"
