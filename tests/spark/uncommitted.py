"""Compares the tables of a lake with the frames of the same batch, applied without a commit."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from changelane.spark.apply.applier import Applier
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker
from changelane.spark.lake.uncommitted import UncommittedLake, VersionedLake
from changelane.spark.runtime.sql import quoted
from changelane.testing.conformance import EFFORT

COMPARES_ALWAYS: Final = EFFORT > 1
"""Whether each batch of these tests is compared; the time of a test doubles."""


def content(rows: DataFrame) -> Counter[str]:
    """Return the rows of a table with all columns, as texts."""
    columns = [quoted(name) for name in sorted(rows.columns)]
    return Counter(map(repr, rows.select(*columns).collect()))


@contextmanager
def compared(
    spark: SparkSession,
    lake: str,
    events: DataFrame,
    marker: Marker,
    options: Mapping[str, Any],
    *,
    is_small: bool,
) -> Iterator[None]:
    """Apply a batch without a commit, and compare the result with that of the ``with`` block."""
    tables = open_lake(spark, lake, Path(lake).name)
    if not isinstance(tables, VersionedLake):
        yield
        return
    frames = UncommittedLake(tables, [marker])
    for name in frames.tables():
        frames.exists(name)
    failure = None
    try:
        Applier(spark, frames, **options).apply(events, marker, is_small=is_small)
    except Exception as error:  # noqa: BLE001 - the committed batch fails, too
        failure = error
    yield
    assert failure is None, f"only the frames failed: {failure}"
    found = {name for name in frames.tables() if frames.exists(name)}
    assert found == set(tables.tables())
    for name in sorted(found):
        assert content(frames.read(name)) == content(tables.read(name)), name
        assert frames.columns(name) == tables.columns(name), name
