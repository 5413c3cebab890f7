# SPDX-License-Identifier: Apache-2.0
"""Conversion lanes write the messages, losses and errors of the event path."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conversion_checks import converted, delivered, plain_count, plain_share
from debezium_source_blocks import MYSQL as MYSQL_IN_1970
from debezium_source_blocks import PG as PG_IN_1970
from debezium_source_blocks import PLACEHOLDER
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_checks import goldens
from mutated_messages import mutated_copies, mutations_of, with_source
from registry_server import RegistryServer

from changelane import get_codec
from changelane.codec import OnLoss
from changelane.conversion.message_files import LineFormat, read_record
from changelane.errors import EncodeError
from changelane.event import DataChange
from changelane.formats.contract.losses import DEFAULT, LossPolicy
from changelane.message import Message
from changelane.testing.conformance import EFFORT
from changelane.testing.event_strategies import data_changes

# Canal's readers take a time near 1970 as seconds, which is a loss
TIMES = {"ts_ms": 1_700_000_000_000, "ts_us": 1_700_000_000_000_000, "ts_ns": 1_700_000_000 * 10**9}
PG, MYSQL = PG_IN_1970 | TIMES, MYSQL_IN_1970 | TIMES
pytestmark = pytest.mark.usefixtures("early_lanes")

GOLDEN = Path(__file__).parents[2] / "golden"
TARGETS = [{}, {"dialect": "dts"}, {"gtid": False, "time_zone": "+08:00"}, {"dialect": "huawei"}]


def read(path: Path) -> list[Message]:
    return [read_record(line) for line in path.read_bytes().splitlines() if line]


CAPTURED = {
    path.stem.removeprefix("debezium-"): read(path)
    for path in sorted((GOLDEN / "debezium-json" / "captured").glob("*.jsonl"))
}
CODEC = get_codec("debezium-json")
ROWS = {
    name: [one for one in messages if isinstance(CODEC.decode(one)[0], DataChange)]
    for name, messages in CAPTURED.items()
}
NATIVE = [
    Message(line, None, (), "t")
    for path in sorted((GOLDEN / "native").glob("*.jsonl"))
    for line in path.read_bytes().splitlines()
    if line
]
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"before_image": "full"},
    {"before_image": "key"},
    {"placeholder": "null"},
)
POLICIES = (DEFAULT, OnLoss.RAISE, OnLoss.WARN, OnLoss.IGNORE, LossPolicy(accept=("data",)))


# -- stored messages -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CAPTURED))
def test_captured_messages(name: str) -> None:
    for options in OPTIONS:
        plain_count(CAPTURED[name] * 3, options, policy=OnLoss.WARN)
    for target in TARGETS:
        plain_count(CAPTURED[name] * 3, None, target)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("mariadb-schema", 0.8),
        ("postgres-schema", 0.6),
        ("mariadb-noschema", 0.7),
        ("postgres-noschema", 0.6),
    ],
)
def test_most_captured_messages_are_plain(name: str, least: float) -> None:
    rows = ROWS[name]
    # the others are unavailable values, values that MySQL does not have, and deletes with more
    # values than the key
    count = sum(plain_count([one] * 4, policy=OnLoss.WARN) == 2 for one in rows)
    assert count > least * len(rows)


def test_golden_messages() -> None:
    count = 0
    for path in sorted((GOLDEN / "debezium-json" / "encoded").glob("*.jsonl")):
        messages = read(path)
        sourced = [with_source(one, source) for one in messages for source in (PG, MYSQL)]
        count += plain_count([*messages, *sourced] * 3, policy=OnLoss.WARN)
    assert count > 60


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_golden_lines(policy: OnLoss | LossPolicy) -> None:
    count = sum(plain_count([one] * 3, source="native-json", policy=policy) for one in NATIVE)
    plain_count(NATIVE * 3, source="native-json", policy=policy)
    assert count > (0 if policy is OnLoss.RAISE else 30)


@pytest.mark.parametrize("folder", ["debezium", "captured"])
def test_messages_of_the_corpus(corpus: Path, folder: str) -> None:
    for path in sorted((corpus / folder).glob("**/*.*")):
        lines = [line for line in path.read_bytes().splitlines() if line]
        if folder == "captured":
            if "-flat-" not in path.name and path.suffix == ".jsonl":
                plain_count(read(path) * 3)
            continue
        values = [Message(line, None, (), "t") for line in (*lines, path.read_bytes())]
        plain_count(values * 3)


# -- mutated and generated messages ----------------------------------------------------------------

ALL = [(name, index) for name, messages in ROWS.items() for index in range(len(messages))]


def test_mutated_messages() -> None:
    counts: list[int] = []

    @settings(max_examples=50 * EFFORT)
    @given(
        st.data(),
        st.lists(st.sampled_from(ALL), min_size=1, max_size=2),
        st.sampled_from(OPTIONS),
        st.sampled_from(TARGETS),
        st.sampled_from(POLICIES),
    )
    def check(data: st.DataObject, places: Any, options: Any, target: Any, policy: Any) -> None:
        chosen = [ROWS[name][index] for name, index in places]
        mutated = mutated_copies(data, chosen)
        sent = [*chosen * 3, *mutated, *chosen, *mutated]
        counts.append(plain_count(sent, options, target, policy=policy))

    check()
    assert any(counts)  # a share of them would depend on the draw


def test_mutated_lines() -> None:
    counts: list[int] = []

    @settings(max_examples=50 * EFFORT)
    @given(
        st.data(),
        st.lists(st.sampled_from(NATIVE), min_size=1, max_size=3),
        st.sampled_from(TARGETS),
    )
    def check(data: st.DataObject, chosen: list[Message], target: Any) -> None:
        mutated = mutated_copies(data, chosen)
        sent = [*chosen * 3, *mutated, *chosen, *mutated]
        counts.append(plain_count(sent, None, target, source="native-json", policy=OnLoss.WARN))

    check()
    assert any(counts)  # a share of them would depend on the draw


OTHER_SOURCES: dict[str, tuple[dict[str, Any], ...]] = {
    "ticdc-open-json": ({}, {"output_old_value": True}),
    "cockroachdb-json": ({}, {"schemas": {"t": {"id": "int64 key", "note": "string"}}}),
    "debezium-mongodb-json": ({},),
    "spanner-json": ({},),
    "dts-avro": ({}, {"binlog_prefix": "binlog"}),
    "dynamodb-json": ({}, {"nested": "typed"}, {"schemas": {"orders": {"id": "int64 key"}}}),
}


@pytest.mark.parametrize("source", OTHER_SOURCES)
def test_mutated_messages_of_other_formats(source: str) -> None:
    messages = goldens(source)
    options = OTHER_SOURCES[source][0]
    assert plain_share(messages, options, source=source, policy=OnLoss.WARN) > 0.2
    mutate = mutations_of(source)

    @settings(max_examples=20 * EFFORT)
    @given(
        st.data(),
        st.lists(st.sampled_from(messages), min_size=1, max_size=3),
        st.sampled_from(OTHER_SOURCES[source]),
        st.sampled_from(TARGETS),
        st.sampled_from(POLICIES),
    )
    def check(data: st.DataObject, chosen: Any, options: Any, target: Any, policy: Any) -> None:
        mutated = [
            msgspec.structs.replace(one, value=data.draw(mutate(one.value or b"")))
            for one in chosen
        ]
        sent = [*chosen * 3, *mutated, *chosen, *mutated]
        plain_count(sent, options, target, source=source, policy=policy)

    check()


def test_messages_in_cloud_events() -> None:
    codec = get_codec("debezium-json", cloud_events="structured")
    for name in ("postgres-noschema", "mariadb-schema"):
        events = [
            one
            for change in map(CODEC.decode, ROWS[name])
            for one in codec.encode(change[0], on_loss="ignore").messages
            if one.value
        ]
        sent = [msgspec.structs.replace(one, topic="t") for one in (*events, *events)]
        assert plain_count(sent, policy=OnLoss.WARN) > 0.2 * len(sent)


def test_messages_in_avro() -> None:
    with RegistryServer() as server:
        options = {"serde": "avro-registry", "registry": server.address, "avro_names": "unicode"}
        codec = get_codec("debezium-json", **options)
        sent = [
            one
            for message in ROWS["postgres-schema"]
            for one in codec.encode(CODEC.decode(message)[0], on_loss="ignore").messages
            if one.value
        ]
        assert plain_count([*sent, *sent], options, policy=OnLoss.WARN) > 0.3 * len(sent)


@pytest.mark.parametrize("source", ["debezium-json", "native-json"])
def test_generated_events(source: str) -> None:
    codec, counts = get_codec(source), list[int]()

    @settings(max_examples=50 * EFFORT)
    @given(
        data_changes(codec.carries),
        data_changes(codec.carries),
        st.sampled_from((PG, MYSQL)),
        st.sampled_from(TARGETS),
        st.sampled_from(POLICIES),
    )
    def check(change: Any, other: Any, block: Any, target: Any, policy: Any) -> None:
        messages: list[Message] = []
        for event in (change, other):
            try:
                encoded = codec.encode(event, on_loss="ignore").messages
            except EncodeError:
                return
            messages += [
                with_source(one, block) if source == "debezium-json" else one
                for one in encoded
                if one.value
            ]
        sent = [Message(one.value, one.key, one.headers, "t") for one in messages]
        counts.append(plain_count(sent * 3, None, target, source=source, policy=policy))

    check()
    assert any(counts)  # a share of them would depend on the draw


UNTYPED = (
    *("aws-dms-json", "changelog-json", "datastream-json", "maxwell-json", "ogg-json"),
    *("plain-json", "qlik-json", "shareplex-json"),
)
"""Formats whose messages have no column types."""


@pytest.mark.parametrize("source", UNTYPED)
def test_messages_without_column_types(source: str) -> None:
    stored = [
        Message(one.value, one.key, one.headers, "t")
        for path in sorted((GOLDEN / source / "encoded").glob("*.jsonl"))
        for one in read(path)
    ]
    count = sum(plain_count([one] * 4, source=source, policy=OnLoss.WARN) for one in stored)
    assert count > len(stored) / 3
    codec = get_codec(source)

    @settings(max_examples=15 * EFFORT)
    @given(
        st.lists(data_changes(codec.carries), min_size=2, max_size=2),
        st.data(),
        st.sampled_from(TARGETS),
        st.sampled_from(POLICIES),
    )
    def check(changes: Any, data: st.DataObject, target: Any, policy: Any) -> None:
        messages = [data.draw(st.sampled_from(stored))]
        for change in changes:
            try:
                messages += codec.encode(change, on_loss="ignore").messages
            except EncodeError:
                continue
        sent = [Message(one.value, one.key, (), "t") for one in messages if one.value]
        mutated = mutated_copies(data, sent)
        plain_count([*sent * 3, *mutated, *sent], None, target, source=source, policy=policy)

    check()


@pytest.mark.parametrize("source", ["aws-dms-json", "datastream-json"])
def test_messages_of_declared_tables(source: str) -> None:
    types = {"id": "int64 key", "note": "string", "qty": "decimal(10,2)", "at": "timestamp(3)"}
    rows = (
        {"id": 1, "note": "a", "qty": 1.5, "at": "2024-01-01 00:00:00.5"},
        {"id": 2, "qty": "2", "at": None},
    )
    data = {"metadata": {"record-type": "data", "operation": "update", "table-name": "t"}}
    if source == "datastream-json":
        metadata = {"table": "t", "change_type": "UPDATE", "primary_keys": ["id"]}
        data = {"read_method": "mysql-cdc-binlog", "source_metadata": metadata}
    name = "data" if source == "aws-dms-json" else "payload"
    first, second = (
        Message(json.dumps(data | {name: row}).encode(), None, (), "t") for row in rows
    )
    options = {"schemas": {"t": types}}
    assert plain_count([first] * 4 + [second] * 2, options, source=source) == 4


# -- single messages -------------------------------------------------------------------------------

KINDS = {
    "id": "int32", "name": "string", "price": "decimal(10,2)", "at": "timestamp(6)",
    "n": "uint32", "f": "float64", "j": "json", "b": "bits(3)",
}  # fmt: skip
ROW = {
    "id": 1, "name": "a", "price": "AfQ=", "at": 1_700_000_000_123_456, "n": 7, "f": 0.5,
    "j": '{"a":1}', "b": "BQ==",
}  # fmt: skip


def message(
    op: str,
    before: Any,
    after: Any,
    *,
    key: Any = None,
    source: Any = PG,
    topic: str | None = "t",
    **fields: Any,
) -> Message:
    value = {"before": before, "after": after, "source": source, "op": op} | TIMES | fields
    return Message(
        json.dumps(value).encode(),
        None if key is None else json.dumps(key, separators=(",", ":")).encode(),
        (),
        topic,
    )


BLOCK = {"id": "tx", "total_order": 3, "data_collection_order": 1}
TYPED = {"schemas": {"t": KINDS}}


@pytest.mark.parametrize("options", [{}, TYPED], ids=["untyped", "typed"])
@pytest.mark.parametrize(
    "plain",
    [
        message("c", None, ROW),
        message("c", None, ROW | {"name": None, "price": None}),
        message("u", None, ROW, key={"id": 1}),
        message("u", ROW | {"name": "b"}, ROW, key={"id": 1}),
        message("u", ROW, ROW),
        message("d", ROW, None),
        message("c", None, ROW, source=PG | {"snapshot": "true"}),
        message("r", None, ROW, source=MYSQL),
        message("d", ROW, None, source=MYSQL, key={"id": 1}),
        message("c", None, ROW, transaction=BLOCK),
        message("c", None, ROW, ts_ns=1_700_000_000_000_000_001, ts_us=None),
        message("c", None, ROW, ts_ns=None, ts_us=None, ts_ms=None),
    ],
)
def test_plain_messages(plain: Message, options: dict[str, Any]) -> None:
    assert plain_count([plain] * 4, options) == 2
    assert plain_count([plain] * 4, options, policy=OnLoss.RAISE) == 0


@pytest.mark.parametrize("options", [{}, TYPED], ids=["untyped", "typed"])
def test_a_delete_with_fillers(options: dict[str, Any]) -> None:
    fillers = dict.fromkeys(ROW) | {"id": 1}
    one = message("d", fillers, None, key={"id": 1})
    assert plain_count([message("c", None, ROW, key={"id": 1}), *[one] * 4], options) == 0
    # the mark of unavailable values is a loss of data, which the policy must accept
    accepted = plain_count([one] * 4, options, policy=OnLoss.WARN)
    assert accepted == 2


@pytest.mark.parametrize(
    "other",
    [
        message("c", None, ROW | {"id": "x"}),
        message("c", None, ROW | {"name": PLACEHOLDER}),
        message("c", None, {name: ROW[name] for name in ("id", "name")}),
        message("c", None, ROW, source=PG | {"txId": None}),
        message("c", None, ROW, source=PG | {"lsn": None}),
        message("c", None, ROW, source=PG | {"table": "other"}),
        message("c", None, ROW, ts_ns=10**21, ts_us=10**18, ts_ms=10**15),
        message("c", None, ROW, source=PG_IN_1970),
        message("c", None, ROW, transaction=BLOCK | {"total_order": 0}),
        message("c", None, ROW | {"n": 2**31}),
        message("c", None, ROW | {"j": None}),
        message("c", None, ROW | {"at": 10**18}),
        message("t", None, None),
        Message(None, b'{"id":1}', (), "t"),
        Message(b"{", None, (), "t"),
        Message(b"", None, (), "t"),
    ],
)
def test_other_messages_take_the_event_path(other: Message) -> None:
    plain = message("c", None, ROW)
    assert plain_count([plain, plain, plain, other], TYPED) == 1
    assert plain_count([plain, plain, plain, other, plain, plain, other, plain], TYPED) >= 2
    plain_count([plain, plain, plain, other, plain, other] * 2)


def test_an_undeclared_column_ends_the_lane() -> None:
    plain, more = message("c", None, ROW), message("c", None, ROW | {"new": 1})
    assert plain_count([plain, plain, plain, more, plain, plain, plain, plain], TYPED) > 1


def test_losses_of_untyped_values() -> None:
    texts, numbers = (message("c", None, {"id": value}) for value in ("1", 1))
    assert plain_count([texts, texts, texts, numbers, numbers, texts, numbers]) == 4
    nested = message("c", None, {"id": [1, {"a": "b"}]})
    deep = message("c", None, {"id": json.loads("[" * 250 + "]" * 250)})
    assert plain_count([nested, nested, nested, deep, nested]) == 2


def test_changes_between_the_halves_of_an_update() -> None:
    half = message("d", {"id": 1}, None, key={"id": 1})
    header = (("__debezium.newkey", b'{"id":2}'),)
    first = Message(half.value, half.key, header, "t")
    created = message("c", None, {"id": 2}, key={"id": 2})
    second = Message(created.value, created.key, (("__debezium.oldkey", b'{"id":1}'),), "t")
    plain = [message("c", None, {"id": number}, key={"id": number}) for number in (5, 1, 2)]
    sent = [*plain, *plain, first, *plain, second, *plain]
    assert plain_count(sent, policy=OnLoss.WARN) > 0
    # after a join, plain changes are plain again
    assert plain_count([*plain * 3, first, second, *plain], policy=OnLoss.WARN) == 10


def test_targets_without_lanes() -> None:
    plain = message("c", None, ROW)
    for dialect in ("ticdc", "tencent", "inlong", "flink", "dts_legacy"):
        assert plain_count([plain] * 4, TYPED, {"dialect": dialect}) == 0


def test_lines_of_values() -> None:
    codecs, form = (CODEC, get_codec("canal-json")), LineFormat.VALUE
    sent = [message("c", None, ROW, key={"id": 1}), message("u", None, ROW, key={"id": 1})] * 4
    expected, _ = converted(sent, *codecs, DEFAULT, has_lanes=False, form=form)
    found, count = converted(sent, *codecs, DEFAULT, has_lanes=True, form=form)
    assert found == expected
    assert count == 5


def test_messages_of_other_topics_while_a_half_waits() -> None:
    def row(op: str, topic: str) -> Message:
        return Message(b'{"data":{"id":1,"note":"a"},"op":"%s"}' % op.encode(), None, (), topic)

    # the topic names the table: `b` must not get a lane with the identity of `a`
    messages = [row("-U", "a"), *[row("+I", "b")] * 4, *[row("+I", "a")] * 3]
    assert plain_count(messages, source="changelog-json", policy=OnLoss.IGNORE) > 0


# -- one partition of a topic ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"event_id": True, "by_source": True},
        {"topic": "cdc.{table}"},
        {"blocks_keys": True, "topic": "cdc.{table}"},
    ],
    ids=str,
)
def test_messages_of_a_partition(options: dict[str, Any]) -> None:
    streams = [("native-json", NATIVE), *(("debezium-json", one) for one in CAPTURED.values())]
    total = 0
    for source, messages in streams:
        sent = [
            Message(one.value, one.key, one.headers, "in", 3, offset)
            for offset, one in enumerate(messages * 3)
        ]
        expected, _ = delivered(sent, source, "warn", has_lanes=False, **options)
        found, count = delivered(sent, source, "warn", has_lanes=True, **options)
        assert found == expected
        total += count
    assert total > (100 if "topic" not in options else 0)


def test_messages_of_a_partition_without_accepted_losses() -> None:
    sent = [message("c", None, ROW), message("u", None, ROW)] * 4
    expected, _ = delivered(sent, "debezium-json", "raise", has_lanes=False)
    found, count = delivered(sent, "debezium-json", "raise", has_lanes=True)
    assert found == expected
    assert count == 0
