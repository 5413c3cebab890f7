# SPDX-License-Identifier: Apache-2.0
"""Tables follow the schemas of their events: create, add columns, or refuse with the reason."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from changelane.spark import turning
from changelane.spark.companion import follow
from changelane.spark.fence import Fence
from changelane.spark.fold import Target
from changelane.spark.followed import KEY_CHANGED, NOTHING, Evolution, Followed, Halted
from changelane.spark.lake import Lake, widens
from changelane.spark.modes import APPEND, HISTORY, STATE_TYPES, UPSERT, Modes, TableMode, mode_of
from changelane.spark.quarantine import Refused
from changelane.spark.rows import RowColumn, RowSchema, table_id_of
from changelane.spark.side import Remembered
from changelane.spark.sql import RESERVED_PREFIX
from changelane.spark.survey import Work, place_of

MIXED: Final = "positions of different kinds never mix in one table"
TRUNCATED_ELSEWHERE: Final = (
    "the events have no positions, and offsets of several partitions or files cannot be compared "
    "with a truncate of one: use one partition, a format with positions, or raise `epoch`"
)
STRICT: Final = "`schema_changes: strict` leaves the table as it is"
MEND: Final = "`changelane schema apply` changes the table"
LACKING: Final = "lacking"
CLEARED: Final = "cleared"
MANY: Final = "many"


class Misfit(Exception):  # noqa: N818 - control flow inside this module
    """A table cannot take these events; they go to the quarantine."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Policy(msgspec.Struct, frozen=True):
    """What users may choose about tables.

    Attributes:
        keyless: What happens to tables without a key: ``quarantine`` or ``append``.
        sources: Whether ``one`` source feeds a table, or ``many`` whose keys are disjoint.
        modes: What tables keep of their changes.
        sequence: What the values are that order plain rows; another kind does not compare.
        evolution: How far tables follow their sources.
    """

    keyless: str = "quarantine"
    sources: str = "one"
    modes: Modes = Modes()
    sequence: str | None = None
    evolution: Evolution = Evolution()


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
    """

    work: Work
    name: str
    target: Target
    properties: dict[str, str]
    refused: tuple[Refused, ...] = ()
    crosses: bool = False
    cleared: bytes = b""

    @property
    def is_exceptional(self) -> bool:
        """Whether the table may hold columns of different ages, or the batch brings some."""
        return self.work.has_parts or "exceptions" in self.properties

    @property
    def table_mode(self) -> TableMode:
        """What the table keeps of its changes."""
        return mode_of(self.properties)

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
    if not work.domains or (not work.schemas and not exists):
        return None
    if exists and "schema" not in properties:
        raise Misfit("foreign_table", "a table lies there that changelane did not make")
    mode = policy.modes.of(table_id_of(work.table_id))
    if exists and mode != mode_of(properties):
        raise Misfit("mode_conflict", _mode_conflict(mode, mode_of(properties)))
    _check_sequence(policy.sequence, properties)
    kind = _kind(work, properties, known)
    work, refused = _before_halt(work, followed.halted)
    work.truncated = work.truncated_in.get(kind, b"")
    cleared = _cleared(work, followed, known, properties)
    work.truncated = max(work.truncated, cleared)
    if followed.halted is not None and not work.schemas and not work.truncated:
        raise Misfit(followed.halted.code, followed.halted.reason)
    if work.schemas:
        held = lake.columns(name) if exists else {}
        admission = _Admission(
            work, held, properties, policy, can_widen=lake.widens, mode=mode, followed=followed
        )
        refused.extend(admission.refused)
        if exists and admission.lacking:
            _keep_lacking(lake, name, admission.lacking, properties)
        work = work.only(admission.admitted)
        if work.schemas:
            told = _told(work, kind, properties, known) | ({} if fence is None else fence.told)
            told |= mode.properties
            told |= {} if policy.sequence is None else {"sequence": policy.sequence}
            properties = _evolved(
                lake, name, admission, told, properties=properties, followed=followed
            )
        elif not exists or not work.truncated:
            raise admission.misfits[0]
    if odd := sum(count for domain, count in work.domains.items() if domain != kind):
        refused.append(_odd(work, kind, odd))
    # a log of events compares no orders
    crosses = mode.name != APPEND and properties.get("place", "").endswith(MANY)
    if crosses and work.truncated:
        is_truncate = _mine(work, "truncate")
        refused.append(Refused(is_truncate, "unordered", TRUNCATED_ELSEWHERE, work.truncates))
        work.truncated = b""
    active = msgspec.json.decode(properties["schema"], type=RowSchema)
    held = lake.columns(name)
    state = STATE_TYPES[mode.name]
    columns = {column: kind for column, kind in held.items() if column not in state}
    target = Target(columns, tuple(active.key or ()), work.schemas)
    if mode.is_tracked and (reason := follow(lake, name, columns)) is not None:
        raise Misfit("schema_mismatch", reason)
    return Plan(work, name, target, properties, tuple(refused), crosses, cleared)


def _evolved(
    lake: Lake,
    name: str,
    admission: "_Admission",
    told: Mapping[str, str],
    *,
    properties: Mapping[str, str],
    followed: Followed,
) -> dict[str, str]:
    """Give a table the columns, types and properties that it needs; return its properties."""
    if not properties:
        there = {name.lower() for name in admission.added}
        # a column that no event had yet comes later, and is filled then
        filled = [turning.filling_id(one) for one, _ in followed.fillings if one.column in there]
        told = {**told, **followed.created}
        if filled:
            told[turning.FILLED] = ",".join(filled)
        lake.create(name, {**admission.added, **STATE_TYPES[told.get("mode", UPSERT)]}, told)
        return dict(told)
    if admission.replaced:
        lake.drop_columns(name, admission.replaced)
    if admission.added:
        lake.add_columns(name, admission.added)
    if admission.widened:
        lake.widen_columns(name, admission.widened)
    if any(properties.get(key) != value for key, value in told.items()):
        lake.set_properties(name, told)
    return turning.fill_all(lake, name, {**properties, **told}, followed.fillings)


def _keep_lacking(
    lake: Lake, name: str, lacking: Mapping[str, str], properties: Mapping[str, str]
) -> None:
    """Keep what a table does not get, for `changelane schema plan`."""
    told = properties.get(LACKING) or "{}"
    known = msgspec.json.decode(told, type=dict[str, str])
    if not lacking.items() <= known.items():
        lake.set_properties(name, {LACKING: msgspec.json.encode({**known, **lacking}).decode()})


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


def _before_halt(work: Work, halted: Halted | None) -> tuple[Work, list[Refused]]:
    """Return the work that a table takes which does not go on, and what it does not take."""
    if halted is None:
        return work.only(work.schemas), []
    late = [name for name in work.schemas if work.oldest[name] > halted.order]
    kept = work.only(name for name in work.schemas if name not in late)
    if not late:
        return kept, []
    rows = _mine(work, "data") & F.col("schema_id").isin(*late)
    count = sum(work.counts.get(name, 0) for name in late)
    return kept, [Refused(rows, halted.code, halted.reason, count)]


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
    if asked.name == made.name:
        what = "other columns whose changes make versions than the table was made for"
    return (
        f"the pipeline asks for {what}: a table keeps its mode; ask for that one, or move the "
        "table away and load it anew"
    )


def _mine(work: Work, kind: str) -> Column:
    return (F.col("table_id") == work.table_id) & (F.col("kind") == kind)


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


def _told(
    work: Work, kind: bytes, properties: Mapping[str, str], known: Remembered
) -> dict[str, str]:
    """Return the properties of a table that takes a batch: its newest schema, and its places."""
    told = {"order": kind.hex(), "table": work.table_id}
    newest = max(work.newest.values(), default=b"").hex()
    if newest > properties.get("schema_order", ""):
        told["schema"] = _plain(work.active)
        told["schema_order"] = newest
    server = next((one.server for one in map(work.schemas.get, work.newest_first) if one), None)
    if server is not None and "server" not in properties:
        told["server"] = server
    if work.places:
        told["place"] = _place(work.places | place_of(known.truncated), properties.get("place"))
    return told


def _plain(schema: RowSchema) -> str:
    """Return a schema as the table has it, whatever events call its columns."""
    columns = tuple(
        msgspec.structs.replace(column, told=None)
        for column in schema.columns
        if column.fixed is None
    )
    return msgspec.json.encode(msgspec.structs.replace(schema, columns=columns)).decode()


def _place(places: set[bytes], held: str | None) -> str:
    """Return the newest epoch of offsets and its partition, or that there are several.

    A new epoch begins anew: everything before it is older (apply.md section 1).
    """
    epochs = {place[:4].hex() for place in places}
    tags = {place[4:].hex() for place in places}
    epoch = max(epochs)
    if held is not None:
        before, _, tag = held.partition(":")
        if before > epoch:
            return f"{before}:{MANY}"
        if before == epoch:
            tags.add(tag)
    return f"{epoch}:{tags.pop() if len(tags) == 1 and len(epochs) == 1 else MANY}"


class _Admission:
    """Which schemas of a batch a table takes, those of newer events first.

    Attributes:
        admitted: The schemas that it takes.
        added: Columns that it gets for them, name -> Spark type.
        widened: Columns whose type must become wider for them.
        replaced: Columns of a table that went, whose type is another now.
        lacking: Columns and types that the table does not get, because the user chose so.
        misfits: Why it does not take the others.
        refused: Their rows.
    """

    def __init__(
        self,
        work: Work,
        held: Mapping[str, str],
        properties: Mapping[str, str],
        policy: Policy,
        *,
        can_widen: Callable[[str, str], bool],
        mode: TableMode,
        followed: Followed,
    ) -> None:
        self.admitted: list[str] = []
        self.added: dict[str, str] = {}
        self.widened: dict[str, str] = {}
        self.replaced: list[str] = []
        self.lacking: dict[str, str] = {}
        self.misfits: list[Misfit] = []
        self.refused: list[Refused] = []
        self._there = {name.lower() for name in held}
        self._names = {name.lower(): name for name in held}
        self._held = {name.lower(): kind for name, kind in held.items()}
        self._policy = policy
        self._mode = mode
        self._can_widen = can_widen
        self._server = properties.get("server")
        self._key: tuple[str, ...] | None = None
        self._followed = followed
        before = bytes.fromhex(properties.get("schema_order", ""))
        self._is_reborn = bool(properties) and before < followed.cleared
        self._is_new = "schema" not in properties or self._is_reborn
        self._is_made = not properties
        if not self._is_new:
            self._key = msgspec.json.decode(properties["schema"], type=RowSchema).key
        for name in work.newest_first:
            try:
                self._admit(work.schemas[name], work.newest.get(name, b""))
            except Misfit as misfit:
                self.misfits.append(misfit)
                rows = _mine(work, "data") & (F.col("schema_id") == name)
                count = work.counts.get(name, 0)
                self.refused.append(Refused(rows, misfit.code, misfit.reason, count))
            else:
                self.admitted.append(name)

    def _admit(self, schema: RowSchema, newest: bytes) -> None:
        if self._mode.name != APPEND:
            self._check_key(schema, newest)
        is_other = None not in (schema.server, self._server) and schema.server != self._server
        if is_other and self._policy.sources == "one":
            reason = (
                "another server feeds this table: give each server a folder of its own, or, when "
                "their keys never meet, say `sources: many`"
            )
            raise Misfit("source_conflict", reason)
        for name, kind in self._wanted(schema).items():
            lower = name.lower()
            known = self._names.setdefault(lower, name)
            (self.widened if lower in self._there else self.added)[known] = kind
            self._held[lower] = kind
        if self._is_new and not self.admitted:
            self._key = schema.key
        self._server = self._server or schema.server

    def _check_key(self, schema: RowSchema, newest: bytes) -> None:
        if self._is_new and not self.admitted:
            may_lack = self._policy.keyless == "append" and self._mode.name != HISTORY
            if schema.key is None and not may_lack:
                raise Misfit("no_key", "the table has no key: name its key columns under `keys`")
        elif schema.key is None and self._key is not None:
            raise Misfit("no_key", "the event names no key")
        elif schema.key != self._key and b"" < self._followed.key_order < newest:
            raise Misfit(KEY_CHANGED, _rekeyed(self._key, schema.key))
        elif schema.key != self._key:
            raise Misfit("schema_mismatch", "the key columns are not those of the table")

    def _wanted(self, schema: RowSchema) -> dict[str, str]:
        """Return the columns that the table lacks, or has in a narrower type.

        Raises:
            Misfit: It cannot have them, or its own cannot hold these values.
        """
        if len({column.name.lower() for column in schema.columns}) < len(schema.columns):
            raise Misfit("case_collision", "columns differ by case only, or not at all")
        wanted: dict[str, str] = {}
        for column in schema.columns:
            if not column.name:
                raise Misfit("schema_mismatch", "a column has no name")
            if column.name.lower().startswith(RESERVED_PREFIX):
                raise Misfit("schema_mismatch", f"column names must not begin {RESERVED_PREFIX}")
            if column.name.lower() in self._mode.reserved:
                reason = f"{column.name!r} is the name of a column of the mode {self._mode.name}"
                raise Misfit("schema_mismatch", reason)
            there = self._held.get(column.name.lower())
            if there is None:
                if self._may_add(column):
                    wanted[column.name] = column.spark
            elif column.fixed is not None:
                if not widens(column.spark, there):
                    reason = f"the default of column {column.name!r} is {column.spark}"
                    raise Misfit("schema_mismatch", f"{reason} and {there} in the table")
            elif widens(column.spark, there):
                continue
            elif self._may_widen(column.name.lower(), there, column.spark):
                wanted[column.name] = column.spark
            elif self._is_reborn and column.name.lower() in self._there:
                # its values are of rows that went
                self.replaced.append(self._names[column.name.lower()])
                self._there.discard(column.name.lower())
                wanted[column.name] = column.spark
            else:
                reason = f"column {column.name!r} is {there} in the table"
                raise Misfit("schema_mismatch", f"{reason} and {column.spark} in the events")
        return wanted

    def _may_add(self, column: RowColumn) -> bool:
        """Say whether the table gets a column that it lacks; else the column is left out.

        Raises:
            Misfit: It must stay as it is.
        """
        if column.fixed is not None or self._is_made:
            return column.fixed is None
        if self._policy.evolution.schema_changes == "evolve":
            return True
        self.lacking[column.name] = column.spark
        if self._policy.evolution.schema_changes == "strict":
            reason = f"{STRICT}, and column {column.name!r} ({column.spark}) is new"
            raise Misfit("schema_change", f"{reason}: {MEND}")
        return False

    def _may_widen(self, name: str, there: str, kind: str) -> bool:
        if name not in self._there:
            return widens(there, kind)
        if self._policy.evolution.schema_changes == "evolve" or not self._can_widen(there, kind):
            return self._can_widen(there, kind)
        self.lacking[self._names[name]] = kind
        reason = f"{STRICT}, and column {self._names[name]!r} must become {kind}"
        raise Misfit("schema_change", f"{reason}: {MEND}")


def _rekeyed(old: Sequence[str] | None, new: Sequence[str] | None) -> str:
    return (
        f"the source changed the table's key from {_listed(old)} to {_listed(new)}, and rows are "
        "known by their key: read the table anew into another folder, or name under `keys` "
        "columns that tell its rows apart before and after"
    )


def _listed(key: Sequence[str] | None) -> str:
    return "(" + ", ".join(key or ()) + ")"
