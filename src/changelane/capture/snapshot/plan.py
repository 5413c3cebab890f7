# SPDX-License-Identifier: Apache-2.0
"""The plan and the progress of a snapshot, in the folder of the capture log.

The files are::

    snapshot/plan.json                 the tables and the chunks of the first load that runs
    snapshot/tables/5f0c....plan       the same of the snapshot of one table (table_requests.py)
    snapshot/ID/000017.json            the segments of a chunk that is complete

``ID`` is the id of the plan, so that a reader of an abandoned snapshot changes nothing. Segments of
chunks are invisible until one manifest publishes all of them at the end of the snapshot.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from changelane.capture.manifest import EngineOffset, Segment
from changelane.capture.storage import Folder

_FOLDER: Final = "snapshot"
FIRST_LOAD: Final = f"{_FOLDER}/plan.json"
"""The file with the plan of the first load."""
_CHUNK: Final = re.compile(r"([0-9]+)\.json")


class KeyColumn(msgspec.Struct, frozen=True):
    """A column of a key.

    Attributes:
        name: Its name.
        type: Its type as the database writes it, such as ``numeric(10,2)``.
        is_divisible: Whether its values can be bounds of chunks.
    """

    name: str
    type: str
    is_divisible: bool = True


class SnapshotTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a snapshot.

    Attributes:
        schema: The schema; MySQL and MariaDB: the database.
        name: Its name.
        oid: Its id in the catalog; PostgreSQL only.
        is_partitioned: It is a partitioned table, whose rows are those of its partitions;
            PostgreSQL only.
        columns: The columns that the log has, too.
        types: The types of the columns; MySQL and MariaDB only.
        key: The columns by which it is divided into chunks; empty = it has no key.
        index: The index of the key; MySQL and MariaDB only.
        row_filter: The condition of the publication on its rows, in SQL; empty = none.
        key_range: The condition that selects the rows of a range of keys, in SQL; empty = all.
        row_bytes: The average size of a row.
        version: A digest of its definition, which changes with every statement that alters the
            table, and for PostgreSQL of its files, which one that truncates or rewrites it changes.
        is_continuable: Whether rows of a later snapshot may follow those of the first one.
    """

    schema: str
    name: str
    columns: tuple[str, ...]
    key: tuple[KeyColumn, ...]
    row_bytes: int
    version: str
    oid: int = 0
    is_partitioned: bool = False
    types: tuple[str, ...] = ()
    index: str = ""
    row_filter: str = ""
    key_range: str = ""
    is_continuable: bool = True

    @property
    def label(self) -> str:
        """The name for people."""
        return f"{self.schema}.{self.name}"


class SnapshotChunk(msgspec.Struct, frozen=True):
    """A part of a table that is read at once: the keys after *lower*, up to *upper*.

    Attributes:
        number: Its number in the plan.
        table: The index of its table in the plan.
        lower, upper: Values of the key columns as texts of the database, for MySQL and MariaDB as
            literals of SQL; ``None`` = no bound.
    """

    number: int
    table: int
    lower: tuple[str, ...] | None = None
    upper: tuple[str, ...] | None = None


def divided(
    planned_tables: Sequence[SnapshotTable],
    upper_bounds: Callable[[SnapshotTable, int], Iterable[tuple[str, ...]]],
    *,
    max_rows: int,
    max_bytes: int,
) -> tuple[SnapshotChunk, ...]:
    """Return the chunks of tables; those of tables that cannot continue later come first.

    Args:
        planned_tables: The tables of the plan.
        upper_bounds: Returns the key of every n-th row of a table, in the order of the key.
        max_rows: The number of rows of a chunk.
        max_bytes: The approximate size of its rows, which may reduce their number.
    """
    bounds: list[tuple[int, tuple[str, ...] | None, tuple[str, ...] | None]] = []
    # PostgreSQL: these must be complete before the exported snapshot can be lost; MySQL and
    # MariaDB: the log continues at their position
    for index, table in sorted(enumerate(planned_tables), key=lambda pair: pair[1].is_continuable):
        row_count = min(max_rows, max(1, max_bytes // max(table.row_bytes, 1)))
        lower: tuple[str, ...] | None = None
        for upper in upper_bounds(table, row_count):
            bounds.append((index, lower, upper))
            lower = upper
        bounds.append((index, lower, None))
    return tuple(SnapshotChunk(number, *bound) for number, bound in enumerate(bounds))


class SnapshotPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot reads.

    Attributes:
        id: The id of the snapshot.
        settings: A digest of the options that the content of a chunk depends on.
        follows: The number of the newest manifest before it; 0 = there was none. A later one
            deleted the segments of the snapshot, which were not published.
        offset: A position of the log that has everything which was committed after the rows were
            read; for PostgreSQL the consistent point of the slot, which is that of all rows.
        created_ms: The time of the snapshot, milliseconds since 1970-01-01 UTC.
        tables: The tables.
        schemas: A digest of the definitions of all tables of the database at *offset*; MySQL and
            MariaDB only.
        history: A digest of the file with the schemas that the engine recorded; MySQL and MariaDB
            only.
        log_mark: What identifies the log at *offset*; MySQL and MariaDB only.
        chunks: The chunks of all tables; those of tables that cannot continue come first.
        complete_at: The number of the newest manifest when all chunks were complete, before the
            capture process could publish them; ``None`` = they are not. Single tables only.
    """

    id: str
    settings: str
    follows: int
    offset: EngineOffset
    created_ms: int
    tables: tuple[SnapshotTable, ...]
    schemas: str = ""
    history: str = ""
    log_mark: str | None = ""
    chunks: tuple[SnapshotChunk, ...]
    complete_at: int | None = None


class CompleteChunk(msgspec.Struct, frozen=True):
    """A chunk whose segments are in the storage.

    Attributes:
        number: Its number in the plan.
        segments: Its segments in order; their first offsets are 0. Empty = it has no row.
        offset: The position of its rows; empty = that of the plan.
    """

    number: int
    segments: tuple[Segment, ...]
    offset: EngineOffset = {}


class SnapshotProgress:
    """The plan and the complete chunks of a snapshot.

    Args:
        folder: The storage of the capture log.
        name: The file of the plan.
    """

    def __init__(self, folder: Folder, name: str = FIRST_LOAD) -> None:
        self._folder = folder
        self._name = name

    def plan(self) -> SnapshotPlan | None:
        """Return the plan of the snapshot that is not published; ``None`` = there is none.

        A plan that another version wrote, and that this one cannot read, counts as none.
        """
        try:
            return msgspec.json.decode(self._folder.read(self._name), type=SnapshotPlan)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def start(self, snapshot_plan: SnapshotPlan) -> None:
        """Record the plan of a new snapshot."""
        self._folder.replace(self._name, msgspec.json.encode(snapshot_plan))

    def complete(self, snapshot_plan: SnapshotPlan, chunk: CompleteChunk) -> None:
        """Record that the segments of a chunk are in the storage."""
        self._folder.replace(
            _chunk_name(snapshot_plan.id, chunk.number), msgspec.json.encode(chunk)
        )

    def complete_numbers(self, snapshot_plan: SnapshotPlan) -> set[int]:
        """Return the numbers of the complete chunks of a plan."""
        matches = (
            _CHUNK.fullmatch(name) for name in self._folder.names(_folder_of(snapshot_plan.id))
        )
        return {int(match[1]) for match in matches if match}

    def complete_chunks(self, snapshot_plan: SnapshotPlan) -> Iterator[CompleteChunk]:
        """Yield the complete chunks of a plan, in its order."""
        for number in sorted(self.complete_numbers(snapshot_plan)):
            content = self._folder.read(_chunk_name(snapshot_plan.id, number))
            yield msgspec.json.decode(content, type=CompleteChunk)

    def delete(self, snapshot_plan: SnapshotPlan) -> None:
        """Delete a plan, and the progress of its chunks."""
        self._folder.delete(self._name)
        for name in self._folder.names(_folder_of(snapshot_plan.id)):
            self._folder.delete(f"{_folder_of(snapshot_plan.id)}/{name}")


def _folder_of(plan_id: str) -> str:
    return f"{_FOLDER}/{plan_id}"


def _chunk_name(plan_id: str, number: int) -> str:
    return f"{_folder_of(plan_id)}/{number:06}.json"


def shares_of(chunks: Iterable[SnapshotChunk], reader_count: int) -> list[list[SnapshotChunk]]:
    """Distribute chunks over readers; chunks of one table go to all of them.

    >>> [[chunk.number for chunk in share] for share in shares_of(
    ...     [SnapshotChunk(number, 0) for number in range(3)], 2)]
    [[0, 2], [1]]
    """
    shares: list[list[SnapshotChunk]] = [[] for _ in range(reader_count)]
    for index, chunk in enumerate(chunks):
        shares[index % reader_count].append(chunk)
    return [share for share in shares if share]
