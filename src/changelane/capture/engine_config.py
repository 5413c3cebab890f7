# SPDX-License-Identifier: Apache-2.0
"""The configuration of the capture process, and the status that it reports.

The parent writes the configuration as one line of JSON to the process's standard input, never to
its arguments or its environment, because it contains a password. The process writes its status to
standard output, one line of JSON for each change.
"""

from pathlib import Path
from typing import Final

import msgspec

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.manifest import EngineOffset
from changelane.capture.publication import PublicationLimits
from changelane.errors import ConfigError
from changelane.pipeline.database_source import HEAP, Snapshot


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of a capture process.

    Attributes:
        connector: The database to capture.
        log: The address of the capture log.
        work: A local folder of this capture alone: the log file, the spool and the engine's files.
        jars: The folder of the engine's jars.
        heap: The maximum heap of the JVM, such as ``512m``.
        limits: The limits that make a publication due.
        snapshot: How a new history of the capture log begins. ``engine``: with all rows, which this
            process reads. ``spark``: its first manifest has them already. ``none``: with the
            changes after the position of the slot (PostgreSQL), or with those from now on.
        with_markers: Whether BEGIN and END of transactions are records of the log, too.

    Raises:
        ValueError: An option has no valid value.
    """

    connector: ConnectorOptions
    log: str
    work: str
    jars: str
    heap: str = "512m"
    limits: PublicationLimits = PublicationLimits()
    snapshot: Snapshot = "engine"
    with_markers: bool = False

    def __post_init__(self) -> None:
        """Check the size of the heap, which becomes an argument of the JVM."""
        if HEAP.fullmatch(self.heap) is None:
            raise ValueError("heap is a number with k, m or g, such as 512m")

    @property
    def log_file(self) -> Path:
        """The newest log file of the engine."""
        return Path(self.work) / "engine.0.log"


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The engine is connected.

    Attributes:
        pid: The id of the process.
        sequence: The newest manifest, from which it continues; ``None`` = a snapshot comes first.
    """

    pid: int
    sequence: int | None


class Published(msgspec.Struct, frozen=True, tag="published"):
    """A manifest was published; a newly started process reports the newest one.

    Attributes:
        sequence: The number of the manifest.
        next_offset: The offset in the log after its records.
        record_count: The number of records.
        size_bytes: The size of its segments.
        engine_offset: The engine's position after them.
        position: The same as the database writes it, such as ``0/16B3748``.
        source_time_ms: The source's time of the newest change, milliseconds since 1970-01-01 UTC.
        created_ms: The time of the publication, in the same unit.
    """

    sequence: int
    next_offset: int
    record_count: int
    size_bytes: int
    engine_offset: EngineOffset
    position: str = ""
    source_time_ms: int | None = None
    created_ms: int = 0


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """The database answers.

    Attributes:
        position: The newest position that the engine received.
        pending_count: The number of records that are not published yet.
        engine_offset: The newest offset that the engine received, in a transaction, too.
        is_quiet: Whether nothing waits for its publication, and only heartbeats come.
    """

    position: str
    pending_count: int
    engine_offset: EngineOffset = {}
    is_quiet: bool = False


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The process ends with an error.

    Attributes:
        reason: What is wrong, and what to do; without values of rows and without secrets.
        is_retriable: Whether a new process may succeed, because the database did not answer.
    """

    reason: str
    is_retriable: bool


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The process ends in good order.

    Attributes:
        sequence: The newest manifest; ``None`` = nothing was published.
    """

    sequence: int | None


EngineStatus = Started | Published | Heartbeat | Failed | Stopped

_STATUS: Final[msgspec.json.Decoder[EngineStatus]] = msgspec.json.Decoder(EngineStatus)
_CONFIG: Final = msgspec.json.Decoder(EngineConfig)


def encode_config(config: EngineConfig) -> bytes:
    """Return the line for the process's standard input."""
    return msgspec.json.encode(config) + b"\n"


def decode_config(line: bytes) -> EngineConfig:
    """Return the configuration of a line.

    Raises:
        ConfigError: The line is no configuration; the message has no value of it.
    """
    try:
        return _CONFIG.decode(line)
    except msgspec.DecodeError as error:
        msg = f"the capture process got no valid configuration: {error}"
        raise ConfigError(msg) from None


def encode_status(status: EngineStatus) -> bytes:
    """Return the line for the process's standard output."""
    return msgspec.json.encode(status) + b"\n"


def decode_status(line: bytes) -> EngineStatus | None:
    """Return the status of a line; ``None`` = it is something else."""
    try:
        return _STATUS.decode(line)
    except msgspec.DecodeError:
        return None
