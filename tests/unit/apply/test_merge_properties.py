# SPDX-License-Identifier: Apache-2.0
"""What holds of the apply rule for every history, and mutations of it that must be noticed."""

import datetime as dt
import decimal
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from changelane.apply import (
    EMPTY_STATE,
    RULE,
    ColumnVersion,
    KeyState,
    Rule,
    canonical,
    compact,
    is_live,
    join,
    key_bytes,
    key_values,
    newest_order,
    pack_orders,
    sort_key,
    stored_state,
    unpack_orders,
)
from changelane.event import DataChange, Truncate
from changelane.position import DELETE_PHASE, at_phase, encode_order
from changelane.testing.compare import same_value
from changelane.testing.conformance import EFFORT
from changelane.testing.histories import (
    COLUMNS,
    TABLE,
    History,
    Profile,
    history,
    rewound,
    shuffled,
)
from changelane.testing.reference.upsert import DELETED, MemoryTables
from changelane.types.scalars import Geometry

chances = st.randoms(use_true_random=True)  # a seed: many times faster than shrinkable draws
quick = settings(max_examples=60 * EFFORT, deadline=None)

# (a): any order. A change of the key that lacks columns is left out
# (docs/merge-rule.md, Key changes that lack columns).
ANY_ORDER = Profile(moves="whole", ties=True)
# (b): in the order of the log, with rewinds.
IN_ORDER = Profile(moves="lacking", size=16, keys=4)
DEFERRED = Profile(moves="lacking", deferred=True, transactions=True, before="full", size=16)


def land(
    batches: Iterable[Sequence[Any]], rule: Rule = RULE, deletes: str = "hard"
) -> MemoryTables:
    tables = MemoryTables(rule=rule, deletes=deletes)
    for batch in batches:
        tables.apply(batch)
    return tables


def agree(tables: MemoryTables, told: History) -> bool:
    return tables.keyed(TABLE) == told.rows and tables.incomplete(TABLE) == told.unknown


def check(tables: MemoryTables, told: History) -> None:
    assert not tables.quarantine
    assert tables.keyed(TABLE) == told.rows
    assert tables.incomplete(TABLE) == told.unknown


def departures(tables: MemoryTables) -> dict[bytes, bytes]:
    return {key: state.deleted for key, state in tables.states(TABLE).items() if state.deleted}


def displaced(tables: MemoryTables) -> set[bytes]:
    """The keys at which a row arrived when another seemed to be there, in this order of events."""
    return {key for key, state in tables.states(TABLE).items() if state.moved_to == key}


# Property a: any order


@given(chances, st.sampled_from(["postgresql", "mysql"]))
@quick
def test_any_order_any_batches_and_any_duplicates_give_the_same_rows(
    chance: Random, source: Any
) -> None:
    told = history(chance, Profile(moves="whole", ties=True, source=source))
    straight = land([told.events])
    check(straight, told)
    other = land(shuffled(chance, told.events))
    check(other, told)
    assert other.stored(TABLE) == straight.stored(TABLE)
    apart = displaced(other) | displaced(straight)
    left, right = departures(other), departures(straight)
    assert {k: left[k] for k in left if k not in apart} == {
        k: right[k] for k in right if k not in apart
    }


@given(chances)
@quick
def test_two_messages_for_one_change_of_the_key_may_come_in_any_order(chance: Random) -> None:
    told = history(chance, Profile(moves="whole", halves=True))
    check(land(shuffled(chance, told.events)), told)


# Property b: the order of the log, with rewinds


@given(chances, st.sampled_from(["postgresql", "mysql"]), st.sampled_from(["key", "full"]))
@quick
def test_in_order_with_rewinds_it_is_what_the_source_holds(
    chance: Random, source: Any, before: Any
) -> None:
    profile = Profile(
        moves="lacking", transactions=True, source=source, before=before, size=16, keys=4, ties=True
    )
    told = history(chance, profile)
    check(land(rewound(chance, told.events)), told)


@given(chances)
@quick
def test_in_order_halves_of_a_change_of_the_key_take_along_what_they_lack(chance: Random) -> None:
    told = history(chance, Profile(moves="lacking", halves=True, size=16, keys=4))
    check(land(rewound(chance, told.events)), told)


@given(chances, st.sampled_from(["postgresql", "mysql"]), st.booleans())
@quick
def test_deferred_keys_with_whole_transactions(chance: Random, source: Any, halves: Any) -> None:
    told = history(chance, msgspec.structs.replace(DEFERRED, source=source, halves=halves))
    check(land(rewound(chance, told.events, told.cuts)), told)


def is_right_or_quarantined(tables: MemoryTables, told: History) -> bool:
    codes = {refused.code for refused in tables.quarantine}
    return codes == {"ambiguous_key_move"} or (not codes and agree(tables, told))


@given(chances, st.booleans())
@example(Random(490723), False)  # a row that nothing told leaves in the batch after its key
@example(Random(189250), False)  # was taken
@example(Random(9), True)  # the halves of such a change of the key come in two batches
@example(Random(1154), True)  # a row leaves at the position of the one that comes
@example(Random(1209), False)
@quick
def test_deferred_keys_in_any_batches_if_positions_name_the_transaction(
    chance: Random, halves: Any
) -> None:
    told = history(chance, msgspec.structs.replace(DEFERRED, halves=halves))
    check(land(rewound(chance, told.events)), told)


@given(chances, st.sampled_from(["key", "full"]))
@example(Random(77), "key")
@example(Random(1038), "full")  # it comes again when the old key has a new row
@example(Random(6656), "full")  # as does one whose halves come in two batches
@example(Random(7294), "key")
@quick
def test_in_order_halves_in_any_batches_of_transactions_are_what_the_source_holds(
    chance: Random, before: Any
) -> None:
    profile = Profile(
        moves="lacking", transactions=True, halves=True, before=before, size=16, keys=4
    )
    told = history(chance, profile)
    check(land(rewound(chance, told.events)), told)


@given(chances)
@quick
def test_deferred_keys_without_before_images_are_right_or_quarantined(chance: Random) -> None:
    # not in PostgreSQL, where a deferrable key is no replica identity
    profile = msgspec.structs.replace(DEFERRED, source="oracle", before="key", silent=False)
    told = history(chance, profile)
    assert is_right_or_quarantined(land(rewound(chance, told.events, told.cuts)), told)


# Soft deletes


@given(chances, st.booleans())
@quick
def test_soft_deletes_change_nothing_of_the_rows_that_are_there(
    chance: Random, partial: Any
) -> None:
    told = history(chance, Profile(moves="whole", ties=True, partial=partial))
    soft = land(shuffled(chance, told.events), deletes="soft")
    rows = soft.keyed(TABLE)
    there = {key: row for key, row in rows.items() if not row[DELETED]}
    assert there == {key: {**row, DELETED: False} for key, row in told.rows.items()}
    assert soft.incomplete(TABLE) == told.unknown
    for key, stored in soft.stored(TABLE).items():
        state, orders = (
            soft.states(TABLE)[key],
            unpack_orders(stored.order, stored.columns, COLUMNS),
        )
        assert stored.row[DELETED] == (not is_live(state, max(truncates(told), default=b"")))
        assert any(orders.values())


def truncates(told: History) -> list[bytes]:
    return [
        encode_order(event.position, phase=DELETE_PHASE)
        for event in told.events
        if isinstance(event, Truncate) and event.position is not None
    ]


@given(chances)
@quick
def test_with_full_images_the_last_known_row_is_the_newest_image(
    chance: Random,
) -> None:
    told = history(chance, Profile(moves="none", partial=False, silent=False))
    soft = land(shuffled(chance, told.events), deletes="soft").keyed(TABLE)
    newest: dict[bytes, Any] = {}
    for event in told.events:
        if isinstance(event, DataChange) and event.after is not None:
            newest[key_bytes({"id": event.after["id"]})] = dict(event.after)
    assert {key: {**row, DELETED: key not in told.rows} for key, row in newest.items()} == soft


# Property c: mutations are noticed


class NoTombstones(Rule):
    def stored_delete(self, deleted: bytes) -> bytes:
        return b"" if deleted else deleted


class NoTruncateRegister(Rule):
    def stored_truncate(self, order: bytes) -> bytes:
        return order[:0]


class LastCallWins(Rule):
    """``<=`` for ``<``."""

    def wins(self, new: ColumnVersion, old: ColumnVersion) -> bool:
        return new.order >= old.order


class NothingIsMasked(Rule):
    def is_cleared(self, order: bytes, cleared: bytes) -> bool:
        return not order and not cleared


class NoPhase(Rule):
    def order(self, order: bytes) -> bytes:
        return at_phase(order, 0)


def any_order(seed: int, rule: Rule) -> bool:
    chance = Random(seed)
    told = history(chance, ANY_ORDER)
    return agree(land(shuffled(chance, told.events), rule), told)


def in_order(seed: int, rule: Rule) -> bool:
    chance = Random(seed)
    told = history(chance, IN_ORDER)
    return agree(land(rewound(chance, told.events), rule), told)


SEEDS = 300


@pytest.mark.parametrize("holds", [any_order, in_order])
def test_the_rule_itself_holds_for_the_seeds_that_the_mutations_fail(
    holds: Callable[[int, Rule], bool],
) -> None:
    assert all(holds(seed, RULE) for seed in range(SEEDS))


@pytest.mark.parametrize(
    ("mutation", "holds"),
    [
        (NoTombstones(), any_order),
        (NoTruncateRegister(), any_order),
        (NoTruncateRegister(), in_order),
        (LastCallWins(), any_order),
        (NothingIsMasked(), any_order),
        (NothingIsMasked(), in_order),
        (NoPhase(), any_order),
        (NoPhase(), in_order),
    ],
    ids=lambda part: getattr(part, "__name__", type(part).__name__),
)
def test_a_mutation_of_the_rule_is_noticed(
    mutation: Rule, holds: Callable[[int, Rule], bool]
) -> None:
    assert not all(holds(seed, mutation) for seed in range(SEEDS))


def test_histories_hold_incomplete_rows_ties_and_moves() -> None:
    told = [history(Random(seed), ANY_ORDER) for seed in range(100)]
    assert sum(bool(one.unknown) for one in told) > 10
    assert sum(one.tie_count > 0 for one in told) > 10
    assert sum(land([one.events]).counts["ties"] > 0 for one in told) > 10
    assert all(one.tie_count == 0 for one in (history(Random(1), IN_ORDER),))
    assert {len(batches) > 1 for batches in (rewound(Random(2), told[0].events),)} == {True}


# Registers

orders = st.sampled_from([b"", b"1", b"2", b"3", b"3\x00"])
values = st.sampled_from([None, 1, 2])
states = st.builds(
    KeyState,
    deleted=orders,
    moved_to=st.sampled_from([None, b"[1]", b"[2]"]),
    full_row_order=orders,
    cells=st.dictionaries(st.sampled_from("abc"), st.builds(ColumnVersion, orders, values)),
).map(lambda state: join(state, EMPTY_STATE))


@given(states, states, states)
def test_joining_states_is_a_semilattice(one: KeyState, two: KeyState, three: KeyState) -> None:
    assert join(one, two) == join(two, one)
    assert join(join(one, two), three) == join(one, join(two, three))
    assert join(one, one) == one
    assert join(one, EMPTY_STATE) == one


@given(states, states, orders)
def test_settling_early_loses_nothing(one: KeyState, two: KeyState, truncated: bytes) -> None:
    late = compact(join(one, two), truncated)
    early = compact(join(compact(one, truncated), two), truncated)
    assert is_live(late, truncated) == is_live(early, truncated)
    assert late.cells == early.cells


@given(st.dictionaries(st.sampled_from(COLUMNS), st.one_of(st.none(), orders)))
def test_packed_orders_unpack(told: dict[str, bytes | None]) -> None:
    base, exceptions = pack_orders(told)
    expected = {column: order or None for column, order in told.items()}
    assert unpack_orders(base, exceptions, told) == expected
    assert newest_order(base, exceptions) == max(
        (order or b"" for order in told.values()), default=b""
    )
    assert exceptions is None or base not in exceptions.values()


@given(states.filter(is_live))
def test_a_stored_row_gives_its_registers_back(state: KeyState) -> None:
    settled = compact(state)
    orders_of = {column: settled.cell(column).order or None for column in "abc"}
    values_of = {column: settled.cell(column).value for column in "abc"}
    again = stored_state(values_of, orders_of, deleted=settled.deleted, moved_to=settled.moved_to)
    assert {c: again.cell(c) for c in "abc"} == {c: settled.cell(c) for c in "abc"}


# Keys and ties

simple = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(st.characters()),
    st.decimals(allow_nan=False),
    st.floats(),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=-9))])),
    st.timedeltas(),
    st.builds(Geometry, st.one_of(st.none(), st.binary()), st.one_of(st.none(), st.integers())),
)
scalars = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=2),
        st.lists(st.tuples(inner, inner), max_size=2),
    ),
    max_leaves=3,
)


def kinds(value: Any) -> Any:
    """The types of a value and of what it holds: a list of booleans is none of numbers."""
    match value:
        case dict():
            return dict, {name: kinds(inner) for name, inner in value.items()}
        case list() | tuple():
            return type(value), [kinds(inner) for inner in value]
    return type(value)


def has_nan(value: Any) -> bool:
    """Whether a NaN is in it: Python's lists compare equal to others with the same object only."""
    match value:
        case dict():
            return any(map(has_nan, value.values()))
        case list() | tuple():
            return any(map(has_nan, value))
    return bool(value != value)  # noqa: PLR0124 - NaN alone is


@given(scalars, scalars)
@example([False, False], [False, 0])
@example([math.nan], [float("nan")])
def test_canonical_text_is_equal_when_values_of_one_type_are(one: Any, other: Any) -> None:
    if one == other and kinds(one) != kinds(other):
        return  # Python's False is 0, and no column holds both
    if type(one) is type(other) and not has_nan(one) and not has_nan(other):
        assert (canonical(one) == canonical(other)) == (one == other)


@given(scalars)
def test_key_bytes_read_back(value: Any) -> None:
    (again,) = key_values(key_bytes({"k": value}))
    assert canonical(again) == canonical(value)
    # a list that holds a NaN is not equal to itself once it is copied, and no key keeps a fold
    assert same_value(again, value)


def test_values_of_different_types_never_share_a_key() -> None:
    one = [1, "1", 1.0, decimal.Decimal(1), True, None, b"1", "null", "true", [1], (1,), {"d": "1"}]
    one += [dt.date(2024, 1, 1), dt.datetime(2024, 1, 1), "2024-01-01", dt.timedelta(1)]
    one += [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), '{"d":"1"}']
    assert len({key_bytes({"k": value}) for value in one}) == len(one)
    assert key_bytes({"a": "x", "b": "y"}) != key_bytes({"a": 'x","y'})


def test_equal_keys_have_equal_bytes() -> None:
    utc = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    for one, other in [
        (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
        (decimal.Decimal("-0"), decimal.Decimal("0.00")),
        (decimal.Decimal("1E+3"), decimal.Decimal(1000)),
        (-0.0, 0.0),
        (utc, utc.astimezone(dt.timezone(dt.timedelta(hours=9)))),
    ]:
        assert key_bytes({"k": one}) == key_bytes({"k": other})


ASCENDING: list[list[Any]] = [
    [None, False, True],
    [None, -5, decimal.Decimal("-0.5"), 0, 0.25, 1, decimal.Decimal(10), math.inf, math.nan],
    [None, "", "A", "a", "é", "\uffff", "\U0001f600"],
    [None, b"", b"\x00", b"\x7f", b"\xff"],
    [None, dt.date(1, 1, 1), dt.date(2024, 1, 31), dt.date(9999, 12, 31)],
    [None, dt.datetime(1, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)],
    [None, [], [None], [1], [1, None], [1, 2], [2]],
]


@pytest.mark.parametrize("ascending", ASCENDING)
def test_ties_compare_values_by_type(ascending: list[Any]) -> None:
    for one, other in itertools.combinations(ascending, 2):
        assert sort_key(one) < sort_key(other)
    assert sort_key(decimal.Decimal("1.0")) == sort_key(decimal.Decimal("1.00")) == sort_key(1)


@given(st.lists(scalars, max_size=4))
def test_any_values_have_one_order(found: list[Any]) -> None:
    for one, other in itertools.combinations(found, 2):
        assert (sort_key(one) < sort_key(other)) + (sort_key(other) < sort_key(one)) + (
            sort_key(one) == sort_key(other)
        ) == 1
