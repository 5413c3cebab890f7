# SPDX-License-Identifier: Apache-2.0
"""The configuration of a snapshot reader, and how it ended.

The parent writes the configuration as one line of JSON to the standard input of the process
:mod:`.reader_process`, because it contains a password. The process writes its end as one line of
JSON to standard output.
"""

from typing import Final

import msgspec

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.snapshot.plan import SnapshotChunk, SnapshotPlan
from changelane.errors import ConfigError


class ReaderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of a reader.

    Attributes:
        connector: The captured database.
        plan: The snapshot, without its chunks.
        chunks: The chunks that this reader reads.
        snapshot: The name of the exported snapshot.
        segment_owner: The owner in the names of the segments (``segment_name``).
        log: The address of the capture log.
        work: A local folder of this reader alone.
        jars: The folder of the engine's jars.
        heap: The maximum heap of the JVM, such as ``512m``.
    """

    connector: ConnectorOptions
    plan: SnapshotPlan
    chunks: tuple[SnapshotChunk, ...]
    snapshot: str
    segment_owner: int | str
    log: str
    work: str
    jars: str
    heap: str

    def __repr__(self) -> str:
        return f"ReaderConfig({self.connector!r})"  # the options contain a secret


class ReaderEnd(msgspec.Struct, frozen=True):
    """How a reader ended.

    Attributes:
        reason: Why it failed; empty = all of its chunks are complete.
        is_changed: A table was altered, truncated or rewritten, so the snapshot must begin anew.
        is_retriable: The database did not answer.
    """

    reason: str = ""
    is_changed: bool = False
    is_retriable: bool = False


_CONFIG: Final = msgspec.json.Decoder(ReaderConfig)
_END: Final = msgspec.json.Decoder(ReaderEnd)


def encode_reader_config(config: ReaderConfig) -> bytes:
    """Return a configuration as a line."""
    return msgspec.json.encode(config) + b"\n"


def decode_reader_config(line: bytes) -> ReaderConfig:
    """Return the configuration of a line.

    Raises:
        ConfigError: The line is none; the reason quotes no value.
    """
    try:
        return _CONFIG.decode(line)
    except msgspec.DecodeError:
        raise ConfigError("the configuration of a snapshot reader is damaged") from None


def decode_reader_end(line: bytes) -> ReaderEnd | None:
    """Return the end of a reader; ``None`` = the line is something else."""
    try:
        return _END.decode(line)
    except msgspec.DecodeError:
        return None
