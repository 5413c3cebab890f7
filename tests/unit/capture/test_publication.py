# SPDX-License-Identifier: Apache-2.0
"""When captured records become visible: whole transactions, in order, none lost, none twice."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from changelane.capture.engine_records import EngineRecord, RecordRole
from changelane.capture.manifest import CapturedRecord, EngineOffset
from changelane.capture.publication import Append, PublicationLimits, PublicationPlanner, Publish

LIMITS = PublicationLimits(max_bytes=1000, max_age_s=5, idle_s=60, open_bytes=700)
ROW, BEGIN, END = RecordRole.ROW, RecordRole.BEGIN, RecordRole.END
HEARTBEAT, MARKER = RecordRole.HEARTBEAT, RecordRole.MARKER


def row(name: str) -> CapturedRecord:
    return CapturedRecord("t", None, name)


class Unit(NamedTuple):
    """Something that must become visible at once.

    ``kind``: ``transaction``, ``statement`` (records of one offset, without a transaction),
    ``heartbeat`` or ``snapshot``.
    """

    kind: str
    rows: tuple[str, ...]
    has_heartbeat_inside: bool = False


def records_of(unit: Unit, lsn: int) -> Iterator[EngineRecord]:
    """What the engine sends for a unit that ends at an LSN."""
    match unit.kind:
        case "snapshot":
            for number, name in enumerate(unit.rows, 1):
                offset: EngineOffset = {
                    "lsn": lsn,
                    "snapshot": "INITIAL",
                    "snapshot_completed": number == len(unit.rows),
                }
                yield EngineRecord(ROW, offset, row(name))
            yield EngineRecord(HEARTBEAT, {"lsn": lsn}, row("heartbeat"))
        case "transaction":
            inside: EngineOffset = {"lsn": lsn - 1, "transaction_id": str(lsn)}
            yield EngineRecord(BEGIN, inside, row("BEGIN"))
            for name in unit.rows:
                yield EngineRecord(ROW, {**inside, f"transaction_{name}": 1}, row(name))
                if unit.has_heartbeat_inside:
                    yield EngineRecord(HEARTBEAT, inside, row("heartbeat"))
            yield EngineRecord(END, {"lsn": lsn, "transaction_id": str(lsn)}, row("END"))
        case "statement":
            for name in unit.rows:
                yield EngineRecord(ROW, {"lsn": lsn}, row(name))
        case _:
            yield EngineRecord(HEARTBEAT, {"lsn": lsn}, row("heartbeat"))


UNITS = st.lists(
    st.builds(
        Unit,
        st.sampled_from(["transaction", "statement", "heartbeat"]),
        st.integers(0, 8).map(lambda count: tuple("rows" * 10 for _ in range(count))),
        st.booleans(),
    ),
    max_size=12,
)


class Log:
    """A log in memory: what was published, and with which offset."""

    def __init__(self) -> None:
        self.visible: list[str | None] = []
        self.pending: list[str | None] = []
        self.offset: EngineOffset | None = None

    def execute(self, steps: Iterator[Append | Publish]) -> int:
        count = 0
        for step in steps:
            match step:
                case Append(records):
                    self.pending += [record.value for record in records]
                case Publish(offset):
                    count += 1
                    self.visible += self.pending
                    self.pending = []
                    self.offset = offset
        return count


def numbered(units: list[Unit], snapshot_rows: int) -> list[Unit]:
    """The units with unique rows, after a snapshot."""
    snapshot = Unit("snapshot", tuple(f"s{number:030}" for number in range(snapshot_rows)))
    return [
        snapshot,
        *(
            unit._replace(rows=tuple(f"{place}-{n:030}" for n in range(len(unit.rows))))
            for place, unit in enumerate(units)
            if unit.kind != "statement" or unit.rows
        ),
    ]


KILLS = st.lists(st.integers(0, 60), max_size=4)
"""The numbers of records after which processes are killed."""


@given(UNITS, st.integers(0, 12), st.booleans(), KILLS, st.randoms(use_true_random=False))
def test_published_records_are_whole_units_and_crashes_lose_and_repeat_none(
    drawn: list[Unit], snapshot_rows: int, with_markers: bool, kills: list[int], chance: Random
) -> None:
    units = numbered(drawn, snapshot_rows)
    log, now_s = Log(), 0.0
    ends: list[list[str | None]] = [[]]  # what may be visible: the content after each unit
    for unit in units:
        names = list(unit.rows) if unit.kind != "heartbeat" else []
        if with_markers and unit.kind == "transaction" and names:
            names = ["BEGIN", *names, "END"]
        ends.append([*ends[-1], *names])
    for length in (*kills, None):
        # the engine starts after the published offset, and may be killed after any record
        first = 0 if log.offset is None else int(log.offset["lsn"] or 0) // 10
        stream = [
            record
            for place, unit in enumerate(units[first:], first + 1)
            for record in records_of(unit, place * 10)
        ]
        log.pending = []
        planner = PublicationPlanner(
            log.offset, limits=LIMITS, now_s=now_s, with_markers=with_markers
        )
        position, end = 0, len(stream) if length is None else min(length, len(stream))
        while position < end:
            batch = stream[position : min(position + chance.randint(1, 5), end)]
            position += len(batch)
            log.execute(planner.accept(batch, now_s))
            planner.end_batch(now_s)
            if position < len(stream) and stream[position].offset == batch[-1].offset:
                continue  # the engine sends the rest of a statement at once
            now_s += chance.choice([0.0, 1.0, 6.0, 61.0])
            log.execute(planner.tick(now_s))
            assert log.visible in ends
            assert log.offset is None or not any("transaction" in name for name in log.offset)
        if length is None:
            log.execute(planner.finish(now_s))
    assert log.visible in ends
    # a last statement is complete when something follows it, or after a while
    end = -2 if units[-1].kind == "statement" else -1
    assert log.visible in ends[end:]
    log.execute(planner.tick(now_s + 60))
    log.execute(planner.tick(now_s + 120))
    assert log.visible == ends[-1]


def planner_after_snapshot(**options: bool) -> tuple[PublicationPlanner, Log]:
    log = Log()
    log.offset = {"lsn": 0}
    return PublicationPlanner(log.offset, limits=LIMITS, now_s=0, **options), log


def transaction(lsn: int, *names: str) -> list[EngineRecord]:
    return list(records_of(Unit("transaction", names), lsn))


def test_records_are_published_by_age() -> None:
    planner, log = planner_after_snapshot()
    assert log.execute(planner.accept(transaction(10, "a"), 100)) == 0
    assert log.execute(planner.tick(104)) == 0
    assert log.execute(planner.tick(105)) == 1
    assert log.visible == ["a"]
    assert log.offset == {"lsn": 10}


def test_records_are_published_by_size() -> None:
    planner, log = planner_after_snapshot()
    big = "x" * 500
    assert log.execute(planner.accept(transaction(10, big), 0)) == 0
    assert log.execute(planner.accept(transaction(20, big), 0)) == 1
    assert log.visible == [big, big]


def test_transactions_before_a_large_one_do_not_wait_for_its_end() -> None:
    planner, log = planner_after_snapshot()
    log.execute(planner.accept(transaction(10, "a"), 0))
    *large, end = transaction(20, *["x" * 300] * 2)
    assert log.execute(planner.accept(large, 0)) == 1
    assert log.visible == ["a"]
    assert planner.is_open
    assert log.execute(planner.tick(1000)) == 0
    assert log.execute(planner.finish(1000)) == 0
    assert log.execute(planner.accept([end], 1000)) == 1  # it has waited long enough
    assert len(log.visible) == 3


def test_offset_of_a_heartbeat_is_not_published_with_a_part_of_a_transaction() -> None:
    planner, log = planner_after_snapshot()
    heartbeat = EngineRecord(HEARTBEAT, {"lsn": 5}, row("heartbeat"))
    *large, end = transaction(20, *["x" * 300] * 2)
    assert log.execute(planner.accept([heartbeat, *large], 0)) == 0
    assert log.pending != []
    assert log.execute(planner.tick(1000)) == 0
    assert log.execute(planner.finish(1000)) == 0
    assert log.execute(planner.accept([end], 1000)) == 1
    assert log.offset == {"lsn": 20}


def test_statement_is_complete_although_its_transaction_never_ends() -> None:
    planner, log = planner_after_snapshot()
    offset: EngineOffset = {"pos": 10, "transaction_id": "7"}
    statements = [EngineRecord(RecordRole.STATEMENT, offset, row(name)) for name in "ab"]
    log.execute(planner.accept([EngineRecord(BEGIN, offset, row("BEGIN")), *statements], 0))
    planner.end_batch(0)
    assert log.execute(planner.tick(1)) == 0
    heartbeat = EngineRecord(HEARTBEAT, {**offset, "event": 2}, row("heartbeat"))
    log.execute(planner.accept([heartbeat], 1))
    assert log.execute(planner.tick(5)) == 1
    assert log.visible == ["a", "b"]
    assert log.offset == {"pos": 10}


def test_last_change_without_a_transaction_waits_for_a_quiet_time() -> None:
    planner, log = planner_after_snapshot()
    statement = records_of(Unit("statement", ("drop a", "drop b")), 10)
    log.execute(planner.accept(statement, 0))
    planner.end_batch(10)  # the batch was written slowly
    assert log.execute(planner.tick(11)) == 0
    assert log.execute(planner.finish(11)) == 0
    assert log.execute(planner.tick(12)) == 1
    assert log.visible == ["drop a", "drop b"]
    assert log.offset == {"lsn": 10}


def test_offset_of_an_idle_database_is_published_now_and_then() -> None:
    planner, log = planner_after_snapshot()
    for second in range(1, 121):
        heartbeat = EngineRecord(HEARTBEAT, {"lsn": second}, row("heartbeat"))
        count = log.execute(planner.accept([heartbeat], second))
        assert count == (second in {60, 120})
    assert log.visible == []
    assert log.offset == {"lsn": 120}


def test_unchanged_offset_is_not_published_again() -> None:
    planner, log = planner_after_snapshot()
    heartbeat = EngineRecord(HEARTBEAT, {"lsn": 0}, row("heartbeat"))
    assert log.execute(planner.accept([heartbeat], 1000)) == 0
    assert log.execute(planner.finish(2000)) == 0


def test_empty_transactions_are_no_records() -> None:
    planner, log = planner_after_snapshot(with_markers=True)
    log.execute(planner.accept(transaction(10), 0))
    assert log.execute(planner.finish(0)) == 1
    assert log.visible == []
    assert log.offset == {"lsn": 10}


def test_marker_is_not_kept_waiting() -> None:
    planner, log = planner_after_snapshot()
    begin, end = transaction(20)
    marker = EngineRecord(MARKER, begin.offset, row("marker"))
    log.execute(planner.accept(transaction(10, "a"), 0))
    assert log.execute(planner.accept([begin, marker], 0)) == 0
    assert log.execute(planner.accept([end], 0)) == 1
    assert log.visible == ["a"]
    assert log.offset == {"lsn": 20}


def test_snapshot_without_rows_is_published_at_its_end() -> None:
    log = Log()
    planner = PublicationPlanner(None, limits=LIMITS, now_s=0)
    assert log.execute(planner.accept(records_of(Unit("snapshot", ()), 10), 0)) == 1
    assert log.offset == {"lsn": 10}


def test_snapshot_is_one_publication() -> None:
    log = Log()
    planner = PublicationPlanner(None, limits=LIMITS, now_s=0)
    names = tuple(f"{number:0200}" for number in range(20))
    *rows, last, heartbeat = records_of(Unit("snapshot", names), 10)
    assert log.execute(planner.accept(rows, 0)) == 0
    assert log.execute(planner.tick(1000)) == 0
    assert log.execute(planner.finish(1000)) == 0
    assert log.execute(planner.accept([last, heartbeat], 1000)) == 1
    assert log.visible == [*names]


def test_a_plan_is_quiet_when_only_heartbeats_come_and_nothing_waits() -> None:
    planner = PublicationPlanner({"pos": 1}, limits=LIMITS, now_s=0)
    log = Log()

    def accept(role: RecordRole, offset: EngineOffset, now_s: float) -> None:
        log.execute(planner.accept([EngineRecord(role, offset, row("x"))], now_s))

    accept(BEGIN, {"pos": 2, "transaction_id": "1-1-7"}, 10)  # a statement without a record
    accept(HEARTBEAT, {"pos": 2, "transaction_id": "1-1-7"}, 11)
    assert not planner.is_quiet(11.9)
    assert planner.is_quiet(12)
    accept(ROW, {"pos": 2, "transaction_id": "1-1-7"}, 13)
    assert not planner.is_quiet(16), "the row waits for the end of its transaction"
    accept(END, {"pos": 3, "transaction_id": "1-1-7"}, 14)
    assert not planner.is_quiet(17), "the row waits for its publication"
    log.execute(planner.tick(18))
    assert planner.is_quiet(18)


def test_inserted_records_are_published_between_transactions() -> None:
    planner, log = planner_after_snapshot()
    assert planner.can_insert
    log.execute(planner.insert(Append((row("repair 1"),)), 0))
    assert (log.visible, log.offset) == (["repair 1"], {"lsn": 0})

    log.execute(planner.accept(transaction(10, "a"), 0))
    begin, first, second, end = transaction(20, "b" * 300, "c" * 400)
    log.execute(planner.accept([begin, first], 0))
    log.execute(planner.insert(Append((row("repair 2"),)), 0))
    assert log.visible[1:] == ["a", "repair 2"], "the open transaction waits in memory"
    assert log.offset == {"lsn": 10}
    log.execute(planner.accept([second], 0))
    assert not planner.can_insert, "a part of the open transaction is in the segment"
    log.execute(planner.accept([end], 1000))
    log.execute(planner.tick(1010))
    assert log.visible[3:] == ["b" * 300, "c" * 400]


def test_nothing_is_inserted_before_the_end_of_a_first_snapshot() -> None:
    planner = PublicationPlanner(None, limits=LIMITS, now_s=0)
    assert not planner.can_insert
    assert not PublicationPlanner({}, limits=LIMITS, now_s=0).can_insert
