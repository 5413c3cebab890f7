# SPDX-License-Identifier: Apache-2.0
"""Creates the table of a batch's events, or adds and widens its columns; returns the plan.

:mod:`changelane.spark.evolution.table_rejections` and
:mod:`changelane.spark.evolution.compatibility` decide which events the table rejects.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from changelane.apply.added_columns import Addition, Cause
from changelane.reason_codes import ReasonCode
from changelane.spark.evolution.alter import OWN_COLUMNS, executed_alterations
from changelane.spark.evolution.backfill import BACKFILLED, backfill_columns, backfill_id
from changelane.spark.evolution.compatibility import Policy, SchemaCompatibility
from changelane.spark.evolution.dropped_tables import has_newer_rows, rows_to_clear
from changelane.spark.evolution.evolution_state import (
    NO_CHANGES,
    EvolutionHalt,
    EvolutionState,
)
from changelane.spark.evolution.source_columns import declared_backfills, source_columns_property
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.evolution.table_properties import (
    MANY,
    batch_properties,
    columns_of_source,
)
from changelane.spark.evolution.table_rejections import (
    check_mode,
    check_owner,
    check_sequence,
    other_kinds,
    position_kind,
    split_at_halt,
    split_by_server,
    uncomparable_truncates,
)
from changelane.spark.lake.interface import Lake
from changelane.spark.lake.layout import Layout, NoColumnError, layout_of
from changelane.spark.lake.modes import APPEND, DEDUPLICATION_COLUMNS, TableMode, mode_of
from changelane.spark.lake.type_texts import fits
from changelane.spark.rows.added_columns import additions_of, note_of
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.schema import RowSchema, table_id_of
from changelane.spark.rows.target import Target
from changelane.spark.state.fencing import FencingToken
from changelane.spark.state.full_history import prepare_full_history
from changelane.spark.state.quarantine import RejectedRows, TableRejectedError
from changelane.spark.state.tombstones import TableTombstones

MISSING_COLUMNS: Final = "lacking"
"""The property with columns that the table did not get, for ``changelane schema plan``."""


PARTITION_NAME: Final = (
    "the events have a new column {!r}, which is the name of a partition of the table: rename the "
    "column with the transform `rename`, or load the table again into another folder"
)


class Preparation(NamedTuple):
    """What :func:`prepare_table` needs beside the events.

    Attributes:
        lake: The tables.
        name: The table.
        policy: The user's choices.
        table_tombstones: The tombstones of the whole table before the batch.
        evolution_state: The schema changes that the table has executed.
        fencing_token: Stops a run that a newer run of the pipeline replaced.
    """

    lake: Lake
    name: str
    policy: Policy
    table_tombstones: TableTombstones
    evolution_state: EvolutionState = NO_CHANGES
    fencing_token: FencingToken | None = None


def prepare_table(preparation: Preparation, table_batch: TableBatch) -> TablePlan | None:
    """Create or alter the table of some events, and return how it applies them.

    The result is ``None`` if the table does not exist and the batch has only truncates of it.

    Raises:
        TableRejectedError: The table applies none of the events.
        FencedError: A newer run of the pipeline writes the table.
    """
    lake, name, policy, table_tombstones, state, fencing_token = preparation
    exists = lake.exists(name)
    properties = lake.properties(name) if exists else {}
    if fencing_token is not None:
        fencing_token.check(properties)
    mode = policy.modes.of(table_id_of(table_batch.table_id))
    rejected: list[RejectedRows] = []
    if mode.name != APPEND:
        table_batch, rejected = split_by_server(
            table_batch, table_tombstones, policy.source_servers, properties
        )
    if not table_batch.domains or (not table_batch.schemas and not exists):
        return None
    if exists:
        check_owner(properties, table_batch.table_id)
        check_mode(mode, mode_of(properties))
    check_sequence(policy.sequence, properties)
    kind = position_kind(table_batch, properties, table_tombstones)
    additions_before = additions_of(properties)
    table_batch, late = _before_halt(preparation, table_batch, properties)
    rejected += late
    cleared = rows_to_clear(table_batch, state, table_tombstones, properties)
    table_batch.newest_truncate = max(table_batch.newest_truncates.get(kind, b""), cleared)
    if state.halted is not None and not table_batch.schemas and not table_batch.newest_truncate:
        raise TableRejectedError(state.halted.code, state.halted.reason)
    if table_batch.schemas:
        table_batch, properties = _evolve(preparation, table_batch, properties, kind, rejected)
    if other_count := sum(n for domain, n in table_batch.domains.items() if domain != kind):
        rejected.append(other_kinds(table_batch, kind, other_count))
    # a change log compares no orders
    crosses = mode.name != APPEND and properties.get("place", "").endswith(MANY)
    if crosses and table_batch.newest_truncate:
        rejected.append(uncomparable_truncates(table_batch))
        table_batch.newest_truncate = b""
    target = _target(preparation, table_batch, properties, mode)
    if mode.is_tracked and (reason := prepare_full_history(lake, name, target.columns)) is not None:
        raise TableRejectedError(ReasonCode.SCHEMA_MISMATCH, reason)
    new_additions = [added for added in target.additions if added not in additions_before]
    return TablePlan(
        table_batch,
        name,
        target,
        properties,
        tuple(rejected),
        crosses,
        cleared,
        policy.layouts.of(table_id_of(table_batch.table_id)).note(properties),
        note_of(new_additions),
    )


def _before_halt(
    preparation: Preparation, table_batch: TableBatch, properties: dict[str, str]
) -> tuple[TableBatch, list[RejectedRows]]:
    """Return the events before a halt of schema evolution, and the rejected ones after it."""
    halt = preparation.evolution_state.halted
    if properties and halt is not None and halt.statements:
        columns = preparation.lake.columns(preparation.name)
        missing = _columns_after_halt(table_batch, halt, columns)
        _record_missing_columns(preparation, missing, properties)
    return split_at_halt(table_batch, halt)


def _evolve(
    preparation: Preparation,
    table_batch: TableBatch,
    properties: dict[str, str],
    kind: bytes,
    rejected: list[RejectedRows],
) -> tuple[TableBatch, dict[str, str]]:
    """Create or alter the table for the schemas that it accepts.

    Returns:
        The accepted events, and the properties of the table.

    Raises:
        TableRejectedError: The table accepts no schema.
    """
    lake, name, policy, _, state, fencing_token = preparation
    mode = policy.modes.of(table_id_of(table_batch.table_id))
    table_columns = lake.columns(name) if properties else {}
    compatibility = SchemaCompatibility(
        table_batch,
        table_columns,
        properties,
        policy,
        can_widen=lake.widens,
        mode=mode,
        evolution_state=state,
        is_reborn=bool(properties) and not has_newer_rows(lake, name, properties, state.cleared),
    )
    rejected.extend(compatibility.rejected)
    if properties and compatibility.lacking:
        properties = _record_missing_columns(preparation, compatibility.lacking, properties)
    accepted = table_batch.with_schemas(compatibility.accepted)
    if not accepted.schemas:
        if not properties or not accepted.newest_truncate:
            raise compatibility.rejections[0]
        return accepted, properties
    new_properties = {
        **batch_properties(accepted, kind, properties, preparation.table_tombstones, state),
        **({} if fencing_token is None else fencing_token.properties),
        **mode.properties,
        **({} if policy.sequence is None else {"sequence": policy.sequence}),
        **_own_columns_property(accepted, properties),
        **source_columns_property(
            lake,
            name,
            accepted,
            properties,
            kind=kind,
            evolution_state=state,
            policy=policy,
            table_columns=table_columns,
            spellings=compatibility.spellings,
        ),
    }
    if not properties:
        return accepted, _create_table(preparation, accepted, compatibility, new_properties)
    return accepted, _alter_table(preparation, accepted, compatibility, properties, new_properties)


def _own_columns_property(table_batch: TableBatch, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the property with the columns that came from the source, this batch included."""
    if properties and OWN_COLUMNS not in properties:
        return {}
    names = {
        column.name.lower() for schema in table_batch.schemas.values() for column in schema.columns
    }
    names.update(msgspec.json.decode(properties.get(OWN_COLUMNS, "[]"), type=list[str]))
    return {OWN_COLUMNS: msgspec.json.encode(sorted(names)).decode()}


def _create_table(
    preparation: Preparation,
    table_batch: TableBatch,
    compatibility: SchemaCompatibility,
    new_properties: Mapping[str, str],
) -> dict[str, str]:
    """Create the table; return its properties."""
    layout = preparation.policy.layouts.of(table_id_of(table_batch.table_id))
    state = preparation.evolution_state
    added_names = {column.lower() for column in compatibility.added}
    # a column that no event has yet is added and filled later
    filled = [
        backfill_id(backfill) for backfill, _ in state.backfills if backfill.column in added_names
    ]
    properties = {**new_properties, **state.initial_properties, **layout.table_property}
    if filled:
        properties[BACKFILLED] = ",".join(filled)
    schema = msgspec.json.decode(properties["schema"], type=RowSchema)
    state_columns = mode_of(properties).state_types_for(has_key=bool(schema.key))
    columns = {**compatibility.added, **state_columns}
    try:
        preparation.lake.create(preparation.name, columns, properties, layout)
    except NoColumnError as error:
        raise TableRejectedError(ReasonCode.SCHEMA_MISMATCH, str(error)) from None
    return properties


def _alter_table(
    preparation: Preparation,
    table_batch: TableBatch,
    compatibility: SchemaCompatibility,
    properties: Mapping[str, str],
    new_properties: Mapping[str, str],
) -> dict[str, str]:
    """Add and widen columns of the table, and set properties; return its properties."""
    lake, name = preparation.lake, preparation.name
    partition_columns = layout_of(properties).columns
    if undroppable := [
        column
        for column in compatibility.replaced
        if column.lower() in partition_columns or not lake.can_rename
    ]:
        reason = (
            f"the dropped table of this name had other types of {', '.join(undroppable)}, and this "
            "table cannot drop these columns: move the table away"
        )
        raise TableRejectedError(ReasonCode.SCHEMA_MISMATCH, reason)
    if compatibility.added and (
        names := sorted(lake.partition_names(name).intersection(compatibility.added))
    ):
        raise TableRejectedError(ReasonCode.SCHEMA_MISMATCH, PARTITION_NAME.format(names[0]))
    if compatibility.replaced:
        lake.drop_columns(name, compatibility.replaced)
    if compatibility.added:
        lake.add_columns(name, compatibility.added)
    if compatibility.widened:
        lake.widen_columns(name, compatibility.widened)
    layout = preparation.policy.layouts.of(table_id_of(table_batch.table_id))
    new_properties = {**new_properties, **_set_layout(lake, name, layout, properties)}
    if any(properties.get(key) != value for key, value in new_properties.items()):
        lake.set_properties(name, new_properties)
    altered = {**properties, **new_properties}
    declared = declared_backfills(additions_of(altered))
    backfills = (*preparation.evolution_state.backfills, *declared)
    return backfill_columns(lake, name, altered, backfills)


def _set_layout(
    lake: Lake, name: str, layout: Layout, properties: Mapping[str, str]
) -> dict[str, str]:
    """Set the table format's properties of a layout; return changelane's properties of it."""
    wanted_layout = layout.for_existing_table(properties)
    if wanted_layout == layout_of(properties):
        return {}
    lake.set_format_properties(name, wanted_layout.properties)
    return wanted_layout.table_property


def _record_missing_columns(
    preparation: Preparation, columns: Mapping[str, str], properties: dict[str, str]
) -> dict[str, str]:
    """Record columns and types that a table does not get; return its properties."""
    recorded = msgspec.json.decode(properties.get(MISSING_COLUMNS) or "{}", type=dict[str, str])
    new = {
        column: kind
        for column, kind in columns.items()
        if column not in recorded or (recorded[column] != kind and fits(recorded[column], kind))
    }
    if not new:
        return properties
    new_properties = {MISSING_COLUMNS: msgspec.json.encode({**recorded, **new}).decode()}
    preparation.lake.set_properties(preparation.name, new_properties)
    return {**properties, **new_properties}


def _columns_after_halt(
    table_batch: TableBatch, halt: EvolutionHalt, table_columns: Mapping[str, str]
) -> dict[str, str]:
    """Return the columns of events after a halt that the table lacks.

    Columns that the table has are left out: pending statements may rename them.
    """
    late = [name for name in table_batch.newest_first if table_batch.oldest[name] > halt.order]
    column_names = {column.lower() for column in table_columns}
    columns = table_batch.schemas[late[0]].columns if late else ()
    return {
        column.name: column.spark
        for column in columns
        if column.fixed is None and column.name.lower() not in column_names
    }


def _target(
    preparation: Preparation,
    table_batch: TableBatch,
    properties: Mapping[str, str],
    mode: TableMode,
) -> Target:
    """Return the columns of a table, and the schemas of the events that it applies."""
    state = preparation.evolution_state
    schema = msgspec.json.decode(properties["schema"], type=RowSchema)
    table_columns = _with_state_columns(preparation.lake, preparation.name, mode, schema)
    columns = columns_of_source(table_columns, properties, mode)
    added = tuple(addition for addition in additions_of(properties) if addition.column in columns)
    mapping = state.column_mapping
    return Target(
        columns,
        tuple(schema.key or ()),
        table_batch.schemas,
        mode.keeps_deleted,
        added,
        () if mapping is None else executed_alterations(mapping, properties),
        tuple(
            Addition(
                backfill.column,
                backfill.order,
                Cause.DEFAULT,
                value=None if value is None else value.fixed,
            )
            for backfill, value in state.backfills
        ),
        has_exact_images=mapping is None,
    )


def _with_state_columns(
    lake: Lake, name: str, mode: TableMode, schema: RowSchema
) -> dict[str, str]:
    """Return the columns of a table; a table of an older changelane gets newer state columns."""
    table_columns, state = lake.columns(name), mode.state_types_for(has_key=bool(schema.key))
    if missing := {
        column: state[column]
        for column in DEDUPLICATION_COLUMNS
        if column in state and column not in table_columns
    }:
        lake.add_columns(name, missing)
    return table_columns
