# SPDX-License-Identifier: Apache-2.0
"""The properties of Debezium's connectors, from the options of a capture.

The names, values and defaults are those of Debezium 3.6.1 (MariaDB: 3.5.0), as its documentation
and its source describe them (https://debezium.io/documentation/reference/3.6/). Debezium's
defaults lose truncates, negate large unsigned numbers and replace NULL with the column's default;
the properties here lose nothing that ``debezium-json`` can read.
"""

import re
import zlib
from typing import Final, Literal

import msgspec

from changelane.capture.experimental_properties import oracle_properties, sqlserver_properties
from changelane.capture.mysql.connection import MysqlConnection
from changelane.capture.mysql.connection import SslMode as MysqlSslMode
from changelane.capture.postgres.connection import PostgresConnection, SslMode
from changelane.capture.postgres.replication import MARKER_PREFIX, PLUGIN
from changelane.capture.postgres.sql_text import TEXT_SETTINGS, qualified
from changelane.capture.reserved_properties import is_reserved
from changelane.errors import ConfigError
from changelane.pipeline.secret_options import is_secret_name
from changelane.schema import TableId

Product = Literal["postgres", "mysql", "mariadb", "sqlserver", "oracle"]

ENGINE_NAME: Final = "changelane"
"""The name of the engine in its offset file."""
HEARTBEAT_CONTENT: Final = "heartbeat"
"""The content of the logical messages that heartbeats write."""
HEARTBEAT_TOPIC_PREFIX: Final = "__debezium-heartbeat"

_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")
_PLAIN_CHARACTER: Final = re.compile(r"[A-Za-z0-9_]")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
_PORTS: Final[dict[Product, int]] = {
    "postgres": 5432,
    "mysql": 3306,
    "mariadb": 3306,
    "sqlserver": 1433,
    "oracle": 1521,
}
_DATABASE_QUALIFIES: Final = frozenset({"mysql", "mariadb"})
"""The products that qualify a table by its database; the others do by its schema."""
_MYSQL_SSL_MODES: Final[dict[SslMode, MysqlSslMode]] = {
    "disable": "disabled",
    "allow": "preferred",
    "prefer": "preferred",
    "require": "required",
    "verify-ca": "verify_ca",
    "verify-full": "verify_identity",
}
# MariaDB's driver uses TLS or does not: it never tries
_MARIADB_SSL_MODES: Final[dict[SslMode, str]] = {
    "disable": "disable",
    "allow": "disable",
    "prefer": "disable",
    "require": "trust",
    "verify-ca": "verify-ca",
    "verify-full": "verify-full",
}


class ConnectorOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A database to capture.

    Attributes:
        product: The database product.
        name: The name of the server in topics and events, Debezium's ``topic.prefix``. It must
            never change, and never name another server.
        host: The host of the database.
        port: Its port; ``None`` = the product's default.
        database: The database; for MySQL and MariaDB the captured database, for Oracle the service.
        pdb: The pluggable database; Oracle only. Empty = there is none.
        user: The login.
        password: The password; never part of a text representation.
        tables: The captured tables; empty = all that the publication (PostgreSQL) or the database
            contains. MySQL and MariaDB: database and name; the others: schema and name.
        parents: Those of them that other tables inherit from; PostgreSQL only.
        unpublished: Generated columns that the log does not have: schema, table and column;
            PostgreSQL only.
        slot: The replication slot; PostgreSQL only.
        publication: The publication; PostgreSQL only.
        server_id: The id of the replica; MySQL and MariaDB only. ``None`` = derived from *name*.
        sslmode: The use of TLS, in the words of PostgreSQL.
        sslrootcert: The file of the certificate authority.
        sslcert: The file of the client's certificate.
        sslkey: The file of the client's key in PEM without a password; for PostgreSQL it is named
            ``*.pem`` or ``*.key``.
        heartbeat_s: The interval of heartbeats, seconds.
        properties: More properties of the connector, such as ``column.exclude.list``.

    Raises:
        ValueError: An option has no valid value.
    """

    product: Product
    name: str
    host: str
    database: str
    user: str
    password: str = ""
    port: int | None = None
    pdb: str = ""
    tables: tuple[TableId, ...] = ()
    parents: tuple[TableId, ...] = ()
    unpublished: tuple[tuple[str, str, str], ...] = ()
    slot: str = "changelane"
    publication: str = "changelane"
    server_id: int | None = None
    sslmode: SslMode = "prefer"
    sslrootcert: str = ""
    sslcert: str = ""
    sslkey: str = ""
    heartbeat_s: float = 10
    properties: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Check names that become parts of other names."""
        if _SERVER_NAME.fullmatch(self.name) is None:
            msg = "the name of a captured server has letters, digits, '.', '_' and '-' only"
            raise ValueError(msg)
        if _SLOT_NAME.fullmatch(self.slot) is None:
            raise ValueError("a slot's name has at most 63 lower-case letters, digits and '_'")
        if not self.heartbeat_s >= 0.1:  # rejects NaN, too
            raise ValueError("heartbeat_s is at least 0.1 seconds")
        if self.product == "postgres" and any(table.name is None for table in self.tables):
            raise ValueError("a captured table needs a name")

    def __repr__(self) -> str:
        """Return the options without those that may be secret."""
        return f"ConnectorOptions({self.product!r}, name={self.name!r}, database={self.database!r})"

    @property
    def effective_port(self) -> int:
        """The port of the database."""
        return _PORTS[self.product] if self.port is None else self.port

    @property
    def postgres_connection(self) -> PostgresConnection:
        """The login for SQL."""
        return PostgresConnection(
            host=self.host,
            port=self.effective_port,
            database=self.database,
            user=self.user,
            password=self.password,
            sslmode=self.sslmode,
            sslrootcert=self.sslrootcert,
            sslcert=self.sslcert,
            sslkey=self.sslkey,
        )

    @property
    def mysql_connection(self) -> MysqlConnection:
        """The login for SQL; MySQL and MariaDB only."""
        return MysqlConnection(
            host=self.host,
            port=self.effective_port,
            user=self.user,
            password=self.password,
            ssl_mode=_MYSQL_SSL_MODES[self.sslmode],
            ssl_ca=self.sslrootcert,
            ssl_cert=self.sslcert,
            ssl_key=self.sslkey,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must never reach a log, an error or a file."""
        values = [self.password]
        values += [value for name, value in self.properties.items() if is_secret_name(name)]
        return tuple(value for value in values if value)


def connector_properties(options: ConnectorOptions) -> dict[str, str]:
    """Return the connector's properties, without those of the engine's files.

    Raises:
        ConfigError: A property of the user contradicts one of ours.
    """
    properties = {**_shared_properties(options), **_PRODUCT_PROPERTIES[options.product](options)}
    if clashes := sorted(properties.keys() & options.properties.keys()):
        msg = f"{', '.join(clashes)}: changelane sets these properties of Debezium itself"
        raise ConfigError(f"{msg}; remove them from debezium")
    if reserved := sorted(filter(is_reserved, options.properties)):
        msg = f"{', '.join(reserved)}: these properties would change what the capture log contains"
        raise ConfigError(f"{msg}; remove them from debezium")
    return {**options.properties, **properties, **_excluded_columns(options)}


def _excluded_columns(options: ConnectorOptions) -> dict[str, str]:
    """Return the property that leaves columns out which only a snapshot of the engine would have.

    Later changes of their rows would not change them.
    """
    if not options.unpublished or "column.include.list" in options.properties:
        return {}
    patterns = [_exact_pattern(".".join(names)) for names in options.unpublished]
    own_patterns = options.properties.get(_EXCLUDED_COLUMNS)
    return {_EXCLUDED_COLUMNS: ",".join([own_patterns, *patterns] if own_patterns else patterns)}


_EXCLUDED_COLUMNS: Final = "column.exclude.list"
_SNAPSHOT_SELECTS: Final = "snapshot.select.statement.overrides"


def _own_rows(options: ConnectorOptions) -> dict[str, str]:
    """Return the properties that let a snapshot of the engine read a table without inheriting ones.

    The log has the rows of these with their own names. The list of Debezium has no escapes: tables
    with other characters in their names are read with the rows of inheriting tables.
    """
    parents = [
        (table.schema, table.name)
        for table in options.parents
        if table.schema and table.name and _PLAIN_NAME.fullmatch(f"{table.schema}{table.name}")
    ]
    if not parents or _SNAPSHOT_SELECTS in options.properties:
        return {}
    select = "SELECT * FROM ONLY"
    return {
        _SNAPSHOT_SELECTS: ",".join(f"{schema}.{name}" for schema, name in parents),
        **{
            f"{_SNAPSHOT_SELECTS}.{schema}.{name}": f"{select} {qualified(schema, name)}"
            for schema, name in parents
        },
    }


def _shared_properties(options: ConnectorOptions) -> dict[str, str]:
    """Return the properties of every product."""
    return {
        "name": ENGINE_NAME,
        "topic.prefix": options.name,
        "database.hostname": options.host,
        "database.port": str(options.effective_port),
        "database.user": options.user,
        "database.password": options.password,
        # an offset is given back to the server only when we say so: after its manifest is durable
        "offset.flush.interval.ms": "0",
        # A restart inside the engine would continue from its own offset file while records wait in
        # the segments, and would take a second snapshot with the slot of the first. The process
        # restarts as a whole instead.
        "errors.max.retries": "0",
        # records of a transaction are published together: BEGIN and END delimit them, and the
        # position of a change within its transaction is part of its order
        "provide.transaction.metadata": "true",
        # the default skips truncates
        "skipped.operations": "none",
        # a deleted key for consumers that compact
        "tombstones.on.delete": "true",
        # exact numbers: the alternatives round, or lose the type
        "decimal.handling.mode": "precise",
        # other modes make text columns of bytes
        "binary.handling.mode": "bytes",
        # changelane quarantines an event that it cannot read; a connector that skips one loses it
        "event.processing.failure.handling.mode": "fail",
        "event.converting.failure.handling.mode": "fail",
        # the log of an idle database must move, too
        "heartbeat.interval.ms": str(round(options.heartbeat_s * 1000)),
        "heartbeat.topics.prefix": HEARTBEAT_TOPIC_PREFIX,
        # every message has its schema, so that columns have their types
        "converter.schemas.enable": "true",
        # headers as Kafka Connect writes them: a key as JSON, without a schema
        "header.converter.schemas.enable": "false",
        # the default writes the default of a column in place of NULL
        "converter.replace.null.with.default": "false",
        # four headers with the ids of the connector's run would be in every record
        "extended.headers.enabled": "false",
        # the queue is the only part of the engine's memory that grows with the size of rows
        "max.queue.size": "8192",
        "max.batch.size": "2048",
        # the delay before new records are noticed
        "poll.interval.ms": "100",
    }


_DRIVER_OPTIONS: Final = " ".join(f"-c {name}={value}" for name, value in TEXT_SETTINGS.items())
"""The settings of the session that reads the log, whose texts PostgreSQL writes with them.

The server, the database or the login may have others: Debezium would take the digits of `bytea` out
of any text.
"""


def _postgres_properties(options: ConnectorOptions) -> dict[str, str]:
    properties = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.dbname": options.database,
        "database.sslmode": options.sslmode,
        "driver.options": _DRIVER_OPTIONS,
        # the server's own plugin; decoderbufs would have to be installed
        "plugin.name": PLUGIN,
        "slot.name": options.slot,
        "publication.name": options.publication,
        # a publication that appears by itself would need ownership of the tables, and would hide
        # that one of them is missing
        "publication.autocreate.mode": "disabled",
        # Only the connector moves the slot, when an offset was given back. With
        # connector_and_driver the driver's keep-alive moves it beyond the newest manifest.
        "lsn.flush.mode": "connector",
        # the slot of a killed predecessor is free after a moment
        "slot.max.retries": "12",
        "slot.retry.delay.ms": "1000",
        # exact: microseconds are PostgreSQL's own precision; connect would cut them off
        "time.precision.mode": "adaptive",
        # exact: numeric converts months into days
        "interval.handling.mode": "string",
        # both modes are exact; one JSON column in the lake, whatever its keys
        "hstore.handling.mode": "json",
        # the default omits columns of unknown types without a word; as bytes they have the text
        # that the server writes for them
        "include.unknown.datatypes": "true",
        # A write into the log of an idle database, so that the slot moves. The message is
        # transactional: after a restart the connector reads on only when it received a commit.
        "heartbeat.action.query": (
            f"SELECT pg_logical_emit_message(true, '{MARKER_PREFIX}', '{HEARTBEAT_CONTENT}')"
        ),
        **_table_filter(options, [(table.schema, table.name) for table in options.tables]),
        **_own_rows(options),
    }
    files = {
        "database.sslrootcert": options.sslrootcert,
        "database.sslcert": options.sslcert,
        "database.sslkey": options.sslkey,
    }
    return properties | {name: file for name, file in files.items() if file}


def _binlog_properties(options: ConnectorOptions) -> dict[str, str]:
    """Return the properties of MySQL and MariaDB, without those of key stores.

    Their connectors read no PEM files: see :mod:`changelane.capture.key_stores`.

    Raises:
        ConfigError: A certificate is in two options.
    """
    for option, store in (("sslrootcert", "truststore"), ("sslcert", "keystore")):
        names = [name for name in options.properties if name.startswith(f"database.ssl.{store}")]
        if names and getattr(options, option):
            raise ConfigError(f"{option} and debezium.{names[0]} are both set: remove one of them")
    return {
        # two readers with one id end each other's connection
        "database.server.id": str(effective_server_id(options.server_id, options.name)),
        "database.include.list": _exact_pattern(options.database),
        # without it, the reader of a server that stops ends silently, and the engine seems to run
        "connect.keep.alive": "true",
        # the server sends an event after 0.8 of it, with which an idle log moves; a shorter one
        # would take a busy machine for a lost connection
        "connect.keep.alive.interval.ms": str(max(5000, int(options.heartbeat_s * 1250))),
        # the default turns unsigned numbers from 2^63 on into negative ones
        "bigint.unsigned.handling.mode": "precise",
        # the default takes the years 0 to 99 for abbreviations of later ones
        "enable.time.adjuster": "false",
        # exact: TIME beyond 24 hours and below zero, with microseconds
        "time.precision.mode": "adaptive_time_microseconds",
        # other values skip the rows of a table whose schema the connector does not know
        "inconsistent.schema.handling.mode": "fail",
        **_history_properties(),
        **_table_filter(options, [(table.database, table.name) for table in options.tables]),
    }


def _history_properties() -> dict[str, str]:
    """Return the properties of a connector that keeps the schemas of all times."""
    return {
        # renames and drops are only known from the statements
        "include.schema.changes": "true",
        # other values skip statements that cannot be parsed, and rows that follow them
        "schema.history.internal.skip.unparseable.ddl": "false",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
    }


def _mysql_properties(options: ConnectorOptions) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.ssl.mode": _MYSQL_SSL_MODES[options.sslmode],
        **_binlog_properties(options),
    }


def _mariadb_properties(options: ConnectorOptions) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.ssl.mode": _MARIADB_SSL_MODES[options.sslmode],
        **_binlog_properties(options),
    }


def _sqlserver_properties(options: ConnectorOptions) -> dict[str, str]:
    store = key_store_properties("sqlserver", "truststore")[0]
    if options.sslrootcert and store in options.properties:
        raise ConfigError(f"sslrootcert and debezium.{store} are both set: remove one of them")
    return {
        **sqlserver_properties(options.database, options.sslmode),
        **_history_properties(),
        **_table_filter(options, [(table.schema, table.name) for table in options.tables]),
    }


def _oracle_properties(options: ConnectorOptions) -> dict[str, str]:
    return {
        **oracle_properties(options.database, options.pdb),
        **_history_properties(),
        **_table_filter(options, [(table.schema, table.name) for table in options.tables]),
    }


_PRODUCT_PROPERTIES: Final = {
    "postgres": _postgres_properties,
    "mysql": _mysql_properties,
    "mariadb": _mariadb_properties,
    "sqlserver": _sqlserver_properties,
    "oracle": _oracle_properties,
}


def key_store_properties(product: Product, store: str) -> tuple[str, str]:
    """Return the properties of a Java key store: that of its path, and that of its password.

    Args:
        product: A product whose connector reads no PEM files.
        store: ``truststore`` or ``keystore``.
    """
    if product == "sqlserver":  # the names are those of Microsoft's driver
        name = {"truststore": "driver.trustStore"}[store]
        return name, f"{name}Password"
    return f"database.ssl.{store}", f"database.ssl.{store}.password"


def effective_server_id(server_id: int | None, name: str) -> int:
    """Return the id of a capture as a replica of MySQL or MariaDB.

    Args:
        server_id: The configured id; ``None`` = one in the upper half of the range, where people
            choose none.
        name: The name of the server.
    """
    return server_id or (1 << 31) + zlib.crc32(name.encode()) % (1 << 31)


# TableIdParser of Debezium takes them for one, so that the changes get the name of another table
_UNREADABLE_NAME: Final = re.compile("\"|''|``")


def _table_filter(
    options: ConnectorOptions, qualified_names: list[tuple[str | None, str | None]]
) -> dict[str, str]:
    """Return the property that selects tables by their qualified names.

    Raises:
        ConfigError: A name lacks a part.
    """
    if not qualified_names:
        return {}
    patterns = []
    for qualifier, name in qualified_names:
        if not qualifier or not name:
            kind = "database" if options.product in _DATABASE_QUALIFIES else "schema"
            raise ConfigError(f"a captured table of {options.product} needs a {kind} and a name")
        if options.product == "postgres" and _UNREADABLE_NAME.search(f"{qualifier}.{name}"):
            msg = (
                "Debezium cannot read a table of PostgreSQL whose name contains a double quote, or "
                "two single quotes or backticks in sequence"
            )
            raise ConfigError(f"{msg} ({qualifier}.{name}): rename it, or leave it out")
        patterns.append(_exact_pattern(f"{qualifier}.{name}"))
    return {"table.include.list": ",".join(patterns)}


def _exact_pattern(name: str) -> str:
    """Return a Java regular expression that matches one name.

    Debezium splits its lists at commas, trims their entries and ignores the case of letters. So
    all characters but letters, digits and the underscore are written as code points, and the flag
    for case is switched off.
    """
    escaped = "".join(
        character
        if _PLAIN_CHARACTER.fullmatch(character)
        else r"\."
        if character == "."
        else rf"\x{{{ord(character):x}}}"
        for character in name
    )
    return f"(?-i:{escaped})"
