# SPDX-License-Identifier: Apache-2.0
"""Plain messages in Avro become rows without an event, and the same rows."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from connect_avro import Avro, schema_and_payload
from lane_messages import builder, lane_rows, numbered, read
from registry_server import RegistryServer

from changelane import get_codec
from changelane.errors import UnreachableError
from changelane.message import Message

pytestmark = pytest.mark.usefixtures("early_lanes")

GOLDEN = Path(__file__).parents[3] / "golden"
STREAMS: list[tuple[str, str, float]] = [
    ("debezium-json", "debezium-mariadb-schema", 0.8),
    ("debezium-json", "debezium-postgres-schema", 0.6),
    ("debezium-flat-json", "debezium-postgres-flat-schema", 0.6),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.mark.parametrize(
    ("name", "stream", "least", "has_headers"),
    [*((*stream, False) for stream in STREAMS), (*STREAMS[1], True)],
)
def test_captured_messages(
    server: RegistryServer, name: str, stream: str, least: float, has_headers: bool
) -> None:
    schemas: dict[str, tuple[Avro, int]] = {}

    def framed(data: bytes | None) -> tuple[bytes, bytes | None]:
        if not data:
            return b"", data
        schema, payload = schema_and_payload(data)
        text = json.dumps(schema)
        if text not in schemas:
            avro = Avro(schema, adjust=True)
            schemas[text] = avro, server.add(avro.text)
        avro, schema_id = schemas[text]
        return b"\0" + schema_id.to_bytes(4, "big"), avro.datum(payload)

    def in_avro(message: Message) -> Message:
        value_id, value = framed(message.value)
        key_id, key = framed(message.key)
        if not has_headers:
            value = value and value_id + value
            key = key and key_id + key
            return msgspec.structs.replace(message, value=value, key=key)
        ids = (("__value_schema_id", value_id), ("__key_schema_id", key_id))
        headers = (*message.headers, *(pair for pair in ids if pair[1]))
        return msgspec.structs.replace(message, value=value, key=key, headers=headers)

    messages = [in_avro(one) for one in read(GOLDEN / name / "captured" / f"{stream}.jsonl")]
    options = {"serde": "avro-registry", "registry": server.address, "avro_names": "unicode"}
    before = len(server.requests)
    plain, with_row = lane_rows(numbered(messages * 2), options, name)
    assert plain == 0 if has_headers else plain > least * with_row / 2
    assert len(server.requests) - before <= len(schemas)


def test_a_registry_that_does_not_answer_fails_the_task() -> None:
    codec = get_codec("debezium-json", serde="avro-registry", registry="/no/such/folder")
    rows = builder.RowBuilder(codec)
    with pytest.raises(UnreachableError):
        rows.rows(Message(b"\0\0\0\0\5\0"))
