# SPDX-License-Identifier: Apache-2.0
"""Verifies the tables of a pipeline whose source is a captured PostgreSQL database."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession

from changelane.capture.connectors import lsn_of
from changelane.capture.log_origin import (
    continuation_findings,
    other_log_findings,
    read_origin,
)
from changelane.capture.postgres.captured_postgres import CapturedPostgres
from changelane.capture.postgres.connection import PostgresConnection, connect, database_errors
from changelane.capture.postgres.publication import Publication, read_publication
from changelane.capture.postgres.replication import emit_marker
from changelane.capture.postgres.sql_text import lsn_text
from changelane.capture.postgres.tables import (
    CapturedTable,
    Relation,
    read_relations,
    read_tables,
    selection_of,
)
from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import folder_of
from changelane.errors import ChangelaneError, ConfigError, UnknownNameError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.postgres_source import PostgresSource
from changelane.schema import TableId
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Lake, separate_session, types_of
from changelane.spark.run.latest import latest_tables
from changelane.spark.runtime.sql import folder_name
from changelane.spark.verify.canonical_text import values_of
from changelane.spark.verify.comparison import Comparison, Key, compare
from changelane.spark.verify.lake_rows import (
    LakeTable,
    TruncatedError,
    deleted_keys,
    newest_order,
)
from changelane.spark.verify.report import (
    KeyDifference,
    Outcome,
    TableReport,
    VerificationReport,
)
from changelane.spark.verify.source_rows import SourceTable, captured_rows, source_columns
from changelane.spark.verify.table_plan import TablePlan
from changelane.spark.verify.table_planning import (
    UnverifiableError,
    table_plan,
    verified_target,
)

if TYPE_CHECKING:
    from psycopg import Connection

_POLL_S: Final = 0.2
_ENCODING: Final = "UTF8"
_TRUNCATED_READINGS: Final = 3
"""The number of readings in sequence that a truncate may make useless."""


class VerifyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How tables are verified.

    Attributes:
        chunk_rows: The number of rows of a chunk.
        max_readings: The number of readings after which a row that keeps changing is not proven.
        timeout_s: Seconds to wait until the lake has the changes up to a position of the source.
    """

    chunk_rows: int = 100_000
    max_readings: int = 5
    timeout_s: float = 600.0


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
        pipeline: A pipeline that captures a PostgreSQL database into tables. Its capture and its
            runs must go on, because the comparison waits for them.
        tables: The names of tables at the source, in full or by their last parts; empty = all.
        spark: The session, with the table format of the pipeline.
        options: How tables are verified.
        notify: Called with the progress.

    Raises:
        ConfigError: The source is no PostgreSQL database, the capture log has no first load of it,
            the server rejects the login or a statement, or the pipeline has no tables.
        UnknownNameError: There is no such table.
        UnreachableError: The server does not answer.
        ChangelaneError: The lake does not reach a position of the source in time.
    """
    source = pipeline.source
    if not isinstance(source, PostgresSource):
        msg = f"verify compares PostgreSQL databases, and the source is {source.type_name}"
        raise ConfigError(msg)
    login = PostgresConnection(
        host=source.host,
        port=source.port,
        database=source.database,
        user=source.user,
        password=source.password,
        sslmode=source.sslmode,
        sslrootcert=source.sslrootcert or "",
        sslcert=source.sslcert or "",
        sslkey=source.sslkey or "",
    )
    _check_capture_log(source)
    lake = lake_of(separate_session(spark), pipeline)
    with connect(login) as snapshots, connect(login) as markers:
        with database_errors("the settings of the connection"):
            snapshots.execute(
                "SELECT set_config('statement_timeout', '0', false), "
                "set_config('idle_in_transaction_session_timeout', '0', false), "
                "set_config('TimeZone', 'UTC', false)"
            )
        if snapshots.info.parameter_status("server_encoding") != _ENCODING:
            raise ConfigError(f"verify needs a database with the encoding {_ENCODING}")
        publication = read_publication(snapshots, source.publication_name)
        verification = _Verification(
            pipeline,
            source,
            publication or Publication(name=""),
            lake,
            snapshots,
            markers,
            options,
            notify,
        )
        reports = []
        for captured_table in _selected_tables(snapshots, source, tables):
            report = _table_report(verification, captured_table)
            reports.append(report)
            notify(f"{report.table}: {report.outcome}")
    return VerificationReport(pipeline=pipeline.name, tables=tuple(reports))


def _check_capture_log(source: PostgresSource) -> None:
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
    present = CapturedPostgres(source).origin()
    for finding in (
        *other_log_findings(recorded, present, folder.label),
        *continuation_findings(recorded, present, lambda _: (), has_snapshot=False),
    ):
        msg = f"the capture log {folder.label} is not of this database: {finding.problem}"
        raise ConfigError(msg)


class _Verification(NamedTuple):
    """What the verification of every table needs.

    Attributes:
        pipeline: The pipeline.
        source: Its source.
        publication: The publication of the capture.
        lake: Its tables.
        snapshots: The connection that reads snapshots.
        markers: The connection that writes markers into the log while a snapshot is open.
        options: How tables are verified.
        notify: Called with the progress.
    """

    pipeline: Pipeline
    source: PostgresSource
    publication: Publication
    lake: Lake
    snapshots: "Connection[Any]"
    markers: "Connection[Any]"
    options: VerifyOptions
    notify: Callable[[str], None]

    def row_filter_of(self, relation: Relation) -> str:
        """Return the condition of the publication on the rows of a table; empty = none."""
        published = self.publication.tables.get((relation.schema, relation.name))
        return "" if published is None else published.row_filter


def _selected_tables(
    connection: "Connection[Any]", source: PostgresSource, names: Sequence[str]
) -> list[CapturedTable]:
    """Return the captured tables that are verified."""
    relations = read_relations(connection)
    captured = read_tables(connection, relations, selection_of(relations, source.tables).tables)
    ids = {str(_id_of(source, table)): table for table in captured}
    selected: dict[str, CapturedTable] = {}
    for name in names:
        matches = {text: ids[text] for text in ids if f".{text}".endswith(f".{name}")}
        if not matches:
            raise UnknownNameError("table", name, sorted(ids))
        selected |= matches
    return list((selected or ids).values())


def _id_of(source: PostgresSource, captured_table: CapturedTable) -> TableId:
    relation = captured_table.relation
    return TableId(source.database, relation.schema, relation.name)


class _TableReading(NamedTuple):
    """A reading of :mod:`changelane.spark.verify.comparison`."""

    source: SourceTable
    lake: LakeTable
    left_out: frozenset[Key]


class _TableVerification:
    """The verification of one table.

    Args:
        verification: What the verification of every table needs.
        relation: The table at the source.
        lake_table: The table of the lake, by its name after the transforms.
        columns_plan: What is compared.

    Attributes:
        first_lsn: The position of the first snapshot.
    """

    def __init__(
        self,
        verification: _Verification,
        relation: Relation,
        lake_table: TableId,
        columns_plan: TablePlan,
    ) -> None:
        self._verification = verification
        self._relation = relation
        self._lake_table = lake_table
        self._columns_plan = columns_plan
        self._capture_log = CaptureLog(folder_of(verification.source.segments))
        self.first_lsn: int | None = None

    def comparison(self) -> Comparison:
        """Compare the table."""
        return compare(
            self._open_reading,
            columns=[column.name for column in self._columns_plan.columns],
            max_readings=self._verification.options.max_readings,
        )

    @contextlib.contextmanager
    def _open_reading(self) -> Iterator[_TableReading]:
        """Open the next reading, which ends with the snapshot."""
        for attempt in range(_TRUNCATED_READINGS):
            # a new snapshot after this one begins another history: its rows are left out
            newest = self._capture_log.newest()
            history = 0 if newest is None else newest.history
            low_lsn = self._begin_snapshot()
            try:
                try:
                    reading = self._reading(low_lsn, history)
                except TruncatedError:
                    if attempt + 1 == _TRUNCATED_READINGS:
                        raise
                    continue
                yield reading
                return
            finally:
                self._end_snapshot()

    def _begin_snapshot(self) -> int:
        """Open a snapshot that has all changes up to the returned position.

        The commit of the marker waits for the log like those before it, so that these are visible.
        A commit that becomes visible later, in the instant after its record in the log, would
        differ in this reading only.
        """
        snapshots = self._verification.snapshots
        low_lsn = emit_marker(snapshots, "verify").lsn
        with database_errors("the snapshot"):
            snapshots.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            snapshots.execute("SELECT 1")
        return low_lsn

    def _end_snapshot(self) -> None:
        with contextlib.suppress(ChangelaneError), database_errors("the end of the snapshot"):
            self._verification.snapshots.execute("ROLLBACK")

    def _reading(self, low_lsn: int, history: int) -> _TableReading:
        # every change in the snapshot precedes this marker
        self._wait_for_lake(emit_marker(self._verification.markers, "verify").lsn)
        rows = _lake_rows(self._verification.pipeline, self._verification.lake, self._lake_table)
        if rows is None:
            raise ChangelaneError(f"{self._lake_table} disappeared from the lake")
        order = newest_order(low_lsn, self._verification.pipeline.options.epoch + history)
        source = SourceTable(
            self._verification.snapshots,
            self._relation,
            self._columns_plan,
            self._verification.row_filter_of(self._relation),
        )
        lake = LakeTable(rows, self._columns_plan)
        left_out = lake.changed_keys(order) | deleted_keys(
            self._verification.lake, self._lake_table, self._columns_plan, order
        )
        if self.first_lsn is None:
            self.first_lsn = low_lsn
            bounds = source.chunk_bounds(self._verification.options.chunk_rows)
            source = msgspec.structs.replace(source, bounds=bounds)
            lake = msgspec.structs.replace(lake, bounds=bounds)
        self._verification.notify(
            f"{self._relation.shown}: reading at {lsn_text(low_lsn)}, {len(left_out):,} keys "
            "changed since"
        )
        return _TableReading(source, lake, left_out)

    def _wait_for_lake(self, lsn: int) -> None:
        """Wait until the pipeline has applied all changes up to a position.

        Raises:
            ChangelaneError: It takes too long.
        """
        log = self._capture_log
        consumer = folder_name(self._verification.pipeline.name)
        deadline_s = time.monotonic() + self._verification.options.timeout_s
        end_offset: int | None = None
        while time.monotonic() < deadline_s:
            newest = log.newest()
            if end_offset is None and newest is not None:
                captured_lsn = lsn_of(newest.engine_offset)
                if captured_lsn is not None and captured_lsn >= lsn:
                    end_offset = newest.next_offset
            if end_offset is not None and _applied_offset(log, consumer) >= end_offset:
                return
            time.sleep(_POLL_S)
        lagging = "capture log does" if end_offset is None else "tables do"
        raise ChangelaneError(
            f"the {lagging} not have the changes up to {lsn_text(lsn)} after "
            f"{self._verification.options.timeout_s:.0f} s: `changelane run` must run meanwhile"
        )


def _applied_offset(log: CaptureLog, consumer: str) -> int:
    """Return the offset of the first record that a pipeline has not applied; 0 if unknown."""
    applied = log.applied_by(consumer)
    if applied is None:
        return 0
    try:
        return log.manifest(applied.sequence).next_offset
    except ChangelaneError:  # the retention deleted it, or nothing is applied yet
        return 0


def _lake_rows(pipeline: Pipeline, lake: Lake, table_id: TableId) -> DataFrame | None:
    """Return the newest rows of a table; ``None`` = the lake has no table of it.

    Raises:
        UnverifiableError: The events that wait for the table cannot be merged.
    """
    try:
        latest = latest_tables(pipeline, [str(table_id)], spark=lake.spark)
    except UnknownNameError:
        return None
    if table_id in latest.failed:
        raise UnverifiableError(f"its events cannot be merged: {latest.failed[table_id]}")
    return latest.tables.get(table_id)


def _table_report(verification: _Verification, captured_table: CapturedTable) -> TableReport:
    """Verify one table."""
    pipeline, lake, snapshots = verification.pipeline, verification.lake, verification.snapshots
    table = _id_of(verification.source, captured_table)
    start_s = time.monotonic()
    if captured_table.has_row_security:
        reason = "row-level security hides rows from the user"
        return TableReport(table=str(table), outcome="not verified", reason=reason)
    try:
        target = verified_target(pipeline, table)
        rows = _lake_rows(pipeline, lake, target.table)
        if rows is None:
            row_filter = verification.row_filter_of(captured_table.relation)
            return _report_without_table(
                str(table), snapshots, captured_rows(captured_table.relation, row_filter)
            )
        primary_key = captured_table.primary_key
        plan = table_plan(
            pipeline,
            target,
            primary_key=() if primary_key is None else primary_key.names,
            source_types=source_columns(snapshots, captured_table.relation.oid),
            lake_types=types_of(rows),
            version=snapshots.info.server_version,
        )
        table_verification = _TableVerification(
            verification, captured_table.relation, target.table, plan
        )
        comparison = table_verification.comparison()
    except UnverifiableError as error:
        return TableReport(table=str(table), outcome="not verified", reason=str(error))
    names = [column.name for column in plan.key_columns]

    def key_of(key: Key) -> dict[str, str | None]:
        return dict(zip(names, values_of(key), strict=True))

    return TableReport(
        table=str(table),
        outcome=_outcome_of(comparison),
        position=lsn_text(table_verification.first_lsn or 0),
        row_count=comparison.row_count,
        chunk_count=comparison.chunk_count,
        reading_count=comparison.reading_count,
        unproven_share=comparison.unproven_share,
        unproven_keys=tuple(map(key_of, comparison.unproven_keys)),
        unsearched_chunks=comparison.unsearched_chunks,
        compared_columns=tuple(column.name for column in plan.columns),
        unproven_columns=plan.unproven_columns,
        differences=tuple(
            KeyDifference(key_of(difference.key), difference.kind, difference.columns)
            for difference in comparison.differences
        ),
        duration_s=time.monotonic() - start_s,
    )


def _outcome_of(comparison: Comparison) -> Outcome:
    if comparison.differences:
        return "different"
    return "equal" if comparison.is_complete else "not proven"


def _report_without_table(table_name: str, connection: "Connection[Any]", rows: str) -> TableReport:
    """Return the result of a table that the lake lacks: no event has created it.

    Args:
        table_name: The table at the source.
        connection: A connection to the database.
        rows: Its captured rows, in SQL.
    """
    with database_errors(f"the count of {table_name}"):
        query = f"SELECT EXISTS (SELECT FROM {rows} AS t)"
        (has_rows,) = connection.execute(query.encode()).fetchone() or (False,)
    if has_rows:
        reason = "the lake has no table of it"
        return TableReport(table=table_name, outcome="different", reason=reason)
    return TableReport(table=table_name, outcome="equal")
