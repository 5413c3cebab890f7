# SPDX-License-Identifier: Apache-2.0
"""The interface of the rows of a snapshot, one module for each product, and what they share.

Only the process of a reader imports this module: it needs the JVM.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Final, Protocol

import jpype

from changelane.capture.manifest import EngineOffset
from changelane.capture.snapshot.plan import SnapshotChunk, SnapshotTable
from changelane.errors import ChangelaneError

_FETCH_BYTES: Final = 4 << 20
"""The size of the rows that the driver fetches at once."""
_MAX_FETCH_ROWS: Final = 2000


class ChangedTableError(ChangelaneError):
    """A table was altered, truncated or rewritten during the snapshot.

    Args:
        name: The table.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} was altered, truncated or rewritten during the snapshot")


class ChunkRows(Protocol):
    """Reads the rows of chunks, as a product's engine writes them in its stream."""

    @property
    def offset(self) -> EngineOffset:
        """The position of the rows that were read last; empty = that of the plan.

        The log has everything that was committed after it.
        """
        ...

    def read(self, planned_table: SnapshotTable, chunk: SnapshotChunk) -> Iterator[bytes]:
        """Yield the rows of a chunk as lines of a segment, without offsets.

        Args:
            planned_table: The table of the chunk.
            chunk: The chunk.

        Raises:
            ChangedTableError: The table is not that of the plan any more.
            UnreachableError: The server does not answer.
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def converter_registry(configuration: Any, connector_config: Any) -> Any:
    """Return Debezium's registry of custom converters, which properties name."""
    provider = jpype.JClass("io.debezium.converters.custom.CustomConverterServiceProvider")()
    return provider.createService(configuration, connector_config.getServiceRegistry())


def source_times(time_ms: int) -> dict[str, Any]:
    """Return the fields of a source block with its time.

    Args:
        time_ms: The time, milliseconds since 1970-01-01 UTC.
    """
    java_long = jpype.JClass("java.lang.Long").valueOf
    return {
        "ts_ms": java_long(time_ms),
        "ts_us": java_long(time_ms * 1000),
        "ts_ns": java_long(time_ms * 1_000_000),
    }


@contextlib.contextmanager
def fetch_rows(
    java_connection: Any,
    query: str,
    planned_table: SnapshotTable,
    *,
    fetch_size: int | None = None,
) -> Iterator[Any]:
    """Yield the result of a query, whose rows the driver fetches in parts.

    Args:
        java_connection: A connection of JDBC in a transaction.
        query: The query.
        planned_table: The table, for the size of its rows.
        fetch_size: The number of rows that the driver fetches at once; ``None`` = by their size.
    """
    rows_at_once = min(_MAX_FETCH_ROWS, max(1, _FETCH_BYTES // max(planned_table.row_bytes, 1)))
    statement = java_connection.createStatement()
    try:
        statement.setEscapeProcessing(False)
        statement.setFetchSize(rows_at_once if fetch_size is None else fetch_size)
        yield statement.executeQuery(query)
    finally:
        statement.close()
