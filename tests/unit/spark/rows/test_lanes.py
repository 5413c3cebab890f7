# SPDX-License-Identifier: Apache-2.0
"""Lanes give the rows and the errors of the event path, message by message."""

import base64
import json
import uuid
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from debezium_source_blocks import MYSQL, PG, PLACEHOLDER
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_messages import ARGUMENTS, lane_rows, numbered, read
from mutated_messages import mutated_copies, mutations, with_source

from changelane import get_codec
from changelane.errors import EncodeError
from changelane.formats.contract import open_lanes
from changelane.message import Message
from changelane.testing.conformance import EFFORT
from changelane.testing.event_strategies import data_changes
from changelane.transforms.registry import transforms_of

builder = pytest.importorskip("changelane.spark.rows.builder", exc_type=ImportError)

pytestmark = pytest.mark.usefixtures("early_lanes")

GOLDEN = Path(__file__).parents[3] / "golden"


CAPTURED = {
    path.stem.removeprefix("debezium-"): read(path)
    for path in sorted((GOLDEN / "debezium-json" / "captured").glob("*.jsonl"))
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"before_image": "full"},
    {"before_image": "key"},
    {"placeholder": "null"},
)


# -- stored messages -------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("name", sorted(CAPTURED))
def test_captured_messages(name: str, arguments: dict[str, Any]) -> None:
    messages = numbered([*CAPTURED[name], *CAPTURED[name]])
    for options in OPTIONS:
        lane_rows(messages, options, **arguments)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("mariadb-schema", 0.8),
        ("postgres-schema", 0.6),
        ("mariadb-noschema", 0.7),
        ("postgres-noschema", 0.6),
    ],
)
def test_most_captured_messages_with_a_row_are_plain(name: str, least: float) -> None:
    messages = CAPTURED[name]
    # the others are key changes, unavailable values, values that Python has no object for, and
    # deletes with more values than the key
    plain, with_row = lane_rows(numbered(messages * 3))
    before, _ = lane_rows(numbered(messages * 2))
    assert plain - before > least * with_row / 3


def test_golden_messages() -> None:
    plain = 0
    for path in sorted((GOLDEN / "debezium-json" / "encoded").glob("*.jsonl")):
        messages = read(path)
        lane_rows(numbered(messages * 3, topic="golden"))
        sourced = [with_source(one, source) for one in messages for source in (PG, MYSQL)]
        plain += lane_rows(numbered(sourced * 3, topic="golden"))[0]
    assert plain > 200


@pytest.mark.parametrize(
    ("format", "folder"), [("debezium-json", "debezium"), ("canal-json", "canal")]
)
def test_sample_messages_of_other_projects(corpus: Path, format: str, folder: str) -> None:
    for path in sorted((corpus / folder).glob("**/*.*")):
        lines = [line for line in path.read_bytes().splitlines() if line]
        values = [Message(line) for line in (*lines, path.read_bytes())]
        lane_rows(numbered(values * 3, topic="corpus"), None, format)


def test_captured_messages_of_the_corpus(corpus: Path) -> None:
    for path in sorted((corpus / "captured").glob("debezium-*schema.jsonl")):
        lane_rows(numbered(read(path) * 3))


# -- mutated messages ------------------------------------------------------------------------------


HEADERS: tuple[Any, ...] = (
    *((), (), (("trace", b"1"),)),
    *((("__debezium.newkey", b'{"id":9}'),), (("__debezium.oldkey", b'{"id":9}'),)),
)
ALL = [
    (name, index)
    for name, messages in CAPTURED.items()
    for index, message in enumerate(messages)
    if message.value
]


def test_mutated_messages() -> None:
    plain: list[int] = []
    messages = [one for name in CAPTURED for one in CAPTURED[name] if one.value]
    plain_messages = [one for one in messages if lane_rows(numbered([one] * 3))[0]]

    @settings(max_examples=200 * EFFORT)
    @given(
        st.data(),
        st.sampled_from(plain_messages) | st.sampled_from(messages),
        st.sampled_from(ARGUMENTS),
        st.sampled_from(OPTIONS),
    )
    def check(data: st.DataObject, message: Message, arguments: Any, options: Any) -> None:
        sent = [message]
        for _ in range(data.draw(st.integers(1, 4))):
            value = data.draw(mutations(message.value or b""))
            key = message.key
            if key and data.draw(st.integers(0, 5)) == 0:
                key = data.draw(st.sampled_from((None, b"", b"null", key + b" ", b'{"x":1}')))
            elif key and data.draw(st.integers(0, 5)) == 0:
                key = data.draw(mutations(key))
            headers = data.draw(st.sampled_from(HEADERS))
            sent.append(Message(value, key, headers, message.topic))
        sent = [message, *sent, *sent, message]
        plain.append(lane_rows(numbered(sent), options, **arguments)[0])

    check()
    assert sum(count > 0 for count in plain) > 0.2 * len(plain)


# -- generated events ------------------------------------------------------------------------------


CODEC = get_codec("debezium-json")


def test_generated_events() -> None:
    plain: list[int] = []

    @settings(max_examples=80 * EFFORT)
    @given(st.data(), data_changes(CODEC.carries), st.sampled_from((PG, MYSQL)))
    def check(data: st.DataObject, change: Any, source: dict[str, Any]) -> None:
        try:
            messages = CODEC.encode(change, on_loss="ignore").messages
        except EncodeError:
            return
        messages = tuple(with_source(one, source) for one in messages if one.value)
        mutated = [
            Message(data.draw(mutations(one.value or b"")), one.key, one.headers, one.topic)
            for one in messages
        ]
        sent = numbered([*messages, *messages, *mutated, *messages], topic="t")
        plain.append(lane_rows(sent)[0])

    check()
    # from 0.3 to 0.9 of them in 25 runs
    assert sum(count > 0 for count in plain) > 0.1 * len(plain)


# -- several tables and schemas --------------------------------------------------------------------


@settings(max_examples=60 * EFFORT)
@given(st.data(), st.sampled_from((None, "one topic")), st.sampled_from(ARGUMENTS))
def test_interleaved_tables(data: st.DataObject, topic: str | None, arguments: Any) -> None:
    chosen = data.draw(st.lists(st.sampled_from(ALL), min_size=2, max_size=5))
    order = data.draw(st.lists(st.sampled_from(chosen), min_size=5, max_size=40))
    lane_rows(numbered([CAPTURED[name][index] for name, index in order], topic=topic), **arguments)


TYPES = {"id": "int32", "name": "string", "price": "decimal(10,2)", "at": "timestamp(6)"}


def block(*fields: dict[str, Any]) -> dict[str, Any]:
    value = {
        "type": "struct",
        "fields": list(fields),
        "optional": True,
        "name": "dbz.public.t.Value",
    }
    parts = [value | {"field": "before"}, value | {"field": "after"}]
    name = "dbz.public.t.Envelope"
    return {"type": "struct", "fields": parts, "optional": False, "name": name, "version": 2}


def field(kind: str, column: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True} | more | {"field": column}


def message(
    op: str,
    before: Any,
    after: Any,
    *,
    source: dict[str, Any] = PG,
    schema: dict[str, Any] | None = None,
    key: Any = None,
    **more: Any,
) -> Message:
    envelope = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 5} | more
    value: dict[str, Any] = envelope if schema is None else {"schema": schema, "payload": envelope}
    texts = [
        None if part is None else json.dumps(part, separators=(",", ":")).encode()
        for part in (value, key)
    ]
    return Message(texts[0], texts[1], (), "t")


ID, NAME = field("int32", "id", optional=False), field("string", "name")
TWO = block(ID, NAME)
PAIR = {"id": 1, "name": "a"}
ENCODED = base64.b64encode(PLACEHOLDER.encode()).decode()


def plain_count(messages: Sequence[Message], options: Any = None, **arguments: Any) -> int:
    return lane_rows(numbered(messages), options, **arguments)[0]


@pytest.mark.parametrize("source", [PG, MYSQL], ids=["postgresql", "mysql"])
def test_plain_operations(source: dict[str, Any]) -> None:
    key = {"id": 1}
    row, filler = {"id": 1, "name": "a"}, {"id": 1, "name": None}
    for schema, (op, before, after) in product(
        (TWO, None),
        (
            ("c", None, row),
            ("r", None, row),
            ("u", None, row),
            ("u", filler, row),
            ("d", filler, None),
            ("d", row, None) if source is MYSQL else ("d", filler, None),
        ),
    ):
        one = message(op, before, after, source=source, schema=schema, key=key)
        assert plain_count([one] * 3) == 2, (op, before)
        assert plain_count([one] * 3, images=False) == 2, (op, before)


def test_plain_operations_without_a_message_key() -> None:
    row = {"id": 1, "name": "a"}
    for op, before, after in (("c", None, row), ("u", row, row), ("d", row, None)):
        one = message(op, before, after, schema=TWO)
        assert plain_count([one] * 3) == 2
        assert plain_count([one] * 3, tables_without_key="row") == 2
        assert plain_count([one] * 3, keys={"t": ("name",)}) == 2


@pytest.mark.parametrize(
    "other",
    [
        message("u", {"id": 2, "name": "a"}, {"id": 1, "name": "a"}, schema=TWO, key={"id": 1}),
        message("c", None, {"id": 1, "name": PLACEHOLDER}, schema=TWO, key={"id": 1}),
        message("u", PAIR, {"id": 1, "name": PLACEHOLDER}, schema=TWO, key={"id": 1}),
        message("u", None, {"id": 1, "name": ENCODED}, schema=TWO, key={"id": 1}),
        message("c", None, {"id": 1}, schema=TWO, key={"id": 1}),
        message("c", None, {"id": 1, "name": "a", "x": 1}, schema=TWO, key={"id": 1}),
        message("c", None, {"id": 2, "name": "a"}, schema=TWO, key={"id": 1}),
        message("c", None, {"id": 1, "name": "a"}, schema=TWO, key={"id": 1, "name": "a"}),
        message("c", None, {"id": 1, "name": "a"}, schema=TWO),
        message("d", {"id": 1, "name": "real"}, None, schema=TWO, key={"id": 1}),
        message("t", None, None, schema=TWO),
        message("c", None, {"id": 1, "name": "a"}, schema=TWO, key={"id": 1}, extra=1),
        Message(None, b'{"id":1}', (), "t"),
        Message(b"{", b'{"id":1}', (), "t"),
    ],
)
def test_other_messages_take_the_event_path(other: Message) -> None:
    plain = message("c", None, {"id": 1, "name": "a"}, schema=TWO, key={"id": 1})
    assert plain_count([plain, plain, other, plain, other]) == 2


@pytest.mark.parametrize("schema", [TWO, None])
def test_updates_with_unavailable_values_are_plain(schema: dict[str, Any] | None) -> None:
    plain = message("c", None, PAIR, schema=schema, key={"id": 1})
    hidden = message("u", None, {"id": 1, "name": PLACEHOLDER}, schema=schema, key={"id": 1})
    assert plain_count([plain, plain, hidden, plain, hidden]) == 4
    # a value of the key, which the tables need
    assert plain_count([plain, plain, hidden, plain], keys={"t": ("name",)}) == 2
    assert plain_count([plain, plain, hidden], {"placeholder": "other"}) == 2


DECIMAL = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
FORMS: tuple[Any, ...] = (PLACEHOLDER, ENCODED, [PLACEHOLDER], {PLACEHOLDER: PLACEHOLDER}, "", None)
COLUMNS = {
    "a": (field("string", "a"), st.text(max_size=3)),
    "b": (field("bytes", "b"), st.just("AQ==")),
    "n": (field("int32", "n"), st.integers(0, 9)),
    "u": (field("string", "u", name="io.debezium.data.Uuid"), st.just(str(uuid.UUID(int=1)))),
    "j": (field("string", "j", name="io.debezium.data.Json"), st.sampled_from(["{}", "[1]"])),
    "d": (field("bytes", "d", **DECIMAL), st.just("AfQ=")),
}
IMAGES = st.fixed_dictionaries(
    {name: values | st.sampled_from(FORMS) for name, (_, values) in COLUMNS.items()}
)


@settings(max_examples=100 * EFFORT)
@given(
    images=st.lists(
        st.tuples(st.sampled_from("uuucd"), st.none() | st.none() | IMAGES, IMAGES),
        min_size=2,
        max_size=6,
    ),
    has_schema=st.booleans(),
    options=st.sampled_from(OPTIONS),
    arguments=st.sampled_from(ARGUMENTS),
)
def test_forms_of_the_placeholder_in_any_column(
    images: list[tuple[str, Any, Any]],
    has_schema: bool,
    options: dict[str, Any],
    arguments: dict[str, Any],
) -> None:
    schema = block(field("int64", "id"), *(kind for kind, _ in COLUMNS.values()))
    first = {"a": "x", "b": "AQ==", "n": 1, "u": None, "j": "{}", "d": "AfQ="}
    sent = [("c", None, first)] * 2 + images
    messages = [
        message(
            op,
            {"id": 1, **(before if op != "d" else after)} if before or op == "d" else None,
            None if op == "d" else {"id": 1, **after},
            schema=schema if has_schema else None,
            key={"id": 1},
        )
        for op, before, after in sent
    ]
    lane_rows(numbered(messages), options, **arguments)


def wrapped_key(*columns: tuple[str, str, Any]) -> dict[str, Any]:
    """Return a message key with a schema block, from kind, column and value of each column."""
    fields = [field(kind, column, optional=False) for kind, column, _ in columns]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": "dbz.public.t.Key"}
    return {"schema": schema, "payload": {column: value for _, column, value in columns}}


@pytest.mark.parametrize("schema", [block(field("int64", "id"), NAME), None])
def test_a_key_beyond_the_types_of_its_schema_block(schema: dict[str, Any] | None) -> None:
    # the event path ignores such a key
    def one(number: int, kind: str, *more: tuple[str, str, Any]) -> Message:
        key = wrapped_key((kind, "id", number), *more)
        return message("c", None, {"id": number, "name": "a"}, schema=schema, key=key)

    name = ("string", "name", "a")
    for more in ((), (name,)):
        plain, wrong = one(1, "int32", *more), one(1 << 40, "int32", *more)
        assert plain_count([plain, plain, wrong, plain, wrong]) == 2
        plain, wide = one(1, "int64", *more), one(1 << 40, "int64", *more)
        assert plain_count([plain, plain, wide, plain]) == 3


def test_deletes_keep_the_order_of_columns() -> None:
    # images with names that need escapes are written in the order of the message
    row = {"a": 2, 'b"': 1, "c": None}
    assert plain_count([message("d", row, None, key={'b"': 1, "a": 2})] * 3) == 2


@pytest.mark.parametrize("options", [{}, {"placeholder": "null"}], ids=str)
@pytest.mark.parametrize("is_array", [True, False])
def test_deeply_nested_fillers(options: dict[str, Any], is_array: bool) -> None:
    name = "org.apache.kafka.connect.data.Decimal"
    number = {"type": "bytes", "name": name, "version": 1, "parameters": {"scale": "2"}}
    last = {"type": "array", "items": number} if is_array else number
    schema = block(ID, NAME, {**last, "optional": False, "field": "n"})
    values = [[] if is_array else "AA==", json.loads("[" * 250 + "]" * 250)]
    plain, deep = (
        message("d", {"id": 1, "name": None, "n": value}, None, schema=schema, key={"id": 1})
        for value in values
    )
    assert plain_count([plain, plain, deep, plain, deep], options) == 2


def test_the_order_of_columns_without_types() -> None:
    one = message("c", None, {"id": 1, "name": "a"}, key={"id": 1})
    other = message("c", None, {"name": "a", "id": 1}, key={"id": 1})
    assert plain_count([one, one, other, one, other]) == 2


@pytest.mark.parametrize("number", [1.0, 1e308, 1.50, -0.0])
def test_keys_that_the_table_stores_as_text(number: float) -> None:
    one = message("u", {"id": number, "name": "b"}, {"id": number, "name": "a"})
    assert plain_count([one] * 3, keys={"t": ("id",)}) == 2
    declared = {"schemas": {"t": {"id": "decimal(60,2)", "name": "string"}}}
    other = message("c", None, {"id": "AfQ=", "name": "a"})
    assert plain_count([other] * 3, declared, keys={"t": ("id",)}) == 2


def test_a_before_image_with_more_columns_opens_no_lane() -> None:
    more = message("u", {"id": 1, "x": 2}, {"id": 1})
    one = message("u", {"id": 1}, {"id": 1})
    assert plain_count([more, more, one, one, more, one]) == 1


def test_changed_columns_without_types() -> None:
    one = message("c", None, {"id": 1, "name": "a"}, key={"id": 1})
    more = message("c", None, {"id": 1, "name": "a", "at": 5}, key={"id": 1})
    assert plain_count([one, one, more, more, more, more]) == 4


def test_a_key_change_of_a_configured_key_takes_the_event_path() -> None:
    one = message("u", {"id": 1, "name": "a"}, {"id": 1, "name": "b"}, schema=TWO)
    assert plain_count([one] * 3, keys={"t": ("name",)}) == 0


def test_added_and_removed_columns() -> None:
    three = block(ID, NAME, field("int64", "at", name="io.debezium.time.MicroTimestamp"))
    changed = block(ID, field("int32", "name"))
    old = message("c", None, {"id": 1, "name": "a"}, schema=TWO, key={"id": 1})
    new = message("c", None, {"id": 1, "name": "a", "at": 5}, schema=three, key={"id": 1})
    number = message("c", None, {"id": 1, "name": 7}, schema=changed, key={"id": 1})
    wrong = message("c", None, {"id": 1, "name": "a"}, schema=changed, key={"id": 1})
    # blocks that end alike displace each other in the decoder's cache
    assert plain_count([old, old, new, new, old, number, number, new, wrong, old]) >= 3
    assert plain_count([old, old, old, new, new, new, number, number, wrong, number]) == 6


def test_declared_tables() -> None:
    options = {"schemas": {"t": TYPES}}
    row = {"id": 1, "name": "a", "price": "AfQ=", "at": 1_700_000_000_123_456}
    one = message("c", None, row, key={"id": 1})
    assert plain_count([one] * 3, options) == 2
    unknown = message("c", None, row | {"new": [1.5, {"a": "b"}]}, key={"id": 1})
    # an undeclared column changes the schema of all later messages
    assert plain_count([one, one, unknown, one, unknown, unknown, one], options) == 2
    incremental = message("r", None, row, key={"id": 1}, source=PG | {"snapshot": "first"})
    lane_rows(numbered([one, incremental, unknown, incremental, one, unknown] * 3), options)


def test_every_declared_type() -> None:
    kinds = {
        "b": "boolean", "i": "int8", "u": "uint32", "v": "uint64", "f": "float32",
        "g": "float64", "d": "decimal(20,4)", "e": "decimal", "m": "decimal(60,2)", "s": "string",
        "y": "bytes", "z": "bits(3)", "day": "date", "t": "time(6)", "ts": "timestamp(6)",
        "tn": "timestamp(9)", "n": "instant", "yr": "year", "j": "json", "k": "uuid",
    }  # fmt: skip
    values = {
        "b": [True, False, 1], "i": [1, 127, 128], "u": [0, 4294967295, -1, 4294967296],
        "v": [0, "AA==", "AP//////////", -1], "f": [1.5, 1, 1e39, "NaN"], "g": [0.1, -0.0, 1e308],
        "d": ["AA==", "AfQ=", "gA=="], "e": [{"scale": 2, "value": "AfQ="}, "x"], "m": ["AfQ="],
        "s": ["", "é", "\u0001"], "y": ["AA==", "AB==", ""], "z": ["AQ==", "Bw=="],
        "day": [0, 19000, 3_000_000, -800_000], "t": [0, 86_400_000_000, -1],
        "ts": [0, -1, 253_402_300_800_000_000, 1_700_000_000_123_456], "tn": [0, 1_700_000_000_123],
        "n": ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5+02:00"], "yr": [0, 2024, 99999],
        "j": ["{}", "[1]"], "k": ["1b4e28ba-2fa1-11d2-883f-0016d3cca427"],
    }  # fmt: skip
    first = dict.fromkeys(kinds)
    messages = [message("c", None, first)] * 2
    for name, column_values in values.items():
        messages += [message("c", None, first | {name: value}) for value in column_values]
    assert plain_count(messages, {"schemas": {"t": kinds}}) > 25


def test_a_lane_opens_after_some_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_lanes, "MESSAGES_BEFORE_LANE", 4)
    one = message("c", None, {"id": 1, "name": "a"}, schema=TWO, key={"id": 1})
    hidden = message("u", None, {"id": 1, "name": PLACEHOLDER}, schema=TWO, key={"id": 1})
    assert plain_count([one] * 6) == 2
    assert plain_count([hidden] * 7 + [one] * 3) == 6


def test_transforms_exclude_lanes() -> None:
    steps = transforms_of([{"type": "mask", "columns": ["name"], "method": "null"}])
    assert builder.RowBuilder(get_codec("debezium-json"), steps=steps).lanes is None


# -- canal-json ------------------------------------------------------------------------------------

CANAL: tuple[dict[str, Any], ...] = (
    {},
    {"dialect": "canal"},
    {"dialect": "dts_legacy"},
    {"time_zone": "+08:00", "drop_hidden": False},
)
CANAL_MESSAGES = [
    Message(path.read_bytes(), None, (), "t")
    for path in sorted((GOLDEN / "canal-json").glob("*/*/value"))
] + [
    one
    for path in sorted((GOLDEN / "canal-json" / "encoded").glob("*.jsonl"))
    for one in read(path)
    if one.value
]


def canal(kind: str, data: Any, old: Any = None, **more: Any) -> Message:
    types = {"id": "int(11)", "name": "varchar(20)", "n": "int(10) unsigned", "at": "datetime(3)"}
    value = {
        "data": data, "database": "shop", "es": 1795256449000, "gtid": "", "id": 5, "isDdl": False,
        "mysqlType": types, "old": old, "pkNames": ["id"], "sql": "",
        "sqlType": {"id": 4, "name": 12, "n": 4, "at": 93}, "table": "t", "ts": 1795256449952,
        "type": kind,
    } | more  # fmt: skip
    return Message(json.dumps(value).encode(), None, (), "t")


def canal_count(messages: Sequence[Message], options: Any = None, **arguments: Any) -> int:
    return lane_rows(numbered(messages), options, "canal-json", **arguments)[0]


ROW = {"id": "1", "name": "a", "n": "7", "at": "2024-06-02 10:15:00.000"}


@pytest.mark.parametrize("options", CANAL[:2], ids=str)
def test_plain_canal_messages(options: dict[str, Any]) -> None:
    for one in (
        canal("INSERT", [ROW]),
        canal("INIT", [ROW | {"name": None}]),
        canal("UPDATE", [ROW], [{"name": "b"}]),
        canal("UPDATE", [ROW], [{}]),
        canal("UPDATE", [ROW], [None]),
        canal("UPDATE", [ROW]),
        canal("DELETE", [ROW]),
        canal("INSERT", [ROW, ROW | {"id": "2"}]),
        canal("UPDATE", [ROW, ROW | {"id": "2"}, ROW], [{"name": "b"}, None, {}]),
        canal("DELETE", [ROW, ROW, ROW]),
    ):
        assert canal_count([one] * 3, options) == 2
        assert canal_count([one] * 3, options, images=False) == 2
        assert canal_count([one] * 3, options, tables_without_key="row") == 2


@pytest.mark.parametrize(
    "other",
    [
        canal("INSERT", []),
        canal("INSERT", [ROW, ROW | {"n": "-1"}]),
        canal("UPDATE", [ROW, ROW], [{"name": "b"}]),
        canal("UPDATE", [ROW, ROW], [{"name": "b"}, {"id": "2"}]),
        canal("INSERT", [ROW], [{"name": "b"}]),
        canal("INSERT", [ROW | {"id": 1}]),
        canal("INSERT", [ROW | {"n": "4294967296"}]),
        canal("INSERT", [ROW | {"n": "-1"}]),
        canal("INSERT", [ROW | {"at": "0000-00-00 00:00:00"}]),
        canal("INSERT", [ROW | {"x": "1"}]),
        canal("INSERT", [{"id": "1"}]),
        canal("INSERT", [ROW], isDdl=True),
        canal("INSERT", [ROW], es=10**20),
        canal("INSERT", [ROW], ts=10**20),
        canal("INSERT", [ROW], _tidb={"commitTs": 1}),
        canal("UPDATE", [ROW], [{"id": "2"}]),
        canal("UPDATE", [ROW], [{"name": "b"}, {}]),
        canal("UPDATE", [ROW], updateBefore=[{"name": "b"}]),
        canal("DELETE", [ROW], [ROW]),
    ],
)
def test_other_canal_messages_take_the_event_path(other: Message) -> None:
    plain = canal("INSERT", [ROW])
    assert canal_count([plain, plain, other, plain, other]) == 2


def test_canal_messages_without_an_offset() -> None:
    one = canal("INSERT", [ROW])
    assert lane_rows([one] * 3, None, "canal-json") == (0, 0)


def test_mutated_canal_messages() -> None:
    plain: list[int] = []

    @settings(max_examples=60 * EFFORT)
    @given(
        st.data(),
        st.lists(st.sampled_from(CANAL_MESSAGES), min_size=1, max_size=3),
        st.sampled_from(ARGUMENTS),
        st.sampled_from(CANAL),
    )
    def check(data: st.DataObject, chosen: list[Message], arguments: Any, options: Any) -> None:
        mutated = mutated_copies(data, chosen)
        sent = [*chosen, *mutated, *chosen, *mutated, *chosen]
        plain.append(canal_count(sent, options, **arguments))

    check()
    assert sum(count > 0 for count in plain) > 0.2 * len(plain)


# -- native-json -----------------------------------------------------------------------------------

NATIVE = get_codec("native-json")
NATIVE_MESSAGES = [
    Message(line, None, (), "t")
    for path in sorted((GOLDEN / "native").glob("*.jsonl"))
    for line in path.read_bytes().splitlines()
    if line
]


def native_count(messages: Sequence[Message], **arguments: Any) -> int:
    return lane_rows(numbered(messages), None, "native-json", **arguments)[0]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_golden_lines(arguments: dict[str, Any]) -> None:
    plain = sum(native_count([one] * 3, **arguments) for one in NATIVE_MESSAGES)
    assert plain > 50
    assert native_count(NATIVE_MESSAGES * 3, **arguments) > 50


@pytest.mark.parametrize("kind", ["unknown", "array<unknown>"])
def test_deeply_nested_keys(kind: str) -> None:
    def one(value: Any) -> Message:
        line = {
            "op": "c", "table": {"name": "t"}, "key": ["id"], "after": {"id": value},
            "position": {"domain": "sequence", "value": 1},
            "schema": [{"name": "id", "type": kind}],
        }  # fmt: skip
        return Message(json.dumps(line).encode(), None, (), "t")

    plain, deep = one([1]), one(json.loads("[" * 250 + "]" * 250))
    assert native_count([plain, plain, deep, plain, deep]) == 2


def test_mutated_lines() -> None:
    plain: list[int] = []

    @settings(max_examples=60 * EFFORT)
    @given(
        st.data(),
        st.lists(st.sampled_from(NATIVE_MESSAGES), min_size=1, max_size=3),
        st.sampled_from(ARGUMENTS),
    )
    def check(data: st.DataObject, chosen: list[Message], arguments: Any) -> None:
        mutated = mutated_copies(data, chosen)
        plain.append(native_count([*chosen, *mutated, *chosen, *mutated, *chosen], **arguments))

    check()
    assert sum(count > 0 for count in plain) > 0.2 * len(plain)


def test_generated_lines() -> None:
    plain: list[int] = []

    @settings(max_examples=50 * EFFORT)
    @given(data_changes(NATIVE.carries), data_changes(NATIVE.carries))
    def check(change: Any, other: Any) -> None:
        messages = [*NATIVE.encode(change).messages, *NATIVE.encode(other).messages]
        plain.append(native_count(messages * 3))

    check()
    assert sum(count > 0 for count in plain) > 0.2 * len(plain)
