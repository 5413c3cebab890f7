# SPDX-License-Identifier: Apache-2.0
"""The pure transforms, on events of every kind."""

import datetime as dt
import decimal
import pickle
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane.codec import OnLoss, get_codec
from changelane.errors import ConfigError, TransformError, UnknownNameError
from changelane.event import (
    Completeness,
    Control,
    DataChange,
    HalfUpdate,
    Key,
    LogicalMessage,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.conformance import EFFORT
from changelane.testing.event_strategies import data_changes
from changelane.transforms.canonical_text import canonical_text
from changelane.transforms.cast import Cast, conversion
from changelane.transforms.chain import Chain
from changelane.transforms.include_exclude import Exclude, Include
from changelane.transforms.mask import Mask
from changelane.transforms.project_rename import Project, Rename
from changelane.transforms.registry import check_names, transforms_of
from changelane.transforms.route import Route
from changelane.types import (
    UNAVAILABLE,
    Decimal,
    Float,
    InstantType,
    Integer,
    String,
    Time,
    Timestamp,
    parse_type,
)

SECRET = "a secret of the tests"
SHOP = TableId("shop", None, "orders")
SCHEMA = TableSchema(
    (Column("id", Integer(64)), Column("name", String()), Column("ssn", String(), "varchar(11)"))
)
ROW = {"id": 1, "name": "Ann", "ssn": "123-45-6789"}


def change(op=Op.CREATE, **fields):
    base = {"key": Key(("id",)), "after": ROW, "schema": SCHEMA, "table": SHOP}
    return DataChange(**({"op": op} | base | fields))


def mask(method="hash", columns=("ssn",), **fields):
    extra = {"hash": {"secret": SECRET}, "tokenise": {"secret": SECRET}, "truncate": {"keep": 3}}
    return Mask(columns=columns, method=method, **(extra.get(method, {}) | fields))


def code(chain, event):
    with pytest.raises(TransformError) as caught:
        chain(event)
    return caught.value.code


# -- columns -----------------------------------------------------------------------------------


def test_rename_follows_images_key_and_schema():
    chain = Chain([Rename(columns={"id": "nr", "name": "label"})])
    made = chain(change(Op.UPDATE, before={"id": 1, "name": None}))
    assert made.before == {"nr": 1, "label": None}
    assert made.after == {"nr": 1, "label": "Ann", "ssn": "123-45-6789"}
    assert made.key == Key(("nr",))
    assert [column.name for column in made.schema.columns] == ["nr", "label", "ssn"]
    assert made.schema.columns[2].source_type == "varchar(11)"


def test_project_keeps_or_drops_columns():
    assert Chain([Project(keep=("id",))])(change()).after == {"id": 1}
    made = Chain([Project(drop=("ssn",))])(change())
    assert made.after == {"id": 1, "name": "Ann"}
    assert made.schema.names == {"id", "name"}


@pytest.mark.parametrize(
    "step", [Project(drop=("id",)), Project(keep=("name",)), mask("null", ("id",))]
)
def test_a_key_column_is_neither_dropped_nor_masked(step):
    assert code(Chain([step]), change()) == "key_column"
    assert code(Chain([step]), Tombstone(SHOP, {"id": 1})) == "key_column"


def test_a_renamed_key_column_is_a_key_column_to_what_follows():
    chain = Chain([Rename(columns={"id": "nr"}), mask("hash", ("nr",))])
    assert code(chain, change()) == "key_column"


def test_column_states_stay_as_they_are():
    steps = [Rename(columns={"name": "label"}), mask(), Cast(columns={"name": "string"})]
    made = Chain(steps)(
        change(Op.UPDATE, before={"id": 1, "ssn": None}, after={"id": 1, "ssn": UNAVAILABLE})
    )
    assert made.before == {"id": 1, "ssn": None}
    assert made.after == {"id": 1, "ssn": UNAVAILABLE}


def test_two_columns_of_one_name_are_refused():
    chain = Chain([Rename(columns={"name": "ssn"})])
    assert code(chain, change()) == "two_columns"
    assert code(chain, change(schema=None)) == "two_columns"


def test_a_transform_sees_what_the_one_before_it_made():
    steps = [
        Route(pattern="shop.orders".replace(".", r"\."), table="sales"),
        Rename(tables=("shop.sales",), columns={"name": "label"}),
        Project(tables=("shop.orders",), drop=("ssn",)),
    ]
    made = Chain(steps)(change())
    assert made.table == TableId("shop", None, "sales")
    assert made.after == {"id": 1, "label": "Ann", "ssn": "123-45-6789"}


def test_schemas_are_made_once():
    chain = Chain([mask(), Rename(columns={"name": "label"})])
    one, two = chain(change()), chain(change(Op.READ))
    assert one.schema is two.schema
    assert one.table is two.table
    assert one.key is two.key


def test_producer_properties_outside_the_model_are_dropped_if_columns_change():
    told = change(details={"sql": "INSERT ... '123-45-6789'"})
    assert Chain([mask()])(told).details == {}
    assert Chain([Rename(tables=("other",), columns={"a": "b"})])(told).details == told.details


@pytest.mark.parametrize("name", ["native-json", "debezium-json", "canal-json"])
@settings(max_examples=12 * EFFORT, deadline=None)
@given(data=st.data())
def test_transforms_commute_with_a_format(name, data):
    """Transform what was read, or read what was transformed: the same row."""
    codec = get_codec(name)
    event = data.draw(data_changes(codec.carries))
    images = [image for image in (event.before, event.after) if image]
    columns = list(dict.fromkeys(c for image in images for c in image))
    key = event.schema.columns[0].name if event.schema else columns[0]
    key = event.key.columns[0] if event.key else key
    rest = [one for one in columns if one != key]
    steps = [Rename(columns={key: "the key"})] + [Project(drop=(one,)) for one in rest[:1]]
    steps += [Rename(columns={one: "another name"}) for one in rest[1:2]]
    chain = Chain(steps)

    def passed(told):
        messages = codec.encode(told, on_loss=OnLoss.IGNORE).messages
        found = [one for message in messages for one in codec.decode(message)]
        return [one for one in found if isinstance(one, DataChange)]

    def said(told):
        # as text, for NaN is not equal to itself
        images = [repr(sorted((image or {}).items())) for image in (told.before, told.after)]
        return told.op, told.table, told.key, images, told.schema

    assert [said(one) for one in passed(chain(event))] == [
        said(chain(one)) for one in passed(event)
    ]


# -- masks -------------------------------------------------------------------------------------


def test_a_masked_column_is_text_without_default_or_source_type():
    schema = TableSchema((SCHEMA.columns[0], Column("ssn", Integer(), "int", False, default=7)))
    made = Chain([mask()])(change(schema=schema, after={"id": 1, "ssn": 7})).schema.by_name["ssn"]
    assert made == Column("ssn", String(), None, nullable=False)
    made = Chain([mask("null")])(change(schema=schema, after={"id": 1, "ssn": 7}))
    assert made.schema.by_name["ssn"] == Column("ssn", Integer(), "int", nullable=True)
    assert made.after == {"id": 1, "ssn": None}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("decimal(10,2)", [1, decimal.Decimal(1), decimal.Decimal("1.00")]),
        ("float32", [0.1, 0.10000000149011612]),
        ("float64", [1.0, 1, decimal.Decimal("1.0")]),
        ("int64", [-0, 0]),
        ("time(6)", ["10:00:00.500000", "10:00:00.5"]),
        (
            "timestamp(6)",
            [dt.datetime(2024, 1, 1, 10), "2024-01-01 10:00:00.000000", "2024-01-01T10:00:00"],
        ),
        (
            "instant(6)",
            [dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC), "2024-01-01T12:00:00.000+02:00"],
        ),
        ("uuid", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ],
)
def test_equal_values_have_one_token_in_every_format(kind, values):
    assert len({canonical_text(parse_type(kind), value) for value in values}) == 1


def test_values_that_differ_have_texts_that_differ():
    for kind, values in [
        (
            Decimal(),
            [decimal.Decimal(text) for text in ("1", "10", "0.1", "1E+3", "-1", "NaN", "0")],
        ),
        (Float(64), [0.1, 0.10000000149011612, 1e300, -0.5]),
        (Timestamp(6), [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 10)]),
        (Time(6), ["10:00:00", "10:00:10", "100:00:00", "10:00:00.05"]),
        (InstantType(6), ["infinity", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00+01:00"]),
        (String(), ["", " ", "a", "A", "10:00:00.50", "10:00:00.5"]),
    ]:
        assert len({canonical_text(kind, value) for value in values}) == len(values), kind


def test_a_hash_is_the_hmac_of_the_text():
    # printf '123-45-6789' | openssl dgst -sha256 -hmac 'a secret of the tests'
    made = Chain([mask()])(change())
    assert made.after["ssn"] == "b7c872d36a9c8846a28c7d69a4bc01d6a496d4682a1f93978106e3287102cb15"


def test_a_token_keeps_the_shape():
    made = Chain([mask("tokenise")])(change(after=ROW | {"ssn": "Ab-12 é"})).after["ssn"]
    assert re.fullmatch("[A-Z][a-z]-[0-9][0-9] [a-z]", made)
    assert made == Chain([mask("tokenise")])(change(after=ROW | {"ssn": "Ab-12 é"})).after["ssn"]
    assert Chain([mask("tokenise")])(change(after=ROW | {"ssn": ""})).after["ssn"] == ""


@given(st.text(min_size=1))
def test_a_token_is_never_the_value(value):
    made = Chain([mask("tokenise")])(change(after=ROW | {"ssn": value})).after["ssn"]
    assert made != value
    assert len(made) == len(value)


@pytest.mark.parametrize(
    ("value", "side", "expected"),
    [
        ("12345", "start", "123"),
        ("12345", "end", "345"),
        ("123", "start", "12"),
        ("1", "end", ""),
        ("", "end", ""),
    ],
)
def test_truncate_never_leaves_the_whole_value(value, side, expected):
    chain = Chain([mask("truncate", side=side)])
    assert chain(change(after=ROW | {"ssn": value})).after["ssn"] == expected


def test_a_table_without_the_masked_column_is_refused_unless_it_may_pass():
    renamed = change(
        schema=TableSchema((*SCHEMA.columns[:2], Column("social", String()))),
        after={"id": 1, "name": "Ann", "social": "123-45-6789"},
    )
    assert code(Chain([mask()]), renamed) == "mask_missing"
    full = Completeness.FULL
    assert (
        code(Chain([mask()]), change(schema=None, after={"id": 1, "a": 2}, after_holds=full))
        == "mask_missing"
    )
    assert Chain([mask(when_missing="pass")])(renamed).after == renamed.after
    # a row of key columns alone holds nothing to hide
    gone = change(Op.DELETE, before={"id": 1}, after=None, schema=TableSchema(SCHEMA.columns[:1]))
    assert Chain([mask()])(gone).before == {"id": 1}


def test_a_column_beyond_the_schema_is_masked_too():
    made = Chain([mask(when_missing="pass")])(change(schema=TableSchema(SCHEMA.columns[:2])))
    assert "123-45-6789" not in repr(made)


@settings(max_examples=40 * EFFORT, deadline=None)
@given(st.data(), st.sampled_from(["hash", "tokenise", "truncate"]))
def test_a_value_of_every_type_is_masked_and_its_states_stay(data, method):
    event = data.draw(data_changes(get_codec("native-json").carries))
    images = [image for image in (event.before, event.after) if image]
    keys = set(event.key.columns) if event.key else set()
    names = tuple({name for image in images for name in image} - keys)
    if not names:
        return
    made = Chain([mask(method, names, when_missing="pass")])(event)
    for old, new in ((event.before, made.before), (event.after, made.after)):
        assert (old is None) == (new is None)
        for name, value in (old or {}).items():
            if name in keys or value is None or value is UNAVAILABLE:
                assert new[name] is value
            else:
                assert isinstance(new[name], str)
                assert method != "hash" or re.fullmatch("[0-9a-f]{64}", new[name])


def test_the_secret_is_never_shown():
    chain = Chain([mask()])
    assert SECRET not in repr(chain) + repr(chain.transforms) + str(chain.transforms[0])
    again = pickle.loads(pickle.dumps(chain))
    assert again(change()) == chain(change())


METHODS = ("hash", "tokenise", "truncate", "null")


@pytest.mark.parametrize(
    "name",
    "native-json debezium-json canal-json debezium-flat-json shareplex-json datahub-blob "
    "dts-avro".split(),
)
@settings(max_examples=8 * EFFORT, deadline=None)
@given(
    value=st.text("abcdefXYZ0189-_ é", min_size=12, max_size=40),
    method=st.sampled_from(METHODS),
    op=st.sampled_from([Op.CREATE, Op.UPDATE, Op.DELETE]),
    typed=st.booleans(),
)
def test_no_encoded_message_holds_a_masked_value(name, value, method, op, typed):
    row = ROW | {"ssn": value}
    event = change(
        op,
        before=None if op is Op.CREATE else row,
        after=None if op is Op.DELETE else row,
        schema=SCHEMA if typed else None,
        before_holds=Completeness.FULL,
        after_holds=Completeness.FULL,
        source=Source("mysql", "debezium", "shop", "3.0"),
        details={"sql": f"INSERT INTO orders VALUES ('{value}')"},
    )
    chain = Chain([mask(method)])
    halves = HalfUpdate(event, {"id": 2}, "7")
    told = [chain(event), chain(halves).change]
    for one in told:
        assert value not in repr(one)
        for message in get_codec(name).encode(one, on_loss=OnLoss.IGNORE).messages:
            assert value.encode() not in (message.value or b"") + (message.key or b"")
            assert value not in repr(message)


# -- tables ------------------------------------------------------------------------------------


def test_route_gives_tables_other_names_by_groups():
    chain = Chain(
        [
            Route(
                pattern=r"(\w+)\.(?P<what>\w+)_\d+",
                database="lake",
                table="{1}_{what}",
                shards="apart",
            )
        ]
    )
    assert chain(change(table=TableId("shop", None, "orders_7"))).table == TableId(
        "lake", None, "shop_orders"
    )
    assert chain(change()).table == SHOP
    chain = Chain([Route(pattern=".*", table="ods_{table}")])
    assert chain(change()).table.name == "ods_orders"


def test_shards_become_one_table_with_the_shard_in_the_key():
    chain = Chain([Route(pattern=r"shop\.orders_\d+", table="orders", shards="key")])
    made = chain(change(table=TableId("shop", None, "orders_7")))
    assert made.table == SHOP
    assert made.key == Key(("id", "shard"))
    assert made.after == ROW | {"shard": "shop.orders_7"}
    assert made.schema.columns[-1] == Column("shard", String(), None, nullable=False)
    gone = chain(Tombstone(TableId("shop", None, "orders_7"), {"id": 1}))
    assert gone.key == {"id": 1, "shard": "shop.orders_7"}


@pytest.mark.parametrize(
    "step",
    [
        Project(keep=tuple(ROW)),
        Project(drop=("shard",)),
        Mask(columns=("shard",), method="truncate", keep=1, when_missing="pass"),
        Cast(columns={"shard": "json"}),
    ],
)
def test_the_shard_in_the_key_is_neither_dropped_nor_changed(step):
    chain = Chain([Route(pattern=r"shop\.orders_\d+", table="orders", shards="key"), step])
    table = TableId("shop", None, "orders_7")
    for event in (change(table=table), change(table=table, key=None), Tombstone(table, {"id": 1})):
        assert code(chain, event) == "key_column"


@pytest.mark.parametrize("pattern", [r"shop\.orders_\d+", "shop.orders", ".*"])
def test_a_pattern_of_several_shards_without_the_option_is_rejected(pattern):
    with pytest.raises(ValueError, match="shards: key"):
        Route(pattern=pattern, table="orders")


def test_tables_that_would_meet_are_refused_where_one_chain_sees_all():
    steps = [Route(pattern=r"shop\.sales", table="orders")]
    chain = Chain(steps, sees_all=True)
    assert chain(change()).table == SHOP
    assert code(chain, change(table=TableId("shop", None, "sales"))) == "tables_meet"


@pytest.mark.parametrize(
    "ddl", ["DROP TABLE sales", "ALTER TABLE sales DROP a", "DROP TABLE x, sales"]
)
def test_a_statement_about_a_table_that_would_meet_another_one_is_refused(ddl):
    chain = Chain([Route(pattern=r"shop\.sales", table="orders")], sees_all=True)
    assert chain(change()).table == SHOP
    told = SchemaChange(TableId("shop", None, "x"), "alter", ddl, source=Source("mysql"))
    assert code(chain, told) == "tables_meet"
    without = Chain([Exclude(tables=("shop.sales",)), *chain.transforms], sees_all=True)
    assert without(change()).table == SHOP
    assert "sales" not in str(getattr(without(told), "ddl", ""))


def test_what_holds_for_one_shard_is_refused_for_all():
    chain = Chain([Route(pattern=r"shop\.orders_\d+", table="orders", shards="apart")])
    shard = TableId("shop", None, "orders_7")
    assert code(chain, Truncate(shard)) == "shard_statement"
    for ddl in ("DROP TABLE orders_7", "ALTER TABLE orders_7 DROP COLUMN a"):
        told = SchemaChange(shard, "alter", ddl, source=Source("mysql"))
        assert code(chain, told) == "shard_statement"
    added = SchemaChange(shard, "alter", "ALTER TABLE orders_7 ADD a INT", source=Source("mysql"))
    assert chain(added) is None


def test_topics_are_set_by_route():
    chain = Chain([Route(pattern=r"shop\.orders", table="sales", topic="lake.{database}.{table}")])
    assert chain.topic(chain(change()).table) == "lake.shop.sales"
    assert chain.topic(TableId(name="other")) is None
    only = Chain([Route(pattern=r"shop\.orders", topic="lake")])
    told = SchemaChange(SHOP, "alter", "ALTER TABLE orders ADD x INT", source=Source("mysql"))
    assert only.topic(only(told).table) == "lake"
    steps = [
        Route(pattern=r"shop\.a", topic="one"),
        Route(pattern=r"shop\.b", table="a", topic="two"),
    ]
    two = Chain(steps)
    assert two(Truncate(TableId("shop", None, "a"))) is not None
    assert code(two, Truncate(TableId("shop", None, "b"))) == "route"
    hostile = Chain([Route(pattern=r".*", topic="lake.{table}")])
    assert code(hostile, change(table=TableId("shop", None, "a b"))) == "route"


def test_include_and_exclude_choose_tables_and_operations():
    only = Chain([Include(tables=("shop.o*",), operations=("create", "update"))])
    assert only(change()) == change()
    assert only(change(Op.DELETE, before=ROW, after=None)) is None
    assert only(change(table=TableId("crm", None, "orders"))) is None
    without = Chain([Exclude(tables=("shop.orders",), operations=("delete", "truncate"))])
    assert without(change()) is not None
    assert without(change(Op.DELETE, before=ROW, after=None)) is None
    assert without(Truncate(SHOP)) is None
    assert without(Truncate(TableId("shop", None, "other"))) is not None


def test_a_half_of_an_update_is_an_update():
    half = HalfUpdate(change(Op.DELETE, before=ROW, after=None), pair="1")
    assert Chain([Exclude(operations=("delete",))])(half) == half
    assert Chain([Exclude(operations=("update",))])(half) is None


def test_events_of_no_table_pass_a_list_of_tables():
    chain = Chain([Include(tables=("shop.orders",))])
    for event in (
        Watermark(),
        LogicalMessage("p", b"c"),
        TransactionMarker("begin", Transaction("7")),
    ):
        assert chain(event) == event
    assert chain(Tombstone(TableId(), {"id": 1})) is None
    assert Chain([Exclude(operations=("watermark",))])(Watermark()) is None


def test_counts_of_a_transaction_go_where_events_do_not_all_go_on():
    chain = Chain([Include(tables=("shop.orders",))])
    told = chain(change(transaction=Transaction("7", 3, 2, 9, last=True)))
    assert told.transaction == Transaction("7", 3, 2)
    details = {"data_collections": [{"data_collection": "shop.x", "event_count": 1}], "other": 1}
    end = chain(TransactionMarker("commit", Transaction("7", size=9), details=details))
    assert (end.transaction, end.details) == (Transaction("7"), {"other": 1})


def test_an_event_without_a_table_is_refused_where_its_columns_could_be_another_tables():
    named = Chain([Rename(tables=("shop.orders",), columns={"id": "nr"})])
    assert code(named, Tombstone(TableId(), {"id": 1})) == "unnamed_table"
    assert named(Tombstone(TableId(), {"other": 1})).key == {"other": 1}
    assert Chain([Rename(columns={"id": "nr"})])(Tombstone(TableId(), {"id": 1})).key == {"nr": 1}


@pytest.mark.parametrize(
    "step",
    [
        Include(tables=("shop.orders",)),
        Exclude(tables=("shop.audit",)),
        Route(pattern=r"shop\..*", table="orders", shards="key"),
    ],
)
def test_a_change_without_a_table_is_refused_where_its_name_decides(step):
    chain, unnamed = Chain([step]), change(table=TableId())
    for event in (unnamed, HalfUpdate(unnamed, pair="1"), Truncate(TableId())):
        assert code(chain, event) == "unnamed_table"
    without = Chain([Exclude(operations=("create",)), step])
    assert without(unnamed) is None
    assert Chain([Exclude(operations=("delete",))])(unnamed) is unnamed


def test_operations_that_a_list_of_tables_does_not_name_need_no_table():
    unnamed = change(table=TableId())
    assert Chain([Exclude(tables=("shop.*",), operations=("delete",))])(unnamed) is unnamed
    assert Chain([Include(tables=("shop.*",), operations=("delete",))])(unnamed) is None


def test_a_mask_takes_the_text_of_what_may_quote_a_row():
    told = Control("odd", "ssn=123", SHOP, details={"row": "123"})
    assert Chain([mask()])(told) == Control("odd", None, SHOP)
    assert Chain([mask(tables=("other",))])(told) == told


# -- casts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "value", "expected"),
    [
        ("string", "int32", "42", 42),
        ("decimal(10,2)", "int64", decimal.Decimal("7.00"), 7),
        ("int32", "decimal(5,2)", 7, decimal.Decimal("7.00")),
        ("float64", "decimal(5,2)", 0.25, decimal.Decimal("0.25")),
        ("decimal(10,2)", "string", decimal.Decimal("7.00"), "7.00"),
        ("int8", "boolean", 1, True),
        ("string", "date", "2024-02-29", dt.date(2024, 2, 29)),
        ("date", "timestamp(0)", dt.date(2024, 2, 29), dt.datetime(2024, 2, 29)),
        ("timestamp(6)", "date", dt.datetime(2024, 2, 29), dt.date(2024, 2, 29)),
        ("bytes", "string", b"caf\xc3\xa9", "café"),
        ("string", "float64", "1e3", 1000.0),
        ("unknown", "string", decimal.Decimal("1.5"), "1.5"),
    ],
)
def test_cast_is_exact(old, new, value, expected):
    made = conversion(parse_type(old), parse_type(new))(value)
    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize(
    ("new", "value"),
    [
        ("int8", 128),
        ("uint8", -1),
        ("int32", "4x"),
        ("int32", decimal.Decimal("1.5")),
        ("int64", decimal.Decimal("NaN")),
        ("int64", decimal.Decimal("1e999999")),
        ("decimal(5,2)", decimal.Decimal("1.234")),
        ("decimal(3,2)", 10),
        ("float64", "1e400"),
        ("float64", 10**400),
        ("float32", 1e300),
        ("boolean", 2),
        ("date", "2024-02-30"),
        ("date", dt.datetime(2024, 1, 1, 1)),
        ("timestamp(0)", dt.datetime(2024, 1, 1, 0, 0, 0, 1)),
        ("instant", dt.datetime(2024, 1, 1)),
        ("string", b"\xff"),
        ("json", "{"),
        ("uuid", "x"),
    ],
)
def test_what_a_type_cannot_hold_is_refused_without_the_value(new, value):
    with pytest.raises(TransformError) as caught:
        conversion(parse_type("unknown"), parse_type(new))(value)
    assert str(value) not in str(caught.value)


@pytest.mark.parametrize("text", ["NaN", "-Infinity"])
@pytest.mark.parametrize(
    "name", ["native-json", "debezium-json", "canal-json", "maxwell-json", "aws-dms-json"]
)
def test_a_decimal_that_json_lacks_is_written_as_text_without_a_schema(name, text):
    chain = Chain([Cast(columns={"ssn": "decimal"})])
    event = change(after={"id": 1, "ssn": text}, schema=None)
    (message, *_) = get_codec(name).encode(chain(event), on_loss=OnLoss.IGNORE).messages
    assert get_codec(name).decode(message)[0].after["ssn"] == text


def test_cast_follows_schema_and_default_and_keeps_keys_apart():
    schema = TableSchema(
        (Column("id", Integer(32), "int"), Column("n", String(), "text", default="7"))
    )
    event = change(schema=schema, after={"id": 1, "n": "42"})
    made = Chain([Cast(columns={"n": "int64", "id": "int64"})])(event)
    assert made.after == {"id": 1, "n": 42}
    assert made.schema == TableSchema(
        (Column("id", Integer(64)), Column("n", Integer(64), default=7))
    )
    assert code(Chain([Cast(columns={"id": "int16"})]), event) == "key_column"
    assert code(Chain([Cast(columns={"n": "date"})]), event) == "cast"


# -- lists -------------------------------------------------------------------------------------


def test_unknown_transforms_and_keys_name_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'rename'"):
        check_names([{"type": "renam", "columns": {}}])
    with pytest.raises(UnknownNameError, match="did you mean 'columns'"):
        check_names([{"type": "mask", "colums": ["a"]}])
    with pytest.raises(ConfigError, match="needs a type"):
        check_names([{"columns": {}}])


def test_a_secret_written_into_the_file_is_refused_and_not_shown():
    with pytest.raises(ConfigError, match="read the secret from the environment") as caught:
        check_names([{"type": "mask", "columns": ["a"], "method": "hash", "secret": SECRET}])
    assert SECRET not in str(caught.value)
    with pytest.raises(ConfigError, match="at least 16") as caught:
        transforms_of([{"type": "mask", "columns": ["a"], "method": "hash", "secret": "hunter2"}])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"type": "mask", "columns": ["a"], "method": "hash"}, "needs secret"),
        ({"type": "mask", "columns": ["a"], "method": "truncate"}, "needs keep"),
        ({"type": "mask", "columns": ["a"], "method": "null", "keep": 1}, "takes no keep"),
        ({"type": "project"}, "either keep or drop"),
        ({"type": "rename", "columns": {"a": "c", "b": "c"}}, "a different new name"),
        ({"type": "route", "pattern": "("}, "not a regular expression"),
        ({"type": "route", "pattern": "a", "table": "{2}"}, "is not one of"),
        ({"type": "cast", "columns": {"a": "money"}}, "not a column type"),
        ({"type": "cast", "columns": {"a": "array<int8>"}}, "is not supported"),
        ({"type": "include"}, "needs tables or operations"),
        ({"type": "include", "operations": ["x"]}, "not one of create, update"),
    ],
)
def test_transforms_that_make_no_sense_are_refused(raw, reason):
    with pytest.raises(ConfigError, match=reason):
        transforms_of([raw])


def test_a_list_is_read_in_its_order():
    raw = [
        {"type": "include", "tables": ["shop.*"]},
        {"type": "mask", "columns": ["ssn"], "method": "truncate", "keep": 2, "side": "end"},
    ]
    check_names(raw)
    assert transforms_of(raw) == (
        Include(tables=("shop.*",)),
        Mask(columns=("ssn",), method="truncate", keep=2, side="end"),
    )
    assert msgspec.structs.asdict(transforms_of(raw)[0])["operations"] is None
