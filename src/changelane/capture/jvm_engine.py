# SPDX-License-Identifier: Apache-2.0
"""Debezium's engine in the JVM of this process, through JPype.

Only the capture process imports this module: a process can start one JVM, and never another one.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jpype
import msgspec

from changelane.capture.connectors import ENGINE_NAME
from changelane.capture.engine_failures import first_line, without_secrets
from changelane.capture.engine_records import EngineRecord, RecordRoles
from changelane.capture.java_records import JavaRecordReader
from changelane.capture.manifest import EngineOffset
from changelane.capture.publisher import Acknowledge
from changelane.errors import ConfigError

_LOG_BYTES: Final = 10 << 20
_LOG_FILES: Final = 3
_LINES_KEPT: Final = 8
_CLOSE_S: Final = 60
_SEVERE: Final = 1000
"""``java.util.logging.Level.SEVERE``, SLF4J's ERROR."""

HandleBatch = Callable[[Iterator[EngineRecord], Acknowledge], None]


def start_jvm(jars: Path, *, heap: str, work: Path, options: Sequence[str] = ()) -> None:
    """Start the JVM of this process.

    Args:
        jars: The folder of the engine's jars.
        heap: The maximum heap.
        work: The folder for the report of a crash.
        options: Further options of the JVM.

    Raises:
        ConfigError: There is no Java, or no jars.
    """
    if not any(jars.glob("*.jar")):
        raise ConfigError(f"{jars} has no jars: fetch Debezium's engine first")
    try:
        jpype.startJVM(
            f"-Xmx{heap}",
            "-Xrs",  # signals are Python's
            "-XX:+UseSerialGC",  # the smallest footprint; the heap is small
            "-XX:+ExitOnOutOfMemoryError",  # else a thread ends and the engine seems to run
            f"-XX:ErrorFile={work / 'jvm-crash.log'}",
            "-Dfile.encoding=UTF-8",
            # neither values nor messages may depend on the machine
            "-Duser.timezone=UTC",
            "-Duser.language=en",
            "-Duser.country=US",
            *options,
            classpath=[str(jars / "*")],
            convertStrings=False,
        )
    except jpype.JVMNotFoundException as error:
        msg = "capture needs Java 17 or newer: install it, or set JAVA_HOME"
        raise ConfigError(msg) from error


class EngineLog:
    """The engine's log file, without secrets; it remembers the last errors.

    Args:
        work: The folder of the files ``engine.0.log`` (the newest) and so on.
        secrets: Texts that must not be in the files.
    """

    def __init__(self, work: Path, secrets: tuple[str, ...]) -> None:
        self.errors: deque[str] = deque(maxlen=_LINES_KEPT)
        self._secrets = secrets
        pattern = str(work / "engine").replace("%", "%%") + ".%g.log"
        lines = {
            "handlers": "java.util.logging.FileHandler",
            ".level": "INFO",
            "java.util.logging.FileHandler.pattern": pattern,
            "java.util.logging.FileHandler.limit": str(_LOG_BYTES),
            "java.util.logging.FileHandler.count": str(_LOG_FILES),
            "java.util.logging.FileHandler.append": "true",
            "java.util.logging.FileHandler.encoding": "UTF-8",
            "java.util.logging.FileHandler.formatter": "java.util.logging.SimpleFormatter",
            "java.util.logging.SimpleFormatter.format": "%1$tFT%1$tT.%1$tL %4$s %3$s %5$s%6$s%n",
        }
        properties = java_properties(lines)
        content = jpype.JClass("java.io.ByteArrayOutputStream")()
        properties.store(content, None)
        stream = jpype.JClass("java.io.ByteArrayInputStream")(content.toByteArray())
        jpype.JClass("java.util.logging.LogManager").getLogManager().readConfiguration(stream)
        log_filter = jpype.JProxy("java.util.logging.Filter", dict={"isLoggable": self._filter})
        # the loggers above all others keep the handlers alive, and these the filter
        for handler in jpype.JClass("java.util.logging.Logger").getLogger("").getHandlers():
            handler.setFilter(log_filter)

    def _filter(self, entry: Any) -> bool:
        message = str(entry.getMessage())
        thrown = entry.getThrown()
        texts = list(error_messages(thrown))
        if int(entry.getLevel().intValue()) >= _SEVERE:
            self.errors.extend(first_line(text, self._secrets) for text in (message, *texts))
        cleaned = without_secrets(message, self._secrets)
        if cleaned != message:
            entry.setMessage(cleaned)
        if any(secret in text for secret in self._secrets for text in texts):
            entry.setThrown(None)
        return True


def error_messages(error: Any) -> Iterator[str]:
    """Yield the messages of a Java error and its causes, with their classes."""
    for _ in range(20):
        if error is None:
            return
        name, message = error.getClass().getSimpleName(), error.getMessage()
        yield f"{name}: {message}" if message else str(name)
        error = error.getCause()


def write_offset_file(
    path: Path, partition: Mapping[str, str], offset: EngineOffset | None
) -> None:
    """Write the offset from which the engine continues, as ``FileOffsetBackingStore`` reads it.

    The file is a serialised ``HashMap`` of byte arrays: the JSON of the engine's name and the
    source's partition, and the JSON of the offset.

    Args:
        path: The file.
        partition: The source's partition (:func:`.engine_offset.source_partition`).
        offset: The offset; ``None`` = there is none, and the file is deleted.
    """
    path.unlink(missing_ok=True)
    if offset is None:
        return
    java_bytes = jpype.JArray(jpype.JByte)
    java_map = jpype.JClass("java.util.HashMap")
    # the key is compared as bytes: its fields have the order of Debezium's map
    source = java_map()
    for name, value in partition.items():
        source.put(name, value)
    parts = jpype.JClass("java.util.ArrayList")()
    parts.add(ENGINE_NAME)
    parts.add(source)
    key = jpype.JClass("com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsBytes(parts)
    entries = java_map()
    entries.put(key, java_bytes(msgspec.json.encode(offset)))
    file_stream = jpype.JClass("java.io.FileOutputStream")(str(path))
    stream = jpype.JClass("java.io.ObjectOutputStream")(file_stream)
    stream.writeObject(entries)
    stream.close()


class JvmEngine:
    """One run of Debezium's engine.

    Args:
        properties: The properties of engine and connector.
        partition: The source's partition, which all records must have: under another one, the
            engine would not find its offset.
        roles: The roles of the records.
        handle_batch: Gets each batch and the function that gives an offset back. It runs in a
            thread of the engine; an exception of it ends the engine.

    Attributes:
        error: The exception of *handle_batch* that ended the engine.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        partition: Mapping[str, str],
        roles: RecordRoles,
        handle_batch: HandleBatch,
    ) -> None:
        self.error: BaseException | None = None
        self._partition = dict(partition)
        self._reader = JavaRecordReader(roles)
        self._handle_batch = handle_batch
        self._template: Any = None
        self._has_started = threading.Event()
        self._has_ended = threading.Event()
        self._messages: list[str] = []
        package = "io.debezium.engine.DebeziumEngine"
        consumer = {"handleBatch": self._on_batch, "supportsTombstoneEvents": lambda: True}
        json = jpype.JClass("java.lang.Class").forName("io.debezium.engine.format.Json")
        builder = jpype.JClass(package).create(json, json, json)
        builder.using(java_properties(properties))
        builder.notifying(jpype.JProxy(f"{package}$ChangeConsumer", dict=consumer))
        builder.using(jpype.JProxy(f"{package}$CompletionCallback", dict={"handle": self._on_end}))
        builder.using(jpype.JProxy(f"{package}$ConnectorCallback", dict=self._connector_callback()))
        self._engine = builder.build()
        self._thread = jpype.JClass("java.lang.Thread")(self._engine, "changelane-engine")

    def start(self) -> None:
        """Start the engine in a thread of its own."""
        self._thread.start()

    def wait_started(self, timeout_s: float) -> bool:
        """Return whether the engine is connected, after at most some seconds."""
        return self._has_started.wait(timeout_s)

    @property
    def has_ended(self) -> bool:
        """Whether the engine has ended."""
        return self._has_ended.is_set()

    @property
    def messages(self) -> list[str]:
        """The messages of the error that ended the engine, the first cause last."""
        return self._messages

    def close(self) -> None:
        """Stop the engine, and wait for its end."""
        deadline = time.monotonic() + _CLOSE_S
        while not self._has_ended.is_set() and time.monotonic() < deadline:
            # it cannot stop while it connects, and cannot stop twice
            with contextlib.suppress(jpype.JException):
                self._engine.close()
            self._has_ended.wait(0.2)

    # -- callbacks: the engine's threads call them

    def _on_batch(self, records: Any, committer: Any) -> None:
        try:
            if self._template is None and records.size() > 0:
                self._template = records.get(0)
                check_partition(self._template.sourceRecord().sourcePartition(), self._partition)
            acknowledge = _Acknowledge(committer, self._template)
            self._handle_batch(self._reader.read(records), acknowledge)
        except BaseException as error:
            self.error = error
            raise

    def _on_end(self, success: Any, message: Any, error: Any) -> None:
        if not success:
            self._messages = [str(message), *error_messages(error)]
        self._has_ended.set()

    def _connector_callback(self) -> dict[str, Callable[[], None]]:
        names = ("connectorStarted", "connectorStopped", "taskStarted", "taskStopped")
        callbacks: dict[str, Callable[[], None]] = dict.fromkeys(names, _do_nothing)
        return {
            **callbacks,
            "pollingStarted": self._has_started.set,
            "pollingStopped": _do_nothing,
        }


def check_partition(partition: Any, expected: Mapping[str, str]) -> None:
    """Check what identifies the source of a record.

    Raises:
        ConfigError: It is another source.
    """
    found = {str(name): str(value) for name, value in dict(partition).items()}
    if found != expected:
        names = ", ".join(f"{name} {value}" for name, value in found.items())
        raise ConfigError(
            f"the connector captures {names}, and not what the pipeline names: write the database "
            "as the server does"
        )


def _do_nothing() -> None:
    """Ignore a callback."""


class _Acknowledge:
    """Gives an offset back to the engine, with any record of its only partition.

    The offset is that of a manifest, not that of a record, so no other offset can be given back.
    """

    def __init__(self, committer: Any, template: Any) -> None:
        self._committer = committer
        self._template = template

    def __call__(self, offset: EngineOffset) -> None:
        offsets = self._committer.buildOffsets()
        for name, value in offset.items():
            offsets.set(name, _java_value(value))
        self._committer.markProcessed(self._template, offsets)
        self._committer.markBatchFinished()


def _java_value(value: object) -> Any:
    """Return a value of an offset as Debezium reads it: all of its integers are long."""
    match value:
        case None:
            return None
        case bool():
            return jpype.JClass("java.lang.Boolean").valueOf(value)
        case int():
            return jpype.JClass("java.lang.Long").valueOf(value)
        case _:
            return jpype.JString(str(value))


def java_properties(values: Mapping[str, str]) -> Any:
    """Return ``java.util.Properties``."""
    properties = jpype.JClass("java.util.Properties")()
    for name, value in values.items():
        properties.setProperty(name, value)
    return properties
