# SPDX-License-Identifier: Apache-2.0
"""Messages in Avro with the schemas of a real registry: Apicurio, by both of its interfaces."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from apicurio import ApicurioRegistry

from changelane import Message, get_codec
from changelane.conversion.message_files import read_record
from changelane.errors import DecodeError, UnreachableError
from changelane.event import DataChange
from changelane.formats.contract.schema_registry import IdKind, Location, SchemaId
from changelane.schema_registries.http import HttpRegistry

STREAMS = sorted(
    (Path(__file__).resolve().parents[1] / "golden").glob("debezium*-json/captured/*-schema.jsonl")
)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApicurioRegistry]:
    with ApicurioRegistry(tmp_path_factory.mktemp("apicurio")) as running:
        yield running


def avro(name: str, registry: str, **options: Any) -> Any:
    return get_codec(
        name, serde="avro-registry", registry=registry, avro_names="unicode", **options
    )


def written(name: str, path: Path, registry: ApicurioRegistry) -> list[tuple[DataChange, Message]]:
    """Return the events of a stream, and their messages in Avro."""
    reader, writer = get_codec(name), avro(name, registry.confluent_url)
    found = []
    for line in path.read_bytes().splitlines():
        for event in reader.decode(read_record(line)):
            if isinstance(event, DataChange):
                messages = writer.encode(event, on_loss="warn").messages
                found += [(event, message) for message in messages if message.value is not None]
    return found


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_what_one_program_registers_another_one_reads(
    registry: ApicurioRegistry, path: Path
) -> None:
    name = path.parent.parent.name
    pairs = written(name, path, registry)
    assert len(pairs) > 10
    reader, by_json = avro(name, registry.confluent_url), get_codec(name)
    for event, message in pairs:
        (found,) = reader.decode(message)
        expected = by_json.encode(event, on_loss="warn").messages[0]
        (expected_event,) = by_json.decode(expected)
        assert (found.op, found.key, found.before, found.after) == (
            expected_event.op,
            expected_event.key,
            expected_event.before,
            expected_event.after,
        )


def own_ids(registry: ApicurioRegistry, confluent_id: int) -> dict[str, int]:
    """Return the ids by which Apicurio's own interface has a schema of Confluent's."""
    versions = f"{registry.confluent_url}/schemas/ids/{confluent_id}/versions"
    place = registry.request("GET", versions)[0]
    artifact = f"{registry.url}/groups/default/artifacts/{quote(place['subject'], safe='')}"
    return registry.request("GET", f"{artifact}/versions/{place['version']}/meta")


@pytest.mark.parametrize(("width", "kind"), [(4, "contentId"), (8, "globalId")])
def test_ids_of_its_own_interface(registry: ApicurioRegistry, width: int, kind: str) -> None:
    path = STREAMS[-1]
    name = path.parent.parent.name
    reader = avro(name, registry.url)
    by_confluent = avro(name, registry.confluent_url)
    for _, message in written(name, path, registry):
        own_id = own_ids(registry, int.from_bytes(message.value[1:5], "big"))[kind]
        own_id = own_id.to_bytes(width, "big")
        own = Message(b"\0" + own_id + message.value[5:], topic=message.topic)
        plain = Message(message.value, topic=message.topic)
        assert reader.decode(own) == by_confluent.decode(plain)


def test_schemas_that_refer_to_others(registry: ApicurioRegistry) -> None:
    part = {"type": "record", "name": "Part", "namespace": "shop", "fields": []}
    part["fields"] = [{"name": "size", "type": "int"}]
    whole = {"type": "record", "name": "Whole", "namespace": "shop", "fields": []}
    whole["fields"] = [{"name": "id", "type": "int"}, {"name": "part", "type": "shop.Part"}]
    subjects = f"{registry.confluent_url}/subjects"
    registry.request("POST", f"{subjects}/part/versions", {"schema": json.dumps(part)})
    references = [{"name": "shop.Part", "subject": "part", "version": 1}]
    content = {"schema": json.dumps(whole), "references": references}
    confluent_id = registry.request("POST", f"{subjects}/whole/versions", content)["id"]
    meta = own_ids(registry, confluent_id)
    for address, width, schema_id in (
        (registry.confluent_url, 4, confluent_id),
        (registry.url, 4, meta["contentId"]),
        (registry.url, 8, meta["globalId"]),
    ):
        reader = avro("debezium-flat-json", address, table="whole")
        (event,) = reader.decode(Message(b"\0" + schema_id.to_bytes(width, "big") + b"\x0e\x06"))
        assert event.after == {"id": 7, "part": {"size": 3}}, address


def test_a_schema_that_is_not_compatible_is_a_sentence(registry: ApicurioRegistry) -> None:
    """The registry decides, and the subject keeps its schema."""
    subject = "t-value"
    schema = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}]}
    client = HttpRegistry(Location(registry.confluent_url))
    schema_id = client.register(subject, json.dumps(schema))
    assert client.registered_id(subject, json.dumps(schema)) == schema_id
    registry.request(
        "PUT", f"{registry.confluent_url}/config/{subject}", {"compatibility": "BACKWARD"}
    )
    schema["fields"].append({"name": "more", "type": "int"})
    with pytest.raises(UnreachableError, match="not compatible with the subject's earlier ones"):
        client.register(subject, json.dumps(schema))
    assert client.registered_id(subject, json.dumps(schema)) is None
    with pytest.raises(DecodeError, match="has no schema"):
        client.schema(SchemaId(IdKind.ID, "999999"))
