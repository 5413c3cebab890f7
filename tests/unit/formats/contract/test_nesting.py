# SPDX-License-Identifier: Apache-2.0
"""Values nested in each other: read and written up to the limit, and refused beyond it."""

import json
import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from changelane import formats
from changelane.cli import main
from changelane.codec import Codec, get_codec
from changelane.errors import DecodeError, EncodeError
from changelane.event import DataChange, HalfUpdate, Key, Op, Tombstone, Watermark
from changelane.formats.contract.nesting import MOST_NESTED, is_too_deep, too_deep
from changelane.message import Message
from changelane.schema import Column, TableId, TableSchema
from changelane.testing import fuzz
from changelane.testing.compare import decode_all
from changelane.types import Integer

FOLDER = Path(__file__).parents[3] / "golden"
NATIVE = get_codec("native-json")
DEPTHS = (MOST_NESTED + 1, 250, 500, 700, 900, 985, 999, 5000, 100_000)
FORMS = {"arrays": ("[", "]"), "objects": ('{"a":', "}"), "both": ('[{"a":', "}]")}


def text_of(depth, form="arrays"):
    opening, closing = FORMS[form]
    pairs = depth // (2 if form == "both" else 1)
    return opening * pairs + ("1" if form == "objects" else "0") + closing * pairs


def native(depth, form="arrays", **fields):
    members = {"op": "c", "table": {"database": "shop", "name": "t"}, "key": ["id"]} | fields
    head = json.dumps(members)[:-1]
    return f'{head},"after":{{"id":1,"a":{text_of(depth, form)}}}}}'.encode()


def event_of(depth, form="arrays"):
    value = 0
    for level in range(depth):
        value = (
            {"a": value} if form == "objects" or (form == "both" and level % 2 == 0) else [value]
        )
    key = Key(("id",))
    return DataChange(Op.CREATE, TableId("shop", None, "t"), key, after={"id": 1, "a": value})


def refusal(codec, data, key=None):
    with pytest.raises(DecodeError) as caught:
        codec.decode(Message(data, key))
    return caught.value.code


def untyped_message(name):
    """What a format writes of a row without a schema, with ``@`` for a value; and its key."""
    (message,) = get_codec(name).encode(event_of(0), on_loss="ignore").messages
    written = json.loads(message.value)
    written = json.dumps(written.get("payload", written) if name == "lindorm-json" else written)
    return re.sub(r'"a": ("0"|0)', '"a": @', written), message.key


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_value_beyond_the_limit_is_refused_by_its_reason(depth, form):
    depth += depth % 2
    assert refusal(NATIVE, native(depth, form)) == "too_deep"


# Binary messages, texts of values, attributes of DynamoDB, columns of Spanner, documents in
# Extended JSON and rows with their schema have no plain values that the test could replace.
OTHER_FORMS = {
    *("canal-protobuf", "decoderbufs", "dts-avro", "pgoutput", "wal2json"),
    *("debezium-mongodb-json", "dynamodb-json", "mongodb-change-stream-json", "spanner-json"),
    *("ticdc-avro", "ticdc-open-json"),
}


@pytest.mark.parametrize("name", sorted(set(formats.names()) - OTHER_FORMS))
def test_the_limit_is_the_same_in_each_format(name):
    codec = get_codec(name)
    message, key = untyped_message(name)
    assert "@" in message
    accepted = codec.decode(Message(message.replace("@", text_of(MOST_NESTED)).encode(), key))
    assert accepted[0].after["a"] == event_of(MOST_NESTED).after["a"]
    for depth in DEPTHS:
        assert refusal(codec, message.replace("@", text_of(depth)).encode(), key) == "too_deep"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", formats.names())
def test_a_value_at_the_limit_is_written_and_read_again(name, form):
    codec = get_codec(name)
    encoded = codec.encode(event_of(MOST_NESTED, form), on_loss="ignore")
    assert [type(event) for event in decode_all(codec, encoded.messages)] == [DataChange]


@pytest.mark.parametrize("depth", [MOST_NESTED + 1, 999, 100_000])
@pytest.mark.parametrize("name", formats.names())
def test_a_value_beyond_the_limit_is_not_written(name, depth):
    with pytest.raises(EncodeError, match="'a' is nested more than 200 levels deep"):
        get_codec(name).encode(event_of(depth), on_loss="ignore")


def test_all_images_of_all_events_are_searched():
    deep = {"a": event_of(MOST_NESTED + 1).after["a"]}
    table = TableId(name="t")
    change = DataChange(Op.UPDATE, table, before={"id": 1}, after={"id": 1})
    events = [
        DataChange(Op.DELETE, table, before=deep),
        DataChange(Op.UPDATE, table, before={"id": 1}, after=deep),
        HalfUpdate(change, deep),
        HalfUpdate(DataChange(Op.DELETE, table, before=deep)),
        Tombstone(table, deep),
        Tombstone(table, {"id": 1}, moved_to=deep),
    ]
    assert [too_deep(event) for event in events] == ["a"] * len(events)
    assert too_deep(change) is None
    kept = {"source": {"x": event_of(MOST_NESTED).after["a"]}}
    assert too_deep(Watermark(details=kept)) is None
    assert too_deep(Watermark(details={"x": event_of(250).after["a"]})) == "x"


def test_a_wide_value_is_not_deep():
    assert not is_too_deep([[number, {"a": [number]}] for number in range(10_000)])
    assert is_too_deep([1, (2, [3])], limit=2)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 250, b'"' + b"[" * 9])
@pytest.mark.parametrize("name", formats.names())
def test_what_is_never_closed_is_refused(name, data):
    with pytest.raises(DecodeError):
        get_codec(name).decode(Message(data))


def test_types_have_a_limit_of_their_own():
    kind = "array<" * 300 + "string" + ">" * 300
    line = json.dumps({"op": "c", "table": {"name": "t"}, "schema": [{"name": "a", "type": kind}]})
    assert refusal(NATIVE, line.encode()) == "too_deep"
    for depth in (70, 250, 600, 5000):
        block = '{"type":"array","items":' * depth + '{"type":"string"}' + "}" * depth
        field = block[:-1] + ',"field":"a"}'
        row = f'{{"type":"struct","field":"after","fields":[{field}]}}'
        schema = f'{{"type":"struct","fields":[{row}]}}'
        message = f'{{"schema":{schema},"payload":{{"op":"c","after":{{"a":[]}},"source":{{}}}}}}'
        assert refusal(get_codec("debezium-json"), message.encode()) == "too_deep"


def test_mutated_deep_messages_raise_nothing_but_refusals():
    draw = random.Random(11)
    depths = (100, 195, 200, 201, 300, 480, 700, 940, 3000)
    for name in formats.names():
        codec = get_codec(name)
        stock = [data for data in fuzz.samples(FOLDER, name) if len(data) < 3000]
        for _ in range(120):
            data = draw.choice(stock)
            form = draw.choice(tuple(FORMS))
            value = text_of(draw.choice(depths), form).encode()
            at = draw.randrange(len(data) + 1)
            if draw.random() < 0.7 and b":" in data:
                # in the place of a value: the message stays JSON more often
                at = draw.choice([i for i, byte in enumerate(data) if byte == ord(":")]) + 1
                end = next((i for i in range(at, len(data)) if data[i] in b",}]"), len(data))
            else:
                end = at
            fuzz.check_input(codec, data[:at] + value + data[end:])
            _written_everywhere(codec, data[:at] + value + data[end:])


def _written_everywhere(codec: Codec, data: bytes) -> None:
    try:
        events = codec.decode(Message(data))
    except DecodeError:
        return
    for event in events:
        for message in NATIVE.encode(event).messages:
            assert len(NATIVE.decode(message)) == 1


# -- the commands -------------------------------------------------------------------------------


def run(*arguments, data):
    return CliRunner().invoke(main, list(arguments), input=data, catch_exceptions=False)


@pytest.mark.parametrize("target", ["native-json", "canal-json", "dts-avro"])
def test_convert_sets_deep_values_aside_and_writes_the_rest(tmp_path, target):
    lines = [native(1), *(native(depth) for depth in DEPTHS), native(MOST_NESTED)]
    failures = tmp_path / "failures.jsonl"
    result = run(
        *("convert", "-f", "native-json", "-t", target, "--on-loss", "ignore"),
        *("--failures", str(failures), "--output", "json", "--output-line-format", "record"),
        data=b"\n".join(lines),
    )
    summary = json.loads(result.stderr)
    assert result.exit_code == 1
    assert summary["failures"] == {"too_deep": len(DEPTHS)}
    assert summary["written"] == len(result.stdout.splitlines()) == 2
    told = [json.loads(line) for line in failures.read_bytes().splitlines()]
    assert [one["value"].encode() for one in told] == lines[1:-1]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("form", ["text", "json"])
def test_inspect_says_what_it_cannot_read(depth, form):
    data = b"\n".join([native(MOST_NESTED), native(depth)])
    result = run("inspect", "--output", form, data=data)
    assert result.exit_code == 0
    assert "line 2: native-json:" in result.stderr
    assert "deep" in result.stderr
    assert run("inspect", "--output", form, data=native(depth)).exit_code != 0


def test_a_whole_document_over_many_lines_may_be_deep():
    data = b"{\n" + native(5000)[1:]
    assert run("inspect", data=data).exit_code != 0


def test_a_schema_does_not_hide_a_deep_value():
    schema = TableSchema((Column("id", Integer(64)),))
    event = event_of(MOST_NESTED + 1)
    change = DataChange(Op.CREATE, event.table, after=event.after, schema=schema)
    with pytest.raises(EncodeError, match="levels deep"):
        NATIVE.encode(change)


# -- the failure path ---------------------------------------------------------------------------


def convert_with_failures(tmp_path, data, *arguments):
    failures = tmp_path / "failures.jsonl"
    result = run(
        *("convert", "-f", "native-json", "-t", "native-json", "--output", "json"),
        *("--failures", str(failures), "--output-line-format", "record", *arguments),
        data=data,
    )
    lines = failures.read_bytes().splitlines()
    return result, json.loads(result.stderr), [json.loads(line) for line in lines]


def test_a_failure_that_names_such_a_name_is_written_with_it_escaped(tmp_path, monkeypatch):
    def refuse(*_arguments, **_more):
        raise EncodeError(f"column {'a' + chr(0xD800)!r} and a\ud800")

    monkeypatch.setattr("changelane.formats.canal.Canal.encode", refuse)
    _, summary, told = convert_with_failures(tmp_path, native(1), "-t", "canal-json")
    assert told[0]["error"] == summary["first_failures"][0]["error"]
    assert told[0]["error"].endswith("and a\\ud800")


@pytest.mark.parametrize("part", ["join", "encode"])
def test_whatever_fails_the_message_is_kept_and_the_rest_is_written(tmp_path, monkeypatch, part):
    from changelane.conversion.join_update_halves import JoinHalves
    from changelane.formats.native import Native

    owner, method = (JoinHalves, "push") if part == "join" else (Native, "encode")
    original = getattr(owner, method)

    def fails(self, event, **more):
        if getattr(event, "table", None) == TableId("shop", None, "t"):
            raise RecursionError
        return original(self, event, **more)

    monkeypatch.setattr(owner, method, fails)
    data = native(1) + b"\n" + native(1).replace(b'"name": "t"', b'"name": "u"')
    result, summary, told = convert_with_failures(tmp_path, data)
    assert (result.exit_code, summary["written"]) == (1, 1)
    assert told[0]["stage"] == part
    assert '"name":"t"' in told[0]["value"].replace(" ", "")
