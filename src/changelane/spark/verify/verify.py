# SPDX-License-Identifier: Apache-2.0
"""Verifies the tables of a pipeline whose source is a captured database."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import SparkSession

from changelane.capture.database_capture import captured_server_of
from changelane.capture.log_origin import (
    continuation_findings,
    other_log_findings,
    read_origin,
)
from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import folder_of
from changelane.errors import ConfigError, UnknownNameError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.mysql_source import MysqlSource
from changelane.pipeline.postgres_source import PostgresSource
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import separate_session, types_of
from changelane.spark.verify.canonical_text import values_of
from changelane.spark.verify.comparison import Comparison, Key
from changelane.spark.verify.mysql_database import open_mysql
from changelane.spark.verify.postgres_database import open_postgres
from changelane.spark.verify.report import (
    KeyDifference,
    Outcome,
    TableReport,
    VerificationReport,
)
from changelane.spark.verify.source_database import (
    SourceDatabase,
    VerifiedTable,
)
from changelane.spark.verify.table_planning import (
    UnverifiableError,
    table_plan,
    verified_target,
)
from changelane.spark.verify.table_verification import (
    REPAIRED,
    TableVerification,
    Verification,
    VerifyOptions,
    lake_rows,
)


def verify(
    pipeline: Pipeline,
    tables: Sequence[str] = (),
    *,
    spark: SparkSession,
    options: VerifyOptions = VerifyOptions(),  # noqa: B008 - frozen
    notify: Callable[[str], None] = lambda _: None,
) -> VerificationReport:
    """Compare the tables of a database with those of the lake; both may change meanwhile.

    Args:
        pipeline: A pipeline that captures a database into tables. Its capture and its runs must
            go on, because the comparison waits for them.
        tables: The names of tables at the source, in full or by their last parts; empty = all.
        spark: The session, with the table format of the pipeline.
        options: How tables are verified.
        notify: Called with the progress.

    Raises:
        ConfigError: The source is no captured database, the capture log has no first load of it,
            the server rejects the login or a statement, or the pipeline has no tables.
        UnknownNameError: There is no such table.
        UnreachableError: The server does not answer.
        ChangelaneError: The lake does not reach a position of the source in time.
    """
    source = pipeline.source
    if not isinstance(source, DatabaseSource):
        msg = f"verify compares captured databases, and the source is {source.type_name}"
        raise ConfigError(msg)
    _check_capture_log(source)
    lake = lake_of(separate_session(spark), pipeline)
    with _open_database(source) as database:
        verification = Verification(pipeline, source, database, lake, options, notify)
        reports = []
        for table in _selected_tables(database.tables(), tables):
            report = _table_report(verification, table)
            reports.append(report)
            notify(f"{report.table}: {report.outcome}")
    return VerificationReport(pipeline=pipeline.name, tables=tuple(reports))


def _open_database(
    source: DatabaseSource,
) -> contextlib.AbstractContextManager[SourceDatabase]:
    """Connect to the database of a source."""
    match source:
        case PostgresSource():
            return open_postgres(source)
        case MysqlSource():
            return open_mysql(source)
        case _:
            raise ConfigError(f"verify cannot compare {source.type_name}")


def _check_capture_log(source: DatabaseSource) -> None:
    """Check that the capture log has the first rows of this database.

    Raises:
        ConfigError: It has not.
    """
    folder = folder_of(source.segments)
    newest = CaptureLog(folder).newest()
    if newest is None or not newest.engine_offset:
        # a first snapshot would come after the position of a reading
        msg = f"the capture log {folder.label} has no complete first load: start `changelane run`"
        raise ConfigError(msg)
    recorded = read_origin(folder)
    if recorded is None:
        return
    # positions of another server have another meaning
    present = captured_server_of(source).origin()
    for finding in (
        *other_log_findings(recorded, present, folder.label),
        *continuation_findings(recorded, present, lambda _: (), has_snapshot=False),
    ):
        msg = f"the capture log {folder.label} is not of this database: {finding.problem}"
        raise ConfigError(msg)


def _selected_tables(
    captured: Sequence[VerifiedTable], names: Sequence[str]
) -> list[VerifiedTable]:
    """Return the captured tables that are verified."""
    ids = {str(table.id): table for table in captured}
    selected: dict[str, VerifiedTable] = {}
    for name in names:
        matches = {text: ids[text] for text in ids if f".{text}".endswith(f".{name}")}
        if not matches:
            raise UnknownNameError("table", name, sorted(ids))
        selected |= matches
    return list((selected or ids).values())


def _table_report(verification: Verification, table: VerifiedTable) -> TableReport:
    """Verify one table."""
    pipeline, database = verification.pipeline, verification.database
    name, start_s = str(table.id), time.monotonic()
    if table.refusal:
        return TableReport(table=name, outcome="not verified", reason=table.refusal)
    try:
        target = verified_target(pipeline, table.id)
        rows = lake_rows(pipeline, verification.lake, target.table)
        if rows is None:
            return _report_without_table(name, has_rows=database.has_rows(table))
        plan = table_plan(
            pipeline,
            target,
            primary_key=table.primary_key,
            source_types=database.column_types(table),
            lake_types=types_of(rows),
        )
        table_verification = TableVerification(verification, table, target.table, plan)
        comparison = table_verification.comparison()
        repairs = (
            table_verification.repair(comparison.differences)
            if verification.options.repairs and comparison.differences
            else {}
        )
    except UnverifiableError as error:
        return TableReport(table=name, outcome="not verified", reason=str(error))
    names = [column.name for column in plan.key_columns]

    def key_of(key: Key) -> dict[str, str | None]:
        return dict(zip(names, values_of(key), strict=True))

    return TableReport(
        table=name,
        outcome=_outcome_of(comparison, repairs),
        position=table_verification.position_text,
        row_count=comparison.row_count,
        chunks=table_verification.chunk_reports(comparison.chunks),
        reading_count=comparison.reading_count,
        unproven_share=comparison.unproven_share,
        unproven_keys=tuple(map(key_of, comparison.unproven_keys)),
        compared_columns=tuple(column.name for column in plan.columns),
        unproven_columns=plan.unproven_columns,
        differences=tuple(
            KeyDifference(
                key_of(difference.key),
                difference.kind,
                difference.columns,
                repairs.get(difference.key, ""),
            )
            for difference in comparison.differences
        ),
        duration_s=time.monotonic() - start_s,
    )


def _outcome_of(comparison: Comparison, repairs: Mapping[Key, str]) -> Outcome:
    if comparison.differences:
        is_repaired = all(repairs.get(d.key) == REPAIRED for d in comparison.differences)
        return "repaired" if is_repaired else "different"
    return "equal" if comparison.is_complete else "not proven"


def _report_without_table(name: str, *, has_rows: bool) -> TableReport:
    """Return the result of a table that the lake lacks: no event has created it.

    Args:
        name: The table at the source.
        has_rows: Whether it has rows.
    """
    if has_rows:
        return TableReport(table=name, outcome="different", reason="the lake has no table of it")
    return TableReport(table=name, outcome="equal")
