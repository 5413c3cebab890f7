# SPDX-License-Identifier: Apache-2.0
"""Operations of a transaction go on together, in their order, and none of them is lost."""

import json
import pickle

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane import Message, get_codec
from changelane.cli import main
from changelane.conversion.group_transactions import (
    INCOMPLETE_MARK,
    CollectTransactions,
    IncompleteTransaction,
)
from changelane.conversion.join_update_halves import JoinHalves
from changelane.conversion.stateful import run
from changelane.event import (
    Control,
    DataChange,
    HalfUpdate,
    Op,
    SchemaChange,
    Transaction,
    TransactionMarker,
    Watermark,
)
from changelane.position import PostgresPosition, ScnPosition
from changelane.schema import TableId
from changelane.testing.conformance import EFFORT

TABLE = TableId(schema="S", name="T")


def operation(of, number, size=None, *, scn=None, **fields):
    return DataChange(
        Op.CREATE,
        TABLE,
        after={"id": f"{of}-{number}"},
        position=None if scn is None else ScnPosition(scn, tx_seq=number),
        transaction=Transaction(of, number, None, size, number == size if size else None),
        **fields,
    )


def whole(of, size, **fields):
    return [operation(of, number, size, **fields) for number in range(1, size + 1)]


def collected(*events, **options):
    return list(run(CollectTransactions(**options), events))


def ids(events):
    return [event.after["id"] if isinstance(event, DataChange) else event for event in events]


def test_operations_wait_for_the_last_one_and_go_on_in_their_order():
    one, two, three = whole("a", 3)
    collect = CollectTransactions()
    assert collect.push(three) == ()
    assert collect.push(one) == ()
    assert collect.push(two) == (one, two, three)
    assert collect.flush() == ()


def test_mixed_transactions_go_on_as_each_becomes_complete():
    a, b = whole("a", 2), whole("b", 2)
    assert collected(a[0], b[1], b[0], a[1]) == [*b, *a]


def test_last_operation_gives_the_size():
    one, two = operation("a", 1), operation("a", 2)
    last = msgspec.structs.replace(two, transaction=Transaction("a", 2, last=True))
    assert collected(last, one) == [one, last]


def test_commit_of_debezium_gives_the_size():
    begin = TransactionMarker("begin", Transaction("a"))
    commit = TransactionMarker("commit", Transaction("a", size=2))
    one, two = operation("a", 1), operation("a", 2)
    for events in ([begin, two, one, commit], [one, commit, begin, two], [two, commit, begin, one]):
        assert collected(*events) == [begin, one, two, commit]


def test_ids_of_postgresql_differ_for_each_operation_of_a_transaction():
    begin = TransactionMarker("begin", Transaction("7:100"))
    commit = TransactionMarker("commit", Transaction("7:130", size=2))
    one, two, other = (
        msgspec.structs.replace(
            operation(f"{of}:{lsn}", number), position=PostgresPosition(lsn, last_commit_lsn=90)
        )
        for of, lsn, number in ((7, 110, 1), (7, 120, 2), (8, 125, 1))
    )
    assert collected(begin, two, one, commit) == [begin, one, two, commit]
    begin_other = TransactionMarker("begin", Transaction("8:121"))
    commit_other = TransactionMarker("commit", Transaction("8:126", size=1))
    mixed = [begin, one, begin_other, other, two, commit, commit_other]
    assert collected(*mixed) == [begin, one, two, commit, begin_other, other, commit_other]


def test_commit_after_the_transaction_went_on_is_kept():
    commit = TransactionMarker("commit", Transaction("a", size=2))
    assert collected(*whole("a", 2), commit) == [*whole("a", 2), commit]


def test_markers_without_an_id_pass_in_their_place():
    # DTS and DataHub say where transactions begin and end, and not which ones
    row = DataChange(Op.CREATE, TABLE, after={"id": 1})
    begin = TransactionMarker("begin", Transaction(""))
    commit = TransactionMarker("commit", Transaction(""))
    collect = CollectTransactions()
    for event in (begin, row, commit, begin, row, commit):
        assert collect.push(event) == (event,)
    assert (collect.flush(), collect.state.duplicates) == ((), 0)


def test_operations_without_numbers_stay_between_their_markers():
    told = []
    events = []
    for name in ("a", "b"):
        begin = TransactionMarker("begin", Transaction(name))
        row = DataChange(Op.CREATE, TABLE, after={"id": name}, transaction=Transaction(name))
        commit = TransactionMarker("commit", Transaction(name))
        events += [begin, row, row, commit, begin, commit]
    assert collected(*events, report=told.append) == events
    assert told == []


def test_empty_transaction_without_a_size_passes():
    told = []
    events = [TransactionMarker(status, Transaction("a")) for status in ("begin", "commit")]
    assert collected(*events, report=told.append) == events
    assert told == []


# -- duplicates ----------------------------------------------------------------------------------


def test_operation_that_comes_twice_goes_on_once():
    collect = CollectTransactions()
    one, two = whole("a", 2)
    again = msgspec.structs.replace(one, process_time_ns=7)
    assert list(run(collect, [one, one, again, two, two, one])) == [one, two]
    assert collect.state.duplicates == 4


def test_operations_that_differ_go_on_both_under_one_number():
    one, two = whole("a", 2)
    other = msgspec.structs.replace(one, after={"id": "other"})
    assert collected(one, other, two) == [one, other, two]


def test_the_id_of_a_later_transaction_is_recognised_by_its_scn():
    first, later = whole("a", 2, scn=5), whole("a", 2, scn=6)
    assert collected(*first, first[0], *later, later[1]) == [*first, *later]


def test_source_is_a_part_of_the_id():
    one = whole("a", 2, source=get_codec("shareplex-json").carries.stamp)
    two = whole("a", 2)
    assert collected(one[0], two[0], two[1], one[1]) == [*two, *one]


# -- what stays incomplete -----------------------------------------------------------------------


def test_an_incomplete_transaction_is_marked_and_reported_at_the_end():
    told = []
    mark, one, three = collected(operation("a", 3, 5), operation("a", 1, 5), report=told.append)
    assert isinstance(mark, Control)
    assert (mark.type, mark.text) == (INCOMPLETE_MARK, "a: 2 of 5 operations")
    assert mark.details == {"id": "a", "operations": 2, "size": 5}
    assert ids([one, three]) == ["a-1", "a-3"]
    assert told == [IncompleteTransaction("a", 2, 5)]


def test_mark_can_be_left_out():
    assert ids(collected(operation("a", 1), has_marks=False)) == ["a-1"]
    assert str(IncompleteTransaction("a", 1)) == "a: 1 of an unknown number of operations"


def test_transaction_without_a_new_operation_for_long_is_released():
    collect = CollectTransactions(max_waiting=3, has_marks=False)
    assert collect.push(operation("a", 1, 9)) == ()
    assert collect.push(operation("b", 1, 9)) == ()
    assert collect.push(operation("a", 2, 9)) == ()  # waits anew
    assert collect.push(operation("b", 2, 9)) == ()
    assert collect.push(operation("b", 3, 9)) == ()
    assert ids(collect.push(operation("b", 4, 9))) == ["a-1", "a-2"]


def test_operation_that_comes_after_its_transaction_was_released_passes():
    collect = CollectTransactions(max_waiting=1, has_marks=False)
    late = operation("a", 2, 2)
    collect.push(operation("a", 1, 2))
    assert ids(collect.push(Watermark()))[0] == "a-1"
    assert collect.push(late) == (late,)


def test_oldest_transaction_is_released_when_too_much_is_held():
    collect = CollectTransactions(max_buffered=4, has_marks=False)
    for event in (*whole("a", 9)[:2], *whole("b", 9)[:2]):
        assert collect.push(event) == ()
    assert ids(collect.push(operation("b", 3, 9))) == ["a-1", "a-2"]
    assert collect.state.buffered_count == 3
    assert next(iter(collect.state.open))[2] == "b"


def test_transaction_larger_than_the_bound_passes_in_parts():
    told = []
    events = whole("a", 20)
    found = collected(*events, max_buffered=5, has_marks=False, report=told.append)
    assert found == events
    assert len(told) == 1


# -- events of no transaction --------------------------------------------------------------------


def test_event_of_no_transaction_overtakes_none_that_began_before_it():
    a, b = whole("a", 2), whole("b", 2)
    alter, beat = SchemaChange(TABLE, "alter"), Watermark()
    assert collected(beat, a[0], alter, b[0], b[1], a[1]) == [beat, *a, alter, *b]


def test_row_without_a_number_waits_in_its_place():
    plain = DataChange(Op.CREATE, TABLE, after={"id": "x"}, transaction=Transaction("a"))
    a = whole("a", 2)
    assert collected(a[0], plain, a[1]) == [*a, plain]


def test_rollback_passes():
    rollback = TransactionMarker("rollback", Transaction("a"))
    assert collected(rollback) == [rollback]


# -- halves of updates ---------------------------------------------------------------------------


def halves(*numbers, size, row="r"):
    before, after = numbers
    gone = DataChange(
        Op.DELETE, TABLE, before={"id": row}, transaction=Transaction("a", before, None, size)
    )
    come = DataChange(
        Op.CREATE, TABLE, after={"id": row}, transaction=Transaction("a", after, None, size)
    )
    return HalfUpdate(gone, pair=row), HalfUpdate(come, pair=row)


@pytest.mark.parametrize(
    "events",
    [
        [*halves(1, 1, size=2), *halves(2, 2, size=2, row="s")],
        [*halves(1, 2, size=4), *halves(3, 4, size=4, row="s")],
    ],
    ids=["one number", "numbers of their own"],
)
def test_halves_wait_for_their_partners_and_join(events):
    for order in (events, events[::-1], [events[1], events[3], events[0], events[2]]):
        assert collected(*order) == events
    updates = run(JoinHalves(), collected(*reversed(events)))
    assert [update.op for update in updates] == [Op.UPDATE, Op.UPDATE]


# -- the state -----------------------------------------------------------------------------------

SIZES = {"a": 1, "b": 2, "c": 5, "d": 3}
STREAM = [event for of, size in SIZES.items() for event in whole(of, size)]


@settings(max_examples=30 * EFFORT, deadline=None)
@given(st.permutations([*STREAM, *STREAM[3:7]]), st.lists(st.booleans(), min_size=15, max_size=15))
def test_any_order_and_any_pause_give_whole_transactions_once(events, pauses):
    collect = CollectTransactions()
    found = []
    for event, pause in zip(events, pauses, strict=True):
        if pause:
            state = pickle.loads(pickle.dumps(collect.state))
            collect = CollectTransactions(state=state)
        found.extend(collect.push(event))
    found.extend(collect.flush())
    assert collect.state.buffered_count == 0
    assert sorted(ids(found)) == sorted(ids(STREAM))
    runs = [event.transaction.id for event in found]
    assert all(
        [e for e in found if e.transaction.id == of] == whole(of, SIZES[of])
        and runs.index(of) + SIZES[of] - 1 == len(runs) - 1 - runs[::-1].index(of)
        for of in SIZES
    )


@settings(max_examples=30 * EFFORT, deadline=None)
@given(st.permutations([*STREAM, Watermark(), SchemaChange(TABLE, "alter")]), st.integers(1, 8))
def test_nothing_is_lost_and_little_is_held_whatever_the_bounds(events, bound):
    collect = CollectTransactions(max_waiting=bound, max_buffered=bound, has_marks=False)
    found = []
    for event in events:
        found.extend(collect.push(event))
        assert collect.state.buffered_count <= bound
    found.extend(collect.flush())
    assert len(found) == len(events)
    assert sorted(map(repr, found)) == sorted(map(repr, events))


# -- from the command line -----------------------------------------------------------------------


def message(of, number, size, op="ins", **meta):
    place = {"trans": of, "seq": number, "size": size, "idx": f"{number}/{size}"}
    data = {"ID": f"{of}-{number}"}
    return json.dumps(
        {"meta": {"op": op, "table": "S.T", "scn": "9", **place, **meta}, "data": data}
    )


LINES = [message("7.0.1", 2, 2), message("7.0.2", 3, 4), message("7.0.1", 1, 2)]


def convert(*arguments, lines=LINES, target="shareplex-json"):
    args = ["convert", "-f", "shareplex-json", "-t", target, *arguments]
    result = CliRunner().invoke(main, args, input="\n".join(lines), catch_exceptions=False)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return result, [row["data"]["ID"] for row in found if "data" in row]


def test_order_stays_as_it_is_unless_transactions_are_asked_for():
    result, rows = convert()
    assert rows == ["7.0.1-2", "7.0.2-3", "7.0.1-1"]
    assert result.exit_code == 0


def test_transactions_are_written_together_and_incomplete_ones_are_reported():
    result, rows = convert("--transactions", "report", "--output", "json", lines=[*LINES, LINES[0]])
    assert rows == ["7.0.1-1", "7.0.1-2", "7.0.2-3"]
    assert result.exit_code == 0
    assert json.loads(result.stderr)["transactions"] == {
        "duplicates": 1,
        "incomplete": 1,
        "first_incomplete": [{"id": "7.0.2", "operations": 1, "size": 4}],
    }
    text = convert("--transactions", "report", lines=[*LINES, LINES[0]])[0].stderr
    assert "partial   1 incomplete transaction, written without the missing operations" in text
    assert "7.0.2: 1 of 4 operations" in text
    assert "dropped   1 duplicate operation" in text


def test_incomplete_transactions_are_marked_in_the_output():
    for arguments in ((), ("--table", "S.*")):
        result, _ = convert("--transactions", "mark", *arguments, target="native-json")
        events = [json.loads(line) for line in result.stdout.splitlines()]
        assert [event["op"] for event in events] == ["c", "c", "control", "c"]
        assert events[2]["text"] == "7.0.2: 1 of 4 operations"


def test_what_is_held_back_has_a_bound():
    lines = [message("7.0.1", number, 3) for number in (3, 2, 1)]
    result, rows = convert("--transactions", "report", "--max-buffered-events", "1", lines=lines)
    assert rows == ["7.0.1-2", "7.0.1-3", "7.0.1-1"]
    assert "7.0.1: 2 of 3 operations" in result.stderr


def test_filter_of_tables_does_not_make_transactions_incomplete():
    lines = [message("7.0.1", 1, 2), message("7.0.1", 2, 2, table="S.U")]
    result, rows = convert("--transactions", "report", "--table", "S.T", lines=lines)
    assert rows == ["7.0.1-1"]
    assert "partial" not in result.stderr


def test_halves_of_a_transaction_that_come_in_any_order_are_one_update():
    after = message("7.0.1", 2, 2, "UPDATE AFTER", rowid="AAA")
    before = message("7.0.1", 1, 2, "UPDATE BEFORE", rowid="AAA")
    result, _ = convert("--transactions", "report", lines=[after, before], target="native-json")
    (update,) = map(json.loads, result.stdout.splitlines())
    assert update["op"] == "u"
    assert (update["before"], update["after"]) == ({"ID": "7.0.1-1"}, {"ID": "7.0.1-2"})


def test_shareplex_messages_are_collected():
    codec = get_codec("shareplex-json")
    events = [codec.decode(Message(line.encode()))[0] for line in LINES]
    found = collected(*events, has_marks=False)
    assert [event.transaction.order for event in found] == [1, 2, 3]
