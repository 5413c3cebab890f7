# SPDX-License-Identifier: Apache-2.0
"""The readings of a table: statements that change it meanwhile, and keys of other chunks."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pyspark.sql.types import StructType

from changelane.capture.repairs import delete_repair, read_repair, repair_names
from changelane.capture.storage import LocalFolder
from changelane.errors import ChangelaneError
from changelane.event import Source
from changelane.pipeline.config import Pipeline, load
from changelane.pipeline.postgres_source import PostgresSource
from changelane.position import PostgresPosition
from changelane.schema import TableId
from changelane.spark.verify import table_verification, verify
from changelane.spark.verify.comparison import Difference
from changelane.spark.verify.lake_rows import LakeTable, LakeVersion, TruncatedError
from changelane.spark.verify.postgres_types import PostgresType
from changelane.spark.verify.source_database import Snapshot, VerifiedTable
from changelane.spark.verify.table_plan import Bound, TablePlan
from changelane.spark.verify.table_planning import UnverifiableError, verified_target
from changelane.spark.verify.table_verification import (
    TableVerification,
    Verification,
    VerifyOptions,
)
from changelane.spark.verify.verify import verify_table
from changelane.transforms.project_rename import Project

TABLE = VerifiedTable(id=TableId("shop", "public", "orders"), relation=None, primary_key=("id",))
LAKE_TYPES = StructType().add("id", "integer").add("n", "decimal(10,2)")


class Database:
    """A database whose table may change at any snapshot.

    Args:
        intact: Whether each snapshot has the rows of the table.
    """

    def __init__(self, intact: Sequence[bool] = ()) -> None:
        self.types = {"id": PostgresType("int4"), "n": PostgresType("numeric", (10 << 16 | 2) + 4)}
        self._intact = list(intact)
        self.has_table_rows = True

    @contextlib.contextmanager
    def open_snapshot(self, table: VerifiedTable) -> Iterator[Snapshot]:
        assert table is TABLE
        is_intact = self._intact.pop(0) if self._intact else True
        yield Snapshot(
            position_text="0/1",
            newest=PostgresPosition(1, 1),
            repair_position=lambda number: PostgresPosition(number, 1),
            is_passed=lambda _: True,
            is_intact=lambda: is_intact,
        )

    def column_types(self, table: VerifiedTable) -> dict[str, PostgresType]:
        assert table is TABLE
        return dict(self.types)

    def has_rows(self, table: VerifiedTable) -> bool:
        assert table is TABLE
        return self.has_table_rows

    def rows(self, _: VerifiedTable, columns_plan: TablePlan, *__: Any) -> Any:
        nothing = dict.fromkeys(("sums", "fields"), lambda *_: {})
        texts = ["7" if column.name == "id" else "1.50" for column in columns_plan.columns]
        return SimpleNamespace(
            chunk_bounds=lambda _: (),
            texts=lambda row_keys: {key: [texts] for key in row_keys},
            **nothing,
        )

    event_source = Source("postgresql", "debezium", "shop", "changelane")


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return what the lake has: the types of the columns, and the changed keys."""
    made = SimpleNamespace(types=LAKE_TYPES, changed_keys=frozenset())

    def version(*_: Any) -> LakeVersion | None:
        if made.types is None:
            return None
        rows: Any = SimpleNamespace(schema=made.types)
        return LakeVersion(rows, rows, "tables/orders")

    for module in (table_verification, verify):
        monkeypatch.setattr(module, "lake_version", version)
    monkeypatch.setattr(LakeTable, "changed_keys", lambda *_: made.changed_keys)
    for method in ("sums", "fields"):
        monkeypatch.setattr(LakeTable, method, lambda *_: {})
    monkeypatch.setattr(TableVerification, "_wait_for_lake", lambda *_: None)
    return made


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    config = {
        "name": "shop",
        "source": {
            "type": "postgres",
            "host": "db",
            "database": "shop",
            "user": "u",
            "tables": ["public.*"],
            "segments": str(tmp_path / "capture"),
        },
        "sink": {"type": "delta", "path": "lake"},
    }
    file = tmp_path / "shop.yaml"
    file.write_bytes(msgspec.json.encode(config))
    return load(file)


def verification(pipeline: Pipeline, database: Any) -> Verification:
    lake: Any = None
    source: Any = pipeline.source
    return Verification(pipeline, source, database, lake, VerifyOptions(), lambda _: None)


def capture_folder(pipeline: Pipeline) -> LocalFolder:
    assert isinstance(pipeline.source, PostgresSource)
    return LocalFolder(pipeline.source.segments)


def table(
    pipeline: Pipeline, database: Database, bounds: tuple[Bound, ...] | None = None
) -> TableVerification:
    target = verified_target(pipeline, TABLE.id)
    return TableVerification(verification(pipeline, database), TABLE, target, bounds)


def test_a_snapshot_that_lost_the_rows_of_the_table_is_opened_again(
    pipeline: Pipeline, lake: SimpleNamespace
) -> None:
    del lake
    made = table(pipeline, Database([False, False, True]))
    assert made.comparison().is_complete
    with pytest.raises(TruncatedError):
        table(pipeline, Database([False] * 3)).comparison()
    report, _ = verify_table(verification(pipeline, Database([False] * 3)), TABLE)
    assert (report.outcome, report.reason) == (
        "not verified",
        "a statement truncated or altered it during the verification",
    )


@pytest.mark.parametrize("side", ["source", "lake"])
def test_columns_that_change_between_two_readings_are_not_compared_by_the_old_plan(
    pipeline: Pipeline, lake: SimpleNamespace, side: str
) -> None:
    """With the old plan, the rounded values of a wider decimal would be equal."""
    database = Database()
    made = table(pipeline, database)
    made.comparison()
    if side == "source":
        database.types["n"] = PostgresType("numeric", (12 << 16 | 4) + 4)
    else:
        lake.types = StructType().add("id", "integer").add("n", "decimal(12,4)")
    with pytest.raises(UnverifiableError, match="its columns changed"):
        made.comparison()


def test_rows_of_a_table_that_changed_since_the_comparison_are_not_repaired(
    pipeline: Pipeline, lake: SimpleNamespace
) -> None:
    """A read without a new column would make it NULL."""
    del lake
    database = Database()
    made = table(pipeline, database)
    made.comparison()
    database.types["new"] = PostgresType("int4")
    assert made.repair([Difference("1:7", "columns", ("n",))]) == {
        "1:7": "not repaired: its columns changed during the verification"
    }
    made = table(pipeline, Database([True, False]))
    made.comparison()
    assert made.repair([Difference("1:7", "extra")]) == {
        "1:7": "not repaired: a statement truncated or altered it during the verification"
    }


def test_rows_that_are_repaired_before_their_table_changes_are_not_said_to_be_unrepaired(
    pipeline: Pipeline, lake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    del lake
    folder = capture_folder(pipeline)
    made = table(pipeline, Database([True, True, False, False, False]))
    made.comparison()

    def names(_: LocalFolder) -> list[str]:
        for name in repair_names(folder):
            delete_repair(folder, name)  # the capture takes it
        return []

    monkeypatch.setattr(table_verification, "repair_names", names)
    assert made.repair([Difference("1:7", "columns", ("n",))]) == {
        "1:7": "not compared again: a statement truncated or altered it during the verification"
    }


def test_a_repaired_row_has_the_columns_that_only_other_pipelines_store(
    pipeline: Pipeline, lake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them, the tables of these would have NULL there."""
    del lake
    folder = capture_folder(pipeline)
    project = Project(drop=("secret",))
    pipeline = msgspec.structs.replace(pipeline, transforms=(project,))
    database = Database()
    database.types["secret"] = PostgresType("numeric", (10 << 16 | 2) + 4)
    made = table(pipeline, database)
    made.comparison()
    images = []

    def delete(_: Any, name: str) -> None:
        repair = read_repair(folder, name)
        assert repair is not None
        images.extend(json.loads(r.value or "")["payload"]["after"] for r in repair.records)

    monkeypatch.setattr(table_verification, "delete_repair", delete)
    made._verification = made._verification._replace(options=VerifyOptions(timeout_s=0.1))
    with pytest.raises(ChangelaneError, match="did not take the repaired rows"):
        made.repair([Difference("1:7", "columns", ("n",))])
    (image,) = images
    assert list(image) == ["id", "n", "secret"]
    assert image["secret"] == image["n"]


def test_several_rows_of_a_key_stay_if_the_table_keeps_deleted_rows(
    pipeline: Pipeline, lake: SimpleNamespace
) -> None:
    """A delete only marks them, and a read would restore each of them."""
    lake.types = StructType([*LAKE_TYPES.fields]).add("_changelane_deleted", "boolean")
    made = table(pipeline, Database())
    made.comparison()
    assert made.repair([Difference("1:7", "repeated")]) == {
        "1:7": "not repaired: several rows have the key in a table that keeps deleted rows"
    }
    assert repair_names(capture_folder(pipeline)) == []


def test_a_read_follows_the_merge_of_the_delete_of_several_rows(
    pipeline: Pipeline, lake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One merge of both would change each of the rows, and remove none."""
    del lake
    folder = capture_folder(pipeline)
    options = msgspec.structs.replace(pipeline.options, merge="deferred")
    made = table(msgspec.structs.replace(pipeline, options=options), Database())
    made.comparison()
    stored: Any = SimpleNamespace(read=lambda name: [name])
    made._verification = made._verification._replace(lake=stored)
    steps: list[str] = []
    row_counts = [2, 2, 1]

    def fields(merged: LakeTable, row_keys: frozenset[str]) -> dict[str, list[tuple[str, ...]]]:
        if not isinstance(merged.version.rows, list):
            return {}  # the last reading
        count = row_counts.pop(0)
        steps.append(f"{count} rows in {merged.version.rows[0]}")
        return {key: [("",)] * count for key in row_keys}

    def names(_: LocalFolder) -> list[str]:
        for name in repair_names(folder):
            repair = read_repair(folder, name)
            assert repair is not None
            steps.extend(json.loads(r.value or "")["payload"]["op"] for r in repair.records)
            delete_repair(folder, name)
        return []

    monkeypatch.setattr(LakeTable, "fields", fields)
    monkeypatch.setattr(table_verification, "repair_names", names)
    monkeypatch.setattr(table_verification, "_MERGE_POLL_S", 0)
    made.repair([Difference("1:7", "repeated")])
    assert steps == [
        "d",
        *("2 rows in tables/orders" for _ in range(2)),
        "1 rows in tables/orders",
        "r",
    ]


@pytest.mark.parametrize("failure", ["lake", "capture"])
def test_the_delete_of_several_rows_is_never_without_the_read(
    pipeline: Pipeline,
    lake: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    failure: str,
) -> None:
    """The table would lose a row that the source has, because a repair failed halfway."""
    del lake
    folder = capture_folder(pipeline)
    made = table(pipeline, Database())
    made.comparison()
    made._verification = made._verification._replace(options=VerifyOptions(timeout_s=0.1))

    def wait_for_lake(*_: Any) -> None:
        if failure == "lake":
            raise ChangelaneError("the tables do not have the changes")

    def operations() -> list[str]:
        repairs = [read_repair(folder, name) for name in repair_names(folder)]
        return [
            json.loads(record.value or "")["payload"]["op"]
            for repair in repairs
            if repair is not None
            for record in repair.records
        ]

    def names(_: LocalFolder) -> list[str]:
        """Return the names after a capture took the delete, and ended."""
        if operations() == ["d"]:
            delete_repair(folder, *repair_names(folder))
        return repair_names(folder)

    monkeypatch.setattr(TableVerification, "_wait_for_lake", wait_for_lake)
    monkeypatch.setattr(table_verification, "repair_names", names)
    with pytest.raises(ChangelaneError):
        made.repair([Difference("1:7", "repeated")])
    assert operations() == ["r"]


def test_a_reading_of_a_chunk_leaves_out_its_own_keys_only(
    pipeline: Pipeline, lake: SimpleNamespace
) -> None:
    lake.changed_keys = frozenset({"2:10", "2:11", "2:20", "2:21", "2:-5"})
    bounds = (("10",), ("20",))
    unproven = [table(pipeline, Database(), bounds).comparison(chunk) for chunk in range(3)]
    assert [comparison.unproven_keys for comparison in unproven] == [
        ("2:-5", "2:10"),
        ("2:11", "2:20"),
        ("2:21",),
    ]


def test_a_table_that_the_lake_has_only_after_the_snapshot_is_no_difference(
    pipeline: Pipeline, lake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.types = None
    with monkeypatch.context() as patch:
        patch.setattr(
            TableVerification, "_wait_for_lake", lambda *_: setattr(lake, "types", LAKE_TYPES)
        )
        report, _ = verify_table(verification(pipeline, Database()), TABLE)
        assert report.outcome == "equal"
        assert report.compared_columns == ("id", "n")
    lake.types = None
    report, _ = verify_table(verification(pipeline, Database()), TABLE)
    assert (report.outcome, report.reason) == ("different", "the lake has no table of it")


def test_a_chunk_that_is_not_verified_leaves_the_other_chunks(
    pipeline: Pipeline, lake: SimpleNamespace
) -> None:
    """A continuous verification would else count the table as one chunk, which is proven."""
    del lake
    bounds = (("10",), ("20",))
    without_key = msgspec.structs.replace(TABLE, primary_key=())
    refused = msgspec.structs.replace(TABLE, refusal="why")
    another_key = (("10", "x"),)
    for changed, former in ((without_key, bounds), (refused, bounds), (TABLE, another_key)):
        database = Database()
        database.column_types = lambda _, d=database: dict(d.types)  # type: ignore[method-assign,misc]
        report, ends = verify_table(
            verification(pipeline, database), changed, chunk=1, bounds=former
        )
        assert report.outcome == "not verified"
        assert ends == former
