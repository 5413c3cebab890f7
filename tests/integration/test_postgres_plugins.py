# SPDX-License-Identifier: Apache-2.0
"""Messages of PostgreSQL's pgoutput and wal2json become the rows that SQL shows."""

from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from postgres_server import PostgresServer
from psycopg import sql

from changelane import Message, get_codec
from changelane.errors import DecodeError
from changelane.event import DataChange, LogicalMessage, Op, TransactionMarker, Truncate
from changelane.formats.contract.postgres_text import logical_type, writer
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import UNAVAILABLE

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'very happy');
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE TYPE pair AS (a int, b text);
CREATE TABLE types (
  id bigint PRIMARY KEY, si smallint, i integer, b boolean, r real, d double precision, n numeric,
  n2 numeric(10,2), n3 numeric(3,-2), m money, t text, vc varchar(30), c char(5), tag "char",
  by bytea, da date, ti time(3), tz timetz, ts timestamp, ts3 timestamp(3), at timestamptz,
  iv interval, u uuid, j json, jb jsonb, x xml, bi bit(5), bv bit varying(7), ia integer[],
  ta text[], da2 date[], inet inet, mac macaddr, p point, r4 int4range, en mood, dm positive,
  pr pair, o oid, "a ""b" text, nm name, v tsvector, byy bytea[], ens mood[]);
CREATE TABLE special (id int PRIMARY KEY, r real, d double precision, n numeric);
CREATE TABLE toast (id int PRIMARY KEY, note text, big text);
CREATE TABLE toast_full (id int PRIMARY KEY, note text, big text);
ALTER TABLE toast ALTER big SET STORAGE EXTERNAL;
ALTER TABLE toast_full ALTER big SET STORAGE EXTERNAL;
ALTER TABLE toast_full REPLICA IDENTITY FULL;
CREATE TABLE composite (a int, b text, v text, PRIMARY KEY (b, a));
CREATE TABLE by_index (a int PRIMARY KEY, b text NOT NULL UNIQUE, c text);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_b_key;
CREATE TABLE no_identity (a int PRIMARY KEY, b text);
ALTER TABLE no_identity REPLICA IDENTITY NOTHING;
CREATE TABLE emptied (a int PRIMARY KEY);
CREATE TABLE other (a int PRIMARY KEY);
CREATE TABLE plain (LIKE types);
ALTER TABLE plain DROP m, DROP inet, DROP mac, DROP p, DROP r4, DROP en, DROP pr, DROP v, DROP ens;
CREATE PUBLICATION plugins FOR ALL TABLES;
"""
WORK = r"""
INSERT INTO types VALUES (1, -32768, 2147483647, true, 1.1, 1e300,
  '123456789012345678901234567890.123456789', '12.30', -12300, '$1,234.56', E'h\u00e9\n"q"', 'vc',
  'ab', 'x', '\x00ff', '2024-02-29', '24:00:00', '12:34:56.5+02', '2024-01-02 03:04:05.678901',
  '2024-01-02 03:04:05.1', '2024-01-02 03:04:05.5+05:30', '1 year -2 mons 3 days -04:05:06.7',
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a":  1}', '{"b": [1, null]}', '<a>x</a>', '10101',
  '101', '{{1,NULL},{3,4}}', '{"a b",NULL,"q\"x\\","",null}', '{2024-01-01,infinity}', '::1/64',
  '08:00:2b:01:02:03', '(1,2.5)', '[1,5)', 'very happy', 5, '(1,"x y")', 4000000000, 'q', 'nm',
  'a:1 b:2', ARRAY['\x00ff'::bytea], '{sad,"very happy"}');
INSERT INTO types (id) VALUES (2), (3);
INSERT INTO types (id, da, ts, at, iv) VALUES
  (4, 'infinity', '-infinity', 'infinity', '-1 day +02:03:00'),
  (5, '0044-03-15 BC', '0044-03-15 01:02:03 BC', '0044-03-15 01:02:03+00 BC', '0'),
  (6, '99999-01-01', '99999-01-01 00:00:00.5', '99999-01-01 00:00:00+00', '-00:00:01'),
  (7, '0001-01-01', '9999-12-31 23:59:59.999999', '1883-11-18 12:00:00+00', '1.5 sec');
UPDATE types SET t = 'x' WHERE id = 2;
UPDATE types SET id = 20 WHERE id = 2;
DELETE FROM types WHERE id = 3;
INSERT INTO plain SELECT id, si, i, b, r, d, n, n2, n3, t, vc, c, tag, by, da, ti, tz, ts, ts3, at,
  iv, u, j, jb, x, bi, bv, ia, ta, da2, dm, o, "a ""b", nm, byy FROM types;
INSERT INTO special VALUES (1, 'NaN', '-Infinity', 'NaN'), (2, 'Infinity', '1e-310', 'Infinity');
INSERT INTO toast SELECT g, 'a', repeat('xy', 3000) FROM generate_series(1, 3) g;
UPDATE toast SET note = 'b' WHERE id = 1;
UPDATE toast SET id = 9 WHERE id = 1;
UPDATE toast SET big = 'short' WHERE id = 2;
DELETE FROM toast WHERE id = 3;
INSERT INTO toast_full SELECT g, 'a', repeat('xy', 3000) FROM generate_series(1, 3) g;
UPDATE toast_full SET note = 'b' WHERE id = 1;
UPDATE toast_full SET note = NULL WHERE id = 2;
DELETE FROM toast_full WHERE id = 3;
INSERT INTO composite VALUES (1, 'x', 'v'), (2, 'x', NULL), (2, 'y', 'v');
UPDATE composite SET v = 'w' WHERE a = 1;
UPDATE composite SET a = 3 WHERE b = 'y';
DELETE FROM composite WHERE a = 2;
INSERT INTO by_index VALUES (1, 'b', 'c'), (2, 'd', 'e');
UPDATE by_index SET c = 'd' WHERE a = 1;
UPDATE by_index SET b = 'bb' WHERE a = 1;
UPDATE by_index SET a = 7 WHERE b = 'bb';
DELETE FROM by_index WHERE a = 2;
INSERT INTO no_identity VALUES (1, 'a');
SELECT pg_logical_emit_message(true, 'in', 'one');
SELECT pg_logical_emit_message(false, 'out', 'two');
INSERT INTO emptied VALUES (1), (2);
INSERT INTO other VALUES (1);
TRUNCATE emptied, other CASCADE;
INSERT INTO emptied VALUES (3);
BEGIN; INSERT INTO composite VALUES (5, 'k', '1'); SAVEPOINT s;
  INSERT INTO composite VALUES (6, 'k', '1'); ROLLBACK TO s;
  INSERT INTO composite VALUES (7, 'k', '1'); UPDATE composite SET v = '2' WHERE a = 5; COMMIT;
ALTER TABLE composite ADD COLUMN extra int;
INSERT INTO composite VALUES (8, 'k', '1', 5);
ALTER TABLE composite DROP COLUMN v;
UPDATE composite SET extra = 6 WHERE a = 8;
INSERT INTO composite VALUES (9, 'k', 5);
"""
LARGE = """
BEGIN; INSERT INTO composite SELECT g, 's', g FROM generate_series(100, 1500) g; SAVEPOINT a;
  INSERT INTO composite SELECT g, 't', g FROM generate_series(100, 1500) g; ROLLBACK TO a;
  INSERT INTO composite SELECT g, 'u', g FROM generate_series(100, 1500) g; COMMIT;
BEGIN; INSERT INTO composite SELECT g, 'v', g FROM generate_series(100, 1500) g; ROLLBACK;
"""
NAMES = ("types", "toast", "toast_full", "composite", "no_identity", "emptied", "other")
WAL2JSON = {"include-xids": "1", "include-timestamp": "1", "include-lsn": "1", "include-pk": "1"}


@pytest.fixture(scope="module")
def connection(postgres_server: PostgresServer) -> "Iterator[psycopg.Connection[Any]]":
    with (
        postgres_server.new_database() as database,
        postgres_server.connect(database) as connection,
    ):
        connection.execute(TABLES)
        for plugin in ("pgoutput", "wal2json"):
            create = "SELECT pg_create_logical_replication_slot(current_database() || %s, %s)"
            connection.execute(create, (plugin, plugin))
        connection.execute("SET logical_decoding_work_mem = '64kB'")
        statements = (WORK + LARGE).replace("; SAVEPOINT", "#SAVEPOINT").split(";\n")
        for statement in statements:
            connection.execute(statement.replace("#SAVEPOINT", "; SAVEPOINT"))
        yield connection


def messages(connection: "psycopg.Connection[Any]", plugin: str, **options: str) -> list[Message]:
    """The messages of a plugin since the creation of its slot."""
    binary = "binary_" if plugin == "pgoutput" else ""
    parameters = [part for name, value in options.items() for part in (name, value)]
    query = sql.SQL(
        "SELECT data FROM {}(current_database() || %s, NULL, NULL, VARIADIC %s::text[])"
    ).format(sql.Identifier(f"pg_logical_slot_peek_{binary}changes"))
    rows = connection.execute(query, (plugin, parameters)).fetchall()
    return [Message(data if isinstance(data, bytes) else data.encode()) for (data,) in rows]


def pgoutput(connection: "psycopg.Connection[Any]", **options: str) -> list[Message]:
    return messages(connection, "pgoutput", publication_names="plugins", messages="true", **options)


def wal2json(connection: "psycopg.Connection[Any]", **options: str) -> list[Message]:
    return messages(connection, "wal2json", **options)


def events_of(name: str, log: list[Message], **options: Any) -> list[Any]:
    decode = get_codec(name, **options).open_stream()
    return [event for message in log for event in decode(message)]


def rows_of(connection: "psycopg.Connection[Any]", table: str) -> list[dict[str, str | None]]:
    """The rows of a table in the text of PostgreSQL's output functions."""
    query = sql.SQL("COPY (SELECT * FROM {}) TO STDOUT").format(sql.Identifier(table))
    columns = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (table,),
    ).fetchall()
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        rows = list(copy.rows())
    return [dict(zip([name for name, _ in columns], row, strict=True)) for row in rows]


def text_of(event_schemas: dict[str, Any], table: str, row: dict[str, Any]) -> dict[str, Any]:
    columns = event_schemas[table].by_name
    return {
        name: None if value is None else writer(logical_type(columns[name].source_type))(value)
        for name, value in row.items()
        if name in columns
    }


def assert_tables_are_equal(connection, events, names, keys=None):
    tables = MemoryTables(keys=keys or {})
    tables.apply(events)
    assert not [rejected for rejected in tables.quarantine if rejected.table.name in names]
    schemas = {
        event.table.name: event.schema
        for event in events
        if isinstance(event, DataChange) and event.op is Op.CREATE
    }
    for name in names:
        table = TableId(schema="public", name=name)
        if name != "composite":  # the plugins do not send what an added column has in older rows
            assert not tables.incomplete(table)
        found = [text_of(schemas, name, row) for row in tables.rows(table)]
        for row, expected in zip(ordered(found), ordered(rows_of(connection, name)), strict=True):
            assert row == expected


def ordered(rows):
    return sorted(rows, key=lambda row: sorted(map(str, row.items())))


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_pgoutput_gives_the_rows_of_the_tables(connection, version):
    streaming = {} if version == "1" else {"streaming": "true"}
    log = pgoutput(connection, proto_version=version, **streaming)
    assert any(m.value.startswith(b"S") for m in log) == bool(streaming)
    assert any(m.value.startswith(b"A") for m in log) == bool(streaming)
    events = events_of("pgoutput", log, keys={"toast_full": ["id"]})
    assert_tables_are_equal(connection, events, (*NAMES, "special", "by_index"))


def test_streamed_transactions_are_those_that_the_server_keeps(connection):
    kept = events_of("pgoutput", pgoutput(connection, proto_version="1"))
    log = pgoutput(connection, proto_version="2", streaming="true")
    streamed = events_of("pgoutput", log)
    assert [repr(event) for event in streamed] == [repr(event) for event in kept]
    places = [event.position for event in kept if isinstance(event, DataChange)]
    keys = [position.key() for position in places]
    assert keys == sorted(set(keys))


def test_wal2json_gives_the_rows_of_the_tables(connection):
    log = wal2json(connection, **{"format-version": "2"}, **WAL2JSON)
    assert_tables_are_equal(connection, events_of("wal2json", log), NAMES)


def test_version_1_of_wal2json_gives_the_rows_of_the_tables(connection):
    options = {"format-version": "1", "actions": "insert,update,delete,truncate"}
    log = wal2json(connection, **options, **WAL2JSON)
    # the plugin sends the primary key only if it is the replica identity
    events = events_of("wal2json", log, keys={"toast_full": ["id"]})
    truncated = {event.table.name for event in events if isinstance(event, Truncate)}
    names = NAMES if truncated else NAMES[:-2]
    assert_tables_are_equal(connection, events, names)


def test_wal2json_in_chunks_has_the_same_events(connection):
    options = {"format-version": "1"} | WAL2JSON
    whole = events_of("wal2json", wal2json(connection, **options))
    chunks = events_of("wal2json", wal2json(connection, **options, **{"write-in-chunks": "1"}))
    rows = [
        [
            (e.op, e.table, e.before, e.after, e.position)
            for e in events
            if isinstance(e, DataChange)
        ]
        for events in (whole, chunks)
    ]
    assert rows[0] == rows[1]


def test_each_message_of_wal2json_alone_gives_the_rows_of_the_tables(connection):
    decode = get_codec("wal2json").decode
    log = wal2json(connection, **{"format-version": "2"}, **WAL2JSON)
    events = [event for message in log for event in decode(message)]
    # an update that omits a column does not set it to NULL
    assert_tables_are_equal(connection, events, NAMES)


def test_both_plugins_have_the_same_positions_and_rows(connection):
    log = wal2json(connection, **{"format-version": "2"}, **WAL2JSON)
    first = events_of("wal2json", log)
    second = events_of("pgoutput", pgoutput(connection, proto_version="1"))
    kinds = (DataChange, Truncate)
    changes = [[e for e in events if isinstance(e, kinds)] for events in (first, second)]
    assert len(changes[0]) == len(changes[1])
    for json_event, bytes_event in zip(*changes, strict=True):
        assert json_event.position == bytes_event.position
        assert json_event.transaction == bytes_event.transaction
        assert json_event.source_time_ns == bytes_event.source_time_ns
        if json_event.table.name in {"by_index", "toast"} and isinstance(json_event, DataChange):
            assert json_event.after == bytes_event.after


def test_keys_and_old_rows_follow_the_replica_identity(connection):
    events = events_of("pgoutput", pgoutput(connection, proto_version="1"))
    changes = [e for e in events if isinstance(e, DataChange)]
    keys = {e.table.name: e.key.columns if e.key else None for e in changes}
    assert keys["composite"] == ("a", "b")
    assert keys["by_index"] == ("b",)
    assert keys["toast_full"] is None
    assert keys["no_identity"] is None
    updates = {
        name: [(e.before, e.after) for e in changes if e.table.name == name and e.op is Op.UPDATE]
        for name in ("toast", "toast_full", "by_index")
    }
    assert updates["toast"][0] == (None, {"id": 1, "note": "b", "big": UNAVAILABLE})
    assert updates["toast"][1] == ({"id": 1}, {"id": 9, "note": "b", "big": UNAVAILABLE})
    before, after = updates["toast_full"][0]
    assert before == {"id": 1, "note": "a", "big": "xy" * 3000}
    assert after == {"id": 1, "note": "b", "big": UNAVAILABLE}
    assert [before for before, _ in updates["by_index"]] == [None, {"b": "b"}, None]


@pytest.mark.parametrize("name", ["pgoutput", "wal2json"])
def test_other_messages_are_events(connection, name):
    if name == "pgoutput":
        log = pgoutput(connection, proto_version="1")
    else:
        log = wal2json(connection, **{"format-version": "2"}, **WAL2JSON)
    events = events_of(name, log)
    texts = [
        (e.prefix, e.content, e.transaction is None) for e in events if type(e) is LogicalMessage
    ]
    assert texts == [("in", b"one", False), ("out", b"two", True)]
    truncated = [e.table.name for e in events if isinstance(e, Truncate)]
    assert sorted(truncated) == ["emptied", "other"]
    marks = [e.status for e in events if isinstance(e, TransactionMarker)]
    assert marks == ["begin", "commit"] * (len(marks) // 2)


@pytest.mark.parametrize("name", ["pgoutput", "wal2json"])
def test_written_messages_give_the_same_rows_one_by_one(connection, name):
    codec = get_codec(name)
    log = pgoutput(connection, proto_version="1")
    events = [
        event
        for event in events_of("pgoutput", log, keys={"toast_full": ["id"]})
        if isinstance(event, DataChange | Truncate) and event.table.name != "special"
    ]
    read = []
    for event in events:
        (message,) = codec.encode(event, on_loss="ignore").messages
        (again,) = codec.decode(message)
        if name == "pgoutput":
            assert again.position == event.position
        read.append(msgspec.structs.replace(again, position=event.position))
    assert_tables_are_equal(connection, read, NAMES)


def test_a_row_without_its_relation_is_rejected(connection):
    log = pgoutput(connection, proto_version="1")
    insert = next(message for message in log if message.value.startswith(b"I"))
    for decode in (get_codec("pgoutput").decode, get_codec("pgoutput").open_stream()):
        with pytest.raises(DecodeError) as caught:
            decode(insert)
        assert caught.value.code is ReasonCode.UNKNOWN_RELATION


def test_binary_values_are_those_of_the_text_form(connection):
    def changes(**options):
        decode = get_codec("pgoutput").open_stream()
        for message in pgoutput(connection, proto_version="1", **options):
            try:
                events = decode(message)
            except DecodeError as error:
                # `types` has money, ranges, spatial and other types without a known form
                if error.code is not ReasonCode.UNKNOWN_TYPE:
                    raise
                continue
            for event in events:
                if isinstance(event, DataChange) and event.table.name != "types":
                    yield repr(event)

    texts = list(changes())
    assert sum("name='plain'" in text for text in texts) == len(rows_of(connection, "plain"))
    assert list(changes(binary="true")) == texts
