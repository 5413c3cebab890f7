"""Delta tables equal the tables in memory, which are the rule and nothing else.

Many histories share a table, each with keys of its own, and many tables share a batch: a Spark job
costs the same for one history as for forty.
"""

import datetime as dt
import decimal
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import lake_tables
import msgspec
import pytest
from pyspark.sql import SparkSession

from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    HalfUpdate,
    Image,
    Key,
    Op,
    Truncate,
)
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.apply import upsert
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import MaintainedLake, MergeMode
from changelane.testing.conformance import EFFORT
from changelane.testing.histories import SCHEMA, History, Profile, history, rewound, shuffled
from changelane.types import (
    UNAVAILABLE,
    Bytes,
    Date,
    Decimal,
    Float,
    InstantType,
    Integer,
    LogicalType,
    String,
    Timestamp,
)

SEED: Final = 20_240_101
BATCHES: Final = 2


class Variant(NamedTuple):
    """Key columns of another type: each number of a history is a key of it."""

    columns: tuple[tuple[str, LogicalType], ...]
    values: Callable[[Random, int], tuple[Any, ...]]
    python: Mapping[str, Callable[[Any], Any]] = {}


def _zoned(chance: Random, number: int) -> dt.datetime:
    zone = dt.timezone(dt.timedelta(hours=chance.randrange(-11, 12)))
    first = dt.datetime(1969, 12, 31, 23, tzinfo=dt.UTC)
    return (first + dt.timedelta(minutes=37 * number, microseconds=number)).astimezone(zone)


def _scaled(chance: Random, number: int) -> decimal.Decimal:
    """Return equal numbers that are written with more or fewer zeros."""
    return decimal.Decimal(number).quantize(decimal.Decimal((0, (1,), -chance.randrange(4))))


INTEGER: Final = Variant((("id", Integer(64)),), lambda _, n: (n,))
VARIANTS: Final = {
    "unsigned_and_text": Variant(
        (("id", Integer(64, unsigned=True)), ("name", String())),
        lambda _, n: (2**64 - 1 - n // 2, ["", "a`b'\"\\", "é😀"][n - 1]),
        {"id": int},
    ),
    "decimals": Variant(
        (("id", Decimal(20, 4)), ("any", Decimal())),
        lambda c, n: (_scaled(c, n), _scaled(c, n)),
        {"any": decimal.Decimal},
    ),
    "days_and_bytes": Variant(
        (("day", Date()), ("id", Bytes())),
        lambda _, n: (dt.date(1 + 4000 * (n // 2), 12, 31), [b"", b"\x00", b"\xff\x00"][n - 1]),
    ),
    "times": Variant(
        (("id", Timestamp(6)), ("moment", InstantType(6))),
        lambda c, n: (dt.datetime(1969, 12, 31, 23, 59, 59, n), _zoned(c, n)),
        {"moment": lambda value: value.astimezone(dt.UTC)},
    ),
    "floats_and_nulls": Variant(
        (("id", Float()), ("part", Integer(16))),
        lambda c, n: ([c.choice([0.0, -0.0]), float("inf"), 0.1][n - 1], [None, 1, None][n - 1]),
    ),
}


class Story(NamedTuple):
    """The events of one table, as they come."""

    table: TableId
    keys: tuple[str, ...]
    batches: list[list[ChangeEvent]]
    python: Mapping[str, Callable[[Any], Any]] = {}


def rekeyed(
    chance: Random,
    event: ChangeEvent,
    table: TableId,
    variant: Variant = INTEGER,
    shift: int = 0,
) -> ChangeEvent:
    """Return an event with keys of another range or type, in another table."""
    names = tuple(name for name, _ in variant.columns)

    def image(told: Image | None) -> Image | None:
        if told is None or "id" not in told:
            return told
        values = variant.values(chance, told["id"] + shift)
        rest = {name: value for name, value in told.items() if name != "id"}
        return {**dict(zip(names, values, strict=True)), **rest}

    match event:
        case HalfUpdate(change, other):
            return HalfUpdate(rekeyed(chance, change, table, variant, shift), image(other))
        case DataChange():
            rest = tuple(column for column in event.schema.columns if column.name != "id")
            schema = TableSchema((*(Column(name, kind) for name, kind in variant.columns), *rest))
            return msgspec.structs.replace(
                event,
                table=table,
                key=Key(names),
                schema=schema,
                before=image(event.before),
                after=image(event.after),
            )
        case Truncate():
            return msgspec.structs.replace(event, table=table)
    raise AssertionError(event)


def regrouped(
    chance: Random, batches: Sequence[Sequence[ChangeEvent]], parts: int = BATCHES
) -> Iterator[list[ChangeEvent]]:
    """Join neighbouring batches until there are few."""
    cuts = sorted(chance.randrange(len(batches) + 1) for _ in range(parts - 1))
    for first, last in itertools.pairwise((0, *cuts, len(batches))):
        yield [event for batch in batches[first:last] for event in batch]


Deliver = Callable[[Random, History], list[list[ChangeEvent]]]


def in_any_order(chance: Random, told: History) -> list[list[ChangeEvent]]:
    return shuffled(chance, told.events)


def in_order(chance: Random, told: History) -> list[list[ChangeEvent]]:
    return rewound(chance, told.events)


def by_transaction(chance: Random, told: History) -> list[list[ChangeEvent]]:
    return rewound(chance, told.events, told.cuts)


_DEFERRED: Final = Profile(
    moves="lacking", deferred=True, transactions=True, before="full", size=16
)
CROWDS: Final[dict[str, list[tuple[Profile, Deliver]]]] = {
    "whole": [(Profile(moves="none", partial=False, silent=False, ties=True), in_any_order)],
    "any_order": [
        (Profile(moves="none", ties=True), in_any_order),
        (Profile(moves="whole", ties=True), in_any_order),
        (Profile(moves="whole", halves=True), in_any_order),
    ],
    "in_order": [
        (Profile(moves="lacking", transactions=True, size=16, keys=4, ties=True), in_order),
        (Profile(moves="lacking", halves=True, size=16, keys=4), in_order),
        (_DEFERRED, in_order),
        (msgspec.structs.replace(_DEFERRED, halves=True), in_order),
        (msgspec.structs.replace(_DEFERRED, halves=True), by_transaction),
    ],
    "binlog": [
        (Profile(moves="whole", ties=True, source="mysql"), in_any_order),
        (Profile(moves="lacking", size=16, keys=4, source="mysql"), in_order),
    ],
}
"""Thirty histories of each kind in one table; a truncate would take the others' rows."""


def untimely(chance: Random, event: Any) -> Any:
    """Give an event a time at its source that is no order, or none."""
    if isinstance(event, HalfUpdate):
        return msgspec.structs.replace(event, change=untimely(chance, event.change))
    time = chance.choice((None, 0, chance.randrange(1 << 60)))
    return msgspec.structs.replace(event, source_time_ns=time)


def crowd(name: str) -> Story:
    chance = Random(f"{SEED} {name}")
    table = TableId("crowds", None, name)
    batches: list[list[ChangeEvent]] = [[] for _ in range(BATCHES)]
    for number, (profile, deliver) in enumerate(CROWDS[name] * 30):
        alone = msgspec.structs.replace(profile, truncates=False)
        told = deliver(chance, history(chance, alone))
        for batch, part in zip(batches, regrouped(chance, told), strict=True):
            batch.extend(rekeyed(chance, event, table, shift=number * 100) for event in part)
    for batch in batches:
        batch[:] = [untimely(chance, event) for event in batch]
        chance.shuffle(batch)
    return Story(table, ("id",), batches)


def truncating(name: str) -> Story:
    """One history with truncates, in a table of its own with keys of another type."""
    variant = VARIANTS[name]
    chance = Random(f"{SEED} {name}")
    table = TableId(None, "truncating", name)
    told = history(chance, Profile(moves="whole", ties=True, size=30))
    while not any(isinstance(event, Truncate) for event in told.events):
        told = history(chance, Profile(moves="whole", ties=True, size=30))
    events = [rekeyed(chance, event, table, variant) for event in told.events]
    batches = list(regrouped(chance, shuffled(chance, events)))
    return Story(table, tuple(name for name, _ in variant.columns), batches, variant.python)


OLD: Final = TableSchema(tuple(c for c in SCHEMA.columns if c.name not in {"note", "count"}))


def evolving() -> Story:
    """Histories whose table gains two columns on the way; events of the old schema come late."""
    chance = Random(f"{SEED} evolving")
    table = TableId("crowds", None, "evolving")
    batches: list[list[ChangeEvent]] = [[] for _ in range(BATCHES)]
    for number in range(40):
        told = history(chance, Profile(moves="none", truncates=False))
        events = [_before_columns_came(event) for event in told.events]
        for batch, part in zip(batches, regrouped(chance, shuffled(chance, events)), strict=True):
            batch.extend(rekeyed(chance, event, table, shift=number * 100) for event in part)
    return Story(table, ("id",), batches)


def _before_columns_came(event: ChangeEvent) -> ChangeEvent:
    assert isinstance(event, DataChange)
    if event.position.lsn > 1008:
        return event

    def image(told: Image | None) -> Image | None:
        return None if told is None else {name: told[name] for name in told if name in OLD.names}

    return msgspec.structs.replace(
        event, schema=OLD, before=image(event.before), after=image(event.after)
    )


LEAN: Final[dict[str, tuple[Profile, Deliver]]] = {
    "lean": (Profile(moves="none", truncates=False, ties=True), in_any_order),
    "lean_moves": (Profile(moves="lacking", truncates=False, size=16, keys=4), in_order),
}


def lean(name: str) -> Story:
    """Histories without schemas, whose updates name only some columns.

    Two columns reach the table when all rows that do not name them are there.
    """
    chance = Random(f"{SEED} {name}")
    table = TableId("crowds", None, name)
    profile, deliver = LEAN[name]
    batches: list[list[ChangeEvent]] = [[] for _ in range(BATCHES)]
    for number in range(40):
        told = history(chance, profile)
        moved = [rekeyed(chance, event, table, shift=number * 100) for event in told.events]
        events = tuple(_without_schema(_before_columns_came(event)) for event in moved)
        arrival = list(
            itertools.chain(*deliver(chance, msgspec.structs.replace(told, events=events)))
        )
        late = [bool({"note", "count"} & (event.after or {}).keys()) for event in arrival]
        if deliver is in_any_order:
            early = [e for e, names in zip(arrival, late, strict=True) if not names]
            rest = [e for e, names in zip(arrival, late, strict=True) if names]
            cut = chance.randrange(len(early) // 2, len(early) + 1)
            early, rest = early[:cut], early[cut:] + rest
        else:
            cut = late.index(True) if True in late else len(arrival)
            early, rest = arrival[:cut], arrival[cut:]
        batches[0] += early
        batches[1] += rest
    return Story(table, ("id",), batches)


def _without_schema(event: ChangeEvent) -> ChangeEvent:
    """Return an event as producers tell it that name what they know, as text, and no types."""
    assert isinstance(event, DataChange)

    def image(told: Image | None) -> Image | None:
        if told is None:
            return None
        known = {name: value for name, value in told.items() if value is not UNAVAILABLE}
        return {name: None if v is None else str(v) for name, v in known.items()}

    is_whole = event.op is not Op.UPDATE or UNAVAILABLE not in event.after.values()
    return msgspec.structs.replace(
        event,
        schema=None,
        before=image(event.before),
        after=image(event.after),
        after_holds=Completeness.FULL if is_whole else Completeness.CHANGED,
    )


class Stream(NamedTuple):
    lake: str
    reports: list[Any]


@pytest.fixture(scope="module")
def stories() -> dict[str, Story]:
    told = {name: crowd(name) for name in CROWDS}
    told |= {name: truncating(name) for name in VARIANTS}
    told |= {name: lean(name) for name in LEAN}
    return {**told, "evolving": evolving()}


NAMES: Final = {lake: [*CROWDS, *VARIANTS, *LEAN, "evolving"] for lake in lake_tables.LAKES}
"""What each lake gets: the rule is one, and how a key of a type is found differs little."""
if EFFORT == 1 and "delta" in NAMES:
    NAMES["delta"] = [*CROWDS, "floats_and_nulls", "lean_moves"]
    NAMES["iceberg"] = ["any_order", "in_order", *VARIANTS, "lean", "evolving"]


STREAMS: Final = [
    (lake, is_small)
    for lake in lake_tables.LAKES
    for is_small in (True, False)
    # where both formats are there, one gets small batches and the other one large ones
    if EFFORT > 1 or len(lake_tables.LAKES) == 1 or is_small == (lake == "delta")
]


@pytest.fixture(
    scope="module",
    params=STREAMS,
    ids=lambda param: f"{param[0]}-{'small' if param[1] else 'large'}",
)
def stream(
    spark: SparkSession,
    stories: dict[str, Story],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Stream:
    """All stories of a lake, landed as one stream of a few batches."""
    table_format, is_small = request.param
    lake = str(tmp_path_factory.mktemp("equality") / table_format)
    batches = [
        [event for name in NAMES[table_format] for event in stories[name].batches[number]]
        for number in range(BATCHES)
    ]
    with pytest.MonkeyPatch.context() as patch:
        if table_format == "iceberg":
            # key by key, as where much is remembered; the others read it whole
            patch.setattr(upsert, "MAX_TOMBSTONE_BYTES", -1)
        reports = lake_tables.land(spark, lake, batches[:1], is_small=is_small)
        merge_on_read(spark, lake)
        reports += lake_tables.land(spark, lake, batches[1:], first=1, is_small=is_small)
        return Stream(lake, reports)


def merge_on_read(spark: SparkSession, lake: str) -> None:
    """Let every second table mark changed rows as deleted, instead of rewriting their files."""
    tables = open_lake(spark, lake, Path(lake).name)
    if isinstance(tables, MaintainedLake):
        for name in tables.tables()[::2]:
            properties = tables.merge_mode_properties(MergeMode.MERGE_ON_READ)
            tables.set_format_properties(name, properties)


def check(spark: SparkSession, lake: str, story: Story) -> None:
    tables = lake_tables.oracle(story.batches)
    expected = lake_tables.remembered(tables, story.table)
    found = lake_tables.read(spark, lake, story.table, story.keys, story.python)
    assert found.rows == expected.rows
    assert found.unknown == expected.unknown
    assert found.orders == expected.orders


def test_tables_equal_memory(
    spark: SparkSession, stream: Stream, stories: dict[str, Story]
) -> None:
    for name in NAMES[Path(stream.lake).name]:
        check(spark, stream.lake, stories[name])


def test_nothing_but_undecided_swaps_is_set_aside(
    stream: Stream, stories: dict[str, Story]
) -> None:
    tables = lake_tables.oracle(stories["in_order"].batches)
    refused = {refused.code for refused in tables.quarantine}
    assert refused <= {"ambiguous_key_move"}
    assert {code for report in stream.reports for code in report.quarantined} == refused
    assert [report.skipped for report in stream.reports] == [0] * BATCHES


def test_the_stories_hold_what_they_are_for(stories: dict[str, Story]) -> None:
    """Ties, incomplete rows, moves and late truncates are there, or the test shows nothing."""
    for name in CROWDS:
        assert lake_tables.oracle(stories[name].batches).counts["ties"]
    for name in ("any_order", "in_order", "binlog", "evolving", *LEAN):
        assert lake_tables.oracle(stories[name].batches).counts["incomplete"]
    for name in LEAN:
        first, second = stories[name].batches
        names = {column for event in first for column in event.after or ()}
        assert names == {"id", "state", "total"}
        assert any("note" in (event.after or ()) for event in second)
    late = 0
    for name in VARIANTS:
        events = [event for batch in stories[name].batches for event in batch]
        truncate = next(e for e in events if isinstance(e, Truncate))
        before = events[: events.index(truncate)]
        late += any(event.position.lsn > truncate.position.lsn for event in before)
    assert late
