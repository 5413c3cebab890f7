# SPDX-License-Identifier: Apache-2.0
"""Changes of TPC-H orders (8 columns), as Debezium writes them for PostgreSQL without schemas."""

import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

TEXTS: Final = ("o_orderstatus", "o_orderpriority", "o_clerk", "o_comment")
TYPES: Final = {
    "o_orderkey": "int64",
    "o_custkey": "int64",
    "o_totalprice": "float64",
    "o_shippriority": "int32",
    **dict.fromkeys(TEXTS, "string"),
}
"""The columns, with their types in changelane."""
KEY: Final = "o_orderkey"
TABLE: Final = "shop.public.orders"
Row = dict[str, Any]
Change = tuple[str, Row | None, Row | None]
"""An op, the image before it and the image after it."""


def message(op: str, before: Row | None, after: Row | None, at: int, table: str) -> bytes:
    """Return the value of a message.

    Args:
        op: The operation.
        before: The image before the change.
        after: The image after it.
        at: The number of the change, from which positions and times follow.
        table: The name of the table.
    """
    time_ms = 1_795_248_497_484 + at
    value = {
        "before": before,
        "after": after,
        "source": {
            "version": "3.6.1",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": time_ms,
            "snapshot": "false",
            "db": "shop",
            "sequence": f'["{100 * at}","{100 * at + 50}"]',
            "schema": "public",
            "table": table,
            "txId": 800 + at,
            "lsn": 100 * at + 50,
            "xmin": None,
        },
        "op": op,
        "ts_ms": time_ms + 250,
    }
    return msgspec.json.encode(value)


class Orders:
    """Rows of orders, each a function of its key and of a number of 64 bits."""

    def __init__(self) -> None:
        words = random.Random(7).choices  # noqa: S311 - the same words each time
        self._words = ["".join(words("abcdefghijklmnop ", k=12)).strip() for _ in range(1000)]

    def row(self, key: int, number: int) -> Row:
        """Return a row."""
        words = self._words
        return {
            "o_orderkey": key,
            "o_custkey": number & 0x3FFFFFFF,
            "o_totalprice": (number >> 30) % 10**7 / 100,
            "o_shippriority": (number >> 5) % 5,
            "o_orderstatus": words[number % 997],
            "o_orderpriority": words[(number >> 10) % 997],
            "o_clerk": words[(number >> 20) % 997],
            "o_comment": words[(number >> 40) % 997],
        }


class Shop:
    """A table of orders that changes; updates and deletes have the full image of the row before."""

    def __init__(self) -> None:
        self._orders = Orders()
        self._numbers: dict[int, int] = {}
        self._keys: list[int] = []
        self._next_key = 0
        self._choice = random.Random(7)  # noqa: S311 - the same changes each time

    def rows(self) -> Iterator[Row]:
        """Yield the current rows."""
        for key, number in self._numbers.items():
            yield self._orders.row(key, number)

    def inserts(self, count: int) -> Iterator[Change]:
        """Yield inserts of new keys."""
        for _ in range(count):
            key = self._next_key
            self._next_key += 1
            self._keys.append(key)
            self._numbers[key] = number = self._choice.getrandbits(64)
            yield "c", None, self._orders.row(key, number)

    def updates(self, count: int) -> Iterator[Change]:
        """Yield updates of random rows."""
        for _ in range(count):
            key, number = self._choice.choice(self._keys), self._choice.getrandbits(64)
            before = self._orders.row(key, self._numbers[key])
            self._numbers[key] = number
            yield "u", before, self._orders.row(key, number)

    def changes(self, count: int) -> Iterator[Change]:
        """Yield 60 % inserts, 30 % updates and 10 % deletes."""
        for op in self._choice.choices("cud", (6, 3, 1), k=count):
            if op == "c" or not self._keys:
                yield from self.inserts(1)
            elif op == "u":
                yield from self.updates(1)
            else:
                place = self._choice.randrange(len(self._keys))
                key, self._keys[place] = self._keys[place], self._keys[-1]
                self._keys.pop()
                yield "d", self._orders.row(key, self._numbers.pop(key)), None
