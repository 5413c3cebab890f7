# SPDX-License-Identifier: Apache-2.0
"""Groups of keys that moved rows connect: the merge rule decides each group by itself.

A row takes its values from its old key to the new one, now or when a late event of the old key
arrives. Nothing else of one key has an effect on another, not even in one transaction. So
:func:`changelane.apply.merge.resolve` of all keys is that of each group, one after the other.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def numbered_groups(links: Iterable[tuple[K, K]], size: int) -> dict[K, int]:
    """Return a number for each linked key, which is equal for keys that links connect.

    Groups of few keys share a number.

    Args:
        links: Pairs of keys.
        size: The number of keys from which on the next group gets another number.

    >>> numbered_groups([("a", "b"), ("c", "d"), ("b", "e"), ("f", "g")], size=4)
    {'a': 0, 'b': 0, 'c': 1, 'd': 1, 'e': 0, 'f': 1, 'g': 1}
    """
    parents: dict[K, K] = {}

    def root_of(key: K) -> K:
        parent = parents.setdefault(key, key)
        while parent != (above := parents[parent]):
            parents[key] = above  # shortens the way of the next search
            key, parent = above, parents[above]
        return parent

    for key, other in links:
        root, other_root = root_of(key), root_of(other)
        if root != other_root:
            parents[other_root] = root
    roots = {key: root_of(key) for key in parents}
    numbers: dict[K, int] = {}
    number = count = 0
    for root, key_count in Counter(roots.values()).items():
        if count and count + key_count > size:
            number, count = number + 1, 0
        numbers[root] = number
        count += key_count
    return {key: numbers[root] for key, root in roots.items()}
