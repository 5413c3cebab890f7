"""The files source: folders as people have them, and lines as attackers write them."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import lake_tables
import pytest
from pyspark.sql import Row, SparkSession

from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline, parse
from changelane.schema import TableId
from changelane.spark.rows.schema import table_id_text
from changelane.spark.run.tables import RunReport, run
from changelane.spark.runtime.sql import COLUMNS, ORDER

IDS: Final = [{"name": "id", "type": "int64"}, {"name": "v", "type": "string"}]


def line(
    table: Any, at: int | None, id: Any = 1, *, columns: Sequence[Any] = IDS, **more: Any
) -> bytes:
    """Return an insert in the native form."""
    named = table if isinstance(table, dict) else {"name": table}
    after = {"id": id, **(more.pop("after", None) or {"v": f"v{at}"})}
    told = {"op": "c", "table": named, "key": ["id"], "after": after, "schema": list(columns)}
    if at is not None:
        told["position"] = {"domain": "sequence", "value": at}
    return json.dumps(told | more).encode()


def record(value: bytes, offset: int | None, partition: int = 0) -> bytes:
    told = {"topic": "shop", "partition": partition, "key": None, "value": value.decode()}
    return json.dumps(told | ({} if offset is None else {"offset": offset})).encode()


GOOD: Final = line("lines", 5, 5)
LINES: Final = b'{"op": "c", "table": {"name": "lines"}, "key": ["id"], '
BROKEN: Final = [
    ("malformed_json", GOOD.replace(b'"id": 5', b'"id": NaN')),
    ("unknown_operation", GOOD.replace(b'"op": "c"', b'"op": "x"')),
    ("invalid_utf8", GOOD.replace(b"v5", b"\xff\xfe\x80")),
    ("too_deep", LINES + b'"after": {"id": 5, "v": ' + b"[" * 600 + b"]" * 600 + b"}}"),
    ("wrong_type", GOOD.replace(b'"id": 5', b'"id": "5"')),
    ("wrong_type", b"[1,2,3]"),
    (
        "value_out_of_range",
        line(
            "lines",
            6,
            columns=[IDS[0], {"name": "v", "type": "decimal(9,2)"}],
            after={"v": "1e999999999"},
        ),
    ),
    ("no_key", GOOD.replace(b'"id": 5, ', b"")),
    ("unordered", line("lines", 5, 5, position={"domain": "mysql", "file": "binlog", "pos": 4})),
    # the last: a carriage return at its end would be another defect
    ("incomplete_message", GOOD[:-20]),
]
HOSTILE: Final = [
    {"name": "../../x"},
    {"name": 'a"; DROP TABLE b'},
    {"name": "a`b.c d/e\\f%20"},
    {"database": "x", "name": "y"},
    {"schema": "x", "name": "y"},
    {"database": "x", "schema": "y"},
    {"name": "y"},
    {"database": "y"},
    {"name": ""},
    {},
]
NAMES: Final = [
    *("a`b", "a.b", "a b", "a,b", "a'b", 'a"b', "a\\b", "a\nb", "é😀", "select", "*", "{}"),
    *("a=b;c", "${env:HOME}", "_u", "_live", "row", "key", "order", "t_order", "k0", "t0"),
    *("p0", "d", "u", "value"),
]
PLACED: Final = {"name": "placed"}


def hostile_lines() -> list[bytes]:
    told = [line(table, number, number) for number, table in enumerate(HOSTILE)]
    columns = [IDS[0], *({"name": name, "type": "string"} for name in NAMES)]
    values = {name: f"value of {name}" for name in NAMES}
    told.append(line("columns", 1, 1, columns=columns, after=values))
    # a second time as the column form, and once as the rule itself sees it
    untold = {"after": NAMES[1:]}
    told.append(
        line("columns", 2, 1, columns=columns, after={NAMES[0]: "new"}, unavailable=untold, op="u")
    )
    told.append(
        line(
            "columns",
            3,
            2,
            columns=columns,
            after={NAMES[0]: "moved"},
            before={"id": 1},
            unavailable=untold,
            op="u",
        )
    )
    for name in ("_changelane_order", "_CHANGELANE_x", "V", ""):
        extra = [*IDS, {"name": name, "type": "string"}]
        told.append(line(f"refused {name}", 1, columns=extra, after={"v": "v", name: "x"}))
    return told


def pipeline(folder: Path, **options: Any) -> Pipeline:
    return parse(
        {
            "name": "test",
            "source": {"type": "files", "path": str(folder / "in"), "format": "native-json"},
            "sink": {"type": "delta", "path": str(folder / "lake")},
            "options": options,
        }
    )


class Ran:
    """What a run of everything left behind."""

    def __init__(self, spark: SparkSession, folder: Path, reports: list[RunReport]) -> None:
        self.spark = spark
        self.lake = str(folder / "lake")
        self.reports = reports
        path = f"{self.lake}/_changelane/quarantine"
        self.aside = spark.read.format("delta").load(path).collect()

    def rows(self, table: Any) -> list[dict[str, Any]]:
        named = TableId(**(table if isinstance(table, dict) else {"name": table}))
        found = self.spark.read.format("delta").load(lake_tables.path(self.lake, named)).collect()
        rows = [row.asDict() for row in found]
        return sorted(
            ({k: v for k, v in row.items() if k not in {ORDER, COLUMNS}} for row in rows),
            key=lambda row: row["id"],
        )

    def refused(self, table: Any) -> list[Row]:
        named = table_id_text(TableId(**(table if isinstance(table, dict) else {"name": table})))
        return [row for row in self.aside if row["table_id"] == named]


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("files")
    source = folder / "in"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "empty.jsonl").touch()
    crlf = [line("lines", 1, 1), b"", line("lines", 2, 2), *(text for _, text in BROKEN)]
    (source / "a.jsonl").write_bytes(b"\r\n".join(crlf))  # the last line has no end
    (source / "deep/er/b.jsonl.gz").write_bytes(gzip.compress(line("lines", 3, 3) + b"\n"))
    (source / "hostile.ndjson").write_bytes(b"\n".join(hostile_lines()) + b"\n")
    (source / "README.md").write_bytes(b"not a change\n")
    (source / "_spark_ignores.jsonl").write_bytes(line("lines", 90, 90))
    (source / ".hidden.jsonl").write_bytes(line("lines", 91, 91))
    double = line("lines", 4, 4).replace(b'"id": 4', b'"id": 9, "id": 4')
    (source / "double.jsonl").write_bytes(double)
    # records: their offsets order what has no position, whatever the order of the lines
    records = [
        record(line(PLACED, None, 1, after={"v": "new"}), 12),
        record(line(PLACED, None, 1, after={"v": "old"}), 11),
        b'{"topic":"shop","partition":0,"offset":13,"value":null}',
        b'{"topic":"shop","partition":0}',
        record(line(PLACED, None, 1, after={"v": "oldest"}), 3),
    ]
    (source / "records.jsonl").write_bytes(b"\n".join(records))
    # lines of one file are in order; two files are not comparable
    one_file = [line("one file", None, 1, after={"v": text}) for text in ("old", "new")]
    (source / "one.jsonl").write_bytes(b"\n".join(one_file))
    for name in ("two", "three"):
        (source / f"{name}.jsonl").write_bytes(line("two files", None, 1))
    reports = [run(spark, pipeline(folder))]
    (source / "later.jsonl").write_bytes(line("lines", 7, 7) + b"\n")
    reports.append(run(spark, pipeline(folder)))
    reports.append(run(spark, pipeline(folder)))
    return Ran(spark, folder, reports)


def test_lines_of_all_files_arrive_once(ran: Ran) -> None:
    assert ran.rows("lines") == [{"id": n, "v": f"v{n}"} for n in (1, 2, 3, 4, 7)]


def test_a_later_file_is_read_by_the_next_run_and_a_rerun_does_nothing(ran: Ran) -> None:
    first, second, third = ran.reports
    assert len(first.batches) == 1
    assert [batch.events for batch in second.batches] == [1]
    assert not second.quarantined
    assert third.batches == []


@pytest.mark.parametrize(("code", "text"), BROKEN)
def test_a_broken_line_is_kept_as_it_is_with_its_reason(ran: Ran, code: str, text: bytes) -> None:
    (row,) = [row for row in ran.aside if bytes(row["raw_value"] or b"").rstrip(b"\r") == text]
    assert row["code"] == code
    assert row["reason"]
    assert row["topic"].endswith("a.jsonl")
    assert row["offset"] is not None
    assert row["decoder"]


def test_blank_lines_and_other_files_are_no_failures(ran: Ran) -> None:
    raw = [bytes(row["raw_value"]) for row in ran.aside if row["raw_value"] is not None]
    assert not [text for text in raw if not text.strip() or b"not a change" in text]


def test_what_is_set_aside_is_counted(ran: Ran) -> None:
    counted = sum(sum(report.quarantined.values()) for report in ran.reports)
    assert counted == len(ran.aside)


def test_offsets_of_records_order_them(ran: Ran) -> None:
    assert ran.rows(PLACED) == [{"id": 1, "v": "new"}]
    (row,) = [row for row in ran.aside if row["code"] == "not_a_record"]
    assert bytes(row["raw_value"]) == b'{"topic":"shop","partition":0}'


def test_lines_of_one_file_are_in_order(ran: Ran) -> None:
    assert ran.rows("one file") == [{"id": 1, "v": "new"}]


def test_two_files_without_positions_are_set_aside_with_the_reason(ran: Ran) -> None:
    rows = ran.refused("two files")
    assert [row["code"] for row in rows] == ["unordered"] * 2
    assert all("offsets cannot be compared" in row["reason"] for row in rows)


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_tables_with_any_name_have_a_folder_of_their_own(ran: Ran, number: int) -> None:
    assert ran.rows(HOSTILE[number]) == [{"id": number, "v": f"v{number}"}]


def test_no_table_lies_outside_its_folder(ran: Ran) -> None:
    tables = Path(ran.lake) / "tables"
    logs = {path.parent for path in tables.rglob("_delta_log")}
    assert {path.parent for path in logs} == {tables}
    assert {path.name for path in Path(ran.lake).iterdir()} == {"tables", "_changelane"}


def test_columns_with_any_name_arrive(ran: Ran) -> None:
    (row,) = ran.rows("columns")
    assert row == {"id": 2, NAMES[0]: "moved", **{n: f"value of {n}" for n in NAMES[1:]}}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("_changelane_order", "schema_mismatch"),
        ("_CHANGELANE_x", "schema_mismatch"),
        ("V", "case_collision"),
        ("", "schema_mismatch"),
    ],
)
def test_columns_that_no_table_can_have_are_set_aside_with_the_reason(
    ran: Ran, name: str, code: str
) -> None:
    (row,) = ran.refused(f"refused {name}")
    assert row["code"] == code
    assert row["reason"]
    assert row["event"]


def test_a_folder_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        run(spark, pipeline(tmp_path))
