# SPDX-License-Identifier: Apache-2.0
"""Rows of a table as Debezium's engine writes them in its stream, by Debezium's own code.

A reader uses the classes of the connector (``PostgresConnectorTask`` and ``PgOutputMessageDecoder``
of Debezium 3.6.1) with the same options: the types of columns, the key, the converters. It reads
values as the texts that the log has, too, so that a value is the same in the capture log, whoever
read it. The engine's own snapshot reads through JDBC, which has other values for some, such as
dates before Christ. Some constructors are not public. Java joins the texts of many rows, as in
:mod:`~changelane.capture.java_records`.

Only the process of a reader imports this module: it needs the JVM.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import jpype
import msgspec

from changelane.capture.connectors import ConnectorOptions, connector_properties
from changelane.capture.jvm_engine import java_properties
from changelane.capture.snapshot.plan import SnapshotTable
from changelane.errors import ChangelaneError

_POSTGRES: Final = "io.debezium.connector.postgresql."
_KAFKA: Final = "org.apache.kafka.connect."
_ROWS_AT_ONCE: Final = 256
"""Bounds the memory of the joined texts."""
_FETCH_BYTES: Final = 4 << 20
"""The size of the rows that the driver fetches at once."""
_MAX_FETCH_ROWS: Final = 2000
_SEPARATOR: Final = "\t"
"""Between the key and the value of a row: JSON contains neither tabs nor line breaks."""
_JSON: Final = msgspec.json.Encoder()


class DebeziumRows:
    """Reads the rows of a database's tables.

    Args:
        options: The captured database.
        snapshot_ms: The time of the snapshot, milliseconds since 1970-01-01 UTC.
        lsn: The position of the snapshot.

    Raises:
        ChangelaneError: Debezium does not know a table.
    """

    def __init__(self, options: ConnectorOptions, *, snapshot_ms: int, lsn: int) -> None:
        self._options = options
        self._snapshot_ms = snapshot_ms
        self._lsn = lsn
        # Java compiles the functions of a table once
        self._messages: dict[int, _Messages] = {}
        java = jpype.JClass
        properties = java_properties(
            # the server sends texts, as in its log
            {**connector_properties(options), "driver.binaryTransfer": "false"}
        )
        configuration = java("io.debezium.config.Configuration").from_(properties)
        self._config = config = java(f"{_POSTGRES}PostgresConnectorConfig")(configuration)
        connection_class = java(f"{_POSTGRES}connection.PostgresConnection")
        self._types = types = connection_class.createTypeRegistry(config.getJdbcConfig())
        self._connection = connection_class(config, types, "changelane snapshot")
        charset = self._connection.getDatabaseCharset()
        converter = java(f"{_POSTGRES}PostgresValueConverter").of(config, charset, types)
        custom_converters = java(
            "io.debezium.converters.custom.CustomConverterServiceProvider"
        )().createService(configuration, config.getServiceRegistry())
        self._naming = config.getTopicNamingStrategy(
            java("io.debezium.config.CommonConnectorConfig").TOPIC_NAMING_STRATEGY
        )
        self._schema = _new(
            f"{_POSTGRES}PostgresSchema",
            _new(f"{_POSTGRES}PostgresTaskContext", configuration, config),
            self._connection.getDefaultValueConverter(),
            self._naming,
            converter,
            custom_converters,
        )
        self._source_schema = _new(f"{_POSTGRES}SourceInfo", config).schema()
        tables = java("io.debezium.relational.Tables")()
        self._connection.readSchema(
            tables,
            options.database,
            None,
            config.getTableFilters().dataCollectionFilter(),
            config.getColumnFilter(),
            False,  # noqa: FBT003 - Java has no keywords
        )
        self._tables = {
            (str(table_id.schema()), str(table_id.table())): tables.forTable(table_id)
            for table_id in tables.tableIds()
        }
        self._connection.setAutoCommit(False)
        self._connection.connection()

    def begin(self, snapshot: str) -> None:
        """Begin a transaction that sees an exported snapshot."""
        self._connection.executeWithoutCommitting(
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "SET statement_timeout = 0",
            "SET search_path = ''",
        )
        self._connection.connection().commit()
        self._connection.executeWithoutCommitting(
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            f"SET TRANSACTION SNAPSHOT '{snapshot}'",
        )

    def end(self) -> None:
        """End the transaction."""
        self._connection.connection().rollback()

    def read(self, planned_table: SnapshotTable, query: str) -> Iterator[bytes]:
        """Yield the rows of a query as lines of a segment, without offsets.

        Args:
            planned_table: The table.
            query: A query for the columns of the table.
        """
        messages = self._messages.get(planned_table.oid)
        if messages is None:
            messages = self._messages[planned_table.oid] = self._messages_of(planned_table)
        statement = self._connection.connection().createStatement()
        try:
            statement.setEscapeProcessing(False)
            statement.setFetchSize(
                min(_MAX_FETCH_ROWS, max(1, _FETCH_BYTES // max(planned_table.row_bytes, 1)))
            )
            yield from messages.read(statement.executeQuery(query))
        finally:
            statement.close()

    def _messages_of(self, planned_table: SnapshotTable) -> "_Messages":
        java_table = self._table(planned_table)
        self._schema.refresh(java_table)
        result = jpype.JClass("java.util.concurrent.atomic.AtomicReference")()
        return _Messages(
            self._schema.schemaFor(java_table.id()),
            str(self._naming.dataChangeTopic(java_table.id())),
            self._source(planned_table),
            result,
            _row_functions(
                self._connection, self._types, java_table, planned_table.columns, result
            ),
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
        """Return the source block of a table's rows."""
        java_long = jpype.JClass("java.lang.Long").valueOf
        fields = {
            "version": jpype.JClass(f"{_POSTGRES}Module").version(),
            "connector": "postgresql",
            "name": self._options.name,
            "ts_ms": java_long(self._snapshot_ms),
            "ts_us": java_long(self._snapshot_ms * 1000),
            "ts_ns": java_long(self._snapshot_ms * 1_000_000),
            "snapshot": "true",
            "db": self._options.database,
            "sequence": f'[null,"{self._lsn}"]',
            "schema": planned_table.schema,
            "table": planned_table.name,
            "lsn": java_long(self._lsn),
        }
        struct = jpype.JClass(f"{_KAFKA}data.Struct")(self._source_schema)
        for name, value in fields.items():
            struct.put(name, value)
        return struct


class _Messages:
    """Makes the messages of one table's rows.

    Args:
        schema: Debezium's schema of the table.
        topic: The topic of the messages.
        source: The source block.
        result: A Java reference, which gets the result of each query.
        functions: The functions that read its rows.

    Raises:
        ChangelaneError: The envelope has no field for a row.
    """

    def __init__(
        self, schema: Any, topic: str, source: Any, result: Any, functions: tuple[Any, Any]
    ) -> None:
        self._has_key = schema.keySchema() is not None
        self._result = result
        self._next_row, self._is_row = functions
        now_ms = int(time.time() * 1000)
        converter = jpype.JClass(f"{_KAFKA}json.JsonConverter")()
        settings = jpype.JClass("java.util.HashMap")()
        # the schema is the same text in every message, so Java writes it once
        settings.put("schemas.enable", "false")
        settings.put("replace.null.with.default", "false")
        converter.configure(settings, False)  # noqa: FBT003
        instant = jpype.JClass("java.time.Instant").ofEpochMilli(now_ms)
        envelope = schema.getEnvelopeSchema()
        text = converter.fromConnectData(
            topic, envelope.schema(), envelope.read(None, source, instant)
        )
        start, field, end = bytes(text).decode().partition('"after":null')
        if not field:
            raise ChangelaneError("Debezium's envelope has no field after")
        # all but the key and the row is the same in every line, so it is escaped once
        line = f'{{"topic":{_text(topic)},"timestamp":{now_ms},"key":'
        self._before_key = f"{line}null".encode()
        before_row = ',"value":"'
        if self._has_key:
            key_schema = converter.asJsonSchema(schema.keySchema()).toString()
            key_start = _escaped(f'{{"schema":{key_schema},"payload":')
            self._before_key = f'{line}"{key_start}'.encode()
            before_row = f'}}",{before_row[1:]}'
        value_schema = converter.asJsonSchema(envelope.schema()).toString()
        value_start = _escaped(f'{{"schema":{value_schema},"payload":{start}"after":')
        self._before_row = f"{before_row}{value_start}".encode()
        self._after_row = f'{_escaped(end)}}}"}}'.encode()
        self._to_text = _row_function(schema, converter, topic, has_key=self._has_key)
        self._joining = jpype.JClass("java.util.stream.Collectors").joining("\n")
        self._charset = jpype.JClass("java.nio.charset.StandardCharsets").UTF_8
        self._stream = jpype.JClass("java.util.stream.Stream")

    def read(self, result: Any) -> Iterator[bytes]:
        """Yield the messages of the rows of a result as lines."""
        self._result.set(result)
        next_row, is_row = self._next_row, self._is_row
        before_key, before_row, after_row = self._before_key, self._before_row, self._after_row
        encode = _JSON.encode
        while (row := next_row.apply(None)) is not None:
            rows = self._stream.iterate(row, is_row, next_row).limit(_ROWS_AT_ONCE)
            joined = rows.map(self._to_text).collect(self._joining)
            for line in bytes(memoryview(joined.getBytes(self._charset))).decode().split("\n"):
                key, _, row_text = line.rpartition(_SEPARATOR)
                yield b"".join(
                    (before_key, encode(key)[1:-1], before_row, encode(row_text)[1:-1], after_row)
                )


def _text(text: str) -> str:
    """Return a text as JSON."""
    return _JSON.encode(text).decode()


def _escaped(text: str) -> str:
    """Return a text as the inside of a text of JSON."""
    return _text(text)[1:-1]


# -- Java functions, made of method handles


def _row_functions(
    connection: Any,
    types: Any,
    java_table: Any,
    columns: Sequence[str],
    result: Any,
) -> tuple[Any, Any]:
    """Return the function that reads the next row of a result, and the test that it is one.

    The function ignores its argument; after the last row it returns null. A row is what the
    engine's stream makes of the same texts (``PgOutputMessageDecoder`` of Debezium).

    Args:
        connection: Debezium's connection.
        types: Its registry of types.
        java_table: The table.
        columns: The columns of the result.
        result: A Java reference to the result, which has values as texts.
    """
    handles = jpype.JClass("java.lang.invoke.MethodHandles")
    method_type = jpype.JClass("java.lang.invoke.MethodType").methodType
    lookup = handles.publicLookup()
    java_object = jpype.JClass("java.lang.Object").class_
    java_row = jpype.JArray(jpype.JObject).class_
    java_text = jpype.JClass("java.lang.String").class_
    boolean = jpype.JClass("java.lang.Boolean").TYPE
    integer = jpype.JClass("java.lang.Integer").TYPE
    result_set = jpype.JClass("java.sql.ResultSet").class_
    objects = jpype.JClass("java.util.Objects").class_
    is_object = lookup.findStatic(objects, "nonNull", method_type(boolean, java_object))
    is_text = is_object.asType(method_type(boolean, java_text))
    no_value = handles.dropArguments(handles.constant(java_object, None), 0, [java_text])
    current = lookup.findVirtual(result.getClass(), "get", method_type(java_object))
    current = current.bindTo(result).asType(method_type(result_set))
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
    set_element = handles.arrayElementSetter(java_row)
    fill: Any = handles.empty(method_type(jpype.JClass("java.lang.Void").TYPE, [java_row]))
    size = 0
    for column in java_table.columns():
        column_type = types.get(java_table.id().schema(), column.typeName())
        before = [column.name(), column_type, column.typeExpression()]
        value_of = handles.insertArguments(get_value, 4, [connection_of, has_unknown, types])
        value_of = handles.insertArguments(value_of, 0, before)
        value_of = handles.guardWithTest(is_text, value_of, no_value)
        number = columns.index(str(column.name())) + 1
        text_of = handles.insertArguments(get_text, 1, [jpype.JInt(number)])
        text_of = handles.collectArguments(text_of, 0, current)
        position = int(column.position())
        put = handles.insertArguments(set_element, 1, [jpype.JInt(position - 1)])
        put = handles.collectArguments(put, 1, handles.filterReturnValue(text_of, value_of))
        fill = handles.foldArguments(put, fill)
        size = max(size, position)
    new_row = handles.insertArguments(handles.arrayConstructor(java_row), 0, [jpype.JInt(size)])
    read_row = handles.foldArguments(handles.identity(java_row), fill)
    read_row = handles.collectArguments(read_row, 0, new_row)
    has_next = lookup.findVirtual(result_set, "next", method_type(boolean))
    has_next = handles.collectArguments(has_next, 0, current)
    next_row = handles.guardWithTest(has_next, read_row, handles.constant(java_row, None))
    next_row = handles.dropArguments(next_row.asType(method_type(java_object)), 0, [java_object])
    return _interface("UnaryOperator", next_row), _interface("Predicate", is_object)


def _row_function(schema: Any, converter: Any, topic: str, *, has_key: bool) -> Any:
    """Return the function from a row to the JSON of its key, a separator and its value."""
    handles = jpype.JClass("java.lang.invoke.MethodHandles")
    method_type = jpype.JClass("java.lang.invoke.MethodType").methodType
    lookup = handles.publicLookup()
    java_object = jpype.JClass("java.lang.Object").class_
    java_row = jpype.JArray(jpype.JObject).class_
    java_bytes = jpype.JArray(jpype.JByte).class_
    java_text = jpype.JClass("java.lang.String").class_
    java_struct = jpype.JClass(f"{_KAFKA}data.Struct").class_
    java_schema = jpype.JClass(f"{_KAFKA}data.Schema").class_
    charset = jpype.JClass("java.nio.charset.Charset").class_
    nothing = jpype.JClass("java.lang.Void").TYPE
    to_json = lookup.findVirtual(
        converter.getClass(),
        "fromConnectData",
        method_type(java_bytes, [java_text, java_schema, java_object]),
    ).bindTo(converter)
    to_text = handles.insertArguments(
        lookup.findConstructor(java_text, method_type(nothing, [java_bytes, charset])),
        1,
        [jpype.JClass("java.nio.charset.StandardCharsets").UTF_8],
    )

    def part(name: str, part_schema: Any) -> Any:
        """Return the function from a row to the JSON of one of its parts."""
        struct_of = lookup.findVirtual(
            schema.getClass(), name, method_type(java_struct, [java_row])
        ).bindTo(schema)
        json_of = handles.insertArguments(to_json, 0, [jpype.JString(topic), part_schema])
        json_of = json_of.asType(method_type(java_bytes, [java_struct]))
        return handles.filterReturnValue(handles.filterReturnValue(struct_of, json_of), to_text)

    text_of = part("valueFromColumnData", schema.valueSchema())
    if has_key:
        concat = lookup.findVirtual(java_text, "concat", method_type(java_text, [java_text]))
        with_separator = handles.insertArguments(concat, 1, [jpype.JString(_SEPARATOR)])
        key = handles.filterReturnValue(
            part("keyFromColumnData", schema.keySchema()), with_separator
        )
        both = handles.filterArguments(concat, 0, [key, text_of])
        text_of = handles.permuteArguments(both, method_type(java_text, [java_row]), [0, 0])
    return _interface("Function", text_of.asType(method_type(java_object, [java_object])))


def _interface(name: str, handle: Any) -> Any:
    """Return a method handle as an object of a functional interface."""
    proxies = jpype.JClass("java.lang.invoke.MethodHandleProxies")
    interface = jpype.JClass(f"java.util.function.{name}").class_
    return proxies.asInterfaceInstance(interface, handle)


def _new(class_name: str, *arguments: Any) -> Any:
    """Return a new object of a class whose only constructor is not public."""
    (constructor,) = jpype.JClass(class_name).class_.getDeclaredConstructors()
    constructor.setAccessible(True)
    return constructor.newInstance(*arguments)
