# SPDX-License-Identifier: Apache-2.0
"""Compares the tables of two lakes: of other formats, or of other pipelines of one source.

Both may change. A row has the order of its newest event. In each reading, P is the older one of the
two tables' newest orders: keys with an event above P are left out on both sides. If the orders have
different kinds of positions, no key can be left out, and the tables should not change.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import SparkSession

from changelane.errors import ChangelaneError, ConfigError, UnknownNameError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.database_source import DatabaseSource
from changelane.schema import TableId, option_for_table
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Lake, separate_session, types_of
from changelane.spark.lake.modes import UPSERT, modes_of
from changelane.spark.run.latest import latest_tables
from changelane.spark.verify.comparison import Key, compare
from changelane.spark.verify.databases import open_database
from changelane.spark.verify.lake_rows import LakeTable, LakeVersion, lake_version
from changelane.spark.verify.lake_types import LakeType
from changelane.spark.verify.report import TableReport, VerificationReport
from changelane.spark.verify.reporting import table_report
from changelane.spark.verify.table_plan import Bound, ComparedColumn, RangeColumn, TablePlan
from changelane.spark.verify.table_planning import STATE_COLUMNS, UnverifiableError
from changelane.spark.verify.table_verification import VerifyOptions

_SETTLE_S: Final = 5.0
"""The time between two readings, in which the table that lags gets newer events, seconds."""
_DOMAIN_BYTES: Final = 2
"""The bytes of an order that state its form and the kind of its position."""


def compare_lakes(
    pipeline: Pipeline,
    other: Pipeline,
    tables: Sequence[str] = (),
    *,
    spark: SparkSession,
    options: VerifyOptions = VerifyOptions(),  # noqa: B008 - frozen
    notify: Callable[[str], None] = lambda _: None,
) -> VerificationReport:
    """Compare the tables of a pipeline with those of another one.

    Args:
        pipeline: The pipeline whose tables are the source.
        other: The other pipeline.
        tables: The names of tables, in full or by their last parts; empty = all of both.
        spark: A session with the table formats of both.
        options: How tables are verified.
        notify: Called with the progress.

    Raises:
        ConfigError: A pipeline has no tables.
        UnknownNameError: There is no such table.
    """
    sides = (
        _Side(pipeline, lake_of(separate_session(spark), pipeline)),
        _Side(other, lake_of(separate_session(spark), other)),
    )
    names = [side.table_names() for side in sides]
    known_names = sorted({*names[0], *names[1]}, key=str)
    chosen = [
        table_id
        for table_id in known_names
        if not tables or any(f".{table_id}".endswith(f".{name}") for name in tables)
    ]
    for name in tables:
        if not any(f".{table_id}".endswith(f".{name}") for table_id in chosen):
            raise UnknownNameError("table", name, sorted(map(str, known_names)))
    primary_keys = _primary_keys((pipeline, other))
    reports = []
    for table_id in chosen:
        comparison = _LakeComparison(sides, table_id, options, primary_keys)
        report = comparison.report()
        reports.append(report)
        notify(f"{report.table}: {report.outcome}")
    return VerificationReport(pipeline=pipeline.name, tables=tuple(reports))


class _Side(NamedTuple):
    """The tables of a pipeline."""

    pipeline: Pipeline
    lake: Lake

    def table_names(self) -> set[TableId]:
        latest = latest_tables(self.pipeline, spark=self.lake.spark)
        return {*latest.tables, *latest.failed}


class _LakeReading(NamedTuple):
    """A reading of :mod:`changelane.spark.verify.comparison`."""

    source: LakeTable
    lake: LakeTable
    left_out: frozenset[Key]
    columns: Sequence[str]


class _LakeComparison:
    """The comparison of one table.

    Args:
        sides: The pipeline whose table is the source, and the other one.
        table_id: The table.
        options: How tables are verified.
        primary_keys: The primary keys of captured tables.
    """

    def __init__(
        self,
        sides: tuple[_Side, _Side],
        table_id: TableId,
        options: VerifyOptions,
        primary_keys: Mapping[TableId, tuple[str, ...]],
    ) -> None:
        self._sides = sides
        self._table_id = table_id
        self._options = options
        self._primary_keys = primary_keys
        self._bounds: tuple[Bound, ...] | None = None
        self._types: list[dict[str, str]] = []

    def report(self) -> TableReport:
        """Compare the table."""
        name, start_s = str(self._table_id), time.monotonic()
        try:
            source, lake = map(self._version_of, self._sides)
            if source is None or lake is None:
                reason = f"only the pipeline {self._sides[source is None].pipeline.name} has it"
                return TableReport(table=name, outcome="different", reason=reason)
            self._types = [types_of(version.rows) for version in (source, lake)]
            plan = _lake_plan(self._key_names(), *self._types)
            comparison = compare(
                lambda: self._open_reading(plan),
                max_readings=self._options.max_readings,
            )
        except UnverifiableError as error:
            return TableReport(table=name, outcome="not verified", reason=str(error))
        return table_report(
            name,
            plan,
            comparison,
            bounds=self._bounds or (),
            duration_s=time.monotonic() - start_s,
        )

    def _version_of(self, side: _Side) -> LakeVersion | None:
        """Return the table of a side; ``None`` = it lacks the table."""
        mode = modes_of(side.pipeline.options).of(self._table_id).name
        if mode != UPSERT:
            raise UnverifiableError(f"its mode is {mode}: only {UPSERT} is compared")
        return lake_version(side.pipeline, side.lake, self._table_id)

    def _key_names(self) -> Sequence[str]:
        for side in self._sides:
            configured = option_for_table(side.pipeline.options.keys, self._table_id)
            if configured is not None:
                return configured
        if self._table_id in self._primary_keys:
            return self._primary_keys[self._table_id]
        raise UnverifiableError("its key is unknown: name it in the option keys of a pipeline")

    @contextlib.contextmanager
    def _open_reading(self, columns_plan: TablePlan) -> Iterator[_LakeReading]:
        """Open the next reading."""
        if self._bounds is not None:
            time.sleep(_SETTLE_S)
        tables, orders = [], []
        for index, side in enumerate(self._sides):
            version = lake_version(side.pipeline, side.lake, self._table_id)
            if version is None:
                raise ChangelaneError(f"{self._table_id} disappeared from a lake")
            if types_of(version.rows) != self._types[index]:
                raise UnverifiableError("its columns changed during the verification")
            table = LakeTable(version, columns_plan, is_source=index == 0)
            tables.append(table)
            orders.append(table.newest_order())
        if self._bounds is None:
            self._bounds = tables[0].chunk_bounds(self._options.chunk_rows)
        left_out = _left_out(tables, [order for order in orders if order is not None])
        source, lake = (msgspec.structs.replace(t, bounds=self._bounds) for t in tables)
        columns = [column.name for column in columns_plan.columns]
        yield _LakeReading(source, lake, left_out, columns)


def _left_out(lake_tables: Sequence[LakeTable], orders: Sequence[bytes]) -> frozenset[Key]:
    """Return the keys with an event that one of the tables may lack."""
    if len({order[:_DOMAIN_BYTES] for order in orders}) != 1:
        return frozenset()
    order = min(orders)
    return frozenset().union(*(table.changed_keys(order) for table in lake_tables))


def _primary_keys(pipelines: Sequence[Pipeline]) -> dict[TableId, tuple[str, ...]]:
    """Return the primary keys of captured tables; without a database, none."""
    keys: dict[TableId, tuple[str, ...]] = {}
    for pipeline in pipelines:
        if isinstance(pipeline.source, DatabaseSource):
            with contextlib.suppress(ConfigError), open_database(pipeline.source) as database:
                keys |= {t.id: t.primary_key for t in database.tables() if t.primary_key}
    return keys


def _lake_plan(
    key_names: Sequence[str], source_types: Mapping[str, str], lake_types: Mapping[str, str]
) -> TablePlan:
    """Return what is compared of two tables.

    Raises:
        UnverifiableError: A column of the key cannot be compared.
    """
    columns: dict[str, ComparedColumn] = {}
    unproven_columns: dict[str, str] = {}
    ranges = {}
    lake_names = {name.lower(): name for name in lake_types if name not in STATE_COLUMNS}
    for name, type_name in source_types.items():
        if name in STATE_COLUMNS:
            continue
        kind, lake_name = LakeType(type_name), lake_names.pop(name.lower(), None)
        if lake_name is None:
            unproven_columns[name] = "the other table lacks it"
            continue
        lake_type = lake_types[lake_name]
        text = kind.text(lake_type)
        if text is None:
            unproven_columns[name] = f"no exact comparison of {kind.shown} with {lake_type}"
            continue
        columns[name.lower()] = ComparedColumn(
            name=name,
            lake_name=lake_name,
            lake_type=lake_type,
            text=text,
            key_text=kind.key_text(lake_type),
        )
        ranges[name.lower()] = kind.range_texts(lake_type)
    unproven_columns |= dict.fromkeys(lake_names.values(), "only the other table has it")
    keys = [columns.get(name.lower()) for name in key_names]
    key_columns = tuple(key for key in keys if key is not None and key.key_text is not None)
    if not key_columns or len(key_columns) < len(keys):
        raise UnverifiableError("a column of its key has a type that cannot identify rows here")
    range_columns = []
    for column in key_columns:
        texts = ranges[column.name.lower()]
        if texts is None:
            break
        range_columns.append(RangeColumn(column, texts))
    return TablePlan(
        key_columns=key_columns,
        columns=tuple(columns.values()),
        ranges=tuple(range_columns),
        unproven_columns=unproven_columns,
    )
