# SPDX-License-Identifier: Apache-2.0
"""A real MariaDB against its tables, while both move: planted differences, and none else."""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest
from click.testing import CliRunner
from mariadb_server import MariadbServer
from pyspark.sql import SparkSession

from changelane.capture.repairs import Repair, add_repair
from changelane.capture.storage import Folder
from changelane.cli import main
from changelane.cli.capture import started_capture
from changelane.pipeline.config import Pipeline, load
from changelane.schema import TableId
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import name_of
from changelane.spark.rows.schema import table_id_text
from changelane.spark.run.tables import run
from changelane.spark.verify import table_verification
from changelane.spark.verify.continuous import ContinuousVerification
from changelane.spark.verify.report import TableReport, VerificationReport
from changelane.spark.verify.table_verification import VerifyOptions
from changelane.spark.verify.verify import verify

ROWS: Final = 60
DDL: Final = (
    # the first load of the engine rounds `float`, so that its values come through the log
    """CREATE TABLE kinds (
      `a %` int, b varchar(20) COLLATE utf8mb4_general_ci, ti tinyint, si smallint unsigned,
      mi mediumint unsigned, i6 int(6) unsigned zerofill, i8 bigint, u8 bigint unsigned,
      n decimal(10,2), n10 decimal(12,10), n65 decimal(65,30), f4 float, f8 double, b1 bit(1),
      b10 bit(10), tx text, vc varchar(20) CHARACTER SET latin1, ch char(6), bi binary(4),
      vb varbinary(9), bl blob, d date, t time, t3 time(3), t6 time(6), dt datetime,
      dt6 datetime(6), ts timestamp NULL, ts6 timestamp(6) NULL, y year, js json,
      en enum('sad','o k'), se set('a','b','c d'), u uuid,
      vi int AS (i8 % 7) VIRTUAL, PRIMARY KEY (b, `a %`))""",
    "CREATE TABLE moving (id int PRIMARY KEY, v bigint, note text)",
    "CREATE TABLE logs (at datetime, line text)",
    "CREATE TABLE places (id int PRIMARY KEY, note text, pt point)",
)
FILL: Final = (
    r"""INSERT INTO kinds (`a %`, b, ti, si, mi, i6, i8, u8, n, n10, n65, f4, f8, b1, b10, tx, vc,
      ch, bi, vb, bl, d, t, t3, t6, dt, dt6, ts, ts6, y, js, en, se, u)
    SELECT seq, CONCAT('k', seq % 7), -5, 65535, 16777215, 42, 9007199254740993,
      18446744073709551615, 1.50, 0.0000000001, 1.5, 1.1, seq / 3e0, seq % 2, 5,
      'a "q"\n\\ %s {} ü😀', 'x é', 'ab  ', 'a', X'00ff00', X'deadbeef00',
      DATE '1582-10-10' + INTERVAL seq DAY, '-838:59:59', '12:34:56.789', '12:34:56.123456',
      TIMESTAMP '1582-10-10 10:00:00' + INTERVAL seq * 100 DAY,
      TIMESTAMP '2024-03-31 02:30:00.123456' + INTERVAL seq HOUR, '2024-03-31 02:30:00',
      '2024-10-27 02:30:00.000001', 2024, '{"a" : 1.0,  "a": 2}', 'o k', 'c d,a',
      '6f9619ff-8b86-d011-b42d-00cf4fc964ff' FROM seq_1_to_60""",
    """INSERT INTO kinds (`a %`, b) VALUES (100, ''), (101, 'Z'), (102, 'a'), (103, 'ß''"\\\\')""",
    """INSERT INTO kinds (`a %`, b, n65, f4, f8, d, dt6, ts6, tx, vc, bl, js, t6, y, b10, se, n10)
    VALUES (104, 'x', 1e25, 3e38, 1.7976931348623157e308, '9999-12-31',
       '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.999999', '', '', '', 'null',
       '838:59:59', 2000, 1023, '', -0.0000000001),
      (105, 'x', -1e-30, -1e-300, 2.2250738585072014e-308, '1000-01-01', '1000-01-01',
       '1970-01-01 00:00:01', 'a ', 'a ', X'00', '""', '-00:00:00.000001', 2155, 0, 'a', 0),
      (106, 'x', 0, 1e-40, 5e-324, '0044-03-15', '1970-01-01', NULL, '-', '-', '-', '1', '00:00',
       1901, 512, 'b', 0.0000001)""",
    "INSERT INTO moving SELECT seq, 0, CONCAT('n', seq) FROM seq_1_to_3000",
    "INSERT INTO logs VALUES (now(), 'x')",
    "INSERT INTO places VALUES (1, 'x', POINT(1, 2))",
)


class Shop:
    """A database that is captured into tables again and again."""

    def __init__(self, server: MariadbServer, database: str, folder: Path) -> None:
        self.server = server
        self.database = database
        self.environment = {**os.environ, "MYSQL_PASSWORD_OF_TEST": server.password}
        config = {
            "name": "shop",
            "source": {
                "type": "mariadb",
                "host": server.host,
                "port": server.port,
                "database": database,
                "user": server.user,
                "password": "${MYSQL_PASSWORD_OF_TEST}",
                "tables": [f"{database}.*"],
                "segments": str(folder / "capture"),
                "publish_interval": "1 second",
                "memory": "256m",
            },
            "sink": {"type": "delta", "path": str(folder / "delta")},
            "options": {"tables_without_key": "append"},
        }
        self.file = folder / "shop.yaml"
        self.file.write_bytes(msgspec.json.encode(config))
        self.pipeline: Pipeline = load(self.file, self.environment)

    def execute(self, *statements: str) -> None:
        self.server.run(*statements, database=self.database)

    def execute_uncaptured(self, *statements: str) -> None:
        """Change the source without the capture: the statements are not in the log."""
        self.execute("SET SESSION sql_log_bin = 0", *statements)

    def lake_table(self, spark: SparkSession, table: str) -> str:
        name = name_of(table_id_text(TableId(self.database, None, table)))
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
    spark: SparkSession, mariadb_server: MariadbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("verify")
    with mariadb_server.new_database("shop") as database:
        made = Shop(mariadb_server, database, folder)
        made.execute(*DDL)
        stop = threading.Event()
        with started_capture(made.pipeline, print, is_until_now=True) as capture:
            capture.wait_until_now()
            made.execute(*FILL)
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
        with shop.server.connect(shop.database) as connection, connection.cursor() as cursor:
            number = 0
            while not stop.is_set():
                number += 1
                if number % 10 == 0:
                    key = number * 37 % 3000 + 1
                    cursor.execute("UPDATE moving SET id = -id WHERE id = %s", [key])
                # the same rows again and again, so that each reading meets some of them
                hot_key = 8000 + number % 10
                cursor.execute("UPDATE moving SET v = v + 1 WHERE id = %s", [hot_key])
                cursor.execute("DELETE FROM moving WHERE id = %s", [hot_key + 100])
                cursor.execute("INSERT INTO moving (id) VALUES (%s)", [8100 + (number + 5) % 10])
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
    kinds, logs, places = shop.verify(spark, "kinds", "logs", "places")
    assert kinds.outcome == "equal", kinds.differences
    assert kinds.row_count == ROWS + 7
    assert len(kinds.chunks) == 4
    assert not kinds.unproven_columns
    assert places.outcome == "equal"
    assert places.unproven_columns == {
        "pt": "no exact comparison of point with struct<wkb:binary,srid:int>",
    }
    assert (logs.outcome, logs.reason) == (
        "not verified",
        "it has no primary key, and the options have no keys for it",
    )


def test_a_table_that_changes_has_only_the_difference_that_was_planted(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.execute_uncaptured("INSERT INTO moving VALUES (9000, 0, 'lost')")
    shop.execute(
        "INSERT INTO moving (id, v) SELECT seq, 0 FROM seq_8000_to_8009",
        "INSERT INTO moving (id, v) SELECT seq, 0 FROM seq_8101_to_8105",
    )

    def add_late(folder: Folder, late: Repair) -> str:
        """Add a repair after a newer change of its row is in the table."""
        shop.execute("UPDATE moving SET v = 77 WHERE id = 9000")
        deadline_s = time.monotonic() + 60
        query = f"SELECT v FROM {shop.lake_table(spark, 'moving')} WHERE id = 9000"
        while [row.v for row in spark.sql(query).collect()] != [77]:
            assert time.monotonic() < deadline_s
            time.sleep(0.5)
        return add_repair(folder, late)

    monkeypatch.setattr(table_verification, "add_repair", add_late)
    with changes(shop):
        (moving,) = shop.verify(spark, "moving", chunk_rows=500, repairs=True)
    assert [(d.key, d.kind, d.repair) for d in moving.differences] == [
        ({"id": "9000"}, "missing", "repaired")
    ]
    assert moving.outcome == "repaired"
    assert moving.unproven_share < 0.01
    (equal,) = shop.verify(spark, "moving")
    assert equal.outcome == "equal", equal.differences
    query = f"SELECT v FROM {shop.lake_table(spark, 'moving')} WHERE id = 9000"
    assert [row.v for row in spark.sql(query).collect()] == [77], "the newer change stays"


def test_a_continuous_verification_of_moving_rows_proves_chunk_after_chunk(
    spark: SparkSession, shop: Shop
) -> None:
    shop.execute("DELETE FROM moving WHERE id >= 8000")
    shop.execute("INSERT INTO moving (id, v) SELECT seq, 0 FROM seq_8000_to_8009")
    shop.execute_uncaptured("UPDATE moving SET note = 'lost' WHERE id = 1500")
    options = VerifyOptions(chunk_rows=1000, max_readings=3, timeout_s=120)
    verification = ContinuousVerification(
        shop.pipeline, ["moving"], spark=spark, options=options, notify=print
    )
    with changes(shop):
        steps = [step for step in itertools.islice(verification.steps(), 4) if step is not None]
    assert [step.chunk for step in steps] == [0, 1, 2, 3]
    assert [step.report.outcome for step in steps].count("different") == 1
    different = next(step for step in steps if step.report.outcome == "different")
    assert [difference.key for difference in different.report.differences] == [{"id": "1500"}]
    # rows that change all the time are in the last chunk, and count there only
    assert max(step.report.unproven_share for step in steps[:3]) < 0.01
    assert steps[3].oldest_time_s is not None
    (progress,) = verification.progress.values()
    assert progress.difference_count == 1


PLANTED_AT_SOURCE: Final = {
    1: "n = 2.50",
    2: "tx = NULL",
    3: "i8 = i8 + 1",
    4: "u8 = u8 - 1",
    5: "vc = 'x e'",
    6: "f4 = 1.1000001",
    7: "dt6 = dt6 + INTERVAL 1 MICROSECOND",
    8: "ts = ts + INTERVAL 1 HOUR",
    9: "bl = X'deadbeef'",
    10: """js = '{"a": 1.0,  "a": 2}'""",
    11: "u = '6f9619ff-8b86-d011-b42d-00cf4fc964fe'",
    12: "b1 = 1 - b1",
    13: "b10 = 7",
    14: "se = 'a,b'",
    15: "d = d + INTERVAL 1 DAY",
    16: "t6 = '12:34:56.123457'",
    17: "en = 'sad'",
    18: "y = 2023",
    19: "t = '838:59:59'",
    20: "ch = 'AB'",
    21: "bi = 'b'",
    22: "n10 = 0.0000000002",
    23: "n65 = 1.500000000000000000000000000001",
    24: "f8 = f8 + 4e-15",
    25: "i6 = 43",
    26: "mi = 1",
    27: "vb = X'00ff'",
    28: "d = '0000-00-00'",
    29: "dt = '2024-00-00'",
    30: "ti = 5",
    104: "tx = NULL",  # the lake has an empty text
    105: "f4 = 0",  # the lake has -0.0
    106: "tx = '- '",
}
PLANTED_IN_LAKE: Final = {
    (41, "ch"): "'ab '",  # a blank at the end
    (42, "n65"): "'1.5'",  # without its zeros
    (43, "tx"): "concat(tx, vc)",  # the same characters, in another column
    (43, "vc"): "''",
    (44, "ts6"): "ts6 - interval '1' hour",
    (45, "u"): "upper(u)",
    (46, "f4"): "float('NaN')",
    (46, "f8"): "-0.0D",
    (47, "t"): "'838:59:59.000000'",
    (48, "d"): "NULL",
    (49, "vi"): "-1",
}


def test_planted_differences_are_all_found(spark: SparkSession, shop: Shop, tmp_path: Path) -> None:
    columns = [statement.partition(" ")[0] for statement in PLANTED_AT_SOURCE.values()]
    shop.execute_uncaptured(
        "SET sql_mode = ''",
        *(f"UPDATE kinds SET {s} WHERE `a %` = {key}" for key, s in PLANTED_AT_SOURCE.items()),
        "UPDATE kinds SET f8 = (63 - `a %`) / 3e0 WHERE `a %` IN (31, 32)",  # swapped
        "DELETE FROM kinds WHERE `a %` = 33",
        "UPDATE kinds SET b = UPPER(b) WHERE `a %` = 36",  # another key, equal by its collation
        "INSERT INTO kinds (`a %`, b) VALUES (200, 'new')",
        "UPDATE places SET note = 'y'",
    )
    lake = shop.lake_table(spark, "kinds")
    cases: dict[str, str] = {}
    for (key, name), value in PLANTED_IN_LAKE.items():
        cases[name] = f"{cases.get(name, '')} WHEN {key} THEN {value}"
    sets = ", ".join(f"{name} = CASE `a %`{case} ELSE {name} END" for name, case in cases.items())
    keys = ", ".join(str(key) for key in sorted({key for key, _ in PLANTED_IN_LAKE}))
    spark.sql(f"UPDATE {lake} SET {sets} WHERE `a %` IN ({keys})")
    spark.sql(f"DELETE FROM {lake} WHERE `a %` = 34")
    # two more equal rows, which would cancel in an exclusive or
    spark.sql(
        f"INSERT INTO {lake} SELECT t.* FROM {lake} t, (SELECT explode(array(1, 2))) "
        "WHERE `a %` = 35"
    )
    (kinds,) = shop.verify(spark, "kinds", chunk_rows=1000)
    expected: dict[tuple[int, str], tuple[str, tuple[str, ...]]] = {}
    for key, name in zip(PLANTED_AT_SOURCE, columns, strict=True):
        text = "x" if key > 100 else f"k{key % 7}"
        # the generated column follows the number
        expected[key, text] = ("columns", (name, "vi") if name == "i8" else (name,))
    for key in (31, 32):
        expected[key, f"k{key % 7}"] = ("columns", ("f8",))
    for key, name in PLANTED_IN_LAKE:
        _, names = expected.get((key, f"k{key % 7}"), ("columns", ()))
        expected[key, f"k{key % 7}"] = ("columns", (*names, name))
    expected[34, "k6"] = expected[200, "new"] = expected[36, "K1"] = ("missing", ())
    expected[33, "k5"] = expected[36, "k1"] = ("extra", ())
    expected[35, "k0"] = ("repeated", ())
    found = {
        (int(d.key["a %"] or 0), str(d.key["b"])): (d.kind, d.columns) for d in kinds.differences
    }
    assert found == expected
    assert not kinds.unproven_keys

    json_file, html_file = tmp_path / "report.json", tmp_path / "report.html"
    arguments = ["verify", str(shop.file), "--table", "kinds", "--table", "places"]
    result = CliRunner(env=shop.environment).invoke(
        main, [*arguments, "--json", str(json_file), "--html", str(html_file), "--repair"]
    )
    assert result.exit_code == 1, result.output
    reason = "not repaired: the row has columns that are not proven"
    assert f"  columns id=1: note ({reason})" in result.stdout
    places = shop.lake_table(spark, "places")
    (place,) = spark.sql(f"SELECT pt IS NULL FROM {places}").collect()
    assert place == (False,), "a repair has changed a column that is not compared"
    assert "b=new, a %=200" in html_file.read_text()
    report = msgspec.json.decode(json_file.read_bytes(), type=VerificationReport)
    refused = {
        int(d.key["a %"] or 0): d.repair
        for d in report.tables[0].differences
        if d.repair != "repaired"
    }
    assert refused == {
        **dict.fromkeys((28, 29), "not repaired: the lake has no such value"),
    }
    assert len(report.tables[0].differences) == len(expected)
    (kinds,) = shop.verify(spark, "kinds", chunk_rows=1000)
    assert {int(d.key["a %"] or 0) for d in kinds.differences} == refused.keys()
    assert not kinds.unproven_keys, "repaired rows have the position of the idle server"
