# SPDX-License-Identifier: Apache-2.0
"""The options that every source of a captured database has."""

import re
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

import msgspec

from changelane.errors import ConfigError
from changelane.formats.contract.options import milliseconds, seconds
from changelane.pipeline.interface import ResolvePath
from changelane.pipeline.kafka_source import KafkaSource
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
_CAPTURE_LOG_OPTIONS: Final = (
    *("segments", "engine_folder", "snapshot_readers", "snapshot_chunk_rows", "publish_interval"),
    *("retention", "memory", "max_bytes_per_batch", "new_tables"),
)
_CONNECT_OPTIONS: Final = (
    *("connect_auth", "bootstrap_servers", "connect_secrets_file", "max_offsets_per_trigger"),
    "spark_options",
)
_LOGIN: Final = re.compile(r"Bearer [!-~]+|[^:\x00-\x1f]+:[^\x00-\x1f]*")
_NO_TOPIC_CHARACTER: Final = re.compile(r"[^A-Za-z0-9._-]")


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
            durable: the server deletes what the log has. Either this or `connect_url` is needed.
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
            capture, until `changelane snapshot add` names the table. A pipeline into topics always
            stops.
        publish_interval: The time after which captured changes become visible, such as ``200ms``.
        heartbeat_interval: The interval of heartbeats, which move the position of an idle
            database.
        retention: The time for which the capture log keeps what all pipelines have applied.
        memory: The maximum heap of the capture engine, such as ``512m``.
        debezium: Further properties of Debezium's connector; those that changelane sets itself
            cannot be set.
        max_bytes_per_batch: The maximum size of the segments of a batch, compressed bytes; a batch
            has at least one segment.
        connect_url: The address of a Kafka Connect cluster, such as ``http://connect:8083``, that
            captures the database instead of changelane.
        connect_auth: With `connect_url`: its login, ``user:password`` or ``Bearer <token>``; a
            variable such as ``${CONNECT_AUTH}`` keeps it out of the file.
        bootstrap_servers: With `connect_url`: the brokers of its topics, ``host:port``, separated
            by commas.
        connect_secrets_file: With `connect_url`: the file on its workers that has the secrets of
            the connector.
        max_offsets_per_trigger: With `connect_url`: the maximum number of messages of a batch.
        spark_options: With `connect_url`: further options of Spark's Kafka source, as those of
            `type: kafka`.
    """

    host: str
    user: str
    segments: str = ""
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
    connect_url: str | None = None
    connect_auth: str = ""
    bootstrap_servers: str = ""
    connect_secrets_file: str = "/etc/connect/secrets.properties"
    max_offsets_per_trigger: Annotated[int, msgspec.Meta(ge=1)] | None = None
    spark_options: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Reject values that the capture or Debezium would reject later."""
        if not self.host or "," in self.host:
            raise ValueError("host is not one host name")
        if not self.user:
            raise ValueError("user is empty")
        self._check_transport()
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

    def _check_transport(self) -> None:
        """Reject a source without a capture log or Kafka Connect, and options of the other one."""
        if self.connect_url is None:
            if not self.segments:
                raise ValueError(
                    "segments is missing: set it to the folder of the capture log, or set "
                    "connect_url if Kafka Connect captures the database"
                )
            if names := self._changed_options(_CONNECT_OPTIONS):
                raise ValueError(f"{names} needs connect_url: set it, or remove {names}")
            return
        if names := self._changed_options(_CAPTURE_LOG_OPTIONS):
            msg = f"{names} is for a capture log, and connect_url is set: remove one of them"
            raise ValueError(msg)
        if self.snapshot == "spark":
            msg = "snapshot: spark needs a capture log: with connect_url, use engine or none"
            raise ValueError(msg)
        if "@" in self.connect_url:
            msg = "connect_url contains a login: set connect_auth to ${CONNECT_AUTH}, user:password"
            raise ValueError(msg)
        if not _is_address(self.connect_url):
            raise ValueError("connect_url is no address such as http://connect:8083")
        if self.connect_auth and _LOGIN.fullmatch(self.connect_auth) is None:
            raise ValueError("connect_auth is not user:password or Bearer <token>, on one line")
        if not self.bootstrap_servers:
            raise ValueError("connect_url needs bootstrap_servers, the brokers of its topics")
        if not self.connect_secrets_file or set(self.connect_secrets_file) & set(":}\n"):
            raise ValueError("connect_secrets_file is no path of a file without `:` and `}`")
        _ = self.topic_source  # which checks spark_options

    def _changed_options(self, names: tuple[str, ...]) -> str:
        """Return which of the options have another value than their default, as text."""
        defaults = {
            field.name: {} if field.default is msgspec.NODEFAULT else field.default
            for field in msgspec.structs.fields(self)
        }
        return ", ".join(name for name in names if getattr(self, name) != defaults[name])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"  # the options contain a secret

    @property
    def change_source(self) -> SegmentsSource | KafkaSource:
        """The captured changes as a source: the capture log, or the topics of Kafka Connect."""
        return self.capture_log if self.connect_url is None else self.topic_source

    @property
    def topic_source(self) -> KafkaSource:
        """The topics of the connector in Kafka Connect as a source."""
        return KafkaSource(
            bootstrap_servers=self.bootstrap_servers,
            topic_pattern=self.topic_pattern,
            format=self.format,
            format_options=self.format_options,
            max_offsets_per_trigger=self.max_offsets_per_trigger,
            spark_options=self.spark_options,
        )

    @property
    def server_name(self) -> str:
        """The name of the server in topics and positions."""
        raise NotImplementedError

    @property
    def topic_pattern(self) -> str:
        """The Java regular expression of the topics that a pipeline needs.

        Those of the tables and of the statements; topics of transactions and heartbeats are not
        needed.
        """
        raise NotImplementedError

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
        """Whether the run reads the capture log, and no topics of Kafka Connect."""
        return self.connect_url is None

    @property
    def is_experimental(self) -> bool:
        """Whether no test runs such a server, and only Debezium's connector connects to it."""
        return False

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
        """The module that reads the captured changes on Spark."""
        return self.change_source.engine

    @property
    def jars(self) -> tuple[str, ...]:
        """The jars that Spark needs."""
        return self.change_source.jars

    @property
    def brokers(self) -> str:
        """The addresses of brokers, one of which must answer; empty with a capture log."""
        return self.bootstrap_servers

    def with_paths(self, resolve: ResolvePath) -> Self:
        """Return the same options with absolute paths."""
        names = ("segments", "engine_folder", "sslrootcert", "sslcert", "sslkey")
        paths = {name: path for name in names if (path := getattr(self, name))}
        return msgspec.structs.replace(
            self, **{name: resolve(path) for name, path in paths.items()}
        )


KAFKA_INSTEAD: Final = (
    "let a connector of Debezium write its changes into Kafka, and read them with `type: kafka` "
    "and `format: debezium-json`"
)


def check_product(source_type: str) -> None:
    """Reject a database that changelane does not capture itself, by its type of source.

    The plugin pgoutput of openGauss writes the number of a transaction in eight bytes
    (``logicalrep_write_begin`` in its ``proto.cpp``). Debezium's connector for PostgreSQL reads
    four of them, which are the same for 2^32 transactions.

    Raises:
        ConfigError: It is such a type.
    """
    if source_type == "opengauss":
        raise ConfigError(
            "changelane does not capture openGauss itself, not even with `experimental: true`, "
            "because Debezium's connector for PostgreSQL misreads its transaction numbers, so that "
            "transactions would be mixed up: let the connector of the openGauss project write "
            "its changes into Kafka, and read them with `type: kafka` and `format: debezium-json`"
        )


def _is_address(url: str) -> bool:
    """Whether a text is the address of a service without parameters.

    >>> _is_address("http://connect:8083"), _is_address("http://connect:808x")
    (True, False)
    """
    try:
        parts = urlsplit(url)
        has_port = parts.port != 0
    except ValueError:
        return False
    is_http = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return is_http and has_port and not parts.query and not parts.fragment


def topic_name_pattern(text: str) -> str:
    """Return the pattern of a name in a topic, where Debezium replaces other characters by ``_``.

    >>> topic_name_pattern("my shop.eu")
    'my_shop[.]eu'
    """
    return _NO_TOPIC_CHARACTER.sub("_", text).replace(".", "[.]")


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
