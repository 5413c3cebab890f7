# SPDX-License-Identifier: Apache-2.0
"""The options that every source of a captured database has."""

import re
from typing import Annotated, Any, Final, Literal, Self

import msgspec

from changelane.errors import ConfigError
from changelane.formats.contract.options import milliseconds, seconds
from changelane.pipeline.interface import ResolvePath
from changelane.pipeline.segments_source import SegmentsSource
from changelane.pipeline.source_options import SourceOptions

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]+")
Snapshot = Literal["spark", "engine", "none"]
"""What reads all rows before the changes."""
HEAP: Final = re.compile(r"[1-9][0-9]*[kmgKMG]")
"""The size of a heap, as an argument of the JVM."""
_ENGINE_PROPERTIES: Final = ("snapshot.", "post.processors", "slot.failover")
"""The beginnings of properties of Debezium that act in a snapshot or at the creation of the slot,
which ``snapshot: spark`` does itself."""


class DatabaseSource(SourceOptions, frozen=True, kw_only=True):
    """A database that changelane captures itself (``docs/capture.md``); a class inherits from it.

    Attributes:
        host: The host of the server.
        user: The login.
        password: The password; a variable such as ``${PGPASSWORD}`` keeps it out of the file.
        sslmode: The TLS mode of the connections, in the words of libpq.
        sslrootcert: The file with the certificates of trusted authorities, in the form PEM.
        sslcert: The file with the certificate of the client, if the server wants one.
        sslkey: The file with its key: PKCS #8 in the form PEM, named `*.pem` or `*.key`, without a
            password.
        segments: The folder of the capture log, on this machine or in an object store. It must be
            durable: the server deletes what the log has.
        engine_folder: The folder of this machine for the files of the capture engine, by default
            `engine` in the folder of the capture log; an object store needs it.
        topic_prefix: The name of the server in topics and in the tables' order; by default the
            database.
        snapshot: The first load: ``engine`` reads all rows with one connection before the
            changes, ``spark`` with several, ``none`` begins with the changes.
        snapshot_readers: The number of connections that read rows, with ``snapshot: spark`` and for
            single tables.
        snapshot_chunk_rows: The maximum number of rows that a reader reads at once; after a
            failure, the snapshot continues with the next chunk.
        new_tables: A table with rows that a pattern of ``tables`` matches, and that was not
            captured until now: ``snapshot`` reads its rows beside the changes, ``stop`` ends the
            capture, until `changelane snapshot add` names the table.
        publish_interval: The time after which captured changes become visible, such as ``200ms``.
        heartbeat_interval: The interval of heartbeats, which move the position of an idle
            database.
        retention: The time for which the capture log keeps what all pipelines have applied.
        memory: The maximum heap of the capture engine, such as ``512m``.
        debezium: Further properties of Debezium's connector; those that changelane sets itself
            cannot be set.
        max_bytes_per_batch: The maximum size of the segments of a batch, compressed bytes; a batch
            has at least one segment.
    """

    host: str
    user: str
    segments: str
    engine_folder: str | None = None
    password: str = ""
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    sslrootcert: str | None = None
    sslcert: str | None = None
    sslkey: str | None = None
    topic_prefix: str | None = None
    snapshot: Snapshot = "engine"
    snapshot_readers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    snapshot_chunk_rows: Annotated[int, msgspec.Meta(ge=1)] = 50_000
    new_tables: Literal["snapshot", "stop"] = "snapshot"
    publish_interval: str = "5 seconds"
    heartbeat_interval: str = "10 seconds"
    retention: str = "7 days"
    memory: str = "512m"
    debezium: dict[str, str] = {}
    max_bytes_per_batch: Annotated[int, msgspec.Meta(ge=1)] = 128 << 20

    def __post_init__(self) -> None:
        """Reject values that the capture or Debezium would reject later."""
        if not self.host or "," in self.host:
            raise ValueError("host is not one host name")
        if not self.user:
            raise ValueError("user is empty")
        if (self.sslcert is None) != (self.sslkey is None):
            raise ValueError("sslcert and sslkey are a certificate and its key: set both or none")
        if HEAP.fullmatch(self.memory) is None:
            raise ValueError("memory is not a number with k, m or g, such as 512m")
        for name, unit in (
            ("publish_interval", milliseconds),
            ("heartbeat_interval", seconds),
            ("retention", seconds),
        ):
            try:
                span = unit(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            if name == "heartbeat_interval" and span == 0:
                raise ValueError("heartbeat_interval is 0: without heartbeats, the log grows")
        if self.snapshot == "spark" and (
            ignored := [name for name in self.debezium if name.startswith(_ENGINE_PROPERTIES)]
        ):
            names = ", ".join(sorted(ignored))
            raise ValueError(f"debezium has {names}, which needs snapshot: engine, not spark")
        if self.topic_prefix is not None and _PREFIX.fullmatch(self.topic_prefix) is None:
            raise ValueError("topic_prefix has other characters than letters, digits, . _ and -")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"  # the options contain a secret

    @property
    def capture_log(self) -> SegmentsSource:
        """The capture log as a source."""
        return SegmentsSource(
            path=self.segments,
            format=self.format,
            format_options=self.format_options,
            max_bytes_per_batch=self.max_bytes_per_batch,
        )

    @property
    def is_capture_log(self) -> bool:
        """True: the run reads the capture log."""
        return True

    @property
    def format(self) -> str:
        """The format of the captured records."""
        return "debezium-json"

    @property
    def format_options(self) -> dict[str, Any]:
        """Empty: the captured records need no options."""
        return {}

    @property
    def label(self) -> str:
        """The database as text."""
        raise NotImplementedError

    @property
    def engine(self) -> str:
        """The module that reads the capture log on Spark."""
        return "changelane.spark.sources.segments"

    def with_paths(self, resolve: ResolvePath) -> Self:
        """Return the same options with absolute paths."""
        names = ("segments", "engine_folder", "sslrootcert", "sslcert", "sslkey")
        paths = {name: path for name in names if (path := getattr(self, name)) is not None}
        return msgspec.structs.replace(
            self, **{name: resolve(path) for name, path in paths.items()}
        )


_UNTESTED: Final = {"oracle": "Oracle", "sqlserver": "SQL Server", "opengauss": "openGauss"}
"""The products whose capture no test can run."""


def check_product(source_type: str) -> None:
    """Reject a database that changelane does not capture itself, by its type of source.

    Raises:
        ConfigError: It is such a type.
    """
    if (product := _UNTESTED.get(source_type)) is not None:
        raise ConfigError(
            f"changelane does not capture {product} itself, not even with `experimental: true`, "
            "because no test can run such a server: let a connector of Debezium write its changes "
            "into Kafka, and read them with `type: kafka` and `format: debezium-json`"
        )


def server_name_of(text: str) -> str:
    """Return a text as the name of a server: other characters become ``_``."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)


def check_table_names(tables: list[str], qualifier: str) -> None:
    """Reject names of tables without a dot.

    Raises:
        ValueError: Some have none.
    """
    if invalid := [name for name in tables if "." not in name]:
        raise ValueError(f"{len(invalid)} of the tables are not written as {qualifier}.table")
