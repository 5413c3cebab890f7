# SPDX-License-Identifier: Apache-2.0
"""Parked tables: one that cannot take its events stops alone, and the others go on.

Its events wait in the change log. Once its cause is mended, ``changelane resume`` lets the next
batch of the pipeline, or its next run, merge them first. Which tables are parked is a property of
the change log.
"""

import hashlib
from typing import Final, Literal

import msgspec

from changelane.spark.state.change_log import ChangeLog

_PREFIX: Final = "parked."


class Parked(msgspec.Struct, frozen=True):
    """A table whose events wait in the change log.

    Attributes:
        table_id: The table.
        reason: Why it could not take them; it quotes no value of a row.
        batch: The first batch that it did not take.
        time_ms: When that was, milliseconds since 1970-01-01 UTC.
        state: ``parked``; ``resumed`` when the next batch may try again; ``done`` when it is
            no longer parked.
    """

    table_id: str
    reason: str
    batch: int
    time_ms: int
    state: Literal["parked", "resumed", "done"] = "parked"


class Parking:
    """The parked tables of a lake."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log

    def tables(self) -> dict[str, Parked]:
        """Return the tables whose events wait, by ``table_id``."""
        found: dict[str, Parked] = {}
        for key, value in self._log.properties().items():
            if key.startswith(_PREFIX):
                one = msgspec.json.decode(value, type=Parked)
                if one.state != "done":
                    found[one.table_id] = one
        return found

    def set(self, *parked: Parked) -> None:
        """Park tables, or change what is known of them."""
        told = {
            # names are of any length and of any characters
            _PREFIX + hashlib.sha256(one.table_id.encode()).hexdigest()[:32]: (
                msgspec.json.encode(one).decode()
            )
            for one in parked
        }
        if told:
            self._log.set_properties(told)
