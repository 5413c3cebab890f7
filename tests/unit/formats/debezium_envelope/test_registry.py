# SPDX-License-Identifier: Apache-2.0
"""Debezium's messages in Avro, framed with the ids of a schema registry."""

import base64
import io
import json
import math
import pickle
import struct
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from click.testing import CliRunner
from connect_avro import Avro, schema_and_payload
from hypothesis import given, settings
from hypothesis import strategies as st
from json_server import JsonServer
from registry_server import RegistryServer

from changelane import ConfigError, DecodeError, EncodeError, Message, get_codec
from changelane.cli import main
from changelane.conversion.message_files import read_record
from changelane.errors import UnreachableError
from changelane.event import DataChange, Key, Op
from changelane.formats.contract.avro_readers import read_float
from changelane.formats.contract.schema_registry import RegisteredSchema
from changelane.formats.debezium_envelope.registry.avro_schemas import compile_schema
from changelane.formats.debezium_envelope.registry.avro_writers import avro_writer
from changelane.formats.debezium_envelope.rows.connect_schema import parse
from changelane.schema import Column, TableId, TableSchema
from changelane.schema_registries import http
from changelane.testing.conformance import EFFORT
from changelane.types import Integer

CAPTURED = Path(__file__).resolve().parents[3] / "golden"
STREAMS = sorted(CAPTURED.glob("debezium*-json/captured/*-schema.jsonl"))
FORMATS = {path: path.parent.parent.name for path in STREAMS}

ROW = {
    "type": "struct",
    "fields": [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "first name"},
    ],
    "optional": False,
    "name": "shop.public.people.Value",
}
FLAT = b'{"schema":%s,"payload":{"id":7,"first name":"Ann"}}' % json.dumps(ROW).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PAUSES_SECONDS", (0, 0, 0))


def framed(schema_id: int, datum: bytes, width: int = 4) -> bytes:
    return b"\0" + schema_id.to_bytes(width, "big") + datum


@cache
def avro_of(schema: str) -> Avro:
    return Avro(json.loads(schema), adjust=True)


class Converter:
    """Connect's Avro converter."""

    def __init__(self, server: RegistryServer) -> None:
        self._server = server
        self._ids: dict[str, int] = {}

    def bytes_of(self, data: bytes | None) -> bytes | None:
        if not data:
            return data
        schema, payload = schema_and_payload(data)
        text = json.dumps(schema)
        avro = avro_of(text)
        if text not in self._ids:
            self._ids[text] = self._server.add(avro.text)
        return framed(self._ids[text], avro.datum(payload))

    def message(self, message: Message) -> Message:
        return msgspec.structs.replace(
            message, value=self.bytes_of(message.value), key=self.bytes_of(message.key)
        )


def flat(folder: Path | RegistryServer, **options: Any) -> Any:
    registry = folder.address if isinstance(folder, RegistryServer) else str(folder)
    return get_codec(
        "debezium-flat-json", serde="avro-registry", registry=registry, table="people", **options
    )


def row_in(codec: Any, value: bytes, **parts: Any) -> Any:
    (event,) = codec.decode(Message(value, **parts))
    return event.after


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ids").mkdir()
    text = Avro(ROW, adjust=True).text
    for name in ("5", "6", str(uuid.UUID(int=9))):
        (tmp_path / "ids" / f"{name}.avsc").write_text(text)
    return tmp_path


DATUM = Avro(ROW, adjust=True).datum({"id": 7, "first name": "Ann"})
ANN = {"id": 7, "first_u0020name": "Ann"}


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_the_avro_form_of_every_captured_message_has_the_events_of_its_json_form(server, path):
    name = FORMATS[path]
    registry = {"serde": "avro-registry", "registry": server.address, "avro_names": "unicode"}
    plain, codec, converter = get_codec(name), get_codec(name, **registry), Converter(server)
    for line in path.read_bytes().splitlines():
        message = read_record(line)
        avro = converter.message(message)
        assert avro.value != message.value or not message.value
        expected = plain.decode(message)
        assert repr(codec.decode(avro)) == repr(expected), message.where
    assert len(STREAMS) >= 4


@pytest.mark.parametrize(
    "path", [path for path in STREAMS if "flat" not in path.stem], ids=lambda path: path.stem
)
def test_events_written_in_avro_are_read_as_those_written_in_json(server, path):
    name = FORMATS[path]
    registry = {"serde": "avro-registry", "registry": server.address, "avro_names": "unicode"}
    plain, codec = get_codec(name), get_codec(name, **registry)
    kinds: Counter[Any] = Counter()
    for line in path.read_bytes().splitlines():
        record = read_record(line)
        for event in plain.decode(record):
            kind = record.topic, type(event), getattr(event, "op", None)
            kinds[kind] += 1
            if kinds[kind] > 1:
                continue
            wanted = plain.encode(event, on_loss="ignore")
            written = codec.encode(event, on_loss="ignore")
            assert written.losses == wanted.losses
            for message, as_json in zip(written.messages, wanted.messages, strict=True):
                assert repr(codec.decode(message)) == repr(plain.decode(as_json))
                assert message.topic == as_json.topic
                for part in ("value", "key"):
                    data, expected = getattr(message, part), getattr(as_json, part)
                    if not expected:
                        assert data == expected
                        continue
                    schema, payload = schema_and_payload(expected)
                    # the bytes of fastavro
                    assert data[5:] == avro_of(json.dumps(schema)).datum(payload)
                    schema_id = int.from_bytes(data[1:5], "big")
                    assert schema_id in server.subjects[f"{message.topic}-{part}"]
    assert len(kinds) > 10


LEAVES = [
    ({"type": "boolean"}, st.booleans()),
    ({"type": "int8"}, st.integers(-128, 127)),
    ({"type": "int16"}, st.integers(-(2**15), 2**15 - 1)),
    ({"type": "int32", "name": "io.debezium.time.Date", "version": 1}, st.integers(-(2**31), 9)),
    ({"type": "int64"}, st.integers(-(2**63), 2**63 - 1)),
    ({"type": "float"}, st.sampled_from([1.5, 0.1, -3.4028235e38, 1.4e-45, "NaN", "Infinity"])),
    ({"type": "double"}, st.floats(allow_nan=False, allow_infinity=False) | st.just("-Infinity")),
    ({"type": "bytes"}, st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode())),
    (
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": {"scale": "2", "connect.decimal.precision": "9"},
        },
        st.sampled_from(["AP8=", "/w=="]),
    ),
    (
        {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1},
        st.just(7),
    ),
    (
        {
            "type": "string",
            "name": "io.debezium.data.Enum",
            "version": 1,
            "doc": "a comment",
            "parameters": {"allowed": "a,b"},
        },
        st.text(max_size=5),
    ),
]
Typed = tuple[dict[str, Any], st.SearchStrategy[Any]]


@st.composite
def typed(draw: Any, depth: int = 2) -> Typed:
    """A schema of Connect, and the JSON values that it has."""
    kind = draw(st.sampled_from(["leaf"] * 3 + ["struct", "array", "map"])) if depth else "leaf"
    match kind:
        case "leaf":
            schema, values = draw(st.sampled_from(LEAVES))
        case "struct":
            schema, values = draw(structs(depth - 1))
        case "array":
            items, item_values = draw(typed(depth - 1))
            schema, values = {"type": "array", "items": items}, st.lists(item_values, max_size=2)
        case _:
            inner, inner_values = draw(typed(depth - 1))
            keys: dict[str, Any] = {"type": draw(st.sampled_from(["string", "int32"]))}
            schema = {"type": "map", "keys": {**keys, "optional": False}, "values": inner}
            if keys["type"] == "string":
                values = st.dictionaries(st.text(max_size=3), inner_values, max_size=2)
            else:
                pair = st.tuples(st.integers(0, 9), inner_values).map(list)
                values = st.lists(pair, max_size=2)
    schema = {**schema, "optional": draw(st.booleans())}
    if draw(st.integers(0, 3)) == 0:
        schema["default"] = draw(values)
    return schema, st.none() | values if schema["optional"] else values


@st.composite
def structs(draw: Any, depth: int = 2) -> Typed:
    names = draw(
        st.lists(st.sampled_from(["id", "a b", "_u0041", "é", "9", "x"]), min_size=1, unique=True)
    )
    fields = {name: draw(typed(depth)) for name in names}
    schema: dict[str, Any] = {
        "type": "struct",
        "fields": [{**field, "field": name} for name, (field, _) in fields.items()],
        "optional": False,
    }
    if label := draw(st.sampled_from([None, "shop.t.Value", "shop-1.T t.Value", "Value"])):
        schema["name"] = label
    return schema, st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})


@settings(max_examples=20 * EFFORT)
@given(data=st.data())
def test_every_schema_of_connect_and_its_values_survive_avro(data):
    schema, values = data.draw(structs())
    payload = data.draw(values)
    writer = avro_writer(parse(json.dumps(schema).encode()), escapes_names=True)
    datum = writer.datum(json.dumps(payload).encode())
    compiled = compile_schema(RegisteredSchema(writer.text), restores_names=True)
    assert json.loads(compiled.message(datum)) == {"schema": schema, "payload": payload}
    stream = io.BytesIO(datum)
    fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(writer.text)), None)
    assert not stream.read()


def written(event: Any, server: RegistryServer | Path, **options: Any) -> tuple[Message, ...]:
    registry = server.address if isinstance(server, RegistryServer) else str(server)
    options = {"serde": "avro-registry", "registry": registry, **options}
    return get_codec("debezium-json", **options).encode(event, on_loss="ignore").messages


def event_of(column: str = "id") -> Any:
    """An event of a table, whose name is that of a column, too."""
    schema = TableSchema((Column(column, Integer(32), nullable=False),))
    return DataChange(
        Op.CREATE, TableId("db", "s", column), Key((column,)), None, {column: 7}, schema
    )


def test_schemas_are_registered_by_topic_once(server):
    before = len(server.requests)
    for _ in range(2):
        (message,) = written(event_of(), server)
        assert message.topic == "s.id"
    assert server.requests[before:] == [
        "POST /subjects/s.id-value/versions",
        "POST /subjects/s.id-key/versions",
    ]
    text = server.schemas[int.from_bytes(message.value[1:5], "big")]["schema"]
    avro = json.loads(text)
    assert (avro["namespace"], avro["name"], avro["connect.name"]) == (
        "s.id",
        "Envelope",
        "s.id.Envelope",
    )
    assert [field["name"] for field in avro["fields"]][:2] == ["before", "after"]


def test_schemas_that_exist_are_looked_up(server):
    with pytest.raises(UnreachableError, match=r"no such schema of the subject s\.looked-value"):
        written(event_of("looked"), server, register_schemas=False)
    (first,) = written(event_of("looked"), server)
    (second,) = written(event_of("looked"), server, register_schemas=False)
    assert first == second


def test_what_a_registry_rejects_stops_the_run(server):
    server.statuses[:] = [409]
    with pytest.raises(UnreachableError, match="not compatible") as error:
        written(event_of("other"), server)
    assert "for the subject s.other-value: PUT /config/s.other-value sets the" in str(error.value)
    server.statuses[:] = [422]
    with pytest.raises(
        UnreachableError, match=r"\(HTTP status 422\) for the subject s\.other-value$"
    ):
        written(event_of("other"), server)
    server.statuses[:] = [404, 404]  # the path of another service, which has JSON for it
    with pytest.raises(UnreachableError, match="check its address and path"):
        written(event_of("other"), server)
    with pytest.raises(UnreachableError, match="not registered in a folder"):
        written(event_of("other"), Path("/tmp"))
    with pytest.raises(UnreachableError, match="ccompat"):
        written(event_of("other"), server, registry=f"{server.address}/apis/registry/v2")


@pytest.mark.parametrize("schema_id", [-1, 0, 1 << 32, "7", None])
def test_an_id_that_no_message_can_have_stops_the_run(server, monkeypatch, schema_id):
    monkeypatch.setattr(server, "respond", lambda *_: {"id": schema_id})
    with pytest.raises(UnreachableError, match="does not answer as a schema registry"):
        written(event_of("wide"), server)


def test_an_event_without_avro_form_is_rejected(server):
    with pytest.raises(EncodeError, match="avro_names"):
        written(event_of("a b"), server)
    assert written(event_of("a b"), server, avro_names="unicode")
    with pytest.raises(EncodeError, match="needs the types"):
        written(msgspec.structs.replace(event_of("u"), schema=None), server)
    with pytest.raises(EncodeError, match="needs the types"):
        written(event_of("v"), server, schemas_enable=False)
    with pytest.raises(EncodeError, match="json-schema-registry"):
        get_codec("debezium-json", serde="json-schema-registry").encode(event_of("w"))
    with pytest.raises(ConfigError, match="TopicNameStrategy"):
        written(event_of("x"), server, subject_name_strategy="RecordNameStrategy")


def test_each_schema_is_requested_once_and_codecs_are_pickled(server):
    converter = Converter(server)
    value = converter.bytes_of(FLAT)
    before = len(server.requests)
    for _ in range(3):
        codec = pickle.loads(pickle.dumps(flat(server)))
        assert row_in(codec, value) == ANN
    assert len(server.requests) - before <= 1


@pytest.mark.parametrize(
    ("value", "headers", "options"),
    [
        (b"\0" + (5).to_bytes(4, "big") + DATUM, (), {}),
        (b"\0" + (5).to_bytes(8, "big") + DATUM, (), {}),
        (b"\0" + (5).to_bytes(8, "big") + DATUM, (), {"id_width": "8"}),
        (b"\1" + uuid.UUID(int=9).bytes + DATUM, (), {}),
        (b"\3\0" + uuid.UUID(int=9).bytes + DATUM, (), {}),
        (b"\3\5" + uuid.UUID(int=9).bytes + zlib.compress(DATUM), (), {}),
        (DATUM, (("__value_schema_id", b"\1" + uuid.UUID(int=9).bytes),), {}),
        (DATUM, (("__value_schema_id", b"\0\0\0\0\5"),), {}),
        (DATUM, (("apicurio.value.globalId", (5).to_bytes(8, "big")),), {}),
        (DATUM, (("apicurio.value.contentId", (6).to_bytes(8, "big")),), {}),
    ],
)
def test_every_framing_is_read(folder, value, headers, options):
    assert row_in(flat(folder, **options), value, headers=headers) == ANN


def test_headers_without_the_id_of_a_schema_are_refused(folder):
    # the datum may start like an id before it
    headers = (("apicurio.value.artifactId", b"people"), ("apicurio.value.version", b"1"))
    with pytest.raises(DecodeError, match="no id of the schema") as caught:
        row_in(flat(folder), framed(5, DATUM), headers=headers)
    assert caught.value.code == "malformed_avro"
    named = (*headers, ("apicurio.value.globalId", (5).to_bytes(8, "big")))
    assert row_in(flat(folder), DATUM, headers=named) == ANN


def test_names_are_restored_where_debezium_escaped_them(folder):
    codec = flat(folder, avro_names="unicode")
    assert row_in(codec, framed(5, DATUM)) == {"id": 7, "first name": "Ann"}


def test_a_key_without_framing_stays_as_it_is(folder):
    (event,) = flat(folder).decode(Message(framed(5, DATUM), b'{"id":7}'))
    assert event.key.columns == ("id",)


def test_json_schema_framing_is_removed():
    value = framed(3, b'{"id":7,"name":"Ann","__op":"c","__table":"people"}')
    codec = get_codec("debezium-flat-json", serde="json-schema-registry")
    assert row_in(codec, value) == {"id": 7, "name": "Ann"}


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b'{"id":1}', "malformed_avro"),
        (b"\2\0\0\0\5", "malformed_avro"),
        (b"\0\0\0", "incomplete_message"),
        (b"\1\0\0\0", "incomplete_message"),
        (b"\3\7" + bytes(16), "malformed_avro"),
        (b"\3\5" + bytes(16) + b"xyz", "malformed_avro"),
        (b"\3\5" + uuid.UUID(int=9).bytes + zlib.compress(DATUM)[:-4], "incomplete_message"),
        (framed(99, DATUM), "unknown_schema"),
        (framed(5, DATUM[:-1]), "malformed_avro"),
        (framed(5, b""), "malformed_avro"),
        (framed(5, DATUM + b"\0"), "trailing_bytes"),
        (framed(5, b"\x0e\x02\x02\xff"), "invalid_utf8"),
        (framed(5, b"\x0e\x05"), "malformed_avro"),
    ],
)
def test_a_message_that_cannot_be_read_is_rejected_with_its_reason(folder, value, code):
    with pytest.raises(DecodeError) as error:
        flat(folder).decode(Message(value))
    assert error.value.code == code
    assert "Ann" not in str(error.value)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("no JSON", ""),
        ("[]", "several types"),
        ('["null","int","string"]', "several types"),
        ('{"type":"record","name":"a","fields":[{"name":"x","type":"b"}]}', "does not define"),
        ('{"type":"record","name":"a","fields":[{"name":"x","type":"a"}]}', "contains itself"),
        ('{"type":"record","name":"a","fields":3}', "not an Avro schema"),
        ('{"type":"record","fields":[]}', "not an Avro schema"),
        (
            '{"type":"record","name":"a","fields":[%s,%s]}' % (('{"name":"x","type":"int"}',) * 2),
            "same name",
        ),
        ('{"type":"array","items":' * 80 + '"int"' + "}" * 80, "too deeply"),
    ],
)
def test_a_schema_that_connect_does_not_write_is_rejected(folder, schema, reason):
    (folder / "ids" / "8.avsc").write_text(schema)
    for _ in range(2):  # the second time from the cache
        with pytest.raises(DecodeError, match="the schema of the registry") as error:
            flat(folder).decode(Message(framed(8, DATUM)))
        assert reason in str(error.value)


def test_a_schema_that_grows_without_limit_is_rejected(folder):
    kind: Any = "int"
    for level in range(20):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"r{level - 1}"}]
        kind = {"type": "record", "name": f"r{level}", "fields": fields[: 1 + (level > 0)]}
    (folder / "ids" / "8.avsc").write_text(json.dumps(kind))
    with pytest.raises(DecodeError, match="too large"):
        flat(folder).decode(Message(framed(8, DATUM)))


@pytest.mark.parametrize(("kind", "words"), [("PROTOBUF", "Protobuf"), ("JSON", "JSON Schema")])
def test_schemas_of_other_types_are_refused_with_the_way_out(server, kind, words):
    schema_id = server.add("{}", schemaType=kind)
    with pytest.raises(DecodeError, match=words):
        flat(server).decode(Message(framed(schema_id, DATUM)))


def test_every_avro_type_of_connect_becomes_the_json_of_connect():
    """Types, defaults and names that no captured message has."""
    entry = {
        "type": "record",
        "name": "MapEntry",
        "namespace": "io.confluent.connect.avro",
        "connect.internal.type": "MapEntry",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": ["null", "bytes"]}],
    }
    words = {"type": "array", "items": {"type": "string", "connect.name": "io.debezium.data.Uuid"}}
    fields: list[tuple[str, Any, Any, Any, dict[str, Any]]] = [
        # name, Avro type, datum, JSON, schema block
        ("a", {"type": "int", "connect.type": "int8"}, b"\x03", -2, {"type": "int8"}),
        ("b", "float", struct.pack("<f", 1.1), 1.1, {"type": "float"}),
        ("c", "double", struct.pack("<d", math.nan), "NaN", {"type": "double"}),
        ("d", "float", struct.pack("<f", -math.inf), "-Infinity", {"type": "float"}),
        (
            "e",
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            b"\x02\xff",
            "/w==",
            {
                "type": "bytes",
                "name": "org.apache.kafka.connect.data.Decimal",
                "version": 1,
                "parameters": {"scale": "2", "connect.decimal.precision": "9"},
            },
        ),
        (
            "f",
            {"type": "long", "logicalType": "timestamp-millis"},
            b"\x02",
            1,
            {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1},
        ),
        ("g", {"type": "long", "logicalType": "timestamp-micros"}, b"\x02", 1, {"type": "int64"}),
        (
            "h",
            {"type": "array", "items": entry},
            b"\x02\x0e\x02\x02\xff\x00",
            [[7, "/w=="]],
            {
                "type": "map",
                "keys": {"type": "int32", "optional": False},
                "values": {"type": "bytes", "optional": True},
            },
        ),
        (
            "i",
            {"type": "map", "values": "boolean"},
            b"\x01\x06\x02x\x01\x00",  # a block with its size
            {"x": True},
            {
                "type": "map",
                "keys": {"type": "string", "optional": False},
                "values": {"type": "boolean", "optional": False},
            },
        ),
        (
            "j",
            words,
            b"\x02\x02u\x00",
            ["u"],
            {
                "type": "array",
                "items": {"type": "string", "optional": False, "name": "io.debezium.data.Uuid"},
            },
        ),
        (
            "k",
            {"type": "enum", "name": "k", "symbols": ["x", "y"]},
            b"\x02",
            "y",
            {"type": "string"},
        ),
        ("l", {"type": "fixed", "name": "l", "size": 2}, b"ab", "YWI=", {"type": "bytes"}),
        ("m", "k", b"\x00", "x", {"type": "string"}),
    ]
    record = {
        "type": "record",
        "name": "io.confluent.connect.avro.ConnectDefault",
        "namespace": "",
        "fields": [{"name": name, "type": kind} for name, kind, *_ in fields],
    }
    record["fields"] += [
        {"name": "y", "type": ["bytes", "null"], "default": "\u00ff", "doc": "text"},
        {"name": "z", "type": {"type": "int", "connect.default": 3}, "default": 3},
    ]
    datum = b"".join(data for _, _, data, _, _ in fields) + b"\x02" + b"\x08"
    compiled = compile_schema(RegisteredSchema(json.dumps(record)), restores_names=False)
    message = json.loads(compiled.message(datum))
    assert message["payload"] == {name: value for name, _, _, value, _ in fields} | {
        "y": None,
        "z": 4,
    }
    blocks = [{"optional": False, "field": name, **block} for name, _, _, _, block in fields]
    y = {"type": "bytes", "optional": True, "doc": "text", "default": "/w==", "field": "y"}
    z = {"type": "int32", "optional": False, "default": 3, "field": "z"}
    assert message["schema"] == {"type": "struct", "optional": False, "fields": [*blocks, y, z]}


@settings(max_examples=40 * EFFORT)
@given(number=st.floats(width=32))
def test_a_float_has_the_fewest_digits_of_its_32_bits(number):
    data = struct.pack("<f", number)
    value, end = read_float(data, 0)
    assert end == 4
    assert struct.pack("<f", float(value)) == data or math.isnan(number)
    assert len(repr(float(value))) <= len(repr(number)) or math.isnan(number)


def test_schemas_may_refer_to_others(server):
    server.subjects["name"] = [server.add('{"type":"enum","name":"x.N","symbols":["Ann","Bob"]}')]
    record = {"type": "record", "name": "x.r", "fields": [{"name": "n", "type": "N"}]}
    references = [{"name": "x.N", "subject": "name", "version": 1}]
    schema_id = server.add(json.dumps(record), references=references)
    assert row_in(flat(server), framed(schema_id, b"\2")) == {"n": "Bob"}


def test_fields_of_an_answer_that_are_null_are_missing(server):
    text = Avro(ROW, adjust=True).text
    schema_id = server.add(text, schemaType=None, references=None)
    assert row_in(flat(server), framed(schema_id, DATUM)) == ANN


def test_a_missing_schema_is_requested_twice_and_then_remembered(server):
    codec = flat(server)
    before = len(server.requests)
    for _ in range(3):
        with pytest.raises(DecodeError, match="has no schema 7777") as error:
            codec.decode(Message(framed(7777, DATUM)))
        assert error.value.code == "unknown_schema"
    assert len(server.requests) - before == 2


def test_a_registry_that_fails_stops_the_stream_instead_of_rejecting_messages(server):
    value = Converter(server).bytes_of(FLAT)
    codec = flat(server, id_width="4", registry_auth="ann:secret1")
    server.statuses[:] = [503, 500]
    assert row_in(codec, value) == ANN  # the third attempt
    value = framed(server.add(Avro(ROW, adjust=True).text), DATUM)
    for statuses in ([503] * 3, [302], [403]):
        server.statuses[:] = statuses
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1") as error:
            codec.decode(Message(value))
        assert "secret" not in str(error.value)
    assert "/elsewhere" not in "".join(server.requests)
    server.statuses[:] = [302]
    with pytest.raises(UnreachableError, match="set registry to the other address"):
        codec.decode(Message(value))
    with pytest.raises(UnreachableError, match="does not answer"):
        get_codec("debezium-json", serde="avro-registry", registry="http://127.0.0.1:1").decode(
            Message(value)
        )
    with pytest.raises(UnreachableError, match="does not answer"):
        get_codec("debezium-json", serde="avro-registry", registry="http://a..b:1").decode(
            Message(value)
        )
    with pytest.raises(UnreachableError, match="does not exist"):
        flat(Path("/no/such/folder")).decode(Message(value))


def test_a_proxy_without_the_registry_stops_the_stream(server, monkeypatch):
    value = framed(server.add(Avro(ROW, adjust=True).text), DATUM)
    codec = flat(server, id_width="4")
    for body in (b"default backend - 404", b"<html>", b""):
        monkeypatch.setattr(server, "next_failure", lambda body=body: (404, body))
        with pytest.raises(UnreachableError, match="does not answer as a schema registry") as error:
            codec.decode(Message(value))
        assert "HTTP status 404" in str(error.value)
    monkeypatch.undo()
    assert row_in(codec, value) == ANN


def test_credentials_are_sent_and_never_printed(server):
    value = framed(server.add(Avro(ROW, adjust=True).text), DATUM)
    server.auth = "Basic YW5uOnNlY3JldDE="
    try:
        with pytest.raises(UnreachableError, match="401"):
            flat(server, registry_auth="Bearer secret1").decode(Message(value))
        codec = flat(server, registry_auth="ann:secret1")
        assert row_in(codec, value) == ANN
        server.auth = "bearer abc"
        assert row_in(flat(server, registry_auth="bearer abc", id_width="4"), value) == ANN
    finally:
        server.auth = ""
    assert "secret1" not in repr(codec)
    assert "secret1" not in repr(pickle.loads(pickle.dumps(codec))._format._options)
    assert "secret1" not in repr(codec._format._options.location)


def test_a_command_stops_at_a_registry_that_fails(server, tmp_path, monkeypatch):
    value = base64.b64encode(framed(server.add("[]", schemaType="PROTOBUF"), b"\2")).decode()
    (tmp_path / "in.jsonl").write_text(json.dumps({"topic": "t", "value_base64": value}))
    command = ["convert", "-f", "debezium-json", "-t", "native-json", str(tmp_path / "in.jsonl")]
    command += ["--from-option", "serde=avro-registry", "--from-option"]
    monkeypatch.setenv("REGISTRY_AUTH", "ann:secret1")
    auth = ["--from-option", "registry_auth=${REGISTRY_AUTH}"]
    server.auth = "Basic YW5uOnNlY3JldDE="
    try:
        result = CliRunner().invoke(main, [*command, f"registry={server.address}", *auth])
        assert "Protobuf is not read" in result.stderr  # one message is rejected
        server.auth = "other"
        result = CliRunner().invoke(main, [*command, f"registry={server.address}/b", *auth])
    finally:
        server.auth = ""
    assert result.exit_code == 1
    assert "rejects the credentials: set registry_auth (HTTP status 401)" in result.stderr
    assert "secret1" not in result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"serde": "avro-registry"}, "set the address"),
        ({"serde": "avro-registry", "registry": "http://ann:pw@host"}, "registry_auth"),
        ({"serde": "avro-registry", "registry": "ann:pw@host:8081"}, "registry_auth"),
        ({"serde": "avro-registry", "registry": " http://ann:pw@host"}, "registry_auth"),
        ({"serde": "avro-registry", "registry": "ftp://host"}, "must start with http"),
        ({"serde": "avro-registry", "registry": "registry:8081"}, "must start with http"),
        ({"serde": "avro-registry", "registry": " http://host"}, "must start with http"),
        *(
            ({"serde": "avro-registry", "registry": address}, "not a URL")
            for address in (
                *("http://", "http://host:x", "http://[::1", "http://host/?token=pw"),
                *("http://host/\u00fc", "http://host/ pw", "http://host\n"),
            )
        ),
        *(
            (
                {"serde": "avro-registry", "registry": "http://host", "registry_auth": auth},
                "registry_auth: the value has",
            )
            for auth in ("Bearer pw\n", "bearer pw\u00fc", "ann:pw\n")
        ),
        ({"registry": "http://host"}, "set serde to avro-registry"),
        ({"serde": "avro"}, "serde"),
    ],
)
@pytest.mark.parametrize("name", ["debezium-json", "debezium-flat-json", "debezium-mongodb-json"])
def test_options_that_contradict_each_other_are_rejected(name, options, words):
    with pytest.raises(ConfigError, match=words) as error:
        get_codec(name, **options)
    assert "pw" not in str(error.value)


class ApicurioServer(JsonServer):
    """Answers by the paths of Apicurio 3, through its own interface."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__()
        self._answers = answers

    def next_failure(self) -> None:
        return None

    def respond(self, method: str, path: str, body: Any) -> Any:
        del method, body
        return self._answers.get(path.removeprefix("/apis/registry/v3"))


def test_apicurios_own_interface_has_the_schemas_to_which_one_refers() -> None:
    field = {"name": "size", "type": "shop.Size"}
    size = {"type": "record", "name": "Size", "namespace": "shop", "fields": []}
    size["fields"] = [{"name": "n", "type": "int"}]
    part = size | {"name": "Part", "fields": [field]}
    row = size | {"name": "Row", "fields": [{"name": "part", "type": "shop.Part"}]}
    of_part = {"groupId": "a/b", "artifactId": "p?", "version": "2", "name": "shop.Part"}
    of_size = {"groupId": None, "artifactId": "size", "version": "1", "name": "shop.Size"}
    part_path, size_path = "/groups/a%2Fb/artifacts/p%3F/versions/2", "/groups/default/artifacts"
    size_path += "/size/versions/1"
    answers = {
        "/ids/contentIds/1": row,
        "/ids/contentIds/1/references": [of_part],
        f"{part_path}/content": part,
        f"{part_path}/references": [of_size],
        f"{size_path}/content": size,
        f"{size_path}/references": [of_part],  # a circle
    }
    with ApicurioServer(answers) as server:
        address = f"{server.address}/apis/registry/v3"
        codec = get_codec(
            "debezium-flat-json", serde="avro-registry", registry=address, table="people"
        )
        assert row_in(codec, framed(1, b"\x06")) == {"part": {"size": {"n": 3}}}
