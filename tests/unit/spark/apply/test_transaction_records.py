"""What is remembered of keys inside transactions, through the text that the side table keeps."""

from random import Random

import msgspec

from changelane.apply import NO_ORDER, ColumnVersion, KeyDelete, KeyState, Upsert
from changelane.apply.added_columns import Addition, Cause
from changelane.apply.row_state import TransactionRecord
from changelane.spark.apply.transaction_records import read_transactions, write_transactions
from changelane.spark.rows.target import Target
from changelane.testing.key_change_histories import TABLE, Class, deliver, play
from changelane.testing.reference.upsert import MemoryTables

COLUMNS = {
    "id": lambda text: None if text is None else int(text),
    "a": lambda t: t,
    "b": lambda t: t,
}

TARGET = Target({"id": "int", "a": "string", "b": "string"}, ("id",), {})


def written(value: object) -> str | None:
    return None if value is None else str(value)


def test_what_is_remembered_reads_back_and_goes_on_as_it_was() -> None:
    one = Class(
        "sequence_by", deferred=True, full=True, permuted=False, ids=True, single=True, halves=True
    )
    remembered = 0
    for seed in range(60):
        chance = Random(seed)
        told = play(chance, one)
        tables = MemoryTables()
        for batch in deliver(chance, one, told.events):
            tables.apply(batch)
            for key, state in tables.states(TABLE).items():
                if state.transactions:
                    remembered += 1
                    text = write_transactions(state.transactions, TARGET, written)
                    again = read_transactions(text, TARGET, COLUMNS)
                    assert again == state.transactions
                    kept = msgspec.structs.replace(state, transactions=again)
                    tables._tables[TABLE].states[key] = kept
        assert tables.keyed(TABLE) == told.rows
    assert remembered > 100


RECORD = TransactionRecord(
    b"t",
    (
        KeyDelete(b"[1]", b"3", b"[2]", {"id": 1, "a": "x", "b": "7"}, "t"),
        Upsert(b"[2]", b"4", {"id": 2, "a": "x", "b": "7"}, is_full_row=True),
        Upsert(b"[2]", b"5", {"id": 2, "b": "8"}, is_full_row=False),
    ),
    KeyState(full_row_order=b"1", cells={"id": ColumnVersion(b"1", 2)}),
)


def reread(target: Target) -> TransactionRecord:
    text = write_transactions([RECORD], TARGET, written)
    readers = {name: COLUMNS["id" if name == "id" else "a"] for name in target.columns}
    (record,) = read_transactions(text, target, readers)
    return record


def test_transactions_follow_the_columns_that_the_table_renames_and_drops() -> None:
    alterations = (("1", {"a": "z", "b": "a"}), ("2", {"z": None}))
    target = Target({"id": "int", "a": "string"}, ("id",), {}, alterations=alterations)
    leaves, full, part = reread(target).operations
    assert leaves.before == {"id": 1, "a": "7"}
    assert full.values == {"id": 2, "a": "7"}
    assert part.values == {"id": 2, "a": "8"}
    executed = write_transactions([RECORD], TARGET._replace(alterations=alterations), written)
    swapped = Target(TARGET.columns, ("id",), {}, alterations=alterations)
    assert read_transactions(executed, swapped, COLUMNS) == (RECORD,)


def test_columns_that_a_statement_adds_later_have_their_default_or_are_unknown() -> None:
    columns = {**TARGET.columns, "c": "int"}
    default = Addition("C", b"9", Cause.DEFAULT, value=('{"v":7}', "int"))
    added = reread(Target(columns, ("id",), {}, backfills=(default,)))
    _, full, part = added.operations
    assert (full.values["c"], full.is_full_row) == ("7", True)
    assert "c" not in part.values
    assert added.outside_state.cells["c"] == ColumnVersion(b"1", "7")
    computed = msgspec.structs.replace(default, value=None)
    added = reread(Target(columns, ("id",), {}, backfills=(computed,)))
    _, full, _ = added.operations
    assert (full.values, full.is_full_row) == ({"id": 2, "a": "x", "b": "7"}, False)
    assert added.outside_state.cell("c").order == NO_ORDER
    assert added.outside_state.cell("a") == ColumnVersion(b"1", None)
    plain = reread(Target(columns, ("id",), {}))
    assert plain == RECORD
