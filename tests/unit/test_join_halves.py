# SPDX-License-Identifier: Apache-2.0
"""The halves of a key change become one update only where they prove to belong together."""

import msgspec
import pytest

from changelane.event import DataChange, HalfUpdate, Key, Op, Tombstone, Watermark
from changelane.position import PostgresPosition
from changelane.schema import TableId
from changelane.transform import run
from changelane.transforms.join import JoinHalves
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
    one, two = halves(1, 2), halves(2, 1)
    updates = joined(one[0], one[1], two[0], two[1], one[2], two[2])
    assert [(u.before["id"], u.after["id"]) for u in updates] == [(1, 2), (2, 1)]


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
