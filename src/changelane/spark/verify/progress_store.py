# SPDX-License-Identifier: Apache-2.0
"""The progress of a continuous verification, in the lake: a restart continues with the next chunk.

Each table has a folder with one small file, which the next one replaces. It has the ends of the
chunks, which are values of the key; these are in the table, too, because a column that transforms
change is in no key that is compared.
"""

import msgspec
from pyspark.sql import SparkSession

from changelane.spark.runtime.sql import folder_name
from changelane.spark.state.small_files import SmallFiles
from changelane.spark.verify.progress import TableProgress
from changelane.spark.verify.table_plan import Bound


class StoredRound(msgspec.Struct, frozen=True, kw_only=True):
    """How far the present round of a table is.

    Attributes:
        progress: The newest comparisons of the table.
        next_chunk: The number of the chunk that follows.
        bounds: The ends of the chunks of the round but the last one.
        time_s: The time of the newest comparison, seconds since 1970-01-01 UTC.
    """

    progress: TableProgress
    next_chunk: int
    bounds: tuple[Bound, ...]
    time_s: float

    @property
    def is_complete(self) -> bool:
        """Whether the round has no further chunk."""
        return self.next_chunk > len(self.bounds)


class ProgressStore:
    """The stored rounds of a pipeline's tables.

    Args:
        spark: The session.
        folder: The folder of the pipeline's tables.
        name: The pipeline.
    """

    def __init__(self, spark: SparkSession, folder: str, name: str) -> None:
        self._spark = spark
        self._path = f"{folder.rstrip('/')}/_changelane/verify/{folder_name(name)}"

    def read(self, table: str) -> StoredRound | None:
        """Return the round of a table; ``None`` = nothing readable is stored."""
        files = self._files(table)
        for name in _newest_first(files.names()):
            try:
                return msgspec.json.decode(files.read(name), type=StoredRound)
            except msgspec.DecodeError:
                continue
        return None

    def write(self, table: str, stored: StoredRound) -> None:
        """Replace the round of a table.

        Raises:
            OSError: It cannot be written.
        """
        files = self._files(table)
        former = _newest_first(files.names())
        number = int(former[0].removesuffix(".json")) + 1 if former else 0
        files.write(f"{number:020}.json", msgspec.json.encode(stored))
        for name in former:
            files.delete(name)

    def _files(self, table: str) -> SmallFiles:
        return SmallFiles(self._spark, f"{self._path}/{folder_name(table)}")


def _newest_first(names: list[str]) -> list[str]:
    numbered = (name for name in names if name.removesuffix(".json").isdecimal())
    return sorted(numbered, reverse=True)
