# SPDX-License-Identifier: Apache-2.0
"""Decides which event schemas a table accepts, and which columns it gets for them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from changelane.pipeline.lake_sinks import OWN_PREFIX
from changelane.reason_codes import ReasonCode
from changelane.spark.evolution.evolution_state import KEY_CHANGED, Evolution, EvolutionState
from changelane.spark.lake.layout import Layouts
from changelane.spark.lake.modes import APPEND, HISTORY, Modes, TableMode
from changelane.spark.lake.type_texts import fits
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.schema import RowColumn, RowSchema
from changelane.spark.state.quarantine import RejectedRows, TableRejectedError

OTHER_SERVER: Final = (
    "another server feeds this table, or another table that is routed here: give each server a "
    "folder of its own, or set `source_servers: multiple` if their keys are disjoint"
)
STRICT: Final = "`schema_changes: strict` leaves the table as it is"
MAX_NAMED: Final = 5
"""The maximum number of missing columns that a reason names."""
CAST: Final = (
    ", and the table's format cannot widen the one to the other: `cast` the column in the "
    "pipeline's transforms, or read the table again into another folder (docs/schema-changes.md, "
    "Types)"
)
OTHER_KEY_VALUES: Final = (
    "a key column changed between an unsigned integer and a decimal, whose values do not identify "
    "the same rows: read the table again into another folder"
)
MEND: Final = "`changelane schema apply` changes the table"


class Policy(msgspec.Struct, frozen=True):
    """The user's choices about tables.

    Attributes:
        tables_without_key: ``quarantine`` or ``append`` the events of tables without a key.
        source_servers: Whether a ``single`` server feeds a table, or ``multiple`` with disjoint
            keys.
        modes: The modes of the tables.
        sequence: The type of the values that order plain rows.
        evolution: The options of schema evolution.
        layouts: The layouts of the tables.
    """

    tables_without_key: str = "quarantine"
    source_servers: str = "single"
    modes: Modes = Modes()
    sequence: str | None = None
    evolution: Evolution = Evolution()
    layouts: Layouts = Layouts()


def is_of_table(table_batch: TableBatch, kind: str) -> Column:
    """Return the condition of a table's rows of one kind."""
    return (F.col("table_id") == table_batch.table_id) & (F.col("kind") == kind)


class SchemaCompatibility:
    """The schemas of a batch that a table accepts; schemas of newer events come first.

    Attributes:
        accepted: The ids of the accepted schemas.
        added: The columns to add for them, name -> Spark type.
        widened: The columns to widen for them.
        replaced: Columns of a dropped table of the same name, which now have another type.
        spellings: The table's spelling of each column, by its name in lower case.
        lacking: Columns and types that the table does not get, by the option ``schema_changes``.
        rejections: The reasons of the rejected schemas.
        rejected: The rows of the rejected schemas.
    """

    def __init__(
        self,
        table_batch: TableBatch,
        table_columns: Mapping[str, str],
        properties: Mapping[str, str],
        policy: Policy,
        *,
        can_widen: Callable[[str, str], bool],
        mode: TableMode,
        evolution_state: EvolutionState,
        is_reborn: bool,
    ) -> None:
        self.accepted: list[str] = []
        self.added: dict[str, str] = {}
        self.widened: dict[str, str] = {}
        self.replaced: list[str] = []
        self.lacking: dict[str, str] = {}
        self.rejections: list[TableRejectedError] = []
        self.rejected: list[RejectedRows] = []
        self._existing = {name.lower() for name in table_columns}
        self.spellings = {name.lower(): name for name in table_columns}
        self._types = {name.lower(): kind for name, kind in table_columns.items()}
        self._policy = policy
        self._mode = mode
        self._can_widen = can_widen
        self._server = properties.get("server")
        self._key: tuple[str, ...] | None = None
        self._has_decimals: dict[str, bool] = {}
        self._followed = evolution_state
        self._is_reborn = is_reborn
        self._is_new = "schema" not in properties or self._is_reborn
        self._is_created = not properties
        self._missing_texts: list[str] = []
        if not self._is_new:
            table_schema = msgspec.json.decode(properties["schema"], type=RowSchema)
            self._key, self._has_decimals = table_schema.key, _keys_with_decimals(table_schema)
        for name in table_batch.newest_first:
            try:
                schema = self._with_key_of_table(table_batch.schemas[name])
                table_batch.schemas[name] = schema
                self._accept(schema, table_batch.newest.get(name, b""))
            except TableRejectedError as rejection:
                self.rejections.append(rejection)
                rows = is_of_table(table_batch, "data") & (F.col("schema_id") == name)
                count = table_batch.counts.get(name, 0)
                self.rejected.append(RejectedRows(rows, rejection.code, rejection.reason, count))
            else:
                self.accepted.append(name)

    def _with_key_of_table(self, schema: RowSchema) -> RowSchema:
        """Return a schema with the table's spelling of the key: case makes no other column."""
        if _lower(schema.key) != _lower(self._key):
            return schema
        return msgspec.structs.replace(schema, key=self._key)

    def _accept(self, schema: RowSchema, newest: bytes) -> None:
        if self._mode.name != APPEND:
            self._check_key(schema, newest)
        is_other = None not in (schema.server, self._server) and schema.server != self._server
        if is_other and self._policy.source_servers == "single":
            raise TableRejectedError(ReasonCode.SOURCE_CONFLICT, OTHER_SERVER)
        for name, kind in self._needed_columns(schema).items():
            lower = name.lower()
            spelling = self.spellings.setdefault(lower, name)
            (self.widened if lower in self._existing else self.added)[spelling] = kind
            self._types[lower] = kind
        if self._is_new and not self.accepted:
            self._key, self._has_decimals = schema.key, _keys_with_decimals(schema)
        self._server = self._server or schema.server

    def _check_key(self, schema: RowSchema, newest: bytes) -> None:
        if self._is_new and not self.accepted:
            may_lack = self._policy.tables_without_key == "append" and self._mode.name != HISTORY
            if schema.key is None and not may_lack:
                raise TableRejectedError(
                    ReasonCode.NO_KEY, "the table has no key: name its key columns under `keys`"
                )
        elif schema.key is None and self._key is not None:
            raise TableRejectedError(ReasonCode.NO_KEY, "the event names no key")
        elif schema.key != self._key and b"" < self._followed.key_order < newest:
            raise TableRejectedError(KEY_CHANGED, _changed_key_text(self._key, schema.key))
        elif schema.key != self._key:
            raise TableRejectedError(
                ReasonCode.SCHEMA_MISMATCH, "the key columns are not those of the table"
            )
        elif any(
            self._has_decimals.get(name, has_decimals) != has_decimals
            for name, has_decimals in _keys_with_decimals(schema).items()
        ):
            raise TableRejectedError(ReasonCode.SCHEMA_MISMATCH, OTHER_KEY_VALUES)

    def _needed_columns(self, schema: RowSchema) -> dict[str, str]:
        """Return the columns that the table lacks, or has in a narrower type.

        Raises:
            TableRejectedError: The table cannot have these columns, or not these values.
        """
        if len({column.name.lower() for column in schema.columns}) < len(schema.columns):
            raise TableRejectedError(
                ReasonCode.CASE_COLLISION, "columns differ by case only, or not at all"
            )
        column_types: dict[str, str] = {}
        self._missing_texts = []
        for column in schema.columns:
            if not column.name:
                raise TableRejectedError(ReasonCode.SCHEMA_MISMATCH, "a column has no name")
            if column.name.lower().startswith(OWN_PREFIX):
                raise TableRejectedError(
                    ReasonCode.SCHEMA_MISMATCH, f"column names must not begin {OWN_PREFIX}"
                )
            if column.name.lower() in self._mode.reserved:
                reason = f"{column.name!r} is the name of a column of the mode {self._mode.name}"
                raise TableRejectedError(ReasonCode.SCHEMA_MISMATCH, reason)
            table_type = self._types.get(column.name.lower())
            if table_type is None:
                if self._may_add(column):
                    column_types[column.name] = column.spark
            elif column.fixed is not None:
                if not fits(column.spark, table_type):
                    reason = f"the default of column {column.name!r} is {column.spark}"
                    raise TableRejectedError(
                        ReasonCode.SCHEMA_MISMATCH, f"{reason} and {table_type} in the table{CAST}"
                    )
            elif fits(column.spark, table_type):
                continue
            elif self._may_widen(column.name.lower(), table_type, column.spark):
                column_types[column.name] = column.spark
            elif self._is_reborn and column.name.lower() in self._existing:
                # its values belong to rows of the dropped table
                self.replaced.append(self.spellings[column.name.lower()])
                self._existing.discard(column.name.lower())
                column_types[column.name] = column.spark
            else:
                reason = f"column {column.name!r} is {table_type} in the table"
                raise TableRejectedError(
                    ReasonCode.SCHEMA_MISMATCH, f"{reason} and {column.spark} in the events{CAST}"
                )
        if self._missing_texts:
            unnamed_count = len(self._missing_texts) - MAX_NAMED
            reasons = [
                *self._missing_texts[:MAX_NAMED],
                *([f"{unnamed_count} more"] if unnamed_count > 0 else []),
            ]
            raise TableRejectedError(
                ReasonCode.SCHEMA_CHANGE, f"{STRICT}, and {', '.join(reasons)}: {MEND}"
            )
        return column_types

    def _may_add(self, column: RowColumn) -> bool:
        """Return whether the table gets a column that it lacks; else the column is left out."""
        if column.fixed is not None or self._is_created:
            return column.fixed is None
        if self._policy.evolution.schema_changes == "evolve":
            return True
        self._record_lacking(column.name, column.spark)
        if self._policy.evolution.schema_changes == "strict":
            self._missing_texts.append(f"column {column.name!r} ({column.spark}) is new")
        return False

    def _may_widen(self, name: str, table_type: str, kind: str) -> bool:
        """Return whether a column can be widened; record it if the options do not allow it."""
        if name not in self._existing:
            return fits(table_type, kind)
        if not self._can_widen(table_type, kind):
            return False
        if self._policy.evolution.schema_changes != "evolve":
            self._record_lacking(self.spellings[name], kind)
            self._missing_texts.append(f"column {self.spellings[name]!r} must become {kind}")
        return True

    def _record_lacking(self, name: str, kind: str) -> None:
        if name not in self.lacking or fits(self.lacking[name], kind):
            self.lacking[name] = kind


def _keys_with_decimals(schema: RowSchema) -> dict[str, bool]:
    """Return the key columns that Spark stores as decimals, and whether the events have decimals.

    Unsigned integers of 64 bits have the same type in Spark, and other canonical keys.
    """
    key = {name.lower() for name in schema.key or ()}
    return {
        column.name.lower(): column.type.startswith("decimal")
        for column in schema.columns
        if column.name.lower() in key and column.spark.upper().startswith("DECIMAL")
    }


def _lower(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else [name.lower() for name in names]


def _changed_key_text(old: Sequence[str] | None, new: Sequence[str] | None) -> str:
    return (
        f"the source changed the table's key from {_listed(old)} to {_listed(new)}, and rows are "
        "identified by their key: load the table again into another folder, or name under `keys` "
        "columns that identify its rows before and after"
    )


def _listed(key: Sequence[str] | None) -> str:
    return "(" + ", ".join(key or ()) + ")"
