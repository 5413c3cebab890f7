# SPDX-License-Identifier: Apache-2.0
"""What would become of the first messages of a source: read by the code of a run, in one process.

Nothing is sent or stored. What only shows across messages that are far from each other (two halves
of an update, a table that changes its shape) is not looked for.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from changelane.codec import detect
from changelane.conversion.partition import Refused, counts
from changelane.errors import DecodeError
from changelane.formats.contract.losses import Loss, LossClass, LossWarnings, loss_class
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.config_checks import Finding, ok, problem, warning
from changelane.pipeline.kafka import KafkaSink, KafkaSource
from changelane.pipeline.options import Maintenance
from changelane.position import (
    BY_MESSAGE,
    EventIdPosition,
    LsnPosition,
    MySqlPosition,
    OffsetPosition,
    PostgresPosition,
    ScnPosition,
    SequencePosition,
    TimePosition,
    domain_of,
    is_of_stream,
)
from changelane.schema import named
from changelane.spark.lake.interface import Lake, name_of
from changelane.spark.lake.modes import APPEND, HISTORY, UPSERT, mode_of, modes_of
from changelane.spark.rows.builder import RowBuilder, row_builder
from changelane.spark.rows.schema import AT, RowSchema, table_id_of
from changelane.spark.sinks.kafka import delivery_of
from changelane.spark.sources.decode_options import reading_of
from changelane.spark.sources.sample import First

SHOWN: Final = 20
"""How many tables, or reasons, are told one by one."""
DOMAINS: Final = {
    MySqlPosition.code: "places in MySQL's binary log",
    PostgresPosition.code: "PostgreSQL's LSNs",
    ScnPosition.code: "Oracle's SCNs",
    LsnPosition.code: "LSNs",
    SequencePosition.code: "numbers of a sequence",
    OffsetPosition.code: "offsets inside one partition, or file",
    EventIdPosition.code: "ids of events, which tell their first offsets inside one partition",
    TimePosition.code: "times at the source",
}


class _Reasons:
    """Why messages are set aside: how many for each code, and the first reason of it."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, code: str, reason: str) -> None:
        self.count[code] += 1
        self._first.setdefault(code, reason)

    def __str__(self) -> str:
        told = [f"{n} {code} ({self._first[code]})" for code, n in self.count.most_common(SHOWN)]
        return "; ".join(told)


def _judged(
    name: str, source_format: str, told: list[Message | DecodeError], good: int, why: _Reasons
) -> Finding:
    """Return whether the messages of a topic or file are what the pipeline says."""
    about, total = f"messages of {name}", len(told)
    if good == total:
        return ok(about, f"all {total} first messages read as {source_format}")
    if good:
        rest = f"{total - good} would be set aside: {why}"
        return warning(about, f"{good} of {total} first messages read as {source_format}; {rest}")
    messages = [one for one in told if isinstance(one, Message)]
    try:
        found, others = detect(messages)
    except DecodeError:
        fix = "no format recognises them"
    else:
        names = (found, *others)
        fix = f"they look like {' or '.join(names)}: set source.format"
        if source_format in names:
            fix = "the format is right, so look at its format_options and at the reasons"
    return problem(about, f"none of the {total} first messages can be used: {why}", fix)


# -- into tables


class _Seen:
    """What the messages told of one table."""

    def __init__(self) -> None:
        self.events = 0
        self.keyless = 0
        self.unnumbered = 0
        self.schemas: dict[str, RowSchema] = {}
        self.domains: Counter[bytes] = Counter()

    def take(self, row: tuple[Any, ...]) -> None:
        if row[AT["kind"]] == "schema":
            told = msgspec.json.decode(row[AT["after"]], type=RowSchema)
            self.schemas[row[AT["schema_id"]]] = told
            return
        self.events += 1
        self.keyless += row[AT["kind"]] == "data" and row[AT["key"]] is None
        order = row[AT["order"]]
        self.domains[order[:2]] += 1
        is_placed = domain_of(order) not in BY_MESSAGE and is_of_stream(order)
        self.unnumbered += is_placed and row[AT["ordinal"]] is None


class TableTrial:
    """Messages on their way into tables.

    Args:
        pipeline: The pipeline.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._modes = modes_of(pipeline.options)
        self._seen: dict[str, _Seen] = {}

    def read(self, first: First, learnt: Mapping[str, Any] | None = None) -> Iterator[Finding]:
        """Yield whether messages can be read.

        Args:
            first: The messages.
            learnt: Options of their format that the source itself tells.
        """
        source, reading = self._pipeline.source, reading_of(self._pipeline)
        reading["images"] = False
        told_options = {**(learnt or {}), **source.format_options}
        builder = row_builder(source.format, told_options, **reading)
        for name, told in first.items():
            if not told:
                continue
            good, excluded, why = 0, 0, _Reasons()
            for one in told:
                error = self._take(builder, one, why)
                good += not error
                excluded += error is None
            yield _judged(name, source.format, told, good, why)
            if good and excluded == good:
                text = "the transforms let none of the first messages pass"
                yield warning(f"messages of {name}", text)

    def _take(self, builder: RowBuilder, one: Message | DecodeError, why: _Reasons) -> bool | None:
        """Take a message; return whether it is set aside, ``None`` = transforms leave it out."""
        if isinstance(one, DecodeError):
            why.add(one.code, one.reason)
            return True
        rows = builder.rows(one)
        if rows and rows[0][AT["kind"]] == "error":
            why.add(rows[0][AT["code"]], rows[0][AT["reason"]])
            return True
        for row in rows:
            if row[AT["kind"]] in {"data", "schema", "truncate"}:
                self._seen.setdefault(row[AT["table_id"]], _Seen()).take(row)
        is_out = rows and all(row[AT["op"]] == "excluded" for row in rows)
        return None if is_out else False

    def tables(self, lake: Lake | None) -> Iterator[Finding]:
        """Yield what would become of the tables that messages were of.

        Args:
            lake: The tables; ``None`` = they cannot be looked at.
        """
        for table_id, seen in sorted(self._seen.items())[:SHOWN]:
            yield from self._table(table_id, seen, lake)
        if (more := len(self._seen) - SHOWN) > 0:
            yield ok("tables", f"and {more} more in the first messages")
        domains: Counter[int] = Counter()
        for seen in self._seen.values():
            for kind, count in seen.domains.items():
                domains[domain_of(kind)] += count
        if domains:
            words = ", ".join(DOMAINS[code] for code, _ in domains.most_common())
            yield ok("order", f"events are compared by {words}")
        yield from self._unmet()

    def _unmet(self) -> Iterator[Finding]:
        """Yield a warning where a name in the options is like that of a table, and none has it."""
        options = self._pipeline.options
        told: dict[str, Iterable[str]] = {"keys": options.keys, "tables": options.tables}
        if isinstance(options.maintenance, Maintenance):
            told["maintenance.cluster"] = options.maintenance.cluster
        tables = [table_id_of(table_id) for table_id in self._seen]
        for option, names in told.items():
            unnamed = [one for one in tables if named(dict.fromkeys(names, True), one) is None]
            called = (name for one in unnamed for name in (str(one), one.name) if name)
            known = {name.lower(): name for name in sorted(called)}
            for name in names:
                if any(named({name: True}, one) for one in tables):
                    continue
                near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.75)
                if near:
                    text = f"it names {name}, which no table of the first messages is called"
                    yield warning(f"options.{option}", text, f"did you mean {known[near[0]]}?")

    def _table(self, table_id: str, seen: _Seen, lake: Lake | None) -> Iterator[Finding]:
        options = self._pipeline.options
        table = table_id_of(table_id)
        about, mode = f"table {table}", self._modes.of(table)
        properties: Mapping[str, str] = {}
        state = "it cannot be seen whether it is there"
        if lake is not None:
            if lake.exists(name_of(table_id)):
                properties, state = lake.properties(name_of(table_id)), "the table is there"
                if "schema" not in properties:
                    text = f"{lake.path(name_of(table_id))} is a table that changelane did not make"
                    yield problem(about, text, "move it away, or choose another place")
                    return
                if mode != mode_of(properties):
                    found = mode_of(properties).name
                    text = f"it has the mode {found}, and the pipeline asks for {mode.name}"
                    fix = "a table keeps its mode: ask for that one, or move the table away"
                    yield problem(about, text, fix)
            else:
                state = "the table would be made"
        keys = dict.fromkeys(told.key for told in seen.schemas.values())
        words = " or ".join("none" if key is None else f"({', '.join(key)})" for key in keys)
        columns = max((len(told.columns) for told in seen.schemas.values()), default=0)
        shape = f", key {words}, {columns} columns" if seen.schemas else ""
        yield ok(about, f"{seen.events} events{shape}, mode {mode.name}; {state}")
        if seen.keyless and mode.name != APPEND and options.keyless == "quarantine":
            text = f"{seen.keyless} events name no key and would be set aside as `no_key`"
            yield warning(about, text, "give its key columns in options.keys, or options.keyless")
        if mode.name != UPSERT or (seen.keyless and options.keyless == "append"):
            yield from _repeats(about, seen, mode.name)
        servers = dict.fromkeys(told.server for told in seen.schemas.values() if told.server)
        if len(servers) > 1 and options.sources == "one":
            text = f"{len(servers)} servers or routed tables feed it, and only one of them may"
            yield warning(about, text, "options.sources: many, when their keys never meet")
        yield from self._order(about, seen, properties)

    def _order(self, about: str, seen: _Seen, properties: Mapping[str, str]) -> Iterator[Finding]:
        """Yield a warning when the table compares other positions than some events tell."""
        if not seen.domains:
            return
        kind = bytes.fromhex(properties.get("order", ""))[:2] or min(seen.domains)
        if odd := sum(count for other, count in seen.domains.items() if other != kind):
            told = " and ".join(DOMAINS[domain_of(other)] for other in sorted(seen.domains))
            text = (
                f"it compares {DOMAINS[domain_of(kind)]}, and its events tell {told}: {odd} of "
                f"{seen.events} would be set aside as `unordered`"
            )
            yield warning(about, text)


def _repeats(about: str, seen: _Seen, mode: str) -> Iterator[Finding]:
    """Yield a warning where nothing tells that events of a table are sent again."""
    if seen.domains and all(domain_of(kind) in BY_MESSAGE for kind in seen.domains):
        text = "its events tell no positions: what their producer sends again is added again"
        fix = "read a format that tells positions"
        if mode == UPSERT:
            fix = f"give its key columns in options.keys, where it has some, or {fix}"
        yield warning(about, text, fix)
    elif seen.unnumbered and mode != HISTORY:  # there its key and its position make it one version
        text = (
            f"{seen.unnumbered} events tell a position that several rows may have, and not their "
            "number in the transaction: of equal ones that are sent again each adds a row, and is "
            "counted as a possible duplicate"
        )
        yield warning(about, text, "for Debezium, set provide.transaction.metadata: true")


# -- into topics


def deliver(
    source: KafkaSource,
    sink: KafkaSink,
    partitions: Mapping[str, int],
    pipeline: Pipeline,
    first: First,
) -> Iterator[Finding]:
    """Yield what would be sent of the first messages, and where.

    Args:
        source: What is read.
        sink: Where messages go.
        partitions: How many partitions its topics have.
        pipeline: The pipeline.
        first: The messages.
    """
    sent: Counter[str] = Counter()
    losses: Counter[tuple[str, str]] = Counter()
    sink = msgspec.structs.replace(sink, hold_keys=False)  # each message is judged for itself
    for name, told in first.items():
        if not told:
            continue
        good, why, counted = 0, _Reasons(), counts()
        delivery, place = None, None
        for one in told:
            if isinstance(one, DecodeError):
                why.add(one.code, one.reason)
                continue
            if delivery is None or one.partition != place:
                # what still waits for its other half is left: it may come behind
                place = one.partition
                delivery = delivery_of(source, sink, partitions, pipeline.pure_steps, counted)
            made = delivery.push(one)
            good += not any(isinstance(each, Refused) for each in made)
            for each in made:
                if isinstance(each, Refused):
                    why.add(each.code, each.reason)
                else:
                    sent[each.topic or ""] += 1
        losses.update(counted.losses)
        yield _judged(name, source.format, told, good, why)
    if sent:
        shown = ", ".join(f"{topic} ({count})" for topic, count in sent.most_common(SHOWN))
        more = f" and {len(sent) - SHOWN} more" if len(sent) > SHOWN else ""
        total = sum(sent.values())
        yield ok("sink", f"they would be {total} {sink.format} messages in {shown}{more}")
    yield from _lost(sink, losses)


def _lost(sink: KafkaSink, losses: Counter[Loss]) -> Iterator[Finding]:
    """Tell what would be lost of messages that would be sent; metadata that may go is no fault."""
    by_class: dict[LossClass, list[str]] = {}
    for (field, why), count in losses.most_common(SHOWN):
        by_class.setdefault(loss_class(field), []).append(f"{count} {field} ({why})")
    for one, parts in sorted(by_class.items()):
        tell = warning if one is LossClass.DATA else ok
        yield tell("sink", f"{sink.format} would lose of {one}: {'; '.join(parts)}")
    for told in LossWarnings(sink.on_loss, sink.format).of(losses):
        yield warning("sink", told)
