# SPDX-License-Identifier: Apache-2.0
"""Messages of rows as Debezium's engine writes them, by Debezium's own code.

Java joins the texts of many rows, as in :mod:`~changelane.capture.java_records`.

Only the process of a reader imports this module: it needs the JVM.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jpype
import msgspec

from changelane.errors import ChangelaneError

_KAFKA: Final = "org.apache.kafka.connect."
_ROWS_AT_ONCE: Final = 256
"""Bounds the memory of the joined texts."""
_SEPARATOR: Final = "\t"
"""Between the key and the value of a row: JSON contains neither tabs nor line breaks."""
_JSON: Final = msgspec.json.Encoder()


class TableMessages:
    """Makes the messages of one table's rows.

    Args:
        schema: Debezium's schema of the table.
        topic: The topic of the messages.
        columns: The position of each column in the table, from 1, and the function that reads its
            value, a method handle from ``ResultSet`` to ``Object``.
    """

    def __init__(self, schema: Any, topic: str, columns: Mapping[int, Any]) -> None:
        self._has_key = schema.keySchema() is not None
        self._topic = topic
        self._result = jpype.JClass("java.util.concurrent.atomic.AtomicReference")()
        self._next_row, self._is_row = _row_functions(self._result, columns)
        self._now_ms = int(time.time() * 1000)
        self._converter = converter = jpype.JClass(f"{_KAFKA}json.JsonConverter")()
        settings = jpype.JClass("java.util.HashMap")()
        # the schema is the same text in every message, so Java writes it once
        settings.put("schemas.enable", "false")
        settings.put("replace.null.with.default", "false")
        converter.configure(settings, False)  # noqa: FBT003
        self._envelope = schema.getEnvelopeSchema()
        # all but the key and the row is the same in every line, so it is escaped once
        line = f'{{"topic":{_text(topic)},"timestamp":{self._now_ms},"key":'
        self._before_key = f"{line}null".encode()
        self._before_value = ',"value":"'
        if self._has_key:
            key_schema = converter.asJsonSchema(schema.keySchema()).toString()
            key_start = _escaped(f'{{"schema":{key_schema},"payload":')
            self._before_key = f'{line}"{key_start}'.encode()
            self._before_value = f'}}",{self._before_value[1:]}'
        value_schema = converter.asJsonSchema(self._envelope.schema()).toString()
        self._before_value += _escaped(f'{{"schema":{value_schema},"payload":')
        self._to_text = _text_function(schema, converter, topic, has_key=self._has_key)
        self._joining = jpype.JClass("java.util.stream.Collectors").joining("\n")
        self._charset = jpype.JClass("java.nio.charset.StandardCharsets").UTF_8
        self._stream = jpype.JClass("java.util.stream.Stream")

    def read(self, result: Any, source: Any) -> Iterator[bytes]:
        """Yield the messages of the rows of a result as lines.

        Args:
            result: The result.
            source: The source block of the rows.

        Raises:
            ChangelaneError: The envelope has no field for a row.
        """
        self._result.set(result)
        next_row, is_row = self._next_row, self._is_row
        before_key, (before_row, after_row) = self._before_key, self._around_row(source)
        encode = _JSON.encode
        while (row := next_row.apply(None)) is not None:
            rows = self._stream.iterate(row, is_row, next_row).limit(_ROWS_AT_ONCE)
            joined = rows.map(self._to_text).collect(self._joining)
            for line in bytes(memoryview(joined.getBytes(self._charset))).decode().split("\n"):
                key, _, row_text = line.rpartition(_SEPARATOR)
                yield b"".join(
                    (before_key, encode(key)[1:-1], before_row, encode(row_text)[1:-1], after_row)
                )

    def _around_row(self, source: Any) -> tuple[bytes, bytes]:
        """Return what is between the key and the row of a message, and after its row."""
        instant = jpype.JClass("java.time.Instant").ofEpochMilli(self._now_ms)
        text = self._converter.fromConnectData(
            self._topic, self._envelope.schema(), self._envelope.read(None, source, instant)
        )
        start, field, end = bytes(text).decode().partition('"after":null')
        if not field:
            raise ChangelaneError("Debezium's envelope has no field after")
        before_row = f"{self._before_value}{_escaped(start)}{_escaped(field[:-4])}"
        return before_row.encode(), f'{_escaped(end)}}}"}}'.encode()


def _text(text: str) -> str:
    """Return a text as JSON."""
    return _JSON.encode(text).decode()


def _escaped(text: str) -> str:
    """Return a text as the inside of a text of JSON."""
    return _text(text)[1:-1]


# -- Java functions, made of method handles


def _row_functions(result: Any, columns: Mapping[int, Any]) -> tuple[Any, Any]:
    """Return the function that reads the next row of a result, and the test that it is one.

    The function ignores its argument; after the last row it returns null.

    Args:
        result: A Java reference to the result.
        columns: The positions of the columns, and the functions that read their values.
    """
    handles = jpype.JClass("java.lang.invoke.MethodHandles")
    method_type = jpype.JClass("java.lang.invoke.MethodType").methodType
    lookup = handles.publicLookup()
    java_object = jpype.JClass("java.lang.Object").class_
    java_row = jpype.JArray(jpype.JObject).class_
    boolean = jpype.JClass("java.lang.Boolean").TYPE
    result_set = jpype.JClass("java.sql.ResultSet").class_
    objects = jpype.JClass("java.util.Objects").class_
    is_object = lookup.findStatic(objects, "nonNull", method_type(boolean, java_object))
    current = lookup.findVirtual(result.getClass(), "get", method_type(java_object))
    current = current.bindTo(result).asType(method_type(result_set))
    set_element = handles.arrayElementSetter(java_row)
    fill: Any = handles.empty(method_type(jpype.JClass("java.lang.Void").TYPE, [java_row]))
    for position, value_of in columns.items():
        put = handles.insertArguments(set_element, 1, [jpype.JInt(position - 1)])
        put = handles.collectArguments(put, 1, handles.collectArguments(value_of, 0, current))
        fill = handles.foldArguments(put, fill)
    size = jpype.JInt(max(columns, default=0))
    new_row = handles.insertArguments(handles.arrayConstructor(java_row), 0, [size])
    read_row = handles.foldArguments(handles.identity(java_row), fill)
    read_row = handles.collectArguments(read_row, 0, new_row)
    has_next = lookup.findVirtual(result_set, "next", method_type(boolean))
    has_next = handles.collectArguments(has_next, 0, current)
    next_row = handles.guardWithTest(has_next, read_row, handles.constant(java_row, None))
    next_row = handles.dropArguments(next_row.asType(method_type(java_object)), 0, [java_object])
    return (
        functional_interface("UnaryOperator", next_row),
        functional_interface("Predicate", is_object),
    )


def _text_function(schema: Any, converter: Any, topic: str, *, has_key: bool) -> Any:
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
    return functional_interface("Function", text_of.asType(method_type(java_object, [java_object])))


def functional_interface(name: str, handle: Any) -> Any:
    """Return a method handle as an object of a functional interface."""
    proxies = jpype.JClass("java.lang.invoke.MethodHandleProxies")
    interface = jpype.JClass(f"java.util.function.{name}").class_
    return proxies.asInterfaceInstance(interface, handle)


def source_block(source_info: Any, fields: Mapping[str, Any]) -> Any:
    """Return the source block of rows.

    Args:
        source_info: Debezium's source of the connector.
        fields: The values of its fields, those of Java if they are integers.
    """
    struct = jpype.JClass(f"{_KAFKA}data.Struct")(source_info.schema())
    for name, value in fields.items():
        struct.put(name, value)
    return struct


def new_object(class_name: str, *arguments: Any) -> Any:
    """Return a new object of a class whose only constructor is not public."""
    (constructor,) = jpype.JClass(class_name).class_.getDeclaredConstructors()
    constructor.setAccessible(True)
    return constructor.newInstance(*arguments)
