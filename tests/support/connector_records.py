# SPDX-License-Identifier: Apache-2.0
"""Records of SQL Server and Oracle that the classes of their connectors make, without a server.

A program with a JVM of its own: ``python connector_records.py JARS WORK``, with the options of a
connector on standard input. Standard output has one line of JSON: the records of two transactions,
of two rows and of one row, as the engine hands them on. The order of the calls is that of the
streaming sources of both connectors (``SqlServerStreamingChangeEventSource.executeIteration``,
``BufferedLogMinerStreamingChangeEventSource.handleCommit``).

With ``--stored OFFSET`` it writes the offset as the capture process does, and has what Debezium
reads at the source's partition. With ``--lost`` it has whether each mode of snapshots that the
capture sets takes a new snapshot if the log lacks the offset.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import jpype
import msgspec
from jpype import JClass

from changelane.capture import jvm_engine
from changelane.capture.connectors import ENGINE_NAME, ConnectorOptions, connector_properties
from changelane.capture.engine_offset import source_partition

ROWS: Final = ((1, 1, "a"), (1, 2, None), (2, 3, "b"))
"""Transaction, key and value of each row."""
COMMITS: Final = {1: "00000025:00000d98:00a2", 2: "00000025:00000e00:0003"}
_TIME_MS: Final = 1_700_000_000_000


class Connector(NamedTuple):
    """The objects of one connector.

    Attributes:
        package: Its Java package.
        config: Its configuration.
        offset: Its offset, which each change moves.
        partition: Its source.
        table: The table of all rows.
        topic: The topic of the table.
    """

    package: str
    config: Any
    offset: Any
    partition: Any
    table: Any
    topic: str


def sqlserver(options: ConnectorOptions) -> Connector:
    """Return the connector of SQL Server."""
    package = "io.debezium.connector.sqlserver."
    config = JClass(package + "SqlServerConnectorConfig")(configuration(options))
    null = JClass(package + "TxLogPosition").NULL
    return Connector(
        package + "SqlServer",
        config,
        JClass(package + "SqlServerOffsetContext")(config, null, None, False),
        JClass(package + "SqlServerPartition")(options.name, options.database),
        JClass("io.debezium.relational.TableId")(options.database, "dbo", "orders"),
        f"{options.name}.{options.database}.dbo.orders",
    )


def oracle(options: ConnectorOptions) -> Connector:
    """Return the connector of Oracle."""
    package = "io.debezium.connector.oracle."
    config = JClass(package + "OracleConnectorConfig")(configuration(options))
    offset = (
        JClass(package + "OracleOffsetContext")
        .create()
        .logicalName(config)
        .scn(JClass(package + "Scn").valueOf("4000"))
        .commitScn(JClass(package + "CommitScn").valueOf("4000:1:"))
        .snapshotPendingTransactions(JClass("java.util.HashMap")())
        .snapshotScn(JClass(package + "Scn").valueOf("4000"))
        .transactionContext(JClass("io.debezium.pipeline.txmetadata.TransactionContext")())
        .incrementalSnapshotContext(
            JClass(
                "io.debezium.pipeline.source.snapshot.incremental."
                "SignalBasedIncrementalSnapshotContext"
            )()
        )
        .build()
    )
    return Connector(
        package + "Oracle",
        config,
        offset,
        JClass(package + "OraclePartition")(options.name, options.database),
        JClass("io.debezium.relational.TableId")(options.database, "dbo", "orders"),
        f"{options.name}.dbo.orders",
    )


def configuration(options: ConnectorOptions) -> Any:
    """Return a configuration of Debezium."""
    properties = jvm_engine.java_properties(connector_properties(options))
    return JClass("io.debezium.config.Configuration").from_(properties)


def hidden_object(name: str) -> Any:
    """Return an object of a class that is not public."""
    constructor = JClass("java.lang.Class").forName(name).getDeclaredConstructor()
    constructor.setAccessible(True)
    return constructor.newInstance()


def move_sqlserver(connector: Connector, transaction: int, number: int) -> None:
    """Move the offset to a row, before Debezium knows its transaction."""
    package = "io.debezium.connector.sqlserver."
    lsn = JClass(package + "Lsn").valueOf
    commit = COMMITS[transaction]
    change = f"{commit[:-4]}{number:04x}"
    position = JClass(package + "TxLogPosition").valueOf(lsn(commit), lsn(change))
    connector.offset.setChangePosition(position, 1)


def move_oracle(connector: Connector, transaction: int, number: int) -> None:
    """Move the offset to a row of a transaction that is committed."""
    offset, scn = connector.offset, JClass("io.debezium.connector.oracle.Scn").valueOf
    offset.setEventScn(scn(str(5000 + number)))
    offset.setEventCommitScn(scn(str(6000 + transaction)))
    offset.setTransactionId(f"0900{transaction}")
    offset.setTransactionSequence(JClass("java.lang.Long").valueOf(number))
    offset.setRsId(f"0x00001{number}.000000aa.0010")
    offset.setRedoThread(JClass("java.lang.Integer").valueOf(1))


def records_of(connector: Connector, *, commits: bool) -> list[Any]:
    """Return the records of :data:`ROWS`.

    Args:
        connector: The connector.
        commits: Whether it tells the commit of a transaction, as Oracle's does.
    """
    instant = JClass("java.time.Instant").ofEpochMilli(_TIME_MS)
    struct, record = (
        JClass("org.apache.kafka.connect.data.Struct"),
        JClass("org.apache.kafka.connect.source.SourceRecord"),
    )
    row, key = schemas(connector.topic)
    transaction_class = JClass("io.debezium.pipeline.txmetadata.TransactionMonitor")
    envelope = (
        JClass("io.debezium.data.Envelope")
        .defineSchema()
        .withName(f"{connector.topic}.Envelope")
        .withRecord(row)
        .withSource(connector.offset.getSourceInfoSchema())
        .withTransaction(transaction_class.TRANSACTION_BLOCK_SCHEMA)
        .build()
    )
    records: list[Any] = []
    monitor = transaction_class(
        connector.config,
        hidden_object(f"{connector.package}EventMetadataProvider"),
        connector.config.schemaNameAdjuster(),
        jpype.JProxy("io.debezium.function.BlockingConsumer", dict={"accept": records.append}),
        f"{connector.config.getLogicalName()}.transaction",
    )
    move = move_oracle if commits else move_sqlserver
    for index, (transaction, number, note) in enumerate(ROWS):
        move(connector, transaction, number)
        connector.offset.event(connector.table, instant)
        key_value = struct(key).put("id", jpype.JInt(number))
        after = struct(row).put("id", jpype.JInt(number)).put("note", note)
        value = envelope.create(after, connector.offset.getSourceInfo(), instant)
        monitor.dataEvent(connector.partition, connector.table, connector.offset, key_value, value)
        source, offset = connector.partition.getSourcePartition(), connector.offset.getOffset()
        parts = (connector.topic, None, key, key_value, envelope.schema(), value)
        records.append(record(source, offset, *parts))
        is_last = index + 1 == len(ROWS) or ROWS[index + 1][0] != transaction
        if commits and is_last:
            scn = JClass("io.debezium.connector.oracle.Scn").valueOf(str(6000 + transaction))
            connector.offset.getCommitScn().setCommitScnOnAllThreads(scn)
            monitor.transactionCommittedEvent(connector.partition, connector.offset, instant)
    return records


def schemas(topic: str) -> tuple[Any, Any]:
    """Return the schemas of the rows and of their keys."""
    builder, schema = (
        JClass("org.apache.kafka.connect.data.SchemaBuilder"),
        JClass("org.apache.kafka.connect.data.Schema"),
    )
    row = builder.struct().name(f"{topic}.Value").optional().field("id", schema.INT32_SCHEMA)
    key = builder.struct().name(f"{topic}.Key").field("id", schema.INT32_SCHEMA)
    return row.field("note", schema.OPTIONAL_STRING_SCHEMA).build(), key.build()


def converter(*, with_schemas: bool, is_key: bool) -> Any:
    """Return a converter of Kafka Connect."""
    made = JClass("org.apache.kafka.connect.json.JsonConverter")()
    options = {"schemas.enable": str(with_schemas).lower(), "replace.null.with.default": "false"}
    made.configure(JClass("java.util.HashMap")(options), is_key)
    return made


def lines_of(records: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of records that the capture reads."""
    keys, values = (converter(with_schemas=True, is_key=is_key) for is_key in (True, False))
    to_json = JClass("com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsString

    def text(made: Any, *parts: Any) -> str:
        return bytes(made.fromConnectData(*parts)).decode()

    for entry in records:
        yield {
            "topic": str(entry.topic()),
            "key": text(keys, entry.topic(), entry.keySchema(), entry.key()),
            "value": text(values, entry.topic(), entry.valueSchema(), entry.value()),
            "offset": json.loads(str(to_json(entry.sourceOffset()))),
        }


def stored_offset(connector: Connector, options: ConnectorOptions, work: Path, offset: Any) -> Any:
    """Write an offset as the capture process does, and return what Debezium reads."""
    file = work / "offsets.dat"
    jvm_engine.write_offset_file(file, source_partition(options), offset)
    key, value = (converter(with_schemas=False, is_key=is_key) for is_key in (True, False))
    properties = {
        "bootstrap.servers": "unused",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.file.filename": str(file),
    }
    store = JClass("org.apache.kafka.connect.storage.FileOffsetBackingStore")(key)
    config = JClass("org.apache.kafka.connect.runtime.standalone.StandaloneConfig")
    store.configure(config(JClass("java.util.HashMap")(properties)))
    store.start()
    try:
        reader = JClass("org.apache.kafka.connect.storage.OffsetStorageReaderImpl")
        source = connector.partition.getSourcePartition()
        found = reader(store, ENGINE_NAME, key, value).offset(source)
        to_json = JClass("com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsString
        return json.loads(str(to_json(found)))
    finally:
        store.stop()


def snapshots_if_lost() -> dict[str, bool]:
    """Return whether a mode of snapshots replaces an offset that the log lacks."""
    modes = {"initial": "InitialSnapshotter", "no_data": "NoDataSnapshotter"}
    modes |= {"when_needed": "WhenNeededSnapshotter"}
    return {
        mode: bool(JClass(f"io.debezium.snapshot.mode.{name}")().shouldSnapshotOnDataError())
        for mode, name in modes.items()
    }


def main(jars: str, work: str, *arguments: str) -> None:
    """Write the records, or the stored offset."""
    options = msgspec.json.decode(sys.stdin.buffer.read(), type=ConnectorOptions)
    jvm_engine.start_jvm(Path(jars), heap="256m", work=Path(work))
    make: Callable[[ConnectorOptions], Connector] = {"sqlserver": sqlserver, "oracle": oracle}[
        options.product
    ]
    connector = make(options)
    result: Any
    if arguments == ("--lost",):
        result = snapshots_if_lost()
    elif arguments:
        result = stored_offset(connector, options, Path(work), json.loads(arguments[1]))
    else:
        records = records_of(connector, commits=options.product == "oracle")
        result = list(lines_of(records))
    sys.stdout.write(json.dumps(result))
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
