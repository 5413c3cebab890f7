# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL against its tables, while both move: planted differences, and none else."""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
import pytest
from click.testing import CliRunner
from postgres_server import PostgresServer
from pyspark.sql import SparkSession

from changelane.capture.requested_tables import request_tables
from changelane.capture.snapshot.table_requests import read_requests
from changelane.capture.storage import folder_of
from changelane.cli import main
from changelane.cli.capture import started_capture
from changelane.pipeline.config import Pipeline, load
from changelane.schema import TableId
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import name_of
from changelane.spark.rows.schema import table_id_text
from changelane.spark.run.tables import run
from changelane.spark.verify.continuous import ContinuousVerification
from changelane.spark.verify.report import TableReport, VerificationReport
from changelane.spark.verify.table_verification import VerifyOptions
from changelane.spark.verify.verify import captured_source, verify

ROWS: Final = 60
DDL: Final = """
CREATE EXTENSION citext;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN price AS numeric(8, 2);
CREATE TABLE kinds (
  "a %" int, b text COLLATE "en-x-icu", i2 int2, i8 int8, n numeric(10, 2), n76 numeric(76, 10),
  nn numeric, p price, f4 real, f8 float8, bo bool, b1 bit(1), b8 bit(8), tx text, vc varchar(20),
  ch char(6), ci citext, by bytea, d date, t time, t0 time(0), t4 time(4), ts timestamp,
  tz timestamptz, js json, jb jsonb, u uuid, x xml, ip inet, mo mood, ia int[], ta text[],
  na numeric(6, 2)[], fa float8[], za timestamptz[], PRIMARY KEY (b, "a %"));
CREATE TABLE spans (id int PRIMARY KEY, note text, iv interval, pt point, vb bit varying(10));
CREATE TABLE moving (id int PRIMARY KEY, v bigint, note text);
CREATE TABLE logs (at timestamptz, line text);
ALTER TABLE logs REPLICA IDENTITY FULL;
INSERT INTO kinds SELECT n, 'k' || n % 7, -5, 9007199254740993, 1.50, 1.5, 1.500, 2.10, 1.1,
  n / 3.0::float8, n % 2 = 0, B'1', B'10100000', E'a "q"\\n\\\\ %s {} ü😀', 'x ', 'ab', 'CiT',
  '\\xdeadbeef00', date '1582-10-20' + n, '12:34:56.789', '24:00:00', '12:34:56.78',
  timestamp '1582-10-10 10:00:00.123456' + n * interval '100 days',
  timestamptz '2024-03-31 02:30:00.123456+02' + n * interval '1 hour', '{"a" : 1.0,  "a": 2}',
  '{"b": 1.0, "a": 1e2}', '6F9619FF-8B86-D011-B42D-00CF4FC964FF', '<a>1</a>', '10.0.0.1/32', 'ok',
  '{1,NULL,3}', '{"a,b",NULL,""}', '{1.50,NULL}', '{1.5,NaN,-0.0}',
  '{2024-01-01 00:00:00.5+01}'
  FROM generate_series(1, 60) n;
INSERT INTO kinds ("a %", b) VALUES (100, ''), (101, ' '), (102, 'Z'), (103, 'a'), (104, 'ß''"\\');
INSERT INTO kinds ("a %", b, nn, n76, f4, f8, d, ts, tz, ia, tx, by, js, t) VALUES
  (105, 'x', 100, -0.0000000001, 'Infinity', 'NaN', '0044-03-15', '0044-03-15 BC',
   '9999-12-31 23:59:59.999999Z', '{}', '', '', 'null', '00:00'),
  (106, 'x', 1e25, 0, '-0.0', -0.0::float8, '12024-03-15', '12024-03-15', '0001-01-01', NULL, 'a',
   '\\x00', '""', '23:59:59.999999'),
  (107, 'x', 0.0000001230, 0.0000001, 1e-40, 5e-324, '1970-01-01', '1970-01-01', '1970-01-01',
   '{NULL}', '-', '', '1', '12:00');
INSERT INTO moving SELECT n, 0, 'n' || n FROM generate_series(1, 3000) n;
INSERT INTO logs VALUES (now(), 'x');
INSERT INTO spans VALUES (1, 'x', '1 day', '(1,2)', B'101');
"""


class Shop:
    """A database that is captured into tables again and again."""

    def __init__(self, server: PostgresServer, database: str, folder: Path) -> None:
        self.server = server
        self.database = database
        environment = {**os.environ, "PGPASSWORD_OF_TEST": server.password}
        config = {
            "name": "shop",
            "source": {
                "type": "postgres",
                "host": server.host,
                "port": server.port,
                "database": database,
                "user": server.user,
                "password": "${PGPASSWORD_OF_TEST}",
                "tables": ["public.*"],
                "segments": str(folder / "capture"),
                "publish_interval": "1 second",
                "memory": "256m",
            },
            "sink": {"type": "delta", "path": str(folder / "delta")},
            "options": {"tables_without_key": "append"},
        }
        self.file = folder / "shop.yaml"
        self.file.write_bytes(msgspec.json.encode(config))
        self.environment = environment
        self.pipeline: Pipeline = load(self.file, environment)

    def connect(self) -> "psycopg.Connection[Any]":
        return self.server.connect(self.database)

    def execute(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def execute_uncaptured(self, *statements: str) -> None:
        """Change the source without the capture: its publication lacks the tables meanwhile."""
        with self.connect() as connection:
            publication = connection.execute("SELECT pubname FROM pg_publication").fetchone()
            assert publication is not None
            name = f'"{publication[0]}"'
        self.execute(f"ALTER PUBLICATION {name} DROP TABLE kinds, moving, spans", *statements)
        self.execute(f"ALTER PUBLICATION {name} ADD TABLE kinds, moving, spans")

    def lake_table(self, spark: SparkSession, table: str) -> str:
        name = name_of(table_id_text(TableId(self.database, "public", table)))
        return lake_of(spark, self.pipeline).sql(name)

    def verify(
        self, spark: SparkSession, *tables: str, chunk_rows: int = 20, repairs: bool = False
    ) -> list[TableReport]:
        options = VerifyOptions(
            chunk_rows=chunk_rows, max_readings=3, timeout_s=120, repairs=repairs
        )
        return list(verify(self.pipeline, tables, spark=spark, options=options).tables)


@pytest.fixture(scope="module")
def shop(
    spark: SparkSession, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("verify")
    with postgres_server.new_database("shop") as database:
        made = Shop(postgres_server, database, folder)
        made.execute(DDL)
        stop = threading.Event()
        with started_capture(made.pipeline, print, is_until_now=True) as capture:
            capture.wait_until_now()
            run(spark, made.pipeline)
            runner = threading.Thread(target=_run_until, args=(spark, made.pipeline, stop))
            runner.start()
            try:
                yield made
            finally:
                stop.set()
                runner.join()


def _run_until(spark: SparkSession, pipeline: Pipeline, stop: threading.Event) -> None:
    while not stop.is_set():
        run(spark, pipeline)
        time.sleep(0.2)


@contextlib.contextmanager
def changes(shop: Shop) -> Iterator[None]:
    """Change rows of ``moving`` all the time: updates, key changes, deletes and new rows."""
    stop = threading.Event()

    def work() -> None:
        with shop.connect() as connection:
            number = 0
            while not stop.is_set():
                number += 1
                if number % 10 == 0:
                    key = number * 37 % 3000 + 1
                    connection.execute("UPDATE moving SET id = -id WHERE id = %s", [key])
                # the same rows again and again, so that each reading meets some of them
                hot_key = 8000 + number % 10
                connection.execute("UPDATE moving SET v = v + 1 WHERE id = %s", [hot_key])
                connection.execute("DELETE FROM moving WHERE id = %s", [hot_key + 100])
                new_key = 8100 + (number + 5) % 10
                # some of an earlier test are still there
                insert = "INSERT INTO moving VALUES (%s) ON CONFLICT DO NOTHING"
                connection.execute(insert, [new_key])
                time.sleep(0.05)

    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(3)  # a reading in between has changes before and after it
    try:
        yield
    finally:
        stop.set()
        worker.join()


def test_equal_rows_of_all_types_have_no_difference(spark: SparkSession, shop: Shop) -> None:
    kinds, logs, spans = shop.verify(spark, "kinds", "public.logs", "spans")
    assert kinds.outcome == "equal", kinds.differences
    assert kinds.row_count == ROWS + 8
    assert len(kinds.chunks) == 4
    assert not kinds.unproven_columns
    assert spans.outcome == "equal"
    assert spans.unproven_columns == {
        "iv": "no exact comparison of interval with string",
        "pt": "no exact comparison of point with struct<wkb:binary,srid:int>",
        "vb": "no exact comparison of varbit with string",
    }
    assert (logs.outcome, logs.reason) == (
        "not verified",
        "it has no primary key, and the options have no keys for it",
    )


def test_a_continuous_verification_proves_chunk_after_chunk(
    spark: SparkSession, shop: Shop
) -> None:
    options = VerifyOptions(chunk_rows=40, max_readings=3, timeout_s=120)
    verification = ContinuousVerification(
        shop.pipeline, ["kinds", "logs"], spark=spark, options=options, notify=print
    )
    kinds, last, logs, again = itertools.islice(verification.steps(), 4)
    assert kinds is not None
    assert last is not None
    assert logs is not None
    assert again is not None
    assert [step.report.outcome for step in (kinds, last, logs)] == [
        *["equal"] * 2,
        "not verified",
    ]
    assert [step.proven_share for step in (kinds, last, again)] == [0.5, 1, 1]
    assert kinds.report.row_count + last.report.row_count == ROWS + 8
    assert kinds.oldest_time_s is None
    assert last.oldest_time_s is not None
    assert again.oldest_time_s is not None
    assert again.oldest_time_s > last.oldest_time_s
    assert verification.progress[logs.report.table].proven_share == 0
    # the next process continues with the second chunk of the second round
    restarted = ContinuousVerification(
        shop.pipeline, ["kinds", "logs"], spark=spark, options=options, notify=print
    )
    second, *others = itertools.islice(restarted.steps(), 3)
    assert second is not None
    assert (second.report.table, second.chunk, second.chunk_count) == (kinds.report.table, 1, 2)
    assert (second.report.row_count, second.proven_share) == (last.report.row_count, 1)
    assert second.oldest_time_s is not None
    assert second.oldest_time_s > again.oldest_time_s
    assert [step.report.table if step else None for step in others] == [
        *(logs.report.table, kinds.report.table)
    ]


def test_a_table_that_changes_has_only_the_difference_that_was_planted(
    spark: SparkSession, shop: Shop
) -> None:
    shop.execute_uncaptured("INSERT INTO moving VALUES (9000, 0, 'lost')")
    keys = "SELECT generate_series(8000, 8009) UNION SELECT generate_series(8101, 8105)"
    shop.execute(f"INSERT INTO moving (id, v) SELECT id, 0 FROM ({keys}) AS k (id)")
    with changes(shop):
        (moving,) = shop.verify(spark, "moving", chunk_rows=500, repairs=True)
    assert [(d.key, d.kind, d.repair) for d in moving.differences] == [
        ({"id": "9000"}, "missing", "repaired")
    ]
    (equal,) = shop.verify(spark, "moving")
    assert equal.outcome == "equal", equal.differences
    assert moving.unproven_share < 0.01


def test_rows_that_the_lake_lacks_are_read_again_while_rows_change(
    spark: SparkSession, shop: Shop
) -> None:
    shop.execute_uncaptured(
        "UPDATE moving SET note = 'lost' WHERE id BETWEEN 100 AND 2000",
        "INSERT INTO moving VALUES (9500, 0, 'lost')",
    )
    source = captured_source(shop.pipeline)
    with changes(shop):
        request_tables(source, ["moving"], kind="redo", lower=["100"])
        deadline = time.monotonic() + 120
        while requests := read_requests(folder_of(source.segments)):
            assert time.monotonic() < deadline, requests
            time.sleep(0.2)
    (moving,) = shop.verify(spark, "moving")
    assert moving.outcome == "equal", moving.differences


PLANTED_AT_SOURCE: Final = {
    1: "n = 2.50",
    2: "tx = NULL",
    3: "i8 = i8 + 1",
    4: "p = NULL",
    5: "vc = 'x'",
    6: "f4 = 1.1000001",
    7: "ts = ts + interval '1 microsecond'",
    8: "tz = tz + interval '1 hour'",
    9: "by = '\\xdeadbeef'",
    10: """js = '{"a": 1.0,  "a": 2}'""",
    11: "u = '6f9619ff-8b86-d011-b42d-00cf4fc964fe'",
    12: "bo = NOT bo",
    13: "ia = '{1,3,NULL}'",
    14: """ta = '{"a,b","",""}'""",
    15: "d = d + 1",
    16: "t = t + interval '1 microsecond'",
    17: "mo = 'sad'",
    18: "b8 = B'10100001'",
    19: "x = '<a>1</a> '",
    20: "ip = '10.0.0.1/24'",
    21: "b1 = B'0'",
    22: "na = '{1.50,0.00}'",
    23: "ci = 'cit'",
    24: """jb = '{"b": 1.00, "a": 1e2}'""",
    25: "za = '{2024-01-01 00:00:00.5+02}'",
    26: "fa = '{1.5,NaN,0.0}'",
    27: "nn = 1.51",
    28: "n76 = 1.5000000001",
    29: "i2 = 5",
    105: "tx = NULL",  # the lake has an empty text
    106: "f8 = 0.0",  # the lake has -0.0
}
PLANTED_IN_LAKE: Final = {
    (41, "ch"): "'ab'",  # without its blanks
    (42, "n76"): "'1.5'",  # without its zeros
    (43, "tx"): "concat(tx, vc)",  # the same characters, in another column
    (43, "vc"): "''",
    (44, "ts"): "ts - interval '1' second",
    (45, "u"): "upper(u)",
    (46, "f4"): "float('NaN')",
    (46, "f8"): "-0.0D",
    (47, "ta"): "array(',')",
    (107, "ia"): "array()",  # the source has an array of NULL
}


def test_planted_differences_are_all_found(spark: SparkSession, shop: Shop, tmp_path: Path) -> None:
    columns = [statement.partition(" ")[0] for statement in PLANTED_AT_SOURCE.values()]
    shop.execute_uncaptured(
        *(f'UPDATE kinds SET {s} WHERE "a %" = {key}' for key, s in PLANTED_AT_SOURCE.items()),
        'UPDATE kinds SET f8 = (63 - "a %") / 3.0::float8 WHERE "a %" IN (31, 32)',  # swapped
        'DELETE FROM kinds WHERE "a %" = 33',
        """INSERT INTO kinds ("a %", b) VALUES (200, 'new')""",
        "UPDATE spans SET note = 'y'",
    )
    lake = shop.lake_table(spark, "kinds")
    cases: dict[str, str] = {}
    for (key, name), value in PLANTED_IN_LAKE.items():
        cases[name] = f"{cases.get(name, '')} WHEN {key} THEN {value}"
    sets = ", ".join(f"{name} = CASE `a %`{case} ELSE {name} END" for name, case in cases.items())
    spark.sql(f"UPDATE {lake} SET {sets} WHERE `a %` IN (41, 42, 43, 44, 45, 46, 47, 107)")
    spark.sql(f"DELETE FROM {lake} WHERE `a %` = 34")
    # two more equal rows, which would cancel in an exclusive or
    spark.sql(
        f"INSERT INTO {lake} SELECT t.* FROM {lake} t, (SELECT explode(array(1, 2))) "
        "WHERE `a %` = 35"
    )
    (kinds,) = shop.verify(spark, "kinds", chunk_rows=1000)
    expected: dict[int, tuple[str, tuple[str, ...]]] = {
        **{key: ("columns", (name,)) for key, name in zip(PLANTED_AT_SOURCE, columns, strict=True)},
        **dict.fromkeys((31, 32), ("columns", ("f8",))),
        **dict.fromkeys((34, 200), ("missing", ())),
        33: ("extra", ()),
        35: ("repeated", ()),
    }
    for key, name in PLANTED_IN_LAKE:
        _, names = expected.get(key, ("columns", ()))
        expected[key] = ("columns", (*names, name))
    found = {int(d.key["a %"] or 0): (d.kind, d.columns) for d in kinds.differences}
    assert found == expected
    assert not kinds.unproven_keys

    json_file = tmp_path / "report.json"
    arguments = ["verify", str(shop.file), "--table", "kinds", "--table", "spans"]
    result = CliRunner(env=shop.environment).invoke(
        main, [*arguments, "--json", str(json_file), "--repair", "--timeout", "120"]
    )
    assert result.exit_code == 1, result.output
    assert "  missing b=new, a %=200 (repaired)" in result.stdout
    reason = "not repaired: the row has columns that are not proven"
    assert f"  columns id=1: note ({reason})" in result.stdout
    spans = shop.lake_table(spark, "spans")
    (span,) = spark.sql(f"SELECT iv IS NULL OR pt IS NULL FROM {spans}").collect()
    assert span == (False,), "a repair has changed columns that are not compared"
    assert "a,b" not in result.output, "a value of a row is in the output"
    report = msgspec.json.decode(json_file.read_bytes(), type=VerificationReport)
    refused = {
        int(d.key["a %"] or 0): d.repair
        for d in report.tables[0].differences
        if d.repair != "repaired"
    }
    no_value = "not repaired: the lake has no such value"
    assert refused == {
        **dict.fromkeys((105, 106), no_value),  # years before 1 and after 9999
    }
    assert len(report.tables[0].differences) == len(expected)
    (kinds,) = shop.verify(spark, "kinds", chunk_rows=1000)
    assert {int(d.key["a %"] or 0) for d in kinds.differences} == refused.keys()
