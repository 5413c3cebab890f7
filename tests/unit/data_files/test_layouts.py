# SPDX-License-Identifier: Apache-2.0
"""The layouts of files of rows: names of tables, and the files of AWS DMS.

The names and rows of DMS are those of its user guide (CHAP_Target.S3).
"""

import datetime as dt
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_file_rows import NATIVE, changes, column, messages, opened, types

from changelane.errors import DecodeError
from changelane.event import Completeness, is_first_snapshot
from changelane.pipeline.row_options import RowOptions
from changelane.position import encode_order

EMPLOYEES = {
    "id": "int64 key",
    "last": "string",
    "first": "string",
    "hired": "date",
    "office": "string",
}
DMS = RowOptions(layout="dms", schemas={"hr.employee": EMPLOYEES})
CHANGES = (
    b"I,101,Smith,Bob,2014-06-04,New York\n"
    b'U,101,Smith,Bob,2015-10-08,"Los Angeles, ""CA"""\n'
    b"U,101,Smith,Bob,2017-03-13,NULL\n"
    b"D,101,Smith,Bob,2017-03-13,Dallas\n"
)
LOAD = b"101,Smith,Bob,2014-06-04,New York\n102,Smith,Ann,2014-06-04,NULL\n"
NAME = "hr/employee/20141029-1134010000.csv"


def written(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def orders_of(rows: list[Any]) -> list[bytes]:
    return [encode_order(row.position, snapshot=is_first_snapshot(row.source)) for row in rows]


# -- table


@pytest.mark.parametrize(
    ("path", "options", "table"),
    [
        ("orders/a.csv", {}, (None, None, "orders")),
        ("shop/orders/a.csv", {}, (None, "shop", "orders")),
        ("shop/orders/a.csv", {"owner": "database"}, ("shop", None, "orders")),
        ("x/y/z/a.csv", {"table": "d.s.t"}, ("d", "s", "t")),
        ('a"; DROP/b`c d.e/a.csv', {}, (None, 'a"; DROP', "b`c d.e")),
    ],
)
def test_folders_name_the_table_unless_an_option_does(path: str, options: Any, table: Any) -> None:
    (row,) = changes(b"id\n1\n", path, RowOptions(**options))
    assert (row.table.database, row.table.schema, row.table.name) == table


@pytest.mark.parametrize("path", ["a.csv", "x/y/z/a.csv"])
def test_a_file_without_a_table_is_rejected(path: str) -> None:
    with pytest.raises(DecodeError, match="no folder names the table"):
        opened(b"id\n1\n", path, RowOptions())


def test_a_partition_folder_needs_a_decision_unless_the_file_has_its_column() -> None:
    path = "t/day=2026-11-26/zone=__HIVE_DEFAULT_PARTITION__/id=9/a.csv"
    with pytest.raises(DecodeError, match=r"partition 'day' .*rows\.partition_folders"):
        list(opened(b"id\n1\n", path, RowOptions()).messages())
    (row,) = changes(b"id\n1\n", path, RowOptions(partition_folders="columns"))
    assert row.after == {"id": "1", "day": "2026-11-26", "zone": None}
    (row,) = changes(b"id\n1\n", path, RowOptions(partition_folders="ignore"))
    assert row.after == {"id": "1"}


def test_rows_are_creates_if_an_option_says_so() -> None:
    rows = changes(b"id\n1\n", "t/a.csv", RowOptions(op="c"))
    assert [row.op.value for row in rows] == ["c"]


def test_a_declared_type_that_contradicts_the_file_is_refused_except_a_local_time() -> None:
    data = written(pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "n": [1]}))
    options = RowOptions(table="t", schemas={"t": {"at": "timestamp(6)", "later": "string"}})
    (row,) = changes(data, "t.parquet", options)
    assert row.after == {"at": dt.datetime(1970, 1, 1), "n": 1}
    with pytest.raises(DecodeError, match="column 'n' has the type int64 in the file, and string"):
        changes(data, "t.parquet", RowOptions(table="t", schemas={"t": {"n": "string"}}))


# -- dms


def test_dms_changes_have_the_order_of_their_files_and_lines() -> None:
    rows = changes(CHANGES, NAME, DMS)
    assert [row.op.value for row in rows] == ["c", "u", "u", "d"]
    assert {str(row.table) for row in rows} == {"hr.employee"}
    assert column(rows[:3], "office") == ["New York", 'Los Angeles, "CA"', None]
    assert rows[3].before == {
        "id": 101,
        "last": "Smith",
        "first": "Bob",
        "hired": dt.date(2017, 3, 13),
        "office": "Dallas",
    }
    later = changes(CHANGES, "hr/employee/20141029-113401001.csv", DMS)
    load = changes(LOAD, "hr/employee/LOAD0000000A.csv", DMS)
    assert {row.op.value for row in load} == {"r"}
    load_2 = changes(LOAD, "hr/employee/LOAD00000010.csv", DMS)
    orders = [order for part in (load, load_2, rows, later) for order in orders_of(part)]
    assert orders == sorted(orders)
    assert len(set(orders)) == len(orders)


@pytest.mark.parametrize(
    "path",
    [
        "hr/employee/2014/10/29/20141029-1134010000.csv",
        "hr/employee/2014/10/29/11/20141029-1134010000.csv",
        "hr/employee/20141029/20141029-1134010000.csv",
        "hr/employee/2014-10-29-11/20141029-1134010000.csv",
        "hr/employee/201410/20141029-1134010000.csv",
        "hr/employee/10_2014_29/20141029-1134010000.csv",
        "hr/employee/29/10/2014/20141029-1134010000.csv",
        "bucket/folder/hr/employee/20141029-1134010000.csv",
    ],
)
def test_dms_folders_of_dates_are_no_tables(path: str) -> None:
    rows = changes(CHANGES, path, DMS)
    assert {str(row.table) for row in rows} == {"hr.employee"}
    assert orders_of(rows) == orders_of(changes(CHANGES, NAME, DMS))


def test_a_number_is_the_name_of_a_table_of_dms_unless_it_is_a_date() -> None:
    options = RowOptions(layout="dms", header=True)
    for path, table in (
        ("bucket/hr/12/20141029-1134010000.csv", "hr.12"),
        ("bucket/hr/2014/LOAD1.csv", "hr.2014"),
        ("bucket/hr/7/2014/10/29/20141029-1134010000.csv", "hr.7"),
        ("2014/10/20141029-1134010000.csv", "2014.10"),
    ):
        (row,) = changes(b"Op,id\nI,1\n", path, options)
        assert str(row.table) == table


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("employee/LOAD00000001.csv", "not in a folder SCHEMA/TABLE"),
        ("hr/employee/part-0.csv", "not one of DMS"),
        ("hr/employee/LOADX.csv", "not one of DMS"),
        ("hr/employee/20141029.csv", "not one of DMS"),
    ],
)
def test_a_path_that_dms_does_not_write_is_rejected(path: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        opened(CHANGES, path, DMS)


def test_dms_operations_without_the_column_op() -> None:
    data = written(pa.table({"id": [1]}))
    with pytest.raises(DecodeError, match=r"no column Op: set rows\.without_op"):
        list(opened(data, NAME.replace("csv", "parquet"), RowOptions(layout="dms")).messages())
    for without_op, op in (("insert", "c"), ("upsert", "u")):
        options = RowOptions(layout="dms", schemas=DMS.schemas, without_op=without_op)
        assert [row.op.value for row in changes(LOAD, NAME, options)] == [op] * 2


@pytest.mark.parametrize("letter", [b"X", b"", b"NULL", b"i", b"r", b"truncate"])
def test_an_unknown_operation_of_dms_rejects_its_row_again_and_again(letter: bytes) -> None:
    (message,) = messages(CHANGES.splitlines()[0].replace(b"I", letter, 1), NAME, DMS)
    with pytest.raises(DecodeError) as error:
        NATIVE.decode(message)
    assert error.value.code == "unknown_operation"


def test_dms_headers_and_times_of_changes() -> None:
    data = b"Op,at,id,last\nI,2024-10-27 12:39:03.210671,1,x\nU,,1,y\nU,soon,1,z\n"
    keys = {"employee": ["id"]}
    options = RowOptions(layout="dms", header=True, timestamp_column="at", keys=keys)
    first, second, third = messages(data, NAME, options)
    (row,) = NATIVE.decode(first)
    assert getattr(row, "after", None) == {"id": "1", "last": "x"}
    assert getattr(row, "source_time_ns", 0) == 1_730_032_743_210_671_000
    assert NATIVE.decode(second)[0].source_time_ns is None  # type: ignore[union-attr]
    with pytest.raises(DecodeError) as error:
        NATIVE.decode(third)
    assert error.value.path == "$.source_time_ns"
    options = RowOptions(layout="dms", header=True, timestamp_column="when")
    with pytest.raises(DecodeError, match="no column 'when'"):
        list(opened(data, NAME, options).messages())


def test_dms_timestamp_column_of_a_file_without_header_is_declared_at_its_place() -> None:
    schemas = {"employee": {"at": "timestamp(6)", "id": "int64 key"}}
    options = RowOptions(layout="dms", timestamp_column="at", schemas=schemas)
    (row,) = changes(b"I,2024-10-27 12:39:03,1\n", NAME, options)
    assert (row.after, row.source_time_ns) == ({"id": 1}, 1_730_032_743_000_000_000)
    (load,) = changes(b"2024-10-27 12:39:03,1\n", "hr/employee/LOAD1.csv", options)
    assert (load.source_time_ns, load.process_time_ns) == (None, 1_730_032_743_000_000_000)


def test_dms_parquet_has_the_types_of_the_file() -> None:
    table = pa.table({"Op": ["I", "D"], "id": pa.array([1, 2], pa.int32()), "note": ["x", None]})
    options = RowOptions(layout="dms", keys={"employee": ["id"]})
    first, second = changes(written(table), "hr/employee/20141029-1134010000.parquet", options)
    assert types(first) == {"id": "int32", "note": "string"}
    assert (first.after, second.before) == ({"id": 1, "note": "x"}, {"id": 2})
    load = written(pa.table({"id": pa.array([1], pa.int32()), "note": ["x"]}))
    (row,) = changes(load, "hr/employee/LOAD00000001.parquet", options)
    assert (row.op.value, row.after) == ("r", {"id": 1, "note": "x"})


def test_dms_columns_that_were_added_later_are_in_later_files_only() -> None:
    options = RowOptions(layout="dms", header=True, keys={"employee": ["id"]})
    (old,) = changes(b"Op,id\nI,1\n", NAME, options)
    (new,) = changes(b"Op,id,more\nU,1,x\n", "hr/employee/20150101-000000000.csv", options)
    assert (old.after, new.after) == ({"id": "1"}, {"id": "1", "more": "x"})


def test_a_number_of_fields_that_is_not_declared_rejects_the_file() -> None:
    added = LOAD.replace(b"\n", b",added\n")  # as many fields as with the column Op
    for data, path in (
        (added, "hr/employee/LOAD1.csv"),
        (CHANGES, "hr/employee/LOAD1.csv"),
        (LOAD, NAME),
        (CHANGES + b"I,1,a,b,2014-06-04,x,added\n", NAME),
    ):
        with pytest.raises(DecodeError, match=r"record . of the CSV file has . fields and not"):
            changes(data, path, DMS)


def test_a_full_load_with_the_column_op() -> None:
    options = RowOptions(layout="dms", schemas=DMS.schemas, op_in_load=True)
    data = LOAD.replace(b"10", b"I,10")
    rows = changes(data, "hr/employee/LOAD1.csv", options)
    assert [(row.op.value, (row.after or {})["id"]) for row in rows] == [("r", 101), ("r", 102)]
    (message, _) = messages(data.replace(b"I,101", b"U,101"), "hr/employee/LOAD1.csv", options)
    with pytest.raises(DecodeError):
        NATIVE.decode(message)


TRANSACTIONS = (
    b"I,employee,hr,101,Smith,Bob,2014-06-04,New York\n"
    b"U,office,hr,1,closed\n"
    b"D,employee,hr,101,NULL,NULL,NULL,NULL\n"
)
CDC_OPTIONS = RowOptions(
    layout="dms",
    cdc_path="Changes/cdc",
    schemas={"hr.employee": EMPLOYEES, "office": {"id": "int64 key", "state": "string"}},
)


def test_dms_changes_of_all_tables_have_the_order_of_their_transactions() -> None:
    path = "bucket/Changes/cdc/20201117-153046033.csv"
    rows = changes(TRANSACTIONS, path, CDC_OPTIONS)
    assert [(str(row.table), row.op.value) for row in rows] == [
        ("hr.employee", "c"),
        ("hr.office", "u"),
        ("hr.employee", "d"),
    ]
    assert (rows[1].after, rows[2].before) == ({"id": 1, "state": "closed"}, {"id": 101})
    assert orders_of(rows) == sorted(orders_of(rows))
    (load, _) = changes(LOAD, "bucket/hr/employee/LOAD1.csv", CDC_OPTIONS)
    assert orders_of([load]) < orders_of(rows[:1])
    (message,) = messages(TRANSACTIONS.splitlines()[0].replace(b"I", b"X", 1), path, CDC_OPTIONS)
    with pytest.raises(DecodeError):
        NATIVE.decode(message)


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        (b"I,other,hr,1\n", "c/1.csv", "declare the columns of the table hr.other"),
        (b"I,office,hr,1\n", "c/1.csv", "record 1 .* 1 columns of a table with 2"),
        (b"I,office\n", "c/1.csv", "record 1 .* is not an operation, a table"),
        (b"", "c/1.parquet", "in CSV files only"),
    ],
)
def test_a_file_of_transactions_that_dms_does_not_write_is_rejected(
    data: bytes, path: str, reason: str
) -> None:
    path = path.replace("c/1", "Changes/cdc/20201117-153046033")
    with pytest.raises(DecodeError, match=reason):
        messages(data, path, CDC_OPTIONS)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"I,other,hr,1\n", "declare the columns of the table hr.other"),
        (b"I,office,hr,1,closed,added\n", "record 4 .* 3 columns of a table with 2"),
        (b"I,office\n", "record 4 .* is not an operation, a table"),
    ],
)
def test_a_wrong_record_of_transactions_is_found_before_the_records_before_it_are_read(
    record: bytes, reason: str
) -> None:
    file = opened(TRANSACTIONS + record, "Changes/cdc/20201117-153046033.csv", CDC_OPTIONS)
    with pytest.raises(DecodeError, match=reason):
        file.check()


def test_dms_columns_that_the_source_did_not_log_are_absent() -> None:
    options = RowOptions(layout="dms", schemas=DMS.schemas, no_sup_value="~")
    data = b'U,101,~,NULL,~,"~"\nD,101,~,~,~,~\nU,102,a,b,2014-06-04,c\n'
    update, delete, whole = changes(data, NAME, options)
    assert (update.after, update.after_holds) == (
        {"id": 101, "first": None, "office": "~"},
        Completeness.CHANGED,
    )
    assert (delete.before, delete.before_holds) == ({"id": 101}, Completeness.CHANGED)
    assert len(whole.after or {}) == 5
    assert whole.after_holds is Completeness.UNKNOWN
    with pytest.raises(ValueError, match="must differ"):
        RowOptions(layout="dms", no_sup_value="NULL")
