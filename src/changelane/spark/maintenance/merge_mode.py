# SPDX-License-Identifier: Apache-2.0
"""Chooses how a table stores the rows that a batch changes: copy-on-write or merge-on-read.

A small batch in a large table touches some rows of many files. Merge-on-read marks these rows as
deleted, and compaction rewrites the files later, once for many batches. A batch that changes much
of its table is stored as cheaply by rewriting, which costs readers nothing.
"""

from collections.abc import Mapping
from itertools import islice, pairwise
from statistics import median_low
from typing import Final

from changelane.pipeline.options import Maintenance
from changelane.spark.lake.commit_totals import CommitTotals
from changelane.spark.lake.interface import (
    Files,
    MaintainedLake,
    MergeMode,
    prefixed_properties,
)
from changelane.spark.lake.layout import layout_of
from changelane.spark.lake.modes import DEDUPLICATION_COLUMNS

MERGE_MODE_PROPERTY: Final = "merge_mode"
"""The table property with the mode that changelane chose."""
MAX_DELETED_SHARE: Final = 0.1
"""The share of deleted rows above which a table is compacted, however few its small files are."""
_MAX_CHANGED_SHARE: Final = 0.5
"""The share of a table's rows that the batches between two checks may change in merge-on-read."""
_HYSTERESIS: Final = 2
"""A table leaves merge-on-read at this multiple of the share, or this fraction of the size."""
_COMMITS: Final = 6
"""The number of newest commits whose changes are compared."""


def merge_mode_in(properties: Mapping[str, str]) -> MergeMode:
    """Return the mode that changelane chose for a table."""
    return MergeMode(properties.get(MERGE_MODE_PROPERTY, MergeMode.COPY_ON_WRITE))


def is_large_copy_on_write(
    lake: MaintainedLake, name: str, properties: Mapping[str, str], limits: Maintenance
) -> bool:
    """Return whether a table is copy-on-write and has the size for merge-on-read."""
    return merge_mode_in(properties) is MergeMode.COPY_ON_WRITE and lake.size(name) >= _min_bytes(
        lake, limits
    )


def may_change_merge_mode(lake: MaintainedLake, name: str, properties: Mapping[str, str]) -> bool:
    """Return whether changelane chooses the mode of a table.

    It does not if the user chose it, in the options of a pipeline or by SQL, if other properties
    exclude merge-on-read, and for tables without a key, which only get new rows.
    """
    by_user = {key.lower() for key in layout_of(properties).properties}
    by_mode = lake.merge_mode_properties(MergeMode.MERGE_ON_READ)
    return (
        not any(key.lower() in by_user for key in by_mode)
        and lake.merge_mode(name) is merge_mode_in(properties)
        and not DEDUPLICATION_COLUMNS.keys() & lake.columns(name).keys()
    )


def change_merge_mode(
    lake: MaintainedLake,
    name: str,
    properties: Mapping[str, str],
    files: Files,
    limits: Maintenance,
) -> MergeMode | None:
    """Give a table the right mode, in one commit; return it, or ``None`` if the table had it.

    Args:
        lake: The lake.
        name: The path of the table in the lake.
        properties: changelane's properties of the table.
        files: Its data files.
        limits: The thresholds of maintenance.
    """
    current = merge_mode_in(properties)
    max_share = _MAX_CHANGED_SHARE / limits.every_commits
    wanted = wanted_merge_mode(
        current,
        files,
        changes_per_commit(lake, name),
        min_bytes=_min_bytes(lake, limits),
        max_share=max_share,
    )
    if wanted is current:
        return None
    own = prefixed_properties({MERGE_MODE_PROPERTY: wanted.value})
    lake.set_format_properties(name, {**lake.merge_mode_properties(wanted), **own})
    return wanted


def wanted_merge_mode(
    current: MergeMode,
    files: Files,
    change_count: int | None,
    *,
    min_bytes: int,
    max_share: float,
) -> MergeMode:
    """Return the mode for a table.

    Args:
        current: Its mode now.
        files: Its data files.
        change_count: The number of changes of a usual commit; ``None`` = unknown, presumably few.
        min_bytes: The size from which the table is merge-on-read.
        max_share: The share of its rows that a usual commit may change then.
    """
    factor = _HYSTERESIS if current is MergeMode.MERGE_ON_READ else 1
    live_rows = files.rows - files.deleted_rows
    is_large = files.bytes * factor >= min_bytes
    is_changed_little = (change_count or 0) <= live_rows * max_share * factor
    return (
        MergeMode.MERGE_ON_READ
        if is_large and live_rows > 0 and is_changed_little
        else MergeMode.COPY_ON_WRITE
    )


def changes_per_commit(lake: MaintainedLake, name: str) -> int | None:
    """Return the median number of changes of a table's newest commits; ``None`` = unknown.

    The first commit is the initial load, and does not count.
    """
    commits = islice(lake.marked_commits(name), _COMMITS)
    applied = [CommitTotals.of(commit).applied for commit in commits]
    changes = [newer - older for newer, older in pairwise(applied) if newer > older > 0]
    return median_low(changes) if changes else None


def _min_bytes(lake: MaintainedLake, limits: Maintenance) -> int:
    """Return the size from which a table is merge-on-read."""
    chosen_mb = limits.merge_on_read_mb
    return (lake.merge_on_read_mb if chosen_mb is None else chosen_mb) << 20
