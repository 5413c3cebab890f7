# SPDX-License-Identifier: Apache-2.0
"""A table that a snapshot reads, and segments of its rows, without a database."""

from pathlib import Path

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.manifest import Segment
from changelane.capture.segment_file import SegmentFile
from changelane.capture.snapshot.plan import KeyColumn, SnapshotTable
from changelane.capture.storage import LocalFolder

OPTIONS = ConnectorOptions(product="postgres", name="s", host="h", database="d", user="u")
TABLE = SnapshotTable(
    schema="public",
    name="a",
    columns=("id",),
    key=(KeyColumn("id", "integer"),),
    row_bytes=1,
    version="1",
)


def store_segment(folder: LocalFolder, spool: Path, name: str, key: str) -> Segment:
    """Store a segment with one row, which no manifest has."""
    file = SegmentFile(spool / name, 0)
    file.write(b'{"topic":"t","partition":0,"key":"%b","value":"a","headers":[]}' % key.encode())
    segment = file.close()
    folder.put(spool / name, f"segments/{name}")
    return segment
