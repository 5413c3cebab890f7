# SPDX-License-Identifier: Apache-2.0
"""The positions of a snapshot of MariaDB and MySQL."""

from typing import Any
from unittest.mock import MagicMock

import pymysql
import pytest

from changelane.capture.mysql.position import BinlogPosition
from changelane.pipeline.mysql_source import MariadbSource
from changelane.position import MySqlPosition, encode_order
from changelane.spark.verify import mysql_database
from changelane.spark.verify.mysql_database import MysqlDatabase
from changelane.spark.verify.table_planning import UnverifiableError


def database(monkeypatch: pytest.MonkeyPatch) -> MysqlDatabase:
    """Return a database whose snapshots have one position."""
    position = BinlogPosition("binlog.000007", 42)
    monkeypatch.setattr(mysql_database, "begin_snapshot", lambda _: position)
    monkeypatch.setattr(mysql_database, "CapturedMysql", MagicMock())
    source: Any = MariadbSource(
        host="h", database="d", user="u", password="p", tables=["d.t"], segments="capture"
    )
    return MysqlDatabase(source, MagicMock())


def test_a_repaired_row_is_in_a_later_snapshot_at_the_same_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An idle server has one position: its repaired rows would never be compared."""
    with database(monkeypatch).open_snapshot(MagicMock()) as snapshot:
        newest = encode_order(snapshot.newest)
        repairs = [encode_order(snapshot.repair_position(number)) for number in (1, 100_000)]
    before = encode_order(MySqlPosition("binlog.000007", 41, 9))
    later = encode_order(MySqlPosition("binlog.000007", 43))
    assert before < repairs[0] < repairs[1] <= newest < later


def test_without_the_list_of_xa_transactions_nothing_is_repaired_but_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MySQL lists them for users with a privilege only, and has this error otherwise."""
    made = database(monkeypatch)
    cursor: Any = made._connection.cursor
    cursor.return_value.__enter__.return_value.execute.side_effect = pymysql.OperationalError(
        1401, "XAER_RMERR"
    )
    with (
        made.open_snapshot(MagicMock()) as snapshot,
        pytest.raises(UnverifiableError, match="GRANT XA_RECOVER_ADMIN"),
    ):
        snapshot.writers()
