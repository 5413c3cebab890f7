# SPDX-License-Identifier: Apache-2.0
"""Partitions of PostgreSQL that were attached with rows, or are gone: no log has these rows.

The origin of a capture log has the partitions whose rows the log has. One that was attached with
rows is missing there until the rows of its table are read again, so that each capture warns of it.
"""

import shlex
from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet

import msgspec

from changelane.capture.finding import Finding, about_tables, shortened
from changelane.capture.log_origin import LogOrigin, read_origin, write_origin
from changelane.capture.storage import Folder

AttachedPartitions = Callable[[Collection[str]], AbstractSet[str]]
"""Returns which of some partitions, by their ids, have rows and were tables of their own before."""


def partition_findings(
    recorded: LogOrigin, present: LogOrigin, attached_partitions: AttachedPartitions
) -> Iterator[Finding]:
    """Yield findings about partitions whose rows came or went without the log.

    Args:
        recorded: The origin of the log.
        present: The origin as it is now.
        attached_partitions: Looks new partitions up.
    """
    for table, partitions in present.partitions.items():
        known = _known_partitions(recorded, present, table)
        if known is None:
            continue
        if attached := attached_partitions(partitions.keys() - known.keys()):
            yield Finding(
                severity="warning",
                defect="attached_partition",
                about=about_tables([table]),
                problem=f"attached with rows: {_names(partitions, attached)}",
                consequence="the log has no rows from before, which the lake may lack",
                advice=f"`changelane snapshot redo PIPELINE.yaml {shlex.quote(table)}` reads them",
            )
        if gone := known.keys() - partitions.keys():
            yield Finding(
                severity="warning",
                defect="detached_partition",
                about=about_tables([table]),
                problem=f"detached or dropped: {_names(known, gone)}",
                consequence="the lake keeps the rows",
                advice="`changelane verify PIPELINE.yaml --repair` deletes them",
            )


def with_known_partitions(
    recorded: LogOrigin, present: LogOrigin, attached_partitions: AttachedPartitions
) -> LogOrigin:
    """Return the origin of a log that continues, without partitions whose rows it may lack."""
    known_partitions = {}
    for table, partitions in present.partitions.items():
        known = _known_partitions(recorded, present, table)
        attached = (
            frozenset[str]()
            if known is None
            else attached_partitions(partitions.keys() - known.keys())
        )
        known_partitions[table] = {
            number: name for number, name in partitions.items() if number not in attached
        }
    return msgspec.structs.replace(present, partitions=known_partitions)


def record_partitions(folder: Folder, table: str, partitions: dict[str, str]) -> None:
    """Record that a log has the rows of partitions, because those of their table were read again.

    Args:
        folder: The storage of the log.
        table: The table.
        partitions: Its partitions before the rows were read.
    """
    origin = read_origin(folder)
    if origin is not None and partitions:
        known = {**origin.partitions.get(table, {}), **partitions}
        write_origin(
            folder,
            msgspec.structs.replace(origin, partitions={**origin.partitions, table: known}),
        )


def _known_partitions(recorded: LogOrigin, present: LogOrigin, table: str) -> dict[str, str] | None:
    """Return the partitions whose rows the log has; ``None`` = unknown, or the table is new."""
    if recorded.tables.get(table) != present.tables[table]:
        return None
    return recorded.partitions.get(table)


def _names(partitions: dict[str, str], numbers: Collection[str]) -> str:
    return shortened(sorted(partitions[number] for number in numbers))
