# SPDX-License-Identifier: Apache-2.0
"""The batches of a pipeline that reads a capture log, in its checkpoint.

The folder ``segments`` of the checkpoint contains ``N.json`` for each batch: its offsets in the
capture log. It is written before batch N runs, so that a retry reads the same records. ``N.done``
is written after batch N. Only the files of the two newest batches stay.
"""

import re
from typing import Final

import msgspec

from changelane.spark.state.fencing import FencedError
from changelane.spark.state.file_log import Store
from changelane.spark.state.small_files import decode_file

_NAME: Final = re.compile(r"([0-9]+)\.(json|done)")


class SegmentBatch(msgspec.Struct, frozen=True):
    """The offsets of a batch in the capture log.

    Attributes:
        start: The offset of its first record.
        end: The offset after its last record.
        sequence: The newest manifest whose records all precede *end*.
    """

    start: int
    end: int
    sequence: int


class SegmentLog:
    """The batches of one checkpoint.

    Args:
        store: The folder ``segments`` of the checkpoint.

    Attributes:
        number: The number of the newest batch; -1 = there is none.
        newest: The newest batch; ``None`` = there is none.
        is_complete: Whether the newest batch is complete.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        matches = [match for name in store.names() if (match := _NAME.fullmatch(name))]
        batches = {int(match[1]) for match in matches if match[2] == "json"}
        complete = {int(match[1]) for match in matches if match[2] == "done"}
        self.number = max(batches, default=-1)
        self.is_complete = self.number < 0 or self.number in complete
        self.newest: SegmentBatch | None = None
        if self.number >= 0:
            name = f"{self.number}.json"
            self.newest = decode_file(store.read(name), SegmentBatch, name)

    def start_batch(self, batch: SegmentBatch) -> int:
        """Record a batch before it runs; return its number.

        Raises:
            FencedError: Another run uses the checkpoint.
        """
        number = self.number + 1
        if self._store.exists(f"{number}.json"):
            msg = f"another run started batch {number} of this checkpoint: only one may run"
            raise FencedError(msg)
        self._store.write(f"{number}.json", msgspec.json.encode(batch))
        self.number, self.newest, self.is_complete = number, batch, False
        return number

    def complete_batch(self) -> None:
        """Record that the newest batch is complete."""
        self._store.write(f"{self.number}.done", b"")
        self.is_complete = True
        for suffix in ("json", "done"):
            if self.number >= 2:
                self._store.delete(f"{self.number - 2}.{suffix}")
