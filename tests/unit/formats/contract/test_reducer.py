# SPDX-License-Identifier: Apache-2.0
"""The short way of the reduction finds what the whole way finds, whatever came before it."""

import datetime as dt
import itertools
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane import formats, get_codec
from changelane.event import Completeness, DataChange, Key, Op, Source, Transaction
from changelane.formats.contract.cached_reducer import CachedReducer
from changelane.formats.contract.capabilities import Carries
from changelane.formats.contract.reducer import Reducer
from changelane.position import OffsetPosition, PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.event_strategies import data_changes
from changelane.types import UNAVAILABLE, Bits, Instant, Integer, String

MOST = get_codec("native-json").carries
TARGETS = [get_codec(name).carries for name in formats.names()] + [
    Carries(operations=frozenset({Op.CREATE, Op.DELETE}), delete_partial=False, source_time="s"),
    msgspec.structs.replace(MOST, key_change=False, partial_before=False, absent=False),
    msgspec.structs.replace(MOST, unavailable=False, transaction=frozenset({"id"})),
]
ROWS = ("before", "after")


@st.composite
def alike(draw: st.DrawFn) -> list[DataChange]:
    """Changes that share table, schema and source, so that one outcome may serve another."""
    first = draw(data_changes(MOST))
    told = [first]
    for _ in range(draw(st.integers(1, 6))):
        changes: dict[str, Any] = {}
        for name in ROWS:
            image = dict(getattr(first, name) or {})
            match draw(st.sampled_from(["same", "none", "absent", "hidden", "other"])):
                case "none" if name == "before":
                    changes[name] = None
                case "absent" if image:
                    image.pop(draw(st.sampled_from(sorted(image))))
                    changes[name] = image
                case "hidden" if image:
                    changes[name] = image | {draw(st.sampled_from(sorted(image))): UNAVAILABLE}
                case "other" if first.schema is None:
                    changes[name] = image | {"more": draw(st.sampled_from([1, "a", None]))}
        more = {
            "op": st.sampled_from(sorted(Op)),
            "key": st.sampled_from([None, first.key, Key(("none",))]),
            "source_time_ns": st.sampled_from([None, 0, 1, 10**18, 10**18 + 1]),
            "process_time_ns": st.sampled_from([None, 0, -1, 10**18, 10**18 + 10**6]),
            "transaction": st.sampled_from(
                [None, Transaction("1"), Transaction("1", 2, size=3), Transaction("", 2)]
            ),
            "position": st.sampled_from([None, first.position, OffsetPosition("t", 0, 1)]),
            "details": st.sampled_from([{}, {"source": {"a": 1}}]),
            "before_holds": st.sampled_from(Completeness),
            "after_holds": st.sampled_from(Completeness),
            "schema": st.sampled_from([first.schema, None]),
        }
        for name in draw(st.sets(st.sampled_from(sorted(more)), max_size=3)):
            changes[name] = draw(more[name])
        told.append(msgspec.structs.replace(first, **changes))
    return told


@given(alike(), st.sampled_from(TARGETS))
def test_a_change_is_reduced_alike_whatever_came_before_it(
    told: list[DataChange], target: Carries
) -> None:
    short, whole = CachedReducer(target), Reducer(target)
    for event in (*told, *told):
        assert short(event) == whole(event)


ZONED = dt.datetime(2024, 1, 1, 0, 0, 0, 500_000, dt.UTC)


@pytest.mark.parametrize(
    ("value", "form", "written"),
    [
        (Instant.of(ZONED, 2), "2024-01-01T00:00:00.50Z", "2024-01-01T00:00:00.50Z"),
        (ZONED, "2024-01-01T00:00:00.500000Z", "2024-01-01T00:00:00.500000Z"),
        (dt.date(2024, 1, 31), "2024-01-31", "2024-01-31"),
        (b"x", "eA==", "eA=="),
        (math.inf, "Infinity", "Infinity"),
        (dt.timedelta(seconds=1), 1_000_000, "1000000"),
        ([1, ZONED], [1, "2024-01-01T00:00:00.500000Z"], '[1,"2024-01-01T00:00:00.500000Z"]'),
        ({"a": [b"x"]}, {"a": ["eA=="]}, '{"a":["eA=="]}'),
    ],
)
def test_what_a_cast_made_of_a_row_without_a_schema_is_written_as_json_or_text(
    value: Any, form: Any, written: str
) -> None:
    event = DataChange(Op.CREATE, TableId(None, None, "t"), None, None, {"id": 1, "v": value})
    (as_json,), losses = Reducer(MOST)(event)
    assert as_json.after == {"id": 1, "v": form}
    assert [loss[0] for loss in losses] == ["type:unknown"]
    (as_text,), losses = Reducer(msgspec.structs.replace(MOST, text_only=True))(event)
    assert as_text.after == {"id": "1", "v": written}
    assert [loss[0] for loss in losses] == ["type:unknown"]


SCHEMA = TableSchema((Column("id", Integer()), Column("note", String(), nullable=False)))
FULL = DataChange(
    Op.UPDATE,
    TableId("shop", "public", "t"),
    Key(("id",)),
    {"id": 1, "note": "a"},
    {"id": 1, "note": "b"},
    SCHEMA,
    PostgresPosition(7),
    Transaction("1"),
    Source("postgresql", "other", "shop", "1.0"),
    10**18,
    10**18,
    details={"more": 1},
)
VARIANTS: list[dict[str, Any]] = [
    {},
    {"op": Op.READ},
    {"op": Op.DELETE},
    {"table": TableId(None, None, "t")},
    {"table": TableId("shop", "other", "t")},
    {"key": None},
    {"before": None},
    {"before": {"id": 1}},
    {"before": {"id": 2, "note": "a"}},
    {"before": {"id": 2}},
    {"before": {"id": 1, "note": UNAVAILABLE}},
    {"after": {"id": 1}},
    {"after": {"id": 1, "note": UNAVAILABLE}},
    {"schema": None},
    {"schema": None, "after": {"id": 1, "note": UNAVAILABLE}},
    {"schema": TableSchema((Column("id", Integer(), default=1), Column("note", Bits())))},
    {"position": None},
    {"position": OffsetPosition("t", 0, 1)},
    {"transaction": None},
    {"transaction": Transaction("1", 2, 3, 4, last=True)},
    {"transaction": Transaction("")},
    {"source": Source("postgresql", "debezium", "shop", "1.0")},
    {"source": Source()},
    {"source_time_ns": None},
    {"source_time_ns": 0},
    {"source_time_ns": 10**18 + 1},
    {"process_time_ns": None},
    {"process_time_ns": -1},
    {"details": {}},
    {"after": None, "op": Op.DELETE},
]


@pytest.mark.parametrize("target", TARGETS)
def test_the_outcome_of_a_change_serves_no_change_that_differs_in_any_part(
    target: Carries,
) -> None:
    whole = Reducer(target)
    changes = [msgspec.structs.replace(FULL, **variant) for variant in VARIANTS]
    for first, other in itertools.product(changes, repeat=2):
        short = CachedReducer(target)
        short(first)
        assert short(other) == whole(other)


def test_the_second_of_two_like_changes_takes_the_outcome_of_the_first() -> None:
    schema = TableSchema((Column("id", Integer()),))
    event = DataChange(Op.CREATE, TableId("shop", "public", "t"), after={"id": 1}, schema=schema)
    short = CachedReducer(get_codec("canal-json").carries)
    (one,), losses = short(event)
    (other,), same = short(msgspec.structs.replace(event, after={"id": 2}))
    assert losses
    assert same is losses
    assert isinstance(one, DataChange)
    assert isinstance(other, DataChange)
    assert other == msgspec.structs.replace(one, after={"id": 2})


def test_a_schema_that_lists_changed_columns_only_is_a_loss_unless_the_format_has_it() -> None:
    schema = TableSchema((Column("id", Integer()), Column("a", String())))
    row = {"id": 1, "a": "x"}
    holds = Completeness.CHANGED
    event = DataChange(Op.UPDATE, TableId(), Key(("id",)), None, row, schema, after_holds=holds)
    full = msgspec.structs.replace(event, after_holds=Completeness.UNKNOWN)
    typed = CachedReducer(get_codec("debezium-json").carries)
    loss = ("absent", "readers take the columns of the update for all columns of the table")
    for _ in range(2):
        assert loss not in typed(full)[1]
        assert loss in typed(event)[1]
    native = CachedReducer(MOST)
    for _ in range(2):
        assert native(event) == ((event,), ())
