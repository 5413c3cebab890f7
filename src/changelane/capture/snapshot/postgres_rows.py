# SPDX-License-Identifier: Apache-2.0
"""Rows of PostgreSQL as Debezium's engine writes them in its stream, by Debezium's own code.

A reader uses the classes of the connector (``PostgresConnectorTask`` and ``PgOutputMessageDecoder``
of Debezium 3.6.1) with the same options: the types of columns, the key, the converters. It reads
values as the texts that the log has, too, so that a value is the same in the capture log, whoever
read it. The engine's own snapshot reads through JDBC, which has other values for some, such as
dates before Christ. Some constructors are not public.

Only the process of a reader imports this module: it needs the JVM.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import jpype

from changelane.capture.connectors import connector_properties
from changelane.capture.jvm_engine import java_properties
from changelane.capture.manifest import EngineOffset
from changelane.capture.postgres.connection import connect
from changelane.capture.postgres.snapshot_tables import chunk_query, table_versions
from changelane.capture.snapshot.chunk_rows import (
    ChangedTableError,
    converter_registry,
    fetch_rows,
    source_times,
)
from changelane.capture.snapshot.debezium_messages import (
    TableMessages,
    new_object,
    source_block,
)
from changelane.capture.snapshot.plan import SnapshotChunk, SnapshotTable
from changelane.capture.snapshot.reader_config import ReaderConfig
from changelane.errors import ChangelaneError

_POSTGRES: Final = "io.debezium.connector.postgresql."


class PostgresRows:
    """Reads the rows of chunks in an exported snapshot; see :class:`.chunk_rows.ChunkRows`.

    Args:
        config: The configuration of the reader.

    Raises:
        UnreachableError: The server does not answer.
    """

    def __init__(self, config: ReaderConfig) -> None:
        options = config.connector
        self._options = options
        self._plan = config.plan
        self._snapshot = config.snapshot
        # Java compiles the functions of a table once
        self._messages: dict[int, TableMessages] = {}
        self._catalog = connect(options.postgres_connection)
        java = jpype.JClass
        properties = java_properties(
            # the server sends texts, as in its log
            {**connector_properties(options), "driver.binaryTransfer": "false"}
        )
        configuration = java("io.debezium.config.Configuration").from_(properties)
        self._config = connector = java(f"{_POSTGRES}PostgresConnectorConfig")(configuration)
        connection_class = java(f"{_POSTGRES}connection.PostgresConnection")
        self._types = types = connection_class.createTypeRegistry(connector.getJdbcConfig())
        self._connection = connection_class(connector, types, "changelane snapshot")
        charset = self._connection.getDatabaseCharset()
        converter = java(f"{_POSTGRES}PostgresValueConverter").of(connector, charset, types)
        self._naming = connector.getTopicNamingStrategy(
            java("io.debezium.config.CommonConnectorConfig").TOPIC_NAMING_STRATEGY
        )
        self._schema = new_object(
            f"{_POSTGRES}PostgresSchema",
            new_object(f"{_POSTGRES}PostgresTaskContext", configuration, connector),
            self._connection.getDefaultValueConverter(),
            self._naming,
            converter,
            converter_registry(configuration, connector),
        )
        tables = java("io.debezium.relational.Tables")()
        self._connection.readSchema(
            tables,
            options.database,
            None,
            connector.getTableFilters().dataCollectionFilter(),
            connector.getColumnFilter(),
            False,  # noqa: FBT003 - Java has no keywords
        )
        self._tables = {
            (str(table_id.schema()), str(table_id.table())): tables.forTable(table_id)
            for table_id in tables.tableIds()
        }
        self._connection.setAutoCommit(False)
        self._connection.connection()

    @property
    def offset(self) -> EngineOffset:
        """Empty: all rows have the position of the plan."""
        return {}

    def read(self, planned_table: SnapshotTable, chunk: SnapshotChunk) -> Iterator[bytes]:
        """Yield the rows of a chunk as lines of a segment."""
        self._begin()
        messages = self._messages.get(planned_table.oid)
        if messages is None:
            messages = self._messages[planned_table.oid] = self._messages_of(planned_table)
        with fetch_rows(
            self._connection.connection(), chunk_query(planned_table, chunk), planned_table
        ) as result:
            yield from messages.read(result, self._source(planned_table))
        # the transaction still locks the table against statements that would alter it
        oid = planned_table.oid
        if table_versions(self._catalog, [oid]).get(oid) != planned_table.version:
            raise ChangedTableError(f"the table {planned_table.label}")
        self._connection.connection().rollback()

    def close(self) -> None:
        """Close the connections."""
        self._catalog.close()
        self._connection.close()

    def _begin(self) -> None:
        """Begin a transaction that sees the exported snapshot."""
        self._connection.executeWithoutCommitting(
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "SET statement_timeout = 0",
            "SET search_path = ''",
        )
        self._connection.connection().commit()
        self._connection.executeWithoutCommitting(
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            f"SET TRANSACTION SNAPSHOT '{self._snapshot}'",
        )

    def _messages_of(self, planned_table: SnapshotTable) -> TableMessages:
        java_table = self._table(planned_table)
        self._schema.refresh(java_table)
        return TableMessages(
            self._schema.schemaFor(java_table.id()),
            str(self._naming.dataChangeTopic(java_table.id())),
            _column_functions(self._connection, self._types, java_table, planned_table.columns),
        )

    def _table(self, planned_table: SnapshotTable) -> Any:
        """Return Debezium's table with the columns of ours."""
        java_table = self._tables.get((planned_table.schema, planned_table.name))
        if java_table is None:
            raise ChangelaneError(f"Debezium does not know the table {planned_table.label}")
        names = {str(column.name()) for column in java_table.columns()}
        editor = java_table.edit()
        for name in sorted(names - set(planned_table.columns)):
            editor.removeColumn(name)
        return editor.create()

    def _source(self, planned_table: SnapshotTable) -> Any:
        """Return the source block of a table's rows.

        Those of a first load have no last commit. Those of a snapshot of a table are part of the
        stream, and have the position of the marker before it.
        """
        lsn, last_commit = self._plan.offset["lsn"], self._plan.offset.get("lsn_commit")
        return source_block(
            new_object(f"{_POSTGRES}SourceInfo", self._config),
            {
                "version": jpype.JClass(f"{_POSTGRES}Module").version(),
                "connector": "postgresql",
                "name": self._options.name,
                **source_times(self._plan.created_ms),
                "snapshot": "true" if last_commit is None else "incremental",
                "db": self._options.database,
                "sequence": f'[{"null" if last_commit is None else _quoted(last_commit)},"{lsn}"]',
                "schema": planned_table.schema,
                "table": planned_table.name,
                "lsn": jpype.JClass("java.lang.Long").valueOf(lsn),
            },
        )


def _quoted(lsn: object) -> str:
    return f'"{lsn}"'


# -- Java functions, made of method handles


def _column_functions(
    connection: Any, types: Any, java_table: Any, columns: Sequence[str]
) -> dict[int, Any]:
    """Return the functions that read the columns of a result, by their positions in the table.

    A value is what the engine's stream makes of the same text (``PgOutputMessageDecoder``).

    Args:
        connection: Debezium's connection.
        types: Its registry of types.
        java_table: The table.
        columns: The columns of the result, which has values as texts.
    """
    handles = jpype.JClass("java.lang.invoke.MethodHandles")
    method_type = jpype.JClass("java.lang.invoke.MethodType").methodType
    lookup = handles.publicLookup()
    java_object = jpype.JClass("java.lang.Object").class_
    java_text = jpype.JClass("java.lang.String").class_
    boolean = jpype.JClass("java.lang.Boolean").TYPE
    integer = jpype.JClass("java.lang.Integer").TYPE
    result_set = jpype.JClass("java.sql.ResultSet").class_
    objects = jpype.JClass("java.util.Objects").class_
    is_object = lookup.findStatic(objects, "nonNull", method_type(boolean, java_object))
    is_text = is_object.asType(method_type(boolean, java_text))
    no_value = handles.dropArguments(handles.constant(java_object, None), 0, [java_text])
    get_text = lookup.findVirtual(result_set, "getString", method_type(java_text, [integer]))
    supplier = jpype.JClass(
        f"{_POSTGRES}PostgresStreamingChangeEventSource$PgConnectionSupplier"
    ).class_
    parameters = [
        *(java_text, jpype.JClass(f"{_POSTGRES}PostgresType").class_, java_text, java_text),
        *(supplier, boolean, jpype.JClass(f"{_POSTGRES}TypeRegistry").class_),
    ]
    get_value = lookup.findStatic(
        jpype.JClass(f"{_POSTGRES}connection.pgoutput.PgOutputReplicationMessage").class_,
        "getValue",
        method_type(java_object, parameters),
    )
    constant = handles.constant(
        jpype.JClass("org.postgresql.core.BaseConnection").class_, connection.connection()
    )
    connection_of = jpype.JClass("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(
        supplier, constant
    )
    # the property include.unknown.datatypes of the engine
    has_unknown = jpype.JBoolean(True)  # noqa: FBT003
    functions = {}
    for column in java_table.columns():
        column_type = types.get(java_table.id().schema(), column.typeName())
        before = [column.name(), column_type, column.typeExpression()]
        value_of = handles.insertArguments(get_value, 4, [connection_of, has_unknown, types])
        value_of = handles.insertArguments(value_of, 0, before)
        value_of = handles.guardWithTest(is_text, value_of, no_value)
        number = columns.index(str(column.name())) + 1
        text_of = handles.insertArguments(get_text, 1, [jpype.JInt(number)])
        functions[int(column.position())] = handles.filterReturnValue(text_of, value_of)
    return functions
