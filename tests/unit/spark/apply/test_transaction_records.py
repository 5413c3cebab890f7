"""What is remembered of keys inside transactions, through the text that the side table keeps."""

from random import Random

import msgspec

from changelane.spark.apply.transaction_records import read_transactions, write_transactions
from changelane.testing.key_change_histories import TABLE, Class, deliver, play
from changelane.testing.reference.upsert import MemoryTables

COLUMNS = {
    "id": lambda text: None if text is None else int(text),
    "a": lambda t: t,
    "b": lambda t: t,
}


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
                    text = write_transactions(state.transactions, COLUMNS, written)
                    again = read_transactions(text, COLUMNS)
                    assert again == state.transactions
                    kept = msgspec.structs.replace(state, transactions=again)
                    tables._tables[TABLE].states[key] = kept
        assert tables.keyed(TABLE) == told.rows
    assert remembered > 100


def test_transactions_from_before_the_columns_were_others_are_forgotten() -> None:
    one = Class(
        "sequence_by", deferred=True, full=True, permuted=False, ids=True, single=True, halves=False
    )
    tables = MemoryTables()
    tables.apply(play(Random(4), one).events)
    (state, *_) = (state for state in tables.states(TABLE).values() if state.transactions)
    text = write_transactions(state.transactions, COLUMNS, written)
    assert read_transactions(text, {**COLUMNS, "c": lambda t: t}) == ()
