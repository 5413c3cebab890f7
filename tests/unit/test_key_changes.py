"""Transactions that change keys, against a source that enforces them (apply.md section 4)."""

from collections import Counter
from random import Random

import pytest

from changelane.testing.conformance import EFFORT
from changelane.testing.key_changes import Class, deliver, draw, judge, play

HISTORIES = 700 * EFFORT


def played(order: str, seed: int) -> Counter[tuple[str, str]]:
    """Count what becomes of histories, by class."""
    counts: Counter[tuple[str, str]] = Counter()
    for number in range(HISTORIES):
        chance = Random(f"{seed} {number}")
        one = draw(chance, permuted=order == "permuted")
        told = play(chance, one)
        verdict = judge(deliver(chance, one, told.events), told)
        word = "aside" if verdict.aside else "right" if verdict.is_right else "wrong"
        counts[one.name, word] += 1
    return counts


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_order_with_rewinds_every_transaction_ends_as_at_its_source(seed: int) -> None:
    """With full images under any constraints, and with key-only ones under immediate ones."""
    counts = played("in-order", seed)
    decided = {key: n for key, n in counts.items() if "deferred, key-only" not in key[0]}
    assert {word for _, word in decided} == {"right"}
    assert sum(decided.values()) > HISTORIES / 2


def test_a_class_of_histories_is_named_for_what_is_promised_of_it() -> None:
    one = Class("scn", deferred=True, full=False, permuted=True, ids=True, single=True, halves=True)
    assert one.name == "permuted, deferred, key-only images"
