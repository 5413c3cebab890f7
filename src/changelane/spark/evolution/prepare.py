# SPDX-License-Identifier: Apache-2.0
"""Create the table of a batch's events, or add and widen its columns.

:mod:`changelane.spark.evolution.table_rejections` decides which events it rejects.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from changelane.reason_codes import ReasonCode
from changelane.spark.evolution import alter
from changelane.spark.evolution.compatibility import Admission, Policy, is_of_table
from changelane.spark.evolution.evolution_state import NOTHING, Followed, Halted
from changelane.spark.evolution.source_columns import fillings, new_columns
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.evolution.table_properties import (
    MANY,
    batch_properties,
    newest_position,
)
from changelane.spark.evolution.table_rejections import (
    before_halt,
    check_owner,
    check_sequence,
    mode_conflict_text,
    other_kinds,
    position_kind,
    split_by_server,
)
from changelane.spark.lake.interface import Lake, name_of, widens
from changelane.spark.lake.layout import Layout, NoColumnError, layout_of
from changelane.spark.lake.lookup import has_newer
from changelane.spark.lake.modes import APPEND, DEDUPLICATION_COLUMNS, TableMode, mode_of
from changelane.spark.rows.added_columns import additions_of, note_of
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.schema import RowSchema, table_id_of
from changelane.spark.rows.target import Target
from changelane.spark.state.fencing import FencingToken
from changelane.spark.state.full_history import prepare_full_history
from changelane.spark.state.quarantine import RejectedRows, TableRejectedError
from changelane.spark.state.tombstones import TableTombstones, has_newer_tombstone

TRUNCATED_ELSEWHERE: Final = (
    "the events have no positions, and offsets of several partitions or files cannot be compared "
    "with a truncate of one: use one partition, a format with positions, or raise `epoch`"
)
LACKING: Final = "lacking"
CLEARED: Final = "cleared"


def is_newer(lake: Lake, name: str, properties: Mapping[str, str], ended: bytes) -> bool:
    """Say whether a table took an event that is newer than where one of its name went."""
    return ended <= newest_position(properties) or has_newer(lake.read(name), ended)


def is_made_again(lake: Lake, table_id: str, ended: bytes) -> bool:
    """Return whether a dropped table was created again, by the table of its name."""
    name = name_of(table_id)
    properties = lake.properties(name) if lake.exists(name) else {}
    if "schema" not in properties:
        return False
    if ended.hex() <= properties.get(CLEARED, "") or is_newer(lake, name, properties, ended):
        return True
    return has_newer_tombstone(lake, table_id, ended)


def prepare_table(
    lake: Lake,
    name: str,
    work: TableBatch,
    table_tombstones: TableTombstones,
    policy: Policy,
    *,
    fence: FencingToken | None = None,
    followed: Followed = NOTHING,
) -> TablePlan | None:
    """Create or evolve the table of some events, and say how they are applied.

    ``None`` when there is no table yet and only truncates tell of it: they are remembered.

    Raises:
        TableRejectedError: The table can take none of them.
        FencedError: A newer run of the pipeline writes the table.
    """
    exists = lake.exists(name)
    properties = lake.properties(name) if exists else {}
    if fence is not None:
        fence.check(properties)
    mode = policy.modes.of(table_id_of(work.table_id))
    work, foreign = (
        (work, [])
        if mode.name == APPEND
        else split_by_server(work, table_tombstones, policy.source_servers, properties)
    )
    if not work.domains or (not work.schemas and not exists):
        return None
    if exists:
        check_owner(properties, work.table_id)
    if exists and mode != mode_of(properties):
        raise TableRejectedError(
            ReasonCode.MODE_CONFLICT, mode_conflict_text(mode, mode_of(properties))
        )
    check_sequence(policy.sequence, properties)
    layout = policy.layouts.of(table_id_of(work.table_id))
    kind = position_kind(work, properties, table_tombstones)
    if exists and followed.halted is not None and followed.halted.statements:
        _keep_lacking(lake, name, _behind(work, followed.halted, lake.columns(name)), properties)
    before = additions_of(properties)
    work, refused = before_halt(work, followed.halted, foreign)
    work.newest_truncate = work.newest_truncates.get(kind, b"")
    cleared = _cleared(work, followed, table_tombstones, properties)
    work.newest_truncate = max(work.newest_truncate, cleared)
    if followed.halted is not None and not work.schemas and not work.newest_truncate:
        raise TableRejectedError(followed.halted.code, followed.halted.reason)
    if work.schemas:
        table_columns = lake.columns(name) if exists else {}
        admission = Admission(
            work,
            table_columns,
            properties,
            policy,
            can_widen=lake.widens,
            mode=mode,
            followed=followed,
            is_reborn=exists and not is_newer(lake, name, properties, followed.cleared),
        )
        refused.extend(admission.refused)
        if exists and admission.lacking:
            properties = _keep_lacking(lake, name, admission.lacking, properties)
        work = work.with_schemas(admission.admitted)
        if work.schemas:
            new_properties = {
                **batch_properties(work, kind, properties, table_tombstones, followed),
                **({} if fence is None else fence.properties),
                **mode.properties,
                **({} if policy.sequence is None else {"sequence": policy.sequence}),
                **_ours(properties, work, exists=exists),
                **new_columns(
                    lake,
                    name,
                    work,
                    properties,
                    kind=kind,
                    followed=followed,
                    policy=policy,
                    table_columns=table_columns,
                ),
            }
            properties = _evolved(
                lake,
                name,
                admission,
                new_properties,
                properties=properties,
                followed=followed,
                layout=layout,
            )
        elif not exists or not work.newest_truncate:
            raise admission.misfits[0]
    if other_count := sum(count for domain, count in work.domains.items() if domain != kind):
        refused.append(other_kinds(work, kind, other_count))
    # a log of events compares no orders
    crosses = mode.name != APPEND and properties.get("place", "").endswith(MANY)
    if crosses and work.newest_truncate:
        is_truncate = is_of_table(work, "truncate")
        refused.append(
            RejectedRows(is_truncate, ReasonCode.UNORDERED, TRUNCATED_ELSEWHERE, work.truncates)
        )
        work.newest_truncate = b""
    target = _target(lake, name, work, properties, mode)
    if mode.is_tracked and (reason := prepare_full_history(lake, name, target.columns)) is not None:
        raise TableRejectedError(ReasonCode.SCHEMA_MISMATCH, reason)
    note = layout.note(properties)
    warning = note_of([addition for addition in target.additions if addition not in before])
    return TablePlan(
        work, name, target, properties, tuple(refused), crosses, cleared, note, warning
    )


def _target(
    lake: Lake, name: str, work: TableBatch, properties: Mapping[str, str], mode: TableMode
) -> Target:
    """Return the columns of a table, and the schemas of the events that it takes."""
    active = msgspec.json.decode(properties["schema"], type=RowSchema)
    columns = own_columns(_held(lake, name, mode, active), properties, mode)
    added = tuple(addition for addition in additions_of(properties) if addition.column in columns)
    return Target(columns, tuple(active.key or ()), work.schemas, mode.keeps_deleted, added)


def _held(lake: Lake, name: str, mode: TableMode, active: RowSchema) -> dict[str, str]:
    """Return the columns of a table, which gets those that were thought of after it was made."""
    table_columns, state = lake.columns(name), mode.state_types_for(has_key=bool(active.key))
    if lacking := {
        column: state[column]
        for column in DEDUPLICATION_COLUMNS
        if column in state and column not in table_columns
    }:
        lake.add_columns(name, lacking)
    return table_columns


def _ours(properties: Mapping[str, str], work: TableBatch, *, exists: bool) -> dict[str, str]:
    """Return which columns a table has from its source, beside those that came by hand."""
    if exists and alter.OURS not in properties:
        return {}
    names = {column.name.lower() for schema in work.schemas.values() for column in schema.columns}
    names.update(msgspec.json.decode(properties.get(alter.OURS, "[]"), type=list[str]))
    return {alter.OURS: msgspec.json.encode(sorted(names)).decode()}


def own_columns(
    table_columns: Mapping[str, str], properties: Mapping[str, str], mode: TableMode
) -> dict[str, str]:
    """Return the columns that are written: not those that somebody added to the table by hand."""
    state = {**mode.state_types, **DEDUPLICATION_COLUMNS}
    own_columns = properties.get(alter.OURS)
    names = None if own_columns is None else set(msgspec.json.decode(own_columns, type=list[str]))
    return {
        column: kind
        for column, kind in table_columns.items()
        if column not in state and (names is None or column.lower() in names)
    }


def _evolved(
    lake: Lake,
    name: str,
    admission: Admission,
    new_properties: Mapping[str, str],
    *,
    properties: Mapping[str, str],
    followed: Followed,
    layout: Layout,
) -> dict[str, str]:
    """Give a table the columns, types and properties that it needs; return its properties."""
    if not properties:
        added_names = {name.lower() for name in admission.added}
        # a column that no event had yet comes later, and is filled then
        filled = [
            alter.filling_id(filling)
            for filling, _ in followed.fillings
            if filling.column in added_names
        ]
        new_properties = {**new_properties, **followed.created, **layout.table_property}
        if filled:
            new_properties[alter.FILLED] = ",".join(filled)
        schema = msgspec.json.decode(new_properties["schema"], type=RowSchema)
        columns = {
            **admission.added,
            **mode_of(new_properties).state_types_for(has_key=bool(schema.key)),
        }
        try:
            lake.create(name, columns, new_properties, layout)
        except NoColumnError as error:
            raise TableRejectedError(ReasonCode.SCHEMA_MISMATCH, str(error)) from None
        return dict(new_properties)
    if admission.replaced and not lake.can_rename:
        names = ", ".join(admission.replaced)
        reason = f"the table that went had other types of {names}, and this format keeps columns"
        raise TableRejectedError(ReasonCode.SCHEMA_MISMATCH, f"{reason}: move the table away")
    if admission.replaced:
        lake.drop_columns(name, admission.replaced)
    if admission.added:
        lake.add_columns(name, admission.added)
    if admission.widened:
        lake.widen_columns(name, admission.widened)
    new_properties = {**new_properties, **_laid_out(lake, name, layout, properties)}
    if any(properties.get(key) != value for key, value in new_properties.items()):
        lake.set_properties(name, new_properties)
    declared = fillings(additions_of({**properties, **new_properties}))
    return alter.fill_all(
        lake, name, {**properties, **new_properties}, (*followed.fillings, *declared)
    )


def _laid_out(
    lake: Lake, name: str, layout: Layout, properties: Mapping[str, str]
) -> dict[str, str]:
    """Give a table the properties that its format knows; return what it is to tell of them."""
    wanted_layout = layout.for_existing_table(properties)
    if wanted_layout == layout_of(properties):
        return {}
    lake.set_format_properties(name, wanted_layout.properties)
    return wanted_layout.table_property


def _keep_lacking(
    lake: Lake, name: str, lacking: Mapping[str, str], properties: dict[str, str]
) -> dict[str, str]:
    """Keep what a table does not get, for `changelane schema plan`; return its properties."""
    missing_text = properties.get(LACKING) or "{}"
    missing_types = msgspec.json.decode(missing_text, type=dict[str, str])
    wider = {
        column: kind
        for column, kind in lacking.items()
        if column not in missing_types
        or (missing_types[column] != kind and widens(missing_types[column], kind))
    }
    if not wider:
        return properties
    new_properties = {LACKING: msgspec.json.encode({**missing_types, **wider}).decode()}
    lake.set_properties(name, new_properties)
    return {**properties, **new_properties}


def _cleared(
    work: TableBatch,
    followed: Followed,
    table_tombstones: TableTombstones,
    properties: Mapping[str, str],
) -> bytes:
    """Return up to where rows went with an older table of this name, until they are gone."""
    cleared = followed.cleared
    if cleared[:2] not in work.domains:
        return b""
    is_met = table_tombstones.truncated < cleared and any(
        order < cleared for order in work.oldest.values()
    )
    is_held = bool(properties) and properties.get(CLEARED, "") < cleared.hex()
    return cleared if is_met or is_held else b""


def _behind(work: TableBatch, halted: Halted, table_columns: Mapping[str, str]) -> dict[str, str]:
    """Return newest columns that the table lacks; pending statements may change shared ones."""
    late = [name for name in work.newest_first if work.oldest[name] > halted.order]
    column_names = {name.lower() for name in table_columns}
    columns = work.schemas[late[0]].columns if late else ()
    return {
        column.name: column.spark
        for column in columns
        if column.fixed is None and column.name.lower() not in column_names
    }
