# SPDX-License-Identifier: Apache-2.0
"""The halves of a key change become one update only where they prove to belong together."""

import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane.conversion.join_update_halves import JoinHalves, Orphans
from changelane.conversion.stateful import run
from changelane.event import (
    Control,
    DataChange,
    HalfUpdate,
    Key,
    Op,
    SchemaChange,
    Tombstone,
    Truncate,
    Watermark,
)
from changelane.position import PostgresPosition, SequencePosition
from changelane.schema import TableId
from changelane.types import UNAVAILABLE

TABLE = TableId("shop", "public", "t")
KEY = Key(("id",))


def halves(old=1, new=2, lsn=5, table=TABLE):
    where = {"key": KEY, "position": PostgresPosition(lsn)}
    gone = DataChange(Op.DELETE, table, before={"id": old, "n": UNAVAILABLE}, **where)
    come = DataChange(Op.CREATE, table, after={"id": new, "n": 7}, **where)
    return (
        HalfUpdate(gone, {"id": new}),
        Tombstone(TableId(), {"id": old}, moved_to={"id": new}),
        HalfUpdate(come, {"id": old}),
    )


def joined(*events, most_waiting=100):
    return list(run(JoinHalves(most_waiting), events))


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1)])
def test_halves_in_any_order_become_one_update_and_the_tombstone_goes(order):
    parts = halves()
    (update,) = joined(*(parts[index] for index in order))
    assert update.op is Op.UPDATE
    assert update.before == {"id": 1, "n": UNAVAILABLE}
    assert update.after == {"id": 2, "n": 7}


def test_a_swap_becomes_two_updates():
    one, two = halves(1, 2), halves(2, 1, lsn=6)
    updates = joined(*one, *two)
    assert [(u.before["id"], u.after["id"]) for u in updates] == [(1, 2), (2, 1)]


def test_halves_that_share_a_key_do_not_overtake_each_other():
    one, two = halves(1, 2), halves(2, 1)
    first, second, update, third = joined(one[0], one[1], two[0], two[1], one[2], two[2])
    assert (first, second, third) == (two[0].change, two[1], two[2].change)
    assert (update.before["id"], update.after["id"]) == (1, 2)


@pytest.mark.parametrize(
    "other",
    [
        halves(lsn=6)[2],
        halves(table=TableId("shop", "public", "u"))[2],
        halves(new=3)[2],
        msgspec.structs.replace(halves()[2], other_key={"id": 9}),
        msgspec.structs.replace(halves()[2], other_key=None),
    ],
)
def test_what_does_not_prove_to_belong_together_stays_apart(other):
    gone, tombstone, _ = halves()
    found = joined(gone, tombstone, other)
    changes = [event for event in found if isinstance(event, DataChange)]
    assert {change.op for change in changes} == {Op.DELETE, Op.CREATE}
    assert tombstone in found


def test_waiting_is_bounded():
    gone, tombstone, come = halves()
    others = [Watermark() for _ in range(5)]
    found = joined(gone, tombstone, *others, come, most_waiting=3)
    assert found.index(gone.change) < len(found) - 2
    assert found[-1] == come.change
    assert found.index(tombstone) == found.index(gone.change) + 1


def test_other_events_pass_at_once_and_in_order():
    join = JoinHalves()
    gone, *_ = halves()
    assert join.push(gone) == ()
    assert join.push(Watermark()) == (Watermark(),)
    plain = Tombstone(TABLE, {"id": 8})
    assert join.push(plain) == (plain,)
    assert join.flush() == (gone.change,)
    assert join.flush() == ()


def test_a_half_that_comes_twice_is_released_once():
    gone, _, come = halves()
    found = joined(gone, gone, come)
    assert [event.op for event in found] == [Op.DELETE, Op.UPDATE]


def row(op, number, key=KEY, table=TABLE, **values):
    image = {"id": number, "n": 7} | values
    return DataChange(
        op,
        table,
        key,
        before=image if op is Op.DELETE else None,
        after=None if op is Op.DELETE else image,
    )


def later(key):
    """Events that name a key of the table, or may name it."""
    return [
        row(Op.CREATE, key),
        row(Op.UPDATE, key),
        row(Op.DELETE, key),
        row(Op.CREATE, 8, key=None),
        row(Op.CREATE, UNAVAILABLE),
        row(Op.CREATE, "8"),
        row(Op.CREATE, 8, key=Key(("n",))),
        DataChange(Op.UPDATE, TABLE, KEY, before={"id": key}, after={"id": 8}),
        DataChange(Op.UPDATE, TABLE, KEY, before={"id": 8}, after={"id": key}),
        DataChange(Op.UPDATE, TABLE, KEY, before={"id": UNAVAILABLE}, after={"id": 8}),
        DataChange(Op.DELETE, TABLE, KEY),
        HalfUpdate(row(Op.CREATE, key)),
        Truncate(TABLE),
        Truncate(TableId(name="t")),
        SchemaChange(TABLE, "alter"),
        SchemaChange(TableId("shop"), "other"),
        Control("odd", table=TABLE),
        Tombstone(TABLE, {"id": key}),
        Tombstone(TABLE),
        Tombstone(TableId(), {"id": key}),
    ]


@pytest.mark.parametrize("event", later(1))
def test_what_may_concern_a_waiting_delete_does_not_overtake_it(event):
    gone, tombstone, come = halves()
    last = event.change if isinstance(event, HalfUpdate) else event
    assert joined(gone, tombstone, event, come) == [gone.change, tombstone, last, come.change]


@pytest.mark.parametrize("event", later(2))
def test_what_may_concern_a_waiting_create_does_not_overtake_it(event):
    gone, tombstone, come = halves()
    last = event.change if isinstance(event, HalfUpdate) else event
    assert joined(come, event, gone, tombstone) == [come.change, last, gone.change, tombstone]


def test_events_of_the_other_key_pass_for_the_update_takes_the_place_of_the_partner():
    gone, tombstone, come = halves()
    before, update = joined(gone, tombstone, row(Op.DELETE, 2), come)
    assert (before, update.op) == (row(Op.DELETE, 2), Op.UPDATE)
    before, update = joined(come, row(Op.CREATE, 1), gone, tombstone)
    assert (before, update.op) == (row(Op.CREATE, 1), Op.UPDATE)


@pytest.mark.parametrize(
    "event",
    [
        row(Op.CREATE, 8),
        row(Op.CREATE, 1, table=TableId("shop", "public", "u")),
        DataChange(Op.UPDATE, TABLE, KEY, before={"n": 1}, after={"id": 8, "n": 2}),
        Truncate(TableId("shop", "public", "u")),
        Tombstone(TableId(), {"id": 8}),
        Tombstone(TableId(), {"other": 1}),
        Tombstone(TableId()),
        Control("odd"),
        Watermark(),
    ],
)
def test_what_does_not_concern_a_waiting_half_passes_it(event):
    gone, _, come = halves()
    assert [type(e).__name__ + str(getattr(e, "op", "")) for e in joined(gone, event, come)] == [
        type(event).__name__ + str(getattr(event, "op", "")),
        "DataChangeu",
    ]


def test_a_partner_that_comes_too_late_is_not_held_back():
    join = JoinHalves()
    gone, _, come = halves()
    assert join.push(gone) == ()
    assert join.push(row(Op.CREATE, 1)) == (gone.change, row(Op.CREATE, 1))
    assert join.push(come) == (come.change,)


def paired(old=1, new=1, pair="5", key=KEY, table=TABLE):
    """The halves of an update that a sequence number joins."""
    where = {"key": key, "position": SequencePosition(int(pair))}
    gone = DataChange(Op.DELETE, table, before={"id": old, "n": 3}, **where)
    come = DataChange(Op.CREATE, table, after={"id": new, "n": 7}, **where)
    return HalfUpdate(gone, pair=pair), HalfUpdate(come, pair=pair)


def images(update):
    return update.op, update.before, update.after


@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize("new", [1, 2])
@pytest.mark.parametrize("order", [1, -1])
def test_a_pair_joins_halves_whatever_their_keys(key, new, order):
    (update,) = joined(*paired(1, new, key=key)[::order])
    assert images(update) == (Op.UPDATE, {"id": 1, "n": 3}, {"id": new, "n": 7})
    assert update.position == SequencePosition(5)


@pytest.mark.parametrize("key", [KEY, None])
def test_pairs_join_across_other_pairs_and_other_tables(key):
    other = TableId("shop", "public", "u")
    parts = [
        paired(1, 1, "5", key),
        paired(2, 2, "6", key),
        paired(1, 1, "5", key, other),
        (Watermark(), row(Op.CREATE, 8, key)),
    ]
    found = joined(*(part[0] for part in parts), *(part[1] for part in parts))
    updates = [(e.table.name, *images(e)) for e in found if getattr(e, "op", None) is Op.UPDATE]
    assert updates == [
        (name, Op.UPDATE, {"id": number, "n": 3}, {"id": number, "n": 7})
        for name, number in [("t", 1), ("t", 2), ("u", 1)]
    ]
    assert len(found) == 5


def test_halves_of_two_pairs_or_two_tables_stay_apart():
    one, other, elsewhere = paired(), paired(pair="6"), paired(table=TableId("shop", "public", "u"))
    found = joined(one[0], other[1], elsewhere[1], most_waiting=2)
    assert {event.op for event in found} == {Op.DELETE, Op.CREATE}
    assert len(found) == 3


@pytest.mark.parametrize("key", [KEY, None])
def test_a_half_that_its_pair_finds_no_partner_for_stays_a_half_by_choice(key):
    gone, come = paired(key=key)
    for half in gone, come:
        assert list(run(JoinHalves(orphans="half"), [half])) == [half]
        assert list(run(JoinHalves(orphans=Orphans.CHANGE), [half])) == [half.change]
    late = [gone, *(Watermark() for _ in range(3)), come]
    found = list(run(JoinHalves(2, orphans="half"), late))
    assert [event for event in found if not isinstance(event, Watermark)] == [gone, come]


def test_a_half_that_only_its_headers_join_is_never_an_orphan():
    gone, tombstone, _ = halves()
    assert list(run(JoinHalves(orphans="half"), [gone, tombstone])) == [gone.change, tombstone]


@pytest.mark.parametrize("key", [KEY, None])
def test_a_paired_half_that_comes_twice_is_released_once(key):
    gone, come = paired(key=key)
    assert [event.op for event in joined(gone, gone, come, come)] == [
        Op.DELETE,
        Op.UPDATE,
        Op.CREATE,
    ]
    assert [event.op for event in joined(gone, come, gone, come)] == [Op.UPDATE, Op.UPDATE]


@pytest.mark.parametrize(
    "event",
    [
        Truncate(TABLE),
        Truncate(TableId(name="t")),
        SchemaChange(TABLE, "alter"),
        Control("x", table=TABLE),
    ],
)
def test_a_half_without_a_key_does_not_stay_behind_what_concerns_its_whole_table(event):
    gone, come = paired(key=None)
    assert joined(gone, event, come) == [gone.change, event, come.change]


def test_rows_pass_a_half_that_names_no_key():
    gone, come = paired(key=None)
    others = [row(Op.CREATE, 8), row(Op.DELETE, 1, key=None), Tombstone(TABLE)]
    *passed, update = joined(gone, *others, come)
    assert (passed, update.op) == (others, Op.UPDATE)


keys = st.integers(1, 4)


@st.composite
def streams(draw):
    """Halves and plain changes in any order, each with a number of its own."""
    events = []
    for number in range(draw(st.integers(1, 8))):
        if draw(st.booleans()):
            old, new = draw(st.permutations(range(1, 5)))[:2]
            gone, tombstone, come = halves(old, new, lsn=number)
            gone = HalfUpdate(
                msgspec.structs.replace(gone.change, before={"id": old, "n": 2 * number}),
                gone.other_key,
            )
            come = HalfUpdate(
                msgspec.structs.replace(come.change, after={"id": new, "n": 2 * number + 1}),
                come.other_key,
            )
            parts = [gone, come]
            if draw(st.booleans()):
                parts = [HalfUpdate(half.change, pair=str(number)) for half in parts]
            elif draw(st.booleans()):
                parts = [gone, tombstone, come]
            events.append(draw(st.permutations(parts)) if len(parts) == 2 else parts)
        else:
            op = draw(st.sampled_from([Op.CREATE, Op.UPDATE, Op.DELETE]))
            events.append([row(op, draw(keys), n=2 * number)])
    mixed = []
    while events:
        one = draw(st.sampled_from(events))
        mixed.append(one.pop(0))
        events = [event for event in events if event]
    return mixed


def told(events):
    """For each key the changes that name it, in their order."""
    found = {}
    for event in events:
        change = event.change if isinstance(event, HalfUpdate) else event
        if isinstance(change, DataChange):
            for image in (change.before, change.after):
                if image is not None:
                    found.setdefault(image["id"], []).append(image["n"])
    return found


@given(streams(), st.sampled_from([1, 2, 3, 100]))
def test_the_events_of_a_key_keep_their_order(events, most_waiting):
    assert told(joined(*events, most_waiting=most_waiting)) == told(events)


@given(streams(), st.sampled_from([1, 2, 3, 100]), st.data())
def test_another_join_goes_on_from_the_state_of_one_that_stopped(events, most_waiting, data):
    cut = data.draw(st.integers(0, len(events)))
    first = JoinHalves(most_waiting)
    found = [event for given in events[:cut] for event in first.push(given)]
    second = JoinHalves(most_waiting, state=pickle.loads(pickle.dumps(first.state)))
    found += run(second, events[cut:])
    assert found == joined(*events, most_waiting=most_waiting)
