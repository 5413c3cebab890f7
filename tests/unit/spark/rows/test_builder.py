"""Event rows say what :func:`changelane.apply.operations_of` says of their event."""

import decimal
import json
from random import Random
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from changelane import get_codec
from changelane.apply import KeyDelete, TableTruncate, Upsert, operations_of
from changelane.conversion.partition import EVENT_ID
from changelane.errors import ApplyError, DecodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    HalfUpdate,
    Key,
    Op,
    Source,
    Truncate,
)
from changelane.message import Message
from changelane.position import (
    EventIdPosition,
    OffsetPosition,
    Position,
    PostgresPosition,
    SequencePosition,
    encode_order,
    is_comparable,
    order_text,
)
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.conformance import EFFORT
from changelane.testing.event_strategies import events
from changelane.testing.histories import Profile, history
from changelane.types import (
    UNAVAILABLE,
    Date,
    Decimal,
    Integer,
    String,
    parse_instant,
    parse_type,
)

builder = pytest.importorskip("changelane.spark.rows.builder", exc_type=ImportError)
rows = pytest.importorskip("changelane.spark.rows.schema", exc_type=ImportError)
sequence = pytest.importorskip("changelane.spark.rows.sequence_by", exc_type=ImportError)

NATIVE = get_codec("native-json")
TABLE = TableId("shop", None, "t")
SCHEMA = TableSchema((Column("id", Integer()), Column("a", String()), Column("b", String())))
# a value that Spark has no place for is an error there and none in memory: fidelity is not tested
MISFITS = {"value_out_of_range", "wrong_type", "invalid_utf8"}


class Told(msgspec.Struct, frozen=True):
    """A step without its values."""

    kind: str
    key: str | None
    order: bytes
    other: str | None = None
    transaction: str | None = None
    whole: bool = False
    carries: frozenset[str] | None = None


def text(key: bytes | None) -> str | None:
    return None if key is None else key.decode()


def of_steps(event: ChangeEvent, **options: Any) -> list[Told]:
    told = []
    for step in operations_of(event, **options):
        match step:
            case TableTruncate(order):
                told.append(Told("truncate", None, order))
            case KeyDelete():
                moved_to, transaction = text(step.moved_to), step.transaction
                told.append(Told("leaves", text(step.key), step.order, moved_to, transaction))
            case Upsert():
                told.append(
                    Told(
                        "arrives",
                        text(step.key),
                        step.order,
                        text(step.moved_from),
                        step.transaction,
                        step.is_full_row,
                        # a whole event sets every column, whether it names it or not (register W)
                        frozenset() if step.is_full_row else frozenset(step.values),
                    )
                )
    return told


def of_rows(built: list[tuple[Any, ...]]) -> list[Told]:
    """Read event rows as the applier does."""
    told: list[Told] = []
    schemas: dict[str, list[str]] = {}
    for values in built:
        row = dict(zip(rows.FIELD_INDEX, values, strict=True))
        if row["kind"] == "schema":
            schemas[row["schema_id"]] = [one["name"] for one in json.loads(row["after"])["columns"]]
        elif row["kind"] == "truncate":
            told.append(Told("truncate", None, row["order"]))
        elif row["kind"] == "data":
            key, other, transaction = row["key"], row["other_key"], row["transaction"]
            if row["op"] == "d":
                told.append(Told("leaves", key, row["order"], other, transaction))
                continue
            if row["op"] == "u" and other is not None:
                told.append(Told("leaves", other, row["order"][:-1] + b"\0", key, transaction))
            names = frozenset(schemas[row["schema_id"]]) - set(row["after_missing"] or ())
            names = frozenset() if row["whole"] else names
            told.append(Told("arrives", key, row["order"], other, transaction, row["whole"], names))
    return told


def build(event: ChangeEvent, **options: Any) -> list[tuple[Any, ...]]:
    (message,) = NATIVE.encode(event).messages
    return builder.RowBuilder(NATIVE, **options).rows(message)


def code(built: list[tuple[Any, ...]]) -> str | None:
    (found,) = {row[rows.FIELD_INDEX["code"]] for row in built}
    return found


def with_text_keys(event: ChangeEvent) -> ChangeEvent:
    """Return an event without schema with its key as text, which is what its column is."""
    if not isinstance(event, DataChange) or event.schema is not None:
        return event
    (name,) = event.key.columns
    images = {}
    for field in ("before", "after"):
        image = getattr(event, field)
        if image is not None and isinstance(image.get(name), int | decimal.Decimal):
            image = {**image, name: str(image[name])}
        images[field] = image
    return msgspec.structs.replace(event, **images)


def attempt(event: ChangeEvent, **options: Any) -> tuple[list[Told], str | None]:
    try:
        return of_steps(event, **options), None
    except ApplyError as error:
        return [], getattr(error, "code", "unordered")


def check(event: ChangeEvent, *, keys: tuple[str, ...] | None = None, epoch: int = 0) -> None:
    named = None if keys is None else {"t": keys}
    built = build(event, epoch=epoch, keys=named)
    expected, refused = attempt(with_text_keys(event), keys=keys, epoch=epoch)
    if refused is None:
        assert of_rows(built) == expected
    else:
        assert [row[rows.FIELD_INDEX["kind"]] for row in built] == ["error"]
        # a delete without an image is a delete without a key, too
        assert code(built) in {refused, "missing_image"}


@given(events(NATIVE.carries), st.integers(0, 3))
@settings(deadline=None, max_examples=100 * EFFORT)
def test_rows_say_what_the_steps_of_any_event_say(event: ChangeEvent, epoch: int) -> None:
    change = event.change if isinstance(event, HalfUpdate) else event
    # a table without a key has no key text, and is judged by the applier
    assume(not isinstance(change, DataChange) or change.key is not None)
    built = build(event, epoch=epoch)
    assume(not {row[rows.FIELD_INDEX["code"]] for row in built} & MISFITS)
    check(event, epoch=epoch)


@pytest.mark.parametrize("before", ["key", "full"])
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_rows_say_what_the_steps_of_a_history_say(seed: int, halves: Any, before: Any) -> None:
    profile = Profile(moves="lacking", transactions=True, size=40, halves=halves, before=before)
    for event in history(Random(seed), profile).events:
        check(event)


def change(op: str, after: Any, before: Any = None, **more: Any) -> DataChange:
    more = {"position": PostgresPosition(7), "schema": SCHEMA, **more}
    return DataChange(Op(op), TABLE, Key(("id",)), before, after, **more)


FULL = {"id": 1, "a": "a", "b": "b"}
HALVES = [
    HalfUpdate(change(op, after, before), other)
    for op, after, before in [("d", None, FULL), ("c", FULL, None)]
    for other in [None, {"id": 1}, {"id": 2}, {"a": "x"}]
] + [
    HalfUpdate(change("d", None, FULL), pair="7"),
    HalfUpdate(change("c", FULL), pair="7"),
    HalfUpdate(change("c", {"id": 1, "a": "x"}), pair="7"),
]


@pytest.mark.parametrize("event", HALVES)
def test_halves_of_updates(event: HalfUpdate) -> None:
    check(event)


@pytest.mark.parametrize("keys", [("a",), ("b", "id")])
@pytest.mark.parametrize("event", HALVES)
def test_halves_of_updates_where_the_key_is_another(event: HalfUpdate, keys: Any) -> None:
    check(event, keys=keys)


@pytest.mark.parametrize(
    "event",
    [
        change("u", {"a": "x", "b": UNAVAILABLE}, {"id": 1}),
        change("u", {"id": 2, "a": "x"}, {"id": 1, "a": "w", "b": "b"}),
        change("u", {"id": 2, "a": "x", "b": UNAVAILABLE}, {"id": 1}),
        change("u", {"id": None, "a": "x"}, {"id": 1}),
        change("u", {"a": "x"}, {"a": "w"}),
        change("u", {"id": UNAVAILABLE, "a": "x"}, FULL),
        change("c", {"id": 1, "a": UNAVAILABLE}),
        change("c", {"id": 1}),
        change("d", None, {"a": "x"}),
        change("d", None, None),
        change("u", None, FULL),
        change("u", {"id": 1, "a": "x"}, schema=None),
        change("u", {"id": 2, "a": "x"}, {"id": 1, "b": "b"}, schema=None),
        change("c", FULL, source=Source(snapshot="true")),
        change("c", FULL, position=None),
        Truncate(TABLE, position=PostgresPosition(7), source=Source(snapshot="true")),
    ],
)
def test_images_that_lack_something(event: ChangeEvent) -> None:
    check(event)


def test_without_a_position_the_place_in_the_topic_orders() -> None:
    (message,) = NATIVE.encode(change("c", FULL, position=None)).messages
    placed = msgspec.structs.replace(message, topic="shop", partition=3, offset=17)
    built = builder.RowBuilder(NATIVE).rows(placed)
    event = change("c", FULL, position=OffsetPosition("shop", 3, 17))
    assert of_rows(built) == of_steps(event)


# What a task remembers


def test_no_two_kinds_of_orders_have_one_code() -> None:
    kinds = (*get_args(Position), EventIdPosition)
    codes = [*(kind.code for kind in kinds), sequence.COLUMNS_DOMAIN]
    assert len(set(codes)) == len(codes) == 9


def with_id(message: Message, told: str | None, offset: int) -> Message:
    headers = () if told is None else (("more", b"x"), (EVENT_ID, told.encode()))
    return msgspec.structs.replace(message, headers=headers, topic="t", partition=0, offset=offset)


def test_an_event_that_was_sent_twice_has_one_place_by_its_id() -> None:
    (plain,) = NATIVE.encode(change("c", {"id": 1}, position=None)).messages
    (placed,) = NATIVE.encode(change("c", {"id": 1})).messages
    by_id = builder.RowBuilder(NATIVE, event_ids=True)

    def order(message: Message) -> bytes:
        (found,) = {row[rows.FIELD_INDEX["order"]] for row in by_id.rows(message)} - {None}
        return bytes(found)

    first = order(with_id(plain, "shop-x-3-17-2-0", 5))
    assert first == order(with_id(plain, "shop-x-3-17-2-0", 9))
    assert order_text(first) == "event 2 of offset 17 of partition 3"
    assert first < order(with_id(plain, "shop-x-3-17-2-1", 0))
    assert first < order(with_id(plain, "shop-x-3-17-10-0", 0))
    assert first < order(with_id(plain, "shop-x-3-18-0-0", 0))
    assert is_comparable(first, order(with_id(plain, "shop-x-3-18-0-0", 0)))
    assert not is_comparable(first, order(with_id(plain, "shop-x-4-18-0-0", 0)))
    assert not is_comparable(first, order(with_id(plain, "shop-3-18-0-0", 0)))
    # what tells a position of its own is ordered by it
    assert order_text(order(with_id(placed, None, 5))).startswith("LSN")


@pytest.mark.parametrize("told", [None, "", "t-0-1-2", "t-0--1-2-3", "t-0-1-2-256", "t-0-1-٣-0"])
def test_an_event_whose_id_tells_no_place_is_set_aside(told: str | None) -> None:
    (plain,) = NATIVE.encode(change("c", {"id": 1}, position=None)).messages
    built = builder.RowBuilder(NATIVE, event_ids=True).rows(with_id(plain, told, 5))
    assert code(built) == "unordered"


@pytest.mark.parametrize(
    ("snapshot", "place", "told"),
    [
        ("incremental", {}, "unordered"),
        ("incremental", {"lsn": 7}, None),
        ("true", {"lsn": 7}, None),
        ("false", {"lsn": 7}, None),
    ],
)
def test_a_row_of_an_incremental_snapshot_without_a_position_is_not_compared_by_its_offset(
    snapshot: str, place: dict[str, int], told: str | None
) -> None:
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders"}
    source |= {"snapshot": snapshot, "ts_ms": 1, **place}
    value = json.dumps({"op": "r", "after": {"id": 1}, "source": source}).encode()
    message = Message(value, b'{"id":1}', (), "orders", 0, 5)
    built = builder.row_builder("debezium-json", {}).rows(message)
    assert code(built) == told
    if told is not None:
        assert "`blocking`" in built[0][rows.FIELD_INDEX["reason"]]


def test_rows_of_a_full_load_without_positions_sort_before_the_changes_of_the_stream() -> None:
    metadata = {"record-type": "data", "schema-name": "shop", "table-name": "t"}
    details = {
        "transaction-id": 1,
        "transaction-record-id": 1,
        "commit-timestamp": "1971-01-01T00:00:00Z",
    }
    orders = []
    for operation, places in (("load", {}), ("insert", details)):
        value = {"data": {"id": 1}, "metadata": metadata | {"operation": operation} | places}
        message = Message(json.dumps(value).encode(), None, (), "shop", 3, 900)
        built = builder.row_builder("aws-dms-json", {"order": "transaction"}).rows(message)
        orders.append(built[-1][rows.FIELD_INDEX["order"]])
    assert is_comparable(*orders)
    assert orders[0] < orders[1]


@pytest.mark.parametrize(
    ("product", "place"),
    [
        ("mysql", {"log_file": "b.000001", "log_position": 4}),
        ("postgresql", {"lsn": "0/1"}),
        ("oracle", {"scn": 1}),
    ],
)
def test_rows_of_a_backfill_sort_before_the_changes_of_their_source(
    product: str, place: dict[str, object]
) -> None:
    metadata = {"table": "t", "change_type": "INSERT"}
    orders = []
    for kind, places in (("backfill", {}), ("cdc", place)):
        value = {"read_method": f"{product}-{kind}", "payload": {"id": 1}}
        value |= {"source_metadata": metadata | places}
        message = Message(json.dumps(value).encode(), None, (), "shop", 3, 900)
        built = builder.row_builder("datastream-json", {}).rows(message)
        orders.append(built[-1][rows.FIELD_INDEX["order"]])
    assert is_comparable(*orders)
    assert orders[0] < orders[1]


def test_an_update_whose_schema_lists_changed_columns_only_is_no_whole_row() -> None:
    columns = TableSchema(SCHEMA.columns[:2])
    holds = Completeness.CHANGED
    event = change("u", {"id": 1, "a": "x"}, schema=columns, after_holds=holds)
    built = build(event)
    (found,) = of_rows(built)
    assert [found] == of_steps(event)
    assert (found.whole, found.carries) == (False, frozenset({"id", "a"}))
    one = builder.RowBuilder(NATIVE)
    partial = {}
    for told in (change("c", {"id": 1, "a": "x"}, schema=columns), event):
        schema_row = one.rows(line(told))[0]
        partial[told.op] = json.loads(schema_row[rows.FIELD_INDEX["after"]])["is_partial"]
    assert partial == {Op.CREATE: False, Op.UPDATE: True}


def line(event: ChangeEvent) -> Message:
    (message,) = NATIVE.encode(event).messages
    return message


def test_a_schema_is_told_once_and_before_its_rows() -> None:
    one = builder.RowBuilder(NATIVE)
    kinds = [row[0] for _ in range(3) for row in one.rows(line(change("c", FULL)))]
    assert kinds == ["schema", "data", "data", "data"]


DATED = TableSchema((Column("id", Integer()), Column("d", Date())))


def test_a_message_that_cannot_be_used_does_not_take_the_schema_with_it() -> None:
    one = builder.RowBuilder(NATIVE)
    bad = change("c", {"id": 1, "d": "infinity"}, schema=DATED)
    good = change("c", {"id": 2, "d": None}, schema=DATED)
    (error,) = one.rows(line(bad))
    assert error[rows.FIELD_INDEX["kind"]] == "error"
    assert error[rows.FIELD_INDEX["code"]] == "value_out_of_range"
    assert error[rows.FIELD_INDEX["raw_value"]] == line(bad).value
    assert [row[0] for row in one.rows(line(good))] == ["schema", "data"]


def test_equal_keys_have_one_text() -> None:
    schema = TableSchema((Column("id", Decimal(10, 4)),))
    texts = {
        of_rows(build(change("c", {"id": number}, schema=schema)))[0].key
        for number in map(decimal.Decimal, ("1", "1.0", "1.0000", "1E+0"))
    }
    assert len(texts) == 1


def test_keys_that_are_one_text_in_the_table_are_one_key() -> None:
    def key(kind: Any, value: Any, **more: Any) -> str | None:
        schema = None if kind is None else TableSchema((Column("id", parse_type(kind)),))
        return of_rows(build(change("c", {"id": value}, schema=schema, **more)))[0].key

    one = decimal.Decimal("1.0")
    assert {key("unknown", 1), key("unknown", "1"), key("unknown", one), key(None, 1)} == {'["1"]'}
    assert {key("decimal", one), key("decimal", decimal.Decimal("1.00"))} == {'["1"]'}
    instants = map(parse_instant, ("2024-01-01T00:00:00.5Z", "2024-01-01T01:00:00.50+01:00"))
    assert len({key("instant(9)", instant) for instant in instants}) == 1
    assert key("unknown", None) == "[null]"


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"null", b"\xff", b'{"op":"c"}', None])
def test_a_message_that_cannot_be_read_is_one_error_row_or_none(value: Any) -> None:
    built = builder.RowBuilder(NATIVE).rows(Message(value, b"key"))
    if value is None:
        assert built == []
        return
    (row,) = built
    named = dict(zip(rows.FIELD_INDEX, row, strict=True))
    assert (named["kind"], named["raw_value"], named["raw_key"]) == ("error", value, b"key")
    assert named["code"]
    assert named["reason"]


@pytest.mark.parametrize("pair", [None, "7"])
@pytest.mark.parametrize("other", [None, {"id": 2}])
def test_the_halves_of_an_update_without_a_key_are_no_rows_of_their_own(
    other: Any, pair: str | None
) -> None:
    """A table that is only appended to sets updates and deletes aside, and appends inserts."""
    ops: list[str] = []
    for half in (change("d", None, FULL), change("c", FULL)):
        keyless = msgspec.structs.replace(half, key=None)
        built = build(HalfUpdate(keyless, other, pair))
        kind, op = rows.FIELD_INDEX["kind"], rows.FIELD_INDEX["op"]
        ops += (row[op] for row in built if row[kind] == "data")
    assert ops == ["d", "u"]


def test_a_whole_row_may_be_the_key() -> None:
    event = msgspec.structs.replace(change("c", FULL), key=None)
    (told,) = of_rows(build(event, tables_without_key="row"))
    assert told.key == '[1,"a","b"]'
    (told,) = of_rows(build(event))
    assert told.key is None


def test_rows_fit_their_arrow_schema() -> None:
    built = [row for event in history(Random(3), Profile(size=40)).events for row in build(event)]
    batch = rows.arrow_batch(built)
    assert batch.schema == rows.ARROW
    assert [row["kind"] for row in batch.to_pylist()] == [row[0] for row in built]


def test_batches_are_cut_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_BATCH_BYTES", 1000)
    one = build(change("c", FULL, position=SequencePosition(1)))[-1:]
    sizes = [batch.num_rows for batch in rows.arrow_batches((500, one) for _ in range(5))]
    assert sum(sizes) == 5
    assert max(sizes) == 1


@pytest.mark.parametrize("depth", [200, 201, 250, 500, 800, 950, 999, 5000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), ["[]", ('{"a":', "}")])
def test_a_deep_value_is_set_aside_and_one_at_the_limit_is_a_row(
    depth: int, opening: str, closing: str
) -> None:
    value = opening * depth + ("1" if closing == "}" else "") + closing * depth
    event = f'{{"op":"c","table":{{"name":"t"}},"key":["id"],"after":{{"id":1,"v":{value}}}}}'
    (*_, row) = builder.RowBuilder(NATIVE).rows(Message(event.encode(), None, (), "t", 0, 5))
    if depth <= 200:
        assert row[0] == "data"
    else:
        assert (row[0], row[rows.FIELD_INDEX["code"]]) == ("error", "too_deep")
        assert bytes(row[rows.FIELD_INDEX["raw_value"]]) == event.encode()


def test_a_key_of_bits_has_the_zeros_that_its_row_has() -> None:
    line = (
        b'{"op":"c","table":{"name":"t"},"key":["id"],"position":{"domain":"sequence","value":1},'
        b'"after":{"id":"101"},"schema":[{"name":"id","type":"bits(10)"}]}'
    )
    _, row = builder.row_builder("native-json", {}).rows(Message(line))
    assert row[rows.FIELD_INDEX["key"]] == '["0000000101"]'
    assert row[rows.FIELD_INDEX["after"]] == b'{"id":"0000000101"}'


def test_equal_schemas_of_two_messages_are_compiled_once() -> None:
    row_builder = builder.row_builder("native-json", {})
    compiled = set()
    for number in range(3):
        line = (
            b'{"op":"c","table":{"name":"t"},"key":["id"],"position":{"domain":"sequence",'
            b'"value":%d},"after":{"id":%d},"schema":[{"name":"id","type":"int64"}]}'
        )
        first, *_ = row_builder.rows(Message(line % (number, number)))
        compiled.add(id(row_builder._last_compiled[-1]))
        assert first[0] == ("schema" if number == 0 else "data")
    assert len(compiled) == 1


def test_a_wrong_schema_of_a_native_line_is_named_by_its_path() -> None:
    line = b'{"op":"c","table":{"name":"t"},"after":{},"schema":[{"name":1,"type":"int64"}]}'
    with pytest.raises(DecodeError) as raised:
        NATIVE.decode(Message(line))
    assert raised.value.path == "$.schema[0].name"


def test_servers_with_one_declared_table_have_own_schemas() -> None:
    options = {"schemas": {"t": {"id": "int64 key"}}}
    messages = [
        Message(
            b'{"stream_name":"%s","read_method":"oracle-cdc-logminer","payload":{"id":1},'
            b'"source_metadata":{"table":"t","change_type":"INSERT"}}' % stream,
            offset=offset,
        )
        for offset, stream in enumerate((b"a", b"b", b"a"))
    ]
    one_builder = builder.RowBuilder(get_codec("datastream-json", **options), lanes=False)
    for message in messages:
        (*_, found) = one_builder.rows(message)
        own_builder = builder.RowBuilder(get_codec("datastream-json", **options), lanes=False)
        assert found == own_builder.rows(message)[-1]


def test_orders_of_a_capture_log_have_their_domain_in_lanes_and_events() -> None:
    source = {"version": "3.3", "connector": "postgresql", "name": "s", "ts_ms": 1, "db": "d"}
    source |= {"schema": "public", "table": "t", "lsn": 16, "sequence": '["8","16"]'}
    for captured in (False, True):
        orders = set()
        for lanes in (True, False):
            rows_of = builder.RowBuilder(get_codec("debezium-json"), captured=captured, lanes=lanes)
            for offset in range(3):
                value = {"op": "c", "before": None, "after": {"id": 1}, "source": source}
                message = Message(json.dumps(value).encode(), b'{"id":1}', (), "t", 0, offset)
                orders.add(rows_of.rows(message)[-1][rows.FIELD_INDEX["order"]])
            assert not lanes or rows_of.lanes is not None
        (order,) = orders
        assert order == encode_order(PostgresPosition(16, 8), captured=captured)
