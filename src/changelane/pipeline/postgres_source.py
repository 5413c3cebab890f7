# SPDX-License-Identifier: Apache-2.0
"""The options of a ``postgres`` source: a database whose changes changelane captures itself."""

import re
from typing import Annotated, Any, Final, Literal, Self

import msgspec

from changelane.pipeline.interface import ResolvePath
from changelane.pipeline.segments_source import SegmentsSource

_IDENTIFIER: Final = re.compile(r"[a-z0-9_]{1,63}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]+")


class PostgresSource(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="postgres",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """A PostgreSQL database, captured by changelane itself (``docs/capture.md``).

    Attributes:
        host: The host of the server.
        port: The port of the server.
        database: The database.
        user: The role, with the privilege REPLICATION, and SELECT on the tables.
        password: The password; a variable such as ``${PGPASSWORD}`` keeps it out of the file.
        sslmode: The TLS mode of the connections, as in libpq.
        sslrootcert: The file with the certificates of trusted authorities.
        tables: The tables, ``schema.table``; ``*`` and ``?`` are wildcards.
        segments: The folder of the capture log, which must be durable: the server deletes what
            the log has.
        slot: The replication slot; by default ``changelane_`` and the database.
        publication: The publication; by default the name of the slot.
        topic_prefix: The name of the server in topics and in the tables' order; by default the
            database.
        snapshot: The first load: ``engine`` reads all rows before the changes, ``none`` begins
            with the changes.
        publish_interval: The time after which captured changes become visible.
        heartbeat_interval: The interval of heartbeats, which let an idle database delete its log.
        retention: The time for which the capture log keeps what all pipelines have applied.
        memory: The maximum heap of the capture engine, such as ``512m``.
        debezium: Further properties of Debezium's connector; those that changelane sets itself
            cannot be set.
        max_bytes_per_batch: The maximum size of the segments of a batch, compressed bytes; a batch
            has at least one segment.
    """

    host: str
    database: str
    user: str
    segments: str
    tables: Annotated[list[str], msgspec.Meta(min_length=1)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 5432
    password: str = ""
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    sslrootcert: str | None = None
    slot: str | None = None
    publication: str | None = None
    topic_prefix: str | None = None
    snapshot: Literal["engine", "none"] = "engine"
    publish_interval: str = "5 seconds"
    heartbeat_interval: str = "10 seconds"
    retention: str = "7 days"
    memory: str = "512m"
    debezium: dict[str, str] = {}
    max_bytes_per_batch: Annotated[int, msgspec.Meta(ge=1)] = 128 << 20

    def __post_init__(self) -> None:
        """Reject names that PostgreSQL or Debezium rejects."""
        if self.slot is not None and _IDENTIFIER.fullmatch(self.slot) is None:
            raise ValueError("slot has other characters than a-z, 0-9 and _, or more than 63")
        if self.publication is not None and not 1 <= len(self.publication.encode()) <= 63:
            raise ValueError("publication must have 1 to 63 bytes")
        if self.topic_prefix is not None and _PREFIX.fullmatch(self.topic_prefix) is None:
            raise ValueError(
                "topic_prefix has other characters than letters, digits, `.`, `_`, `-`"
            )
        if invalid := [name for name in self.tables if "." not in name]:
            raise ValueError(f"{len(invalid)} of the tables are not written as schema.table")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"  # the options contain a secret

    @property
    def slot_name(self) -> str:
        """The name of the replication slot."""
        return self.slot or _identifier(f"changelane_{self.database}")

    @property
    def publication_name(self) -> str:
        """The name of the publication."""
        return self.publication or self.slot_name

    @property
    def server_name(self) -> str:
        """The name of the server in topics and positions."""
        return self.topic_prefix or re.sub(r"[^A-Za-z0-9_.-]", "_", self.database)

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
        return f"PostgreSQL database {self.database} at {self.host}:{self.port}"

    @property
    def type_name(self) -> str:
        """The name of the type of source."""
        return str(self.__struct_config__.tag)

    @property
    def start_text(self) -> str:
        """Empty: a new checkpoint begins with the oldest segment."""
        return ""

    @property
    def engine(self) -> str:
        """The module that reads the capture log on Spark."""
        return "changelane.spark.sources.segments"

    @property
    def jars(self) -> tuple[str, ...]:
        """Empty: the capture engine has a JVM of its own."""
        return ()

    @property
    def brokers(self) -> str:
        """Empty: there is no Kafka broker."""
        return ""

    @property
    def required_topics(self) -> tuple[str, ...]:
        """Empty: there is no Kafka broker."""
        return ()

    @property
    def folders(self) -> tuple[str, ...]:
        """Empty: the first capture creates the folder."""
        return ()

    @property
    def needs_spark_4(self) -> bool:
        """Whether the source needs Spark 4."""
        return False

    @property
    def uses_event_ids(self) -> bool:
        """False: records have the positions of the database's log."""
        return False

    def with_paths(self, resolve: ResolvePath) -> Self:
        """Return the same options with absolute paths."""
        sslrootcert = None if self.sslrootcert is None else resolve(self.sslrootcert)
        return msgspec.structs.replace(
            self, segments=resolve(self.segments), sslrootcert=sslrootcert
        )


def _identifier(text: str) -> str:
    """Return a text as the name of a slot: other characters become ``_``."""
    return re.sub(r"[^a-z0-9_]", "_", text.lower())[:63]
