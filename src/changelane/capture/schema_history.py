# SPDX-License-Identifier: Apache-2.0
"""Checks that the schemas on this machine are those at the end of the capture log.

Debezium keeps the schemas of MySQL's and MariaDB's tables in a file of the engine's folder, which
may be on another machine than the capture log. With the file of an earlier capture, it would read
rows with columns that the tables do not have any more.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec

from changelane.capture.manifest import Manifest
from changelane.capture.postgres.slot_findings import SNAPSHOT
from changelane.capture.storage import LocalFolder
from changelane.errors import ChangelaneError

_FILE: Final = "schema-history.dat"
_MARK: Final = "schema-history.json"


class _Mark(msgspec.Struct, frozen=True):
    """The content of :data:`_MARK`: the log, and the newest writer that used the schemas."""

    log_id: str
    epoch: int


class SchemaHistory:
    """The file with the schemas of the captured tables.

    Args:
        work: The engine's folder.

    Attributes:
        file: The file, which the engine writes.
    """

    def __init__(self, work: Path) -> None:
        self._folder = LocalFolder(work)
        self.file = work / _FILE

    def prepare(self, log_id: str, newest: Manifest | None, epoch: int) -> None:
        """Check the file, and record that a writer uses it.

        Args:
            log_id: The id of the capture log.
            newest: The newest manifest; ``None`` = the log is empty.
            epoch: The epoch of the writer.

        Raises:
            ChangelaneError: The log continues, and the file is missing, or a writer on another
                machine published after the last one here.
        """
        if newest is not None and newest.engine_offset:
            mark = self._mark()
            # a folder without a mark is that of an earlier version, which had none
            is_former = mark is not None and (mark.log_id != log_id or mark.epoch < newest.epoch)
            if is_former or not self.file.exists():
                raise ChangelaneError(
                    f"{self._folder.label} does not have the schemas at the end of the capture "
                    "log: set engine_folder to the folder of the newest capture, copied after its "
                    f"end; or {SNAPSHOT}"
                )
        self._delete_incomplete_line()
        self._folder.replace(_MARK, msgspec.json.encode(_Mark(log_id, epoch)))

    def digest(self) -> str:
        """Return a digest of the file; empty if there is none."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest() if self.file.exists() else ""

    def _delete_incomplete_line(self) -> None:
        """Delete the end of the file after its last line feed.

        A kill or a full disk interrupts the write of a record, and Debezium does not start with a
        part of one. The log has nothing after its statement, which the engine reads again.
        """
        if not self.file.exists():
            return
        content = self.file.read_bytes()
        if len(content) > (length := content.rfind(b"\n") + 1):
            os.truncate(self.file, length)

    def _mark(self) -> _Mark | None:
        try:
            return msgspec.json.decode(self._folder.read(_MARK), type=_Mark)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
