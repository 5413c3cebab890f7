# SPDX-License-Identifier: Apache-2.0
"""Rows of MySQL and MariaDB as Debezium's engine writes them in its stream, by Debezium's own code.

A reader uses the classes of the connector (``MariaDbConnectorTask`` of Debezium 3.5.0 and
``MySqlConnectorTask`` of 3.6.1) with the same options: it parses the definition of a table as the
engine does, and converts the values by the same converters. They get the same Java values as from
the binary log (``RowDeserializers``): bytes of texts, indexes of ENUM, bits of SET and of FLOAT.
The engine's own snapshot has other values for some, such as those of FLOAT.

Only the process of a reader imports this module: it needs the JVM.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import jpype

from changelane.capture.connectors import Product, connector_properties
from changelane.capture.jvm_engine import java_properties
from changelane.capture.key_stores import write_key_stores
from changelane.capture.manifest import EngineOffset
from changelane.capture.mysql.connection import connect
from changelane.capture.mysql.position import current_position, prepared_transactions
from changelane.capture.mysql.snapshot_tables import (
    TEXT_SETTING,
    ValueKind,
    chunk_query,
    column_value,
    database_version,
    definition_statement,
    version_of,
)
from changelane.capture.snapshot.chunk_rows import (
    ChangedTableError,
    converter_registry,
    fetch_rows,
    source_times,
)
from changelane.capture.snapshot.debezium_messages import (
    TableMessages,
    source_block,
)
from changelane.capture.snapshot.plan import SnapshotChunk, SnapshotTable
from changelane.capture.snapshot.reader_config import ReaderConfig
from changelane.errors import ChangelaneError

_BINLOG: Final = "io.debezium.connector.binlog."
_HISTORY: Final = "io.debezium.relational.history.MemorySchemaHistory"
_SAVEPOINT: Final = "chunk"
_SETTINGS: Final = (
    TEXT_SETTING,
    "SET SESSION time_zone = '+00:00'",
    # a reader on a busy machine may be slow
    "SET SESSION net_write_timeout = 3600",
    "SET SESSION lock_wait_timeout = 60",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_NO_TIMEOUT: Final[dict[Product, str]] = {
    "mariadb": "SET SESSION max_statement_time = 0",
    "mysql": "SET SESSION max_execution_time = 0",
}
_FIELD_READERS: Final[dict[Product, str]] = {
    "mariadb": "FieldReader",
    "mysql": "TextProtocolFieldReader",
}
_SNAPSHOT: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_PREPARED_S: Final = 60.0
"""The time to wait for the end of XA transactions, seconds."""
_FETCH_ALL: Final = -(1 << 31)
"""The fetch size with which MySQL's driver streams a result."""


class BinlogRows:
    """Reads the rows of chunks; see :class:`.chunk_rows.ChunkRows`.

    Args:
        config: The configuration of the reader.
        password: The password of the key stores that it writes.

    Raises:
        ConfigError: A file of certificates is not usable.
        UnreachableError: The server does not answer.
    """

    def __init__(self, config: ReaderConfig, password: str) -> None:
        self._options = options = config.connector
        self._plan = config.plan
        self._offset: EngineOffset = {}
        self._is_open = False
        # Java compiles the functions of a table once
        self._messages: dict[str, TableMessages] = {}
        self._catalog = connect(options.mysql_connection)
        self._debezium = _Debezium.of(options.product)
        properties = {
            **connector_properties(options),
            **write_key_stores(options, Path(config.work), password),
            # a reader has the definitions of its tables only
            "schema.history.internal": _HISTORY,
        }
        configuration = jpype.JClass("io.debezium.config.Configuration").from_(
            java_properties(properties)
        )
        self._config = connector = self._debezium.java("ConnectorConfig")(configuration)
        registry = connector.getServiceRegistry()
        registry.registerServiceProvider(
            self._debezium.java("CharsetRegistryServiceProvider", "charset.")()
        )
        self._connection = self._debezium.java("Connection", "jdbc.")(
            self._debezium.java("ConnectionConfiguration", "jdbc.")(configuration),
            # which reads nothing here
            self._debezium.java(_FIELD_READERS[options.product], "jdbc.")(connector),
        )
        self._naming = connector.getTopicNamingStrategy(
            jpype.JClass(f"{_BINLOG}BinlogConnectorConfig").TOPIC_NAMING_STRATEGY
        )
        self._schema = self._debezium.java("DatabaseSchema")(
            connector,
            self._value_converters(registry),
            self._naming,
            connector.schemaNameAdjuster(),
            self._connection.isTableIdCaseSensitive(),
            converter_registry(configuration, connector),
            self._debezium.java("TaskContext")(configuration, connector),
        )
        self._java_connection = self._connection.connection()
        for statement in (*_SETTINGS, _NO_TIMEOUT[options.product]):
            self._execute(statement)

    @property
    def offset(self) -> EngineOffset:
        """The position of the transaction in which the last rows were read."""
        return self._offset

    def read(self, planned_table: SnapshotTable, chunk: SnapshotChunk) -> Iterator[bytes]:
        """Yield the rows of a chunk as lines of a segment."""
        if not self._is_open:
            self._offset = self._begin(is_exact=not planned_table.is_continuable)
            self._is_open = True
        messages = self._messages.get(planned_table.name)
        if messages is None:
            messages = self._messages[planned_table.name] = self._messages_of(planned_table)
        with fetch_rows(
            self._java_connection,
            chunk_query(planned_table, chunk),
            planned_table,
            fetch_size=_FETCH_ALL if self._options.product == "mysql" else None,
        ) as result:
            yield from messages.read(result, self._source(planned_table))
        # the transaction still locks the table against statements that would alter it
        self._definition(planned_table)
        self._end(planned_table)

    def close(self) -> None:
        """Close the connections."""
        self._catalog.close()
        self._connection.close()

    # -- the transaction

    def _begin(self, *, is_exact: bool) -> EngineOffset:
        """Begin a transaction; return its position, as the engine's offset has it.

        MySQL does not report it. There a transaction is in the log before a read sees it, so that a
        lock must keep all writers away.

        Args:
            is_exact: Whether the log continues at this position.

        Raises:
            ChangedTableError: The log continues here, and a table is not as the engine recorded it.
        """
        if self._options.product == "mariadb":
            self._begin_without_prepared()
            status = {row[0]: row[1] for row in self._rows("SHOW STATUS LIKE 'Binlog_snapshot_%'")}
            file = status.get("Binlog_snapshot_file", "")
            position = int(status.get("Binlog_snapshot_position", 0))
            gtids = ""
            if is_exact:  # the server reads a file of the log for it
                gtids = self._rows(f"SELECT binlog_gtid_pos('{file}', {position})")[0][0]
        else:
            self._execute("FLUSH TABLES WITH READ LOCK")
            try:
                self._execute(_SNAPSHOT)
                end = current_position(self._catalog)
            finally:
                self._execute("UNLOCK TABLES")
            self._execute(f"SAVEPOINT {_SAVEPOINT}")
            file, position, gtids = end.file, end.offset, end.gtid
        if not file:
            raise ChangelaneError("the server has no binary log")
        database = self._options.database
        if is_exact and database_version(self._catalog, database) != self._plan.schemas:
            raise ChangedTableError(f"a table of {database}")
        offset: EngineOffset = {"file": file, "pos": position}
        return {**offset, "gtids": gtids} if gtids else offset

    def _begin_without_prepared(self) -> None:
        """Begin a transaction while no XA transaction is prepared.

        The log has its changes already: rows that lack them would have a newer position.

        Raises:
            ChangelaneError: XA transactions stay prepared.
        """
        deadline_s = time.monotonic() + _PREPARED_S
        while True:
            has_prepared = self._has_prepared()
            self._execute(_SNAPSHOT)
            if not has_prepared and not self._has_prepared():
                return
            self._execute("COMMIT")
            if time.monotonic() >= deadline_s:
                raise ChangelaneError(
                    f"XA transactions have been prepared for {_PREPARED_S:.0f} seconds: commit "
                    "them or roll them back (XA RECOVER lists them)"
                )
            time.sleep(0.1)

    def _has_prepared(self) -> bool:
        return bool(prepared_transactions(self._catalog))

    def _end(self, planned_table: SnapshotTable) -> None:
        """Release the lock of a table after a chunk of it.

        All tables without a key are read in one transaction, and so are all chunks of a reader of
        MySQL, where each transaction begins with a lock of all tables.
        """
        if self._options.product == "mysql":
            self._execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        elif planned_table.is_continuable:
            self._execute("COMMIT")
            self._is_open = False

    def _definition(self, planned_table: SnapshotTable) -> str:
        """Return the definition of a table.

        Raises:
            ChangedTableError: It is not that of the plan.
        """
        statement = definition_statement(planned_table.schema, planned_table.name)
        definition = self._rows(statement)[0][1]
        if version_of(definition) != planned_table.version:
            raise ChangedTableError(f"the table {planned_table.label}")
        return definition

    def _execute(self, statement: str) -> None:
        with contextlib.closing(self._java_connection.createStatement()) as java_statement:
            java_statement.execute(statement)

    def _rows(self, query: str) -> list[tuple[str, ...]]:
        """Return the rows of a short result as texts; NULL is an empty one."""
        rows = []
        with contextlib.closing(self._java_connection.createStatement()) as java_statement:
            result = java_statement.executeQuery(query)
            numbers = range(1, int(result.getMetaData().getColumnCount()) + 1)
            while result.next():
                rows.append(tuple(str(result.getString(number) or "") for number in numbers))
        return rows

    # -- Debezium

    def _value_converters(self, registry: Any) -> Any:
        """Return the converters of the engine (``getValueConverters`` of the task)."""
        config = self._config
        temporal = jpype.JClass("java.time.temporal.Temporal").class_
        handles = jpype.JClass("java.lang.invoke.MethodHandles")
        # the property enable.time.adjuster is false
        adjuster = jpype.JClass("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(
            jpype.JClass("java.time.temporal.TemporalAdjuster").class_, handles.identity(temporal)
        )
        return self._debezium.java("ValueConverters", "jdbc.")(
            config.getDecimalMode(),
            config.getTemporalPrecisionMode(),
            config.getBigIntUnsignedHandlingMode().asBigIntUnsignedMode(),
            config.binaryHandlingMode(),
            adjuster,
            config.getEventConvertingFailureHandlingMode(),
            registry,
        )

    def _messages_of(self, planned_table: SnapshotTable) -> TableMessages:
        java_table = self._table(planned_table)
        self._schema.refresh(java_table)
        kinds = {
            name: column_value(data_type).kind
            for name, data_type in zip(planned_table.columns, planned_table.types, strict=True)
        }
        names = [str(column.name()) for column in java_table.columns()]
        if names != list(kinds):
            raise ChangelaneError(
                f"Debezium does not know the columns of {planned_table.label} as the server does"
            )
        schema = self._schema.schemaFor(java_table.id())
        if planned_table.is_continuable and schema.keySchema() is None:
            raise ChangelaneError(
                f"Debezium does not find the key of {planned_table.label}: set "
                "message.key.columns under debezium, or snapshot: engine"
            )
        return TableMessages(
            schema,
            str(self._naming.dataChangeTopic(java_table.id())),
            _column_functions(list(kinds.values())),
        )

    def _table(self, planned_table: SnapshotTable) -> Any:
        """Return Debezium's table, parsed as the engine does (``BinlogDatabaseSchema``)."""
        parse = jpype.JClass(f"{_BINLOG}BinlogDatabaseSchema").class_.getDeclaredMethod(
            "getDdlParser"
        )
        parse.setAccessible(True)
        parser = parse.invoke(self._schema)
        tables = jpype.JClass("io.debezium.relational.Tables")(
            self._connection.isTableIdCaseSensitive()
        )
        parser.setCurrentDatabase(planned_table.schema)
        parser.parse(self._definition(planned_table), tables)
        java_table = tables.forTable(planned_table.schema, None, planned_table.name)
        if java_table is None:
            raise ChangelaneError(f"Debezium does not know the table {planned_table.label}")
        return java_table

    def _source(self, planned_table: SnapshotTable) -> Any:
        """Return the source block of a table's rows: those of a snapshot inside the stream."""
        java = jpype.JClass
        return source_block(
            self._debezium.java("SourceInfo")(self._config),
            {
                "version": self._debezium.java("Module").version(),
                "connector": self._options.product,
                "name": self._options.name,
                **source_times(self._plan.created_ms),
                "snapshot": "incremental",
                "db": planned_table.schema,
                "table": planned_table.name,
                "server_id": java("java.lang.Long").valueOf(0),
                "file": self._offset["file"],
                "pos": java("java.lang.Long").valueOf(self._offset["pos"]),
                "row": java("java.lang.Integer").valueOf(0),
            },
        )


class _Debezium(NamedTuple):
    """The names of a connector's classes.

    Attributes:
        package: The package of the connector.
        prefix: The beginning of the names of its classes.
    """

    package: str
    prefix: str

    @classmethod
    def of(cls, product: Product) -> "_Debezium":
        """Return the names of a product."""
        prefix = {"mysql": "MySql", "mariadb": "MariaDb"}[product]
        return cls(f"io.debezium.connector.{product}.", prefix)

    def java(self, name: str, package: str = "") -> Any:
        """Return a class."""
        prefix = "" if name in {"SourceInfo", "Module"} else self.prefix
        return jpype.JClass(f"{self.package}{package}{prefix}{name}")


# -- Java functions, made of method handles


def _column_functions(value_kinds: Sequence[ValueKind]) -> dict[int, Any]:
    """Return the functions that read the columns of a result, by their positions.

    Args:
        value_kinds: The kind of each column's value.
    """
    functions = _value_functions()
    return {
        number: _handles().insertArguments(functions[kind], 1, [jpype.JInt(number)])
        for number, kind in enumerate(value_kinds, 1)
    }


def _value_functions() -> dict[ValueKind, Any]:
    """Return the function for each kind of value: from a result and a number to an object."""
    time = "java.time."
    long, integer = _primitive("Long"), _primitive("Integer")
    text, number = _class("java.lang.String"), _class("java.lang.Number")
    characters, instant = _class("java.lang.CharSequence"), _class(f"{time}Instant")
    longs = jpype.JArray(jpype.JLong).class_
    get_long = _typed_getter(_class("java.lang.Long"))
    get_double = _typed_getter(_class("java.lang.Double"))
    get_text = _getter("getString", text)
    int_value = _method(number, "intValue", integer)
    add_micros = _handles().insertArguments(
        _method(instant, "plus", instant, long, _class(f"{time}temporal.TemporalUnit")).bindTo(
            jpype.JClass(f"{time}Instant").EPOCH
        ),
        1,
        [jpype.JClass(f"{time}temporal.ChronoUnit").MICROS],
    )
    in_utc = _handles().insertArguments(
        _function(f"{time}ZonedDateTime", "ofInstant", instant, _class(f"{time}ZoneId")),
        1,
        [jpype.JClass(f"{time}ZoneOffset").UTC],
    )
    year_of = _function(f"{time}Year", "of", integer)
    to_duration = _method_of_class(
        f"{_BINLOG}jdbc.BinlogValueConverters", "stringToDuration", f"{time}Duration", text
    )
    functions: dict[ValueKind, Any] = {
        "integer": _converted(get_long, int_value),
        "long": get_long,
        "float": _converted(get_double, _method(number, "floatValue", _primitive("Float"))),
        "double": get_double,
        "decimal": _getter("getBigDecimal", _class("java.math.BigDecimal")),
        "date": _converted(get_text, _function(f"{time}LocalDate", "parse", characters)),
        "datetime": _converted(get_text, _function(f"{time}LocalDateTime", "parse", characters)),
        "instant": _converted(get_long, _handles().filterReturnValue(add_micros, in_utc)),
        "duration": _converted(get_text, to_duration),
        "year": _converted(get_long, _handles().filterReturnValue(int_value, year_of)),
        "bits": _converted(
            get_long, _function("java.util.BitSet", "valueOf", longs).asCollector(longs, 1)
        ),
        "bytes": _getter("getBytes", jpype.JArray(jpype.JByte).class_),
        "text": get_text,
    }
    getter_type = _method_type(_class("java.lang.Object"), [_class("java.sql.ResultSet"), integer])
    return {kind: function.asType(getter_type) for kind, function in functions.items()}


def _handles() -> Any:
    return jpype.JClass("java.lang.invoke.MethodHandles")


def _method_type(result: Any, parameters: Sequence[Any]) -> Any:
    return jpype.JClass("java.lang.invoke.MethodType").methodType(result, list(parameters))


def _class(name: str) -> Any:
    return jpype.JClass(name).class_


def _primitive(name: str) -> Any:
    return jpype.JClass(f"java.lang.{name}").TYPE


def _method(owner: Any, name: str, result: Any, *parameters: Any) -> Any:
    """Return a method of objects as a function of the object and its parameters."""
    return _handles().publicLookup().findVirtual(owner, name, _method_type(result, parameters))


def _method_of_class(owner: str, name: str, result: str, *parameters: Any) -> Any:
    """Return a static method as a function."""
    method_type = _method_type(_class(result), parameters)
    return _handles().publicLookup().findStatic(_class(owner), name, method_type)


def _function(owner: str, name: str, *parameters: Any) -> Any:
    """Return a static method that makes an object of its class."""
    return _method_of_class(owner, name, owner, *parameters)


def _getter(name: str, kind: Any) -> Any:
    """Return a getter of a result by the number of the column."""
    return _method(_class("java.sql.ResultSet"), name, kind, _primitive("Integer"))


def _typed_getter(java_class: Any) -> Any:
    """Return ``getObject`` with a class: of NULL, the getters of numbers return 0."""
    result_set, integer = _class("java.sql.ResultSet"), _primitive("Integer")
    get = _method(
        result_set, "getObject", _class("java.lang.Object"), integer, _class("java.lang.Class")
    )
    get = _handles().insertArguments(get, 2, [java_class])
    return get.asType(_method_type(java_class, [result_set, integer]))


def _converted(get: Any, value_of: Any) -> Any:
    """Return a getter whose values are converted, unless they are null."""
    java_object, source = _class("java.lang.Object"), get.type().returnType()
    nothing = _handles().dropArguments(_handles().constant(java_object, None), 0, [source])
    is_value = (
        _handles()
        .publicLookup()
        .findStatic(
            _class("java.util.Objects"),
            "nonNull",
            _method_type(_primitive("Boolean"), [java_object]),
        )
    )
    value = _handles().guardWithTest(
        is_value.asType(_method_type(_primitive("Boolean"), [source])),
        value_of.asType(_method_type(java_object, [source])),
        nothing,
    )
    return _handles().filterReturnValue(get, value)
