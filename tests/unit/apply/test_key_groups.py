# SPDX-License-Identifier: Apache-2.0
"""Groups of keys that moved rows connect."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any

import pytest

from changelane.apply import (
    KeyDelete,
    KeyState,
    Rejection,
    Resolution,
    RowOperation,
    TableTruncate,
    Upsert,
    resolve,
)
from changelane.apply.merge.key_groups import numbered_groups
from changelane.testing.conformance import EFFORT
from changelane.testing.histories import Profile, history, shuffled
from changelane.testing.key_change_histories import deliver, draw, judge, play
from changelane.testing.reference import upsert
from changelane.testing.reference.upsert import MemoryTables

HISTORIES = 150 * EFFORT
PROFILES = (
    Profile(moves="whole", ties=True),
    Profile(moves="lacking", size=16, keys=4),
    Profile(moves="lacking", deferred=True, transactions=True, before="full", size=24, keys=6),
)


def key_links(
    states: Mapping[bytes, KeyState], operations: Iterable[RowOperation]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs of keys that operations and stored states connect."""
    for operation in operations:
        yield from _links_of(operation)
    for key, state in states.items():
        if state.moved_to is not None:
            yield key, state.moved_to
        for record in state.transactions:
            for operation in record.operations:
                yield from _links_of(operation)
                if operation.key is not None:
                    yield key, operation.key
            if record.outside_state.moved_to is not None:
                yield key, record.outside_state.moved_to


def _links_of(operation: RowOperation) -> Iterator[tuple[bytes, bytes]]:
    match operation:
        case Upsert(key=bytes() as key, moved_from=bytes() as other):
            yield key, other
        case KeyDelete(key=key, moved_to=bytes() as other):
            yield key, other


class Comparison:
    """Applies the merge rule to all keys, and to each group of keys by itself."""

    def __init__(self) -> None:
        self.group_counts: list[int] = []

    def resolve(
        self, states: Mapping[bytes, KeyState], operations: Iterable[RowOperation], **options: Any
    ) -> Resolution:
        operations = list(operations)
        numbers = numbered_groups(key_links(states, operations), size=1)
        truncates = [one for one in operations if isinstance(one, TableTruncate)]
        groups: dict[object, tuple[dict[bytes, KeyState], list[RowOperation]]]
        groups = defaultdict(lambda: ({}, [*truncates]))
        for key, state in states.items():
            groups[numbers.get(key, key)][0][key] = state
        for operation in operations:
            if not isinstance(operation, TableTruncate):
                key = operation.key or b""
                groups[numbers.get(key, key)][1].append(operation)
        whole = resolve(states, operations, **options)
        parts = [resolve(*group, **options) for group in groups.values()]
        self.group_counts.append(len(parts))
        merged: dict[bytes, KeyState] = {}
        for part in parts:
            assert not merged.keys() & part.states.keys()
            merged |= part.states
        assert merged == whole.states
        assert rejected(parts) == rejected([whole])
        assert sum(part.tie_count for part in parts) == whole.tie_count
        return whole


def rejected(resolutions: Iterable[Resolution]) -> set[tuple[bytes | None, object, str]]:
    def told(rejection: Rejection) -> tuple[bytes | None, object, str]:
        return rejection.key, rejection.code, repr(rejection.operation)

    return {told(one) for resolution in resolutions for one in resolution.rejections}


@pytest.fixture
def comparison(monkeypatch: pytest.MonkeyPatch) -> Comparison:
    compared = Comparison()
    monkeypatch.setattr(upsert, "resolve", compared.resolve)
    return compared


def test_transactions_that_change_keys_are_decided_group_by_group(comparison: Comparison) -> None:
    for number in range(HISTORIES):
        chance = Random(f"groups {number}")
        one = draw(chance, permuted=number % 2 == 1, by_key=number % 3 == 0)
        told = play(chance, one)
        judge(deliver(chance, one, told.events), told)
    assert sum(count > 1 for count in comparison.group_counts) > HISTORIES / 2


@pytest.mark.parametrize("profile", PROFILES)
def test_histories_are_decided_group_by_group(comparison: Comparison, profile: Profile) -> None:
    for number in range(HISTORIES // 3):
        chance = Random(f"groups {number}")
        tables = MemoryTables()
        for batch in shuffled(chance, history(chance, profile).events):
            tables.apply(batch)
    assert sum(count > 1 for count in comparison.group_counts) > HISTORIES / 9


def test_groups_of_few_keys_share_a_number_and_a_large_one_has_its_own() -> None:
    pairs = [(number, number + 1) for number in range(0, 100, 2)]
    chain = [(number, number + 1) for number in range(100, 150)]
    numbers = numbered_groups([*pairs, *chain], size=20)
    sizes: dict[int, int] = defaultdict(int)
    for number in numbers.values():
        sizes[number] += 1
    assert sorted(sizes.values()) == [20, 20, 20, 20, 20, 51]
    assert all(numbers[key] == numbers[other] for key, other in [*pairs, *chain])


def test_the_number_of_a_group_does_not_depend_on_the_order_of_its_links() -> None:
    chance = Random(7)
    for _ in range(50):
        links = [(chance.randrange(30), chance.randrange(30)) for _ in range(20)]
        expected: list[set[int]] = []
        for link in links:
            joined = set(link).union(*(group for group in expected if group & set(link)))
            expected = [group for group in expected if not group & joined] + [joined]
        numbers = numbered_groups(links, size=1)
        groups: dict[int, set[int]] = defaultdict(set)
        for key, number in numbers.items():
            groups[number].add(key)
        assert sorted(map(sorted, groups.values())) == sorted(map(sorted, expected))
