# SPDX-License-Identifier: Apache-2.0
"""Reads a batch of Debezium's records through JPype, in a few calls instead of several per record.

Java joins each part of many records into one text, with functions that are made of method handles;
Python splits it again. Lines separate the records: JSON contains no line break, and the names of
topics have no other characters than letters, digits, ``.``, ``_`` and ``-``.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

import jpype
import msgspec

from changelane.capture.engine_records import EngineRecord, RecordRoles
from changelane.capture.manifest import CapturedRecord, EngineOffset

_RECORDS_AT_ONCE: Final = 256
"""Bounds the memory of the joined texts."""
_NULL: Final = "null"
"""Java's text of a missing key or value; as JSON it would mean the same."""
_NO_HEADERS: Final = "[]"


class _Header(msgspec.Struct):
    key: str
    value: str | None


_OFFSETS: Final = msgspec.json.Decoder(EngineOffset)
_HEADERS: Final = msgspec.json.Decoder(list[_Header])


class JavaRecordReader:
    """Reads the batches of an engine with the JSON formats for key, value and headers.

    The JVM must run, with the engine's jars.

    Args:
        roles: The roles of the records.
    """

    def __init__(self, roles: RecordRoles) -> None:
        self._roles = roles
        self._joining = jpype.JClass("java.util.stream.Collectors").joining("\n")
        self._charset = jpype.JClass("java.nio.charset.StandardCharsets").UTF_8
        self._parts = _part_functions()

    def read(self, records: Any) -> Iterator[EngineRecord]:
        """Yield the records of a batch, a ``java.util.List``, in their order."""
        count = records.size()
        for start in range(0, count, _RECORDS_AT_ONCE):
            part = records.subList(start, min(start + _RECORDS_AT_ONCE, count))
            yield from self._read(part)

    def _read(self, records: Any) -> Iterator[EngineRecord]:
        now_ms = int(time.time() * 1000)
        columns = [self._lines(records, function) for function in self._parts]
        for topic, key, value, headers, offset in zip(*columns, strict=True):
            text = None if value == _NULL else value
            yield EngineRecord(
                self._roles.role_of(topic, text),
                _OFFSETS.decode(offset),
                CapturedRecord(
                    topic,
                    None if key == _NULL else key,
                    text,
                    now_ms,
                    () if headers == _NO_HEADERS else _headers(headers),
                ),
            )

    def _lines(self, records: Any, function: Any) -> list[str]:
        joined = records.stream().map(function).collect(self._joining)
        return bytes(memoryview(joined.getBytes(self._charset))).decode().split("\n")


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((header.key, header.value or _NULL) for header in _HEADERS.decode(text))


def _part_functions() -> list[Any]:
    """Return Java functions from a change event to its topic, key, value, headers and offset.

    Each returns text; headers and offset are JSON.
    """
    lookup = jpype.JClass("java.lang.invoke.MethodHandles").publicLookup()
    handles = jpype.JClass("java.lang.invoke.MethodHandles")
    method_type = jpype.JClass("java.lang.invoke.MethodType").methodType
    java_object = jpype.JClass("java.lang.Object").class_
    java_text = jpype.JClass("java.lang.String").class_
    event = jpype.JClass("io.debezium.engine.ChangeEvent").class_
    embedded_event = jpype.JClass("io.debezium.embedded.EmbeddedEngineChangeEvent").class_
    source_record = jpype.JClass("org.apache.kafka.connect.source.SourceRecord").class_
    java_list = jpype.JClass("java.util.List").class_
    java_map = jpype.JClass("java.util.Map").class_
    mapper_class = jpype.JClass("com.fasterxml.jackson.databind.ObjectMapper")
    text_of = lookup.findStatic(java_text, "valueOf", method_type(java_text, java_object))
    to_json = lookup.findVirtual(
        mapper_class.class_, "writeValueAsString", method_type(java_text, java_object)
    ).bindTo(mapper_class())

    def getter(owner: Any, name: str, returned: Any) -> Any:
        return lookup.findVirtual(owner, name, method_type(returned))

    def then(first: Any, second: Any) -> Any:
        """Return the second function of the first one's result."""
        between = first.type().returnType()
        adapted = second.asType(second.type().changeParameterType(0, between))
        return handles.filterReturnValue(first, adapted)

    source = getter(embedded_event, "sourceRecord", source_record)
    offset = then(source, getter(source_record, "sourceOffset", java_map))
    parts = [
        then(getter(event, "destination", java_text), text_of),
        then(getter(event, "key", java_object), text_of),
        then(getter(event, "value", java_object), text_of),
        then(getter(event, "headers", java_list), to_json),
        then(offset, to_json),
    ]
    function = jpype.JClass("java.util.function.Function").class_
    proxies = jpype.JClass("java.lang.invoke.MethodHandleProxies")
    return [proxies.asInterfaceInstance(function, part) for part in parts]
