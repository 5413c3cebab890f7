# SPDX-License-Identifier: Apache-2.0
"""Tables follow the schemas of their events: create, add columns, or refuse with the reason."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import functions as F

from changelane.spark.evolution import alter
from changelane.spark.evolution.compatibility import OTHER_SERVER, Admission, Policy, mine
from changelane.spark.evolution.evolution_state import NOTHING, Followed, Halted
from changelane.spark.evolution.source_columns import fillings, new_columns
from changelane.spark.evolution.table_properties import MANY, batch_properties, server_of, taken
from changelane.spark.lake.interface import Lake, name_of, widens
from changelane.spark.lake.layout import Layout, NoColumnError, layout_of
from changelane.spark.lake.lookup import holds_newer
from changelane.spark.lake.modes import ADDED, APPEND, HISTORY, UPSERT, TableMode, mode_of
from changelane.spark.rows.added_columns import additions_of, note_of
from changelane.spark.rows.batch_stats import Work
from changelane.spark.rows.schema import RowSchema, table_id_of
from changelane.spark.rows.target import Target
from changelane.spark.state.fencing import Fence
from changelane.spark.state.full_history import follow
from changelane.spark.state.quarantine import Misfit, Refused
from changelane.spark.state.tombstones import Remembered, remembers_newer

MIXED: Final = "positions of different kinds never mix in one table"
TRUNCATED_ELSEWHERE: Final = (
    "the events have no positions, and offsets of several partitions or files cannot be compared "
    "with a truncate of one: use one partition, a format with positions, or raise `epoch`"
)
SHARED: Final = (
    "with `sources: many` other servers may feed the table, and its rows do not tell whose they "
    "are: what is said of all rows of one of them is not done to those of the others"
)
BEFORE_SHARED: Final = (
    "a truncate stands behind the row, from before `sources: many`, and nothing tells whether it "
    "was of the row's server: land the servers in a new folder"
)
OTHER_SOURCE: Final = (
    "a table takes rows of one source table; a transform `route` brings several into one on purpose"
)
LACKING: Final = "lacking"
CLEARED: Final = "cleared"


def is_newer(lake: Lake, name: str, properties: Mapping[str, str], ended: bytes) -> bool:
    """Say whether a table took an event that is newer than where one of its name went."""
    return ended <= taken(properties) or holds_newer(lake.read(name), ended)


def is_made_again(lake: Lake, table_id: str, ended: bytes) -> bool:
    """Say whether a table that went was made again, by what the table of its name is now."""
    name = name_of(table_id)
    properties = lake.properties(name) if lake.exists(name) else {}
    if "schema" not in properties:
        return False
    if ended.hex() <= properties.get(CLEARED, "") or is_newer(lake, name, properties, ended):
        return True
    return remembers_newer(lake, table_id, ended)


class Plan(NamedTuple):
    """How the events of one table and batch are applied.

    Attributes:
        work: What the batch holds of the table, without what is refused.
        name: The table's place in the lake.
        target: Its columns, and the schemas of the events.
        properties: changelane's own properties of the table.
        refused: What of the batch the table does not take.
        crosses: Whether events of several partitions meet, whose offsets cannot be compared.
        cleared: Rows up to here are of a table of the same name that went.
        note: What is to be said of the table.
        warning: What is to be said of it once, as of now.
    """

    work: Work
    name: str
    target: Target
    properties: dict[str, str]
    refused: tuple[Refused, ...] = ()
    crosses: bool = False
    cleared: bytes = b""
    note: str | None = None
    warning: str = ""

    @property
    def is_exceptional(self) -> bool:
        """Whether the table may hold columns of different ages, or the batch brings some."""
        if self.work.has_parts or "exceptions" in self.properties:
            return True
        added = self.target.additions
        return any(self.mode == HISTORY or self.work.first < one.order for one in added)

    @property
    def is_uneven(self) -> bool:
        """Whether whole events of the batch may not carry the same columns of the table."""
        return any(one.is_unknown and self.work.first < one.order for one in self.target.additions)

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


def plan(
    lake: Lake,
    name: str,
    work: Work,
    known: Remembered,
    policy: Policy,
    *,
    fence: Fence | None = None,
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
        (work, []) if mode.name == APPEND else _by_server(work, known, policy.sources, properties)
    )
    if not work.domains or (not work.schemas and not exists):
        return None
    if exists:
        _check_owner(properties, work.table_id)
    if exists and mode != mode_of(properties):
        raise Misfit("mode_conflict", _mode_conflict(mode, mode_of(properties)))
    _check_sequence(policy.sequence, properties)
    asked = policy.layouts.of(table_id_of(work.table_id))
    kind = _kind(work, properties, known)
    if exists and followed.halted is not None and followed.halted.statements:
        _keep_lacking(lake, name, _behind(work, followed.halted, lake.columns(name)), properties)
    before = additions_of(properties)
    work, refused = _before_halt(work, followed.halted, foreign)
    work.truncated = work.truncated_in.get(kind, b"")
    cleared = _cleared(work, followed, known, properties)
    work.truncated = max(work.truncated, cleared)
    if followed.halted is not None and not work.schemas and not work.truncated:
        raise Misfit(followed.halted.code, followed.halted.reason)
    if work.schemas:
        held = lake.columns(name) if exists else {}
        admission = Admission(
            work,
            held,
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
        work = work.only(admission.admitted)
        if work.schemas:
            told = {
                **batch_properties(work, kind, properties, known, followed),
                **({} if fence is None else fence.told),
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
                    held=held,
                ),
            }
            properties = _evolved(
                lake, name, admission, told, properties=properties, followed=followed, asked=asked
            )
        elif not exists or not work.truncated:
            raise admission.misfits[0]
    if odd := sum(count for domain, count in work.domains.items() if domain != kind):
        refused.append(_odd(work, kind, odd))
    # a log of events compares no orders
    crosses = mode.name != APPEND and properties.get("place", "").endswith(MANY)
    if crosses and work.truncated:
        is_truncate = mine(work, "truncate")
        refused.append(Refused(is_truncate, "unordered", TRUNCATED_ELSEWHERE, work.truncates))
        work.truncated = b""
    target = _target(lake, name, work, properties, mode)
    if mode.is_tracked and (reason := follow(lake, name, target.columns)) is not None:
        raise Misfit("schema_mismatch", reason)
    note = asked.note(properties)
    warning = note_of([each for each in target.additions if each not in before])
    return Plan(work, name, target, properties, tuple(refused), crosses, cleared, note, warning)


def _target(
    lake: Lake, name: str, work: Work, properties: Mapping[str, str], mode: TableMode
) -> Target:
    """Return the columns of a table, and the schemas of the events that it takes."""
    active = msgspec.json.decode(properties["schema"], type=RowSchema)
    columns = own_columns(_held(lake, name, mode, active), properties, mode)
    added = tuple(one for one in additions_of(properties) if one.column in columns)
    return Target(columns, tuple(active.key or ()), work.schemas, mode.keeps_deleted, added)


def _check_owner(properties: Mapping[str, str], table_id: str) -> None:
    """Refuse a table of somebody else, and the table of another source table.

    Raises:
        Misfit: It names the owner.
    """
    if "schema" not in properties:
        raise Misfit("foreign_table", "a table lies there that changelane did not make")
    owner = properties.get("table", table_id)
    if owner != table_id:
        reason = f"the folder holds the table of {table_id_of(owner)}: {OTHER_SOURCE}"
        raise Misfit("foreign_table", reason)


def _held(lake: Lake, name: str, mode: TableMode, active: RowSchema) -> dict[str, str]:
    """Return the columns of a table, which gets those that were thought of after it was made."""
    held, state = lake.columns(name), mode.made_with(has_key=bool(active.key))
    if lacking := {one: state[one] for one in ADDED if one in state and one not in held}:
        lake.add_columns(name, lacking)
    return held


def _ours(properties: Mapping[str, str], work: Work, *, exists: bool) -> dict[str, str]:
    """Return which columns a table has from its source, beside those that came by hand."""
    if exists and alter.OURS not in properties:
        return {}
    names = {column.name.lower() for one in work.schemas.values() for column in one.columns}
    names.update(msgspec.json.decode(properties.get(alter.OURS, "[]"), type=list[str]))
    return {alter.OURS: msgspec.json.encode(sorted(names)).decode()}


def own_columns(
    held: Mapping[str, str], properties: Mapping[str, str], mode: TableMode
) -> dict[str, str]:
    """Return the columns that are written: not those that somebody added to the table by hand."""
    state = {**mode.state_types, **ADDED}
    ours = properties.get(alter.OURS)
    names = None if ours is None else set(msgspec.json.decode(ours, type=list[str]))
    return {
        column: kind
        for column, kind in held.items()
        if column not in state and (names is None or column.lower() in names)
    }


def _evolved(
    lake: Lake,
    name: str,
    admission: Admission,
    told: Mapping[str, str],
    *,
    properties: Mapping[str, str],
    followed: Followed,
    asked: Layout,
) -> dict[str, str]:
    """Give a table the columns, types and properties that it needs; return its properties."""
    if not properties:
        there = {name.lower() for name in admission.added}
        # a column that no event had yet comes later, and is filled then
        filled = [alter.filling_id(one) for one, _ in followed.fillings if one.column in there]
        told = {**told, **followed.created, **asked.told}
        if filled:
            told[alter.FILLED] = ",".join(filled)
        schema = msgspec.json.decode(told["schema"], type=RowSchema)
        columns = {**admission.added, **mode_of(told).made_with(has_key=bool(schema.key))}
        try:
            lake.create(name, columns, told, asked)
        except NoColumnError as error:
            raise Misfit("schema_mismatch", str(error)) from None
        return dict(told)
    if admission.replaced and not lake.can_rename:
        names = ", ".join(admission.replaced)
        reason = f"the table that went had other types of {names}, and this format keeps columns"
        raise Misfit("schema_mismatch", f"{reason}: move the table away")
    if admission.replaced:
        lake.drop_columns(name, admission.replaced)
    if admission.added:
        lake.add_columns(name, admission.added)
    if admission.widened:
        lake.widen_columns(name, admission.widened)
    told = {**told, **_laid_out(lake, name, asked, properties)}
    if any(properties.get(key) != value for key, value in told.items()):
        lake.set_properties(name, told)
    declared = fillings(additions_of({**properties, **told}))
    return alter.fill_all(lake, name, {**properties, **told}, (*followed.fillings, *declared))


def _laid_out(
    lake: Lake, name: str, asked: Layout, properties: Mapping[str, str]
) -> dict[str, str]:
    """Give a table the properties that its format knows; return what it is to tell of them."""
    wanted = asked.of_made(properties)
    if wanted == layout_of(properties):
        return {}
    lake.tune(name, wanted.properties)
    return wanted.told


def _keep_lacking(
    lake: Lake, name: str, lacking: Mapping[str, str], properties: dict[str, str]
) -> dict[str, str]:
    """Keep what a table does not get, for `changelane schema plan`; return its properties."""
    told = properties.get(LACKING) or "{}"
    known = msgspec.json.decode(told, type=dict[str, str])
    wider = {
        column: kind
        for column, kind in lacking.items()
        if column not in known or (known[column] != kind and widens(known[column], kind))
    }
    if not wider:
        return properties
    kept = {LACKING: msgspec.json.encode({**known, **wider}).decode()}
    lake.set_properties(name, kept)
    return {**properties, **kept}


def _cleared(
    work: Work, followed: Followed, known: Remembered, properties: Mapping[str, str]
) -> bytes:
    """Return up to where rows went with an older table of this name, until they are gone."""
    cleared = followed.cleared
    if cleared[:2] not in work.domains:
        return b""
    is_met = known.truncated < cleared and any(one < cleared for one in work.oldest.values())
    is_held = bool(properties) and properties.get(CLEARED, "") < cleared.hex()
    return cleared if is_met or is_held else b""


def _behind(work: Work, halted: Halted, held: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that the newest event has of those which a table does not take.

    Those that the table has may be others there: a statement that waits turns them.
    """
    late = [name for name in work.newest_first if work.oldest[name] > halted.order]
    there = {name.lower() for name in held}
    columns = work.schemas[late[0]].columns if late else ()
    return {
        column.name: column.spark
        for column in columns
        if column.fixed is None and column.name.lower() not in there
    }


def _before_halt(
    work: Work, halted: Halted | None, refused: Sequence[Refused]
) -> tuple[Work, list[Refused]]:
    """Return the work that a table takes which does not go on, and all that it does not take."""
    if halted is None:
        return work.only(work.schemas), [*refused]
    late = [name for name in work.schemas if work.oldest[name] > halted.order]
    kept = work.only(name for name in work.schemas if name not in late)
    if not late:
        return kept, [*refused]
    rows = mine(work, "data") & F.col("schema_id").isin(*late)
    count = sum(work.counts.get(name, 0) for name in late)
    return kept, [*refused, Refused(rows, halted.code, halted.reason, count)]


def _by_server(
    work: Work, known: Remembered, sources: str, properties: Mapping[str, str]
) -> tuple[Work, list[Refused]]:
    """Return what a table takes of what is said of all of its rows, and what it does not.

    Rows do not tell whose they are. So a table of one server takes what that one says, and one of
    many takes nothing: nor the rows that a truncate from the time of one server would take.

    Raises:
        Misfit: There is nothing else.
    """
    reason, truncates = SHARED, work.truncated_by
    if sources == "one":
        reason, own = OTHER_SERVER, properties.get("server") or server_of(work)
        truncates = [one for one in truncates if own and one.server not in {"", own}]
    kept, refused = work, []
    if truncates:
        kept = work.without(truncates)
        if not kept.schemas and not kept.truncates:
            raise Misfit("source_conflict", reason)
        servers = {one.server for one in truncates}
        rows = mine(work, "truncate") & F.col("schema_id").isin(*servers)
        count = sum(one.size for one in truncates)
        refused.append(Refused(rows, "source_conflict", reason, count))
    if sources == "many" and known.truncated and work.first <= known.truncated:
        older = mine(work, "data") & (F.col("order") <= F.lit(bytearray(known.truncated)))
        refused.append(Refused(older, "source_conflict", BEFORE_SHARED, None))
    return kept, refused


def _check_sequence(asked: str | None, properties: Mapping[str, str]) -> None:
    held = properties.get("sequence", asked or "")
    if asked is not None and held != asked:
        raise Misfit("unordered", _other_sequence(asked, held))


def _other_sequence(asked: str | None, held: str | None) -> str:
    return (
        f"sequence_by is {asked}, and the rows of the table are ordered by {held}: orders of two "
        "kinds do not compare; cast it to that kind, or load the table anew"
    )


def _mode_conflict(asked: TableMode, made: TableMode) -> str:
    what = f"the mode {asked.name}, and the table was made in the mode {made.name}"
    if asked.keeps_deleted != made.keeps_deleted and asked.name == made.name:
        kinds = ["soft" if one.keeps_deleted else "hard" for one in (asked, made)]
        what = f"deletes: {kinds[0]}, and the table was made with deletes: {kinds[1]}"
    elif asked.name == made.name:
        what = "other columns whose changes make versions than the table was made for"
    return (
        f"the pipeline asks for {what}: a table keeps its mode; ask for that one, or move the "
        "table away and load it anew"
    )


def _kind(work: Work, properties: Mapping[str, str], known: Remembered) -> bytes:
    """Return the kind of positions that the table compares.

    Raises:
        Misfit: No event has it.
    """
    kind = min(work.domains)
    if "order" in properties:
        kind = bytes.fromhex(properties["order"])[:2]
    elif known.truncated:
        kind = known.truncated[:2]
    if kind not in work.domains:
        raise Misfit("unordered", MIXED)
    return kind


def _odd(work: Work, kind: bytes, size: int) -> Refused:
    """Return the rows whose positions are of another kind than the table's.

    Such as those of an incremental snapshot, which PostgreSQL's connector sends without.
    """
    is_row = (F.col("table_id") == work.table_id) & F.col("kind").isin("data", "truncate")
    rows = is_row & (F.substring("order", 1, 2) != F.lit(bytearray(kind)))
    return Refused(rows, "unordered", MIXED, size)
