# SPDX-License-Identifier: Apache-2.0
"""Tables follow the schemas of their events: create, add columns, or refuse with the reason."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import functions as F

from changelane.spark.evolution import alter
from changelane.spark.evolution.compatibility import OTHER_SERVER, Admission, Policy, is_of_table
from changelane.spark.evolution.evolution_state import NOTHING, Followed, Halted
from changelane.spark.evolution.source_columns import fillings, new_columns
from changelane.spark.evolution.table_properties import (
    MANY,
    batch_properties,
    newest_position,
    server_of,
)
from changelane.spark.lake.interface import Lake, name_of, widens
from changelane.spark.lake.layout import Layout, NoColumnError, layout_of
from changelane.spark.lake.lookup import holds_newer
from changelane.spark.lake.modes import ADDED, APPEND, HISTORY, UPSERT, TableMode, mode_of
from changelane.spark.rows.added_columns import additions_of, note_of
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.schema import RowSchema, table_id_of
from changelane.spark.rows.target import Target
from changelane.spark.state.fencing import FencingToken
from changelane.spark.state.full_history import prepare_full_history
from changelane.spark.state.quarantine import RejectedRows, TableRejectedError
from changelane.spark.state.tombstones import TableTombstones, has_newer_tombstone

MIXED: Final = "positions of different kinds never mix in one table"
TRUNCATED_ELSEWHERE: Final = (
    "the events have no positions, and offsets of several partitions or files cannot be compared "
    "with a truncate of one: use one partition, a format with positions, or raise `epoch`"
)
SHARED: Final = (
    "with `source_servers: multiple` rows do not record their server, so that a TRUNCATE or a DDL "
    "statement of one server cannot be applied"
)
BEFORE_SHARED: Final = (
    "a truncate stands behind the row, from before `source_servers: multiple`, and nothing tells "
    "whether it was of the row's server: land the servers in a new folder"
)
OTHER_SOURCE: Final = (
    "a table takes rows of one source table; a transform `route` brings several into one on purpose"
)
LACKING: Final = "lacking"
CLEARED: Final = "cleared"


def is_newer(lake: Lake, name: str, properties: Mapping[str, str], ended: bytes) -> bool:
    """Say whether a table took an event that is newer than where one of its name went."""
    return ended <= newest_position(properties) or holds_newer(lake.read(name), ended)


def is_made_again(lake: Lake, table_id: str, ended: bytes) -> bool:
    """Return whether a dropped table was created again, by the table of its name."""
    name = name_of(table_id)
    properties = lake.properties(name) if lake.exists(name) else {}
    if "schema" not in properties:
        return False
    if ended.hex() <= properties.get(CLEARED, "") or is_newer(lake, name, properties, ended):
        return True
    return has_newer_tombstone(lake, table_id, ended)


class Plan(NamedTuple):
    """How the events of one table and batch are applied.

    Attributes:
        work: The batch's events of the table, without the rejected ones.
        name: The table's path in the lake.
        target: The table's columns and the schemas of the events.
        properties: changelane's properties of the table.
        refused: The rejected events.
        crosses: Whether events come from several partitions, whose offsets cannot be compared.
        cleared: Rows up to this position belong to a dropped table of the same name.
        note: A note for ``changelane status``.
        warning: A warning to print once.
    """

    work: TableBatch
    name: str
    target: Target
    properties: dict[str, str]
    refused: tuple[RejectedRows, ...] = ()
    crosses: bool = False
    cleared: bytes = b""
    note: str | None = None
    warning: str = ""

    @property
    def is_exceptional(self) -> bool:
        """Whether the table may hold columns of different ages, or the batch brings some."""
        if self.work.has_partial_images or "exceptions" in self.properties:
            return True
        added = self.target.additions
        return any(
            self.mode == HISTORY or self.work.min_order < addition.order for addition in added
        )

    @property
    def is_uneven(self) -> bool:
        """Whether full events of the batch may carry different columns of the table."""
        first = self.work.min_order
        return any(added.is_unknown and first < added.order for added in self.target.additions)

    @property
    def table_mode(self) -> TableMode:
        """What the table keeps of its changes."""
        return mode_of(self.properties)

    @property
    def kind(self) -> bytes:
        """The kind of positions that the table compares (2 bytes)."""
        return bytes.fromhex(self.properties.get("order", ""))[:2]

    @property
    def is_adding(self) -> bool:
        """Whether rows are only added: of every event, or where no key tells which row is meant."""
        return self.mode == APPEND or (self.mode == UPSERT and not self.target.keys)

    @property
    def mode(self) -> str:
        """The name of that."""
        return self.table_mode.name


def prepare_table(
    lake: Lake,
    name: str,
    work: TableBatch,
    table_tombstones: TableTombstones,
    policy: Policy,
    *,
    fence: FencingToken | None = None,
    followed: Followed = NOTHING,
) -> Plan | None:
    """Create or evolve the table of some events, and say how they are applied.

    ``None`` when there is no table yet and only truncates tell of it: they are remembered.

    Raises:
        Misfit: The table can take none of them.
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
        else _by_server(work, table_tombstones, policy.source_servers, properties)
    )
    if not work.domains or (not work.schemas and not exists):
        return None
    if exists:
        _check_owner(properties, work.table_id)
    if exists and mode != mode_of(properties):
        raise TableRejectedError("mode_conflict", _mode_conflict(mode, mode_of(properties)))
    _check_sequence(policy.sequence, properties)
    layout = policy.layouts.of(table_id_of(work.table_id))
    kind = _kind(work, properties, table_tombstones)
    if exists and followed.halted is not None and followed.halted.statements:
        _keep_lacking(lake, name, _behind(work, followed.halted, lake.columns(name)), properties)
    before = additions_of(properties)
    work, refused = _before_halt(work, followed.halted, foreign)
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
        refused.append(_odd(work, kind, other_count))
    # a log of events compares no orders
    crosses = mode.name != APPEND and properties.get("place", "").endswith(MANY)
    if crosses and work.newest_truncate:
        is_truncate = is_of_table(work, "truncate")
        refused.append(RejectedRows(is_truncate, "unordered", TRUNCATED_ELSEWHERE, work.truncates))
        work.newest_truncate = b""
    target = _target(lake, name, work, properties, mode)
    if mode.is_tracked and (reason := prepare_full_history(lake, name, target.columns)) is not None:
        raise TableRejectedError("schema_mismatch", reason)
    note = layout.note(properties)
    warning = note_of([addition for addition in target.additions if addition not in before])
    return Plan(work, name, target, properties, tuple(refused), crosses, cleared, note, warning)


def _target(
    lake: Lake, name: str, work: TableBatch, properties: Mapping[str, str], mode: TableMode
) -> Target:
    """Return the columns of a table, and the schemas of the events that it takes."""
    active = msgspec.json.decode(properties["schema"], type=RowSchema)
    columns = own_columns(_held(lake, name, mode, active), properties, mode)
    added = tuple(addition for addition in additions_of(properties) if addition.column in columns)
    return Target(columns, tuple(active.key or ()), work.schemas, mode.keeps_deleted, added)


def _check_owner(properties: Mapping[str, str], table_id: str) -> None:
    """Refuse a table of somebody else, and the table of another source table.

    Raises:
        Misfit: It names the owner.
    """
    if "schema" not in properties:
        raise TableRejectedError("foreign_table", "a table lies there that changelane did not make")
    owner = properties.get("table", table_id)
    if owner != table_id:
        reason = f"the folder holds the table of {table_id_of(owner)}: {OTHER_SOURCE}"
        raise TableRejectedError("foreign_table", reason)


def _held(lake: Lake, name: str, mode: TableMode, active: RowSchema) -> dict[str, str]:
    """Return the columns of a table, which gets those that were thought of after it was made."""
    table_columns, state = lake.columns(name), mode.made_with(has_key=bool(active.key))
    if lacking := {
        column: state[column] for column in ADDED if column in state and column not in table_columns
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
    state = {**mode.state_types, **ADDED}
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
        new_properties = {**new_properties, **followed.created, **layout.told}
        if filled:
            new_properties[alter.FILLED] = ",".join(filled)
        schema = msgspec.json.decode(new_properties["schema"], type=RowSchema)
        columns = {**admission.added, **mode_of(new_properties).made_with(has_key=bool(schema.key))}
        try:
            lake.create(name, columns, new_properties, layout)
        except NoColumnError as error:
            raise TableRejectedError("schema_mismatch", str(error)) from None
        return dict(new_properties)
    if admission.replaced and not lake.can_rename:
        names = ", ".join(admission.replaced)
        reason = f"the table that went had other types of {names}, and this format keeps columns"
        raise TableRejectedError("schema_mismatch", f"{reason}: move the table away")
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
    wanted_layout = layout.of_made(properties)
    if wanted_layout == layout_of(properties):
        return {}
    lake.tune(name, wanted_layout.properties)
    return wanted_layout.told


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


def _before_halt(
    work: TableBatch, halted: Halted | None, refused: Sequence[RejectedRows]
) -> tuple[TableBatch, list[RejectedRows]]:
    """Return the work that a table takes which does not go on, and all that it does not take."""
    if halted is None:
        return work.with_schemas(work.schemas), [*refused]
    late = [name for name in work.schemas if work.oldest[name] > halted.order]
    accepted = work.with_schemas(name for name in work.schemas if name not in late)
    if not late:
        return accepted, [*refused]
    rows = is_of_table(work, "data") & F.col("schema_id").isin(*late)
    count = sum(work.counts.get(name, 0) for name in late)
    return accepted, [*refused, RejectedRows(rows, halted.code, halted.reason, count)]


def _by_server(
    work: TableBatch,
    table_tombstones: TableTombstones,
    source_servers: str,
    properties: Mapping[str, str],
) -> tuple[TableBatch, list[RejectedRows]]:
    """Split a batch's truncates into those the table applies and those it rejects.

    Rows do not record their server, so a table of several servers rejects every truncate, and the
    rows below a truncate from the time of its single server.

    Raises:
        TableRejectedError: Nothing is left to apply.
    """
    reason, truncates = SHARED, work.truncate_groups
    if source_servers == "single":
        reason, own = OTHER_SERVER, properties.get("server") or server_of(work)
        truncates = [truncate for truncate in truncates if own and truncate.server not in {"", own}]
    accepted, refused = work, []
    if truncates:
        accepted = work.without_truncates(truncates)
        if not accepted.schemas and not accepted.truncates:
            raise TableRejectedError("source_conflict", reason)
        servers = {truncate.server for truncate in truncates}
        rows = is_of_table(work, "truncate") & F.col("schema_id").isin(*servers)
        count = sum(truncate.size for truncate in truncates)
        refused.append(RejectedRows(rows, "source_conflict", reason, count))
    truncated = table_tombstones.truncated
    if source_servers == "multiple" and truncated and work.min_order <= truncated:
        older = is_of_table(work, "data") & (F.col("order") <= F.lit(bytearray(truncated)))
        refused.append(RejectedRows(older, "source_conflict", BEFORE_SHARED, None))
    return accepted, refused


def _check_sequence(sequence: str | None, properties: Mapping[str, str]) -> None:
    table_sequence = properties.get("sequence", sequence or "")
    if sequence is not None and table_sequence != sequence:
        raise TableRejectedError("unordered", _other_sequence(sequence, table_sequence))


def _other_sequence(sequence: str | None, table_sequence: str | None) -> str:
    return (
        f"sequence_by is {sequence}, and the rows of the table are ordered by {table_sequence}: "
        "orders of two kinds do not compare; cast it to that kind, or load the table anew"
    )


def _mode_conflict(mode: TableMode, stored_mode: TableMode) -> str:
    difference = f"the mode {mode.name}, and the table was made in the mode {stored_mode.name}"
    if mode.keeps_deleted != stored_mode.keeps_deleted and mode.name == stored_mode.name:
        kinds = ["soft" if each_mode.keeps_deleted else "hard" for each_mode in (mode, stored_mode)]
        difference = f"deletes: {kinds[0]}, and the table was made with deletes: {kinds[1]}"
    elif mode.name == stored_mode.name:
        difference = "other columns whose changes make versions than the table was made for"
    return (
        f"the pipeline asks for {difference}: a table keeps its mode; ask for that one, or move "
        "the table away and load it anew"
    )


def _kind(work: TableBatch, properties: Mapping[str, str], tombstones: TableTombstones) -> bytes:
    """Return the kind of positions that the table compares.

    Raises:
        Misfit: No event has it.
    """
    kind = min(work.domains)
    if "order" in properties:
        kind = bytes.fromhex(properties["order"])[:2]
    elif tombstones.truncated:
        kind = tombstones.truncated[:2]
    if kind not in work.domains:
        raise TableRejectedError("unordered", MIXED)
    return kind


def _odd(work: TableBatch, kind: bytes, size: int) -> RejectedRows:
    """Return rows with another kind of positions, such as PostgreSQL's incremental snapshots."""
    is_row = (F.col("table_id") == work.table_id) & F.col("kind").isin("data", "truncate")
    rows = is_row & (F.substring("order", 1, 2) != F.lit(bytearray(kind)))
    return RejectedRows(rows, "unordered", MIXED, size)
