# SPDX-License-Identifier: Apache-2.0
"""The dry run of ``changelane check``: process a sample of the source in one process.

It uses the code of a run, and sends and stores nothing. It does not find problems between messages
that are far apart, such as two halves of an update or a schema change.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from changelane.codec import detect
from changelane.conversion.partition import RejectedMessage, empty_counts
from changelane.errors import DecodeError
from changelane.formats.contract.losses import Loss, LossClass, LossWarnings, loss_class
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.config_checks import Finding, ok, problem, warning
from changelane.pipeline.kafka_sink import KafkaSink
from changelane.pipeline.options import Maintenance
from changelane.pipeline.topic_sink import OrderedSource
from changelane.position import BY_MESSAGE, domain_of, domain_text, is_of_stream
from changelane.reason_codes import ReasonCode
from changelane.schema import option_for_table
from changelane.spark.lake.interface import Lake, name_of
from changelane.spark.lake.modes import APPEND, HISTORY, UPSERT, mode_of, modes_of
from changelane.spark.rows.builder import RowBuilder, row_builder
from changelane.spark.rows.schema import FIELD_INDEX, RowSchema, table_id_of
from changelane.spark.sinks.kafka import delivery_of
from changelane.spark.sources.decode_options import decode_options_of
from changelane.spark.sources.sample import Samples

MAX_SHOWN: Final = 20
"""The maximum number of tables, or reasons, in a finding."""


class _RejectionReasons:
    """Counts rejected messages by code, with the first reason of each."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, code: ReasonCode, reason: str) -> None:
        self.count[code] += 1
        self._first.setdefault(code, reason)

    def __str__(self) -> str:
        reasons = [
            f"{count} {code} ({self._first[code]})"
            for code, count in self.count.most_common(MAX_SHOWN)
        ]
        return "; ".join(reasons)


def _sample_finding(
    name: str,
    source_format: str,
    messages: list[Message | DecodeError],
    good_count: int,
    reasons: _RejectionReasons,
) -> Finding:
    """Return whether the messages of a topic or file have the configured format."""
    about, message_count = f"messages of {name}", len(messages)
    if good_count == message_count:
        return ok(about, f"all {message_count} first messages read as {source_format}")
    if good_count:
        consequence = f"{message_count - good_count} would be quarantined: {reasons}"
        return warning(
            about,
            f"{good_count} of {message_count} first messages read as {source_format}; "
            f"{consequence}",
        )
    decoded = [message for message in messages if isinstance(message, Message)]
    try:
        detected, other_formats = detect(decoded)
    except DecodeError:
        fix = "no format recognises them" if decoded else ""
    else:
        names = (detected, *other_formats)
        fix = f"they look like {' or '.join(names)}: set source.format"
        if source_format in names:
            fix = "the format is right: check source.format_options and the reasons"
    return problem(about, f"none of the {message_count} first messages can be used: {reasons}", fix)


# -- into tables


class _TableSample:
    """The sample of one table: its schemas, and counters of its events."""

    def __init__(self) -> None:
        self.events = 0
        self.keyless = 0
        self.unnumbered = 0
        self.schemas: dict[str, RowSchema] = {}
        self.domains: Counter[bytes] = Counter()

    def add(self, row: tuple[Any, ...]) -> None:
        if row[FIELD_INDEX["kind"]] == "schema":
            row_schema = msgspec.json.decode(row[FIELD_INDEX["after"]], type=RowSchema)
            self.schemas[row[FIELD_INDEX["schema_id"]]] = row_schema
            return
        self.events += 1
        self.keyless += row[FIELD_INDEX["kind"]] == "data" and row[FIELD_INDEX["key"]] is None
        order = row[FIELD_INDEX["order"]]
        self.domains[order[:2]] += 1
        is_placed = domain_of(order) not in BY_MESSAGE and is_of_stream(order)
        self.unnumbered += is_placed and row[FIELD_INDEX["ordinal"]] is None


class TableDryRun:
    """The dry run of a pipeline into tables.

    Args:
        pipeline: The pipeline.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._modes = modes_of(pipeline.options)
        self._table_samples: dict[str, _TableSample] = {}

    def read(
        self, samples: Samples, source_options: Mapping[str, Any] | None = None
    ) -> Iterator[Finding]:
        """Yield whether messages can be decoded.

        Args:
            samples: The messages.
            source_options: Options of their format that the source itself defines.
        """
        source, decode_options = self._pipeline.source, decode_options_of(self._pipeline)
        decode_options["images"] = False
        format_options = {**(source_options or {}), **source.format_options}
        builder = row_builder(source.format, format_options, **decode_options)
        for name, messages in samples.items():
            if not messages:
                continue
            good_count, excluded_count, reasons = 0, 0, _RejectionReasons()
            for message in messages:
                is_rejected = self._read_message(builder, message, reasons)
                good_count += not is_rejected
                excluded_count += is_rejected is None
            yield _sample_finding(name, source.format, messages, good_count, reasons)
            if good_count and excluded_count == good_count:
                text = "the transforms exclude all of the first messages"
                yield warning(f"messages of {name}", text)

    def _read_message(
        self, builder: RowBuilder, message: Message | DecodeError, reasons: _RejectionReasons
    ) -> bool | None:
        """Decode a message; return whether it is rejected, ``None`` = transforms exclude it."""
        if isinstance(message, DecodeError):
            reasons.add(message.code, message.reason)
            return True
        rows = builder.rows(message)
        if rows and rows[0][FIELD_INDEX["kind"]] == "error":
            reasons.add(rows[0][FIELD_INDEX["code"]], rows[0][FIELD_INDEX["reason"]])
            return True
        for row in rows:
            if row[FIELD_INDEX["kind"]] in {"data", "schema", "truncate"}:
                self._table_samples.setdefault(row[FIELD_INDEX["table_id"]], _TableSample()).add(
                    row
                )
        is_excluded = rows and all(row[FIELD_INDEX["op"]] == "excluded" for row in rows)
        return None if is_excluded else False

    def tables(self, lake: Lake | None) -> Iterator[Finding]:
        """Yield the findings of the tables in the sample.

        Args:
            lake: The lake; ``None`` = it cannot be read.
        """
        for table_id, table_sample in sorted(self._table_samples.items())[:MAX_SHOWN]:
            yield from self._table_findings(table_id, table_sample, lake)
        if (unnamed_count := len(self._table_samples) - MAX_SHOWN) > 0:
            yield ok("tables", f"and {unnamed_count} more in the first messages")
        domains: Counter[str] = Counter()
        for table_sample in self._table_samples.values():
            for domain, count in table_sample.domains.items():
                domains[domain_text(domain)] += count
        if domains:
            domain_names = ", ".join(text for text, _ in domains.most_common())
            yield ok("order", f"the order of events is by {domain_names}")
        yield from self._unmatched_names()

    def _unmatched_names(self) -> Iterator[Finding]:
        """Yield a warning if a table name in the options matches no table and is similar to one."""
        options = self._pipeline.options
        names_by_option: dict[str, Iterable[str]] = {"keys": options.keys, "tables": options.tables}
        if isinstance(options.maintenance, Maintenance):
            names_by_option["maintenance.cluster_by"] = options.maintenance.cluster_by
        tables = [table_id_of(table_id) for table_id in self._table_samples]
        for option, names in names_by_option.items():
            unnamed = [
                table
                for table in tables
                if option_for_table(dict.fromkeys(names, True), table) is None
            ]
            table_names = (name for table in unnamed for name in (str(table), table.name) if name)
            names_by_lower = {name.lower(): name for name in sorted(table_names)}
            for name in names:
                if any(option_for_table({name: True}, table) for table in tables):
                    continue
                similar_names = difflib.get_close_matches(
                    name.lower(), names_by_lower, n=1, cutoff=0.75
                )
                if similar_names:
                    text = f"it names {name}, and the first messages have no such table"
                    yield warning(
                        f"options.{option}",
                        text,
                        f"did you mean {names_by_lower[similar_names[0]]}?",
                    )

    def _table_findings(
        self, table_id: str, table_sample: _TableSample, lake: Lake | None
    ) -> Iterator[Finding]:
        options = self._pipeline.options
        table = table_id_of(table_id)
        about, mode = f"table {table}", self._modes.of(table)
        properties: Mapping[str, str] = {}
        state = "it is unknown whether the table exists"
        if lake is not None:
            if lake.exists(name_of(table_id)):
                properties, state = lake.properties(name_of(table_id)), "the table exists"
                if "schema" not in properties:
                    text = f"changelane did not create the table {lake.path(name_of(table_id))}"
                    yield problem(about, text, "move it away, or change the sink's folder")
                    return
                if mode != mode_of(properties):
                    table_mode = mode_of(properties).name
                    text = f"it has the mode {table_mode}, and the pipeline has {mode.name}"
                    fix = "a table keeps its mode: configure that one, or move the table away"
                    yield problem(about, text, fix)
            else:
                state = "a run would create the table"
        keys = dict.fromkeys(schema.key for schema in table_sample.schemas.values())
        key_text = " or ".join("none" if key is None else f"({', '.join(key)})" for key in keys)
        columns = max((len(schema.columns) for schema in table_sample.schemas.values()), default=0)
        description = f", key {key_text}, {columns} columns" if table_sample.schemas else ""
        yield ok(about, f"{table_sample.events} events{description}, mode {mode.name}; {state}")
        if (
            table_sample.keyless
            and mode.name != APPEND
            and options.tables_without_key == "quarantine"
        ):
            text = f"{table_sample.keyless} events have no key and would be quarantined as `no_key`"
            yield warning(
                about, text, "set its key columns in options.keys, or options.tables_without_key"
            )
        if mode.name != UPSERT or (table_sample.keyless and options.tables_without_key == "append"):
            yield from _duplicate_findings(about, table_sample, mode.name)
        servers = dict.fromkeys(
            schema.server for schema in table_sample.schemas.values() if schema.server
        )
        if len(servers) > 1 and options.source_servers == "single":
            text = f"{len(servers)} servers or routed tables write it, and only one is allowed"
            yield warning(
                about, text, "set options.source_servers: multiple, if their keys are disjoint"
            )
        yield from self._order_findings(about, table_sample, properties)

    def _order_findings(
        self, about: str, table_sample: _TableSample, properties: Mapping[str, str]
    ) -> Iterator[Finding]:
        """Yield a warning when some events have another kind of position than the table."""
        if not table_sample.domains:
            return
        kind = bytes.fromhex(properties.get("order", ""))[:2] or min(table_sample.domains)
        if other_count := sum(
            count for domain, count in table_sample.domains.items() if domain != kind
        ):
            domain_names = " and ".join(
                domain_text(domain) for domain in sorted(table_sample.domains)
            )
            text = (
                f"its order is by {domain_text(kind)}, and its events have {domain_names}: "
                f"{other_count} of {table_sample.events} would be quarantined as `unordered`"
            )
            yield warning(about, text)


def _duplicate_findings(about: str, table_sample: _TableSample, mode: str) -> Iterator[Finding]:
    """Yield a warning where repeated events of a table cannot be detected."""
    if table_sample.domains and all(
        domain_of(domain) in BY_MESSAGE for domain in table_sample.domains
    ):
        text = "its events have no positions: events that the producer repeats are added again"
        fix = "read a format with positions"
        if mode == UPSERT:
            fix = f"set its key columns in options.keys, if it has some, or {fix}"
        yield warning(about, text, fix)
    elif (
        table_sample.unnumbered and mode != HISTORY
    ):  # in a history table, key and position identify a version
        text = (
            f"{table_sample.unnumbered} events have a position that several rows may share, "
            "and no number in the transaction: a repeated event adds a row again, which is counted "
            "as a possible duplicate"
        )
        yield warning(about, text, "for Debezium, set provide.transaction.metadata: true")


# -- into topics


def delivery_findings(
    source: OrderedSource,
    sink: KafkaSink,
    partitions: Mapping[str, int],
    pipeline: Pipeline,
    samples: Samples,
) -> Iterator[Finding]:
    """Yield the number of messages that would be sent per topic, and the losses.

    Args:
        source: The source.
        sink: The sink.
        partitions: The number of partitions of each of its topics.
        pipeline: The pipeline.
        samples: The messages.
    """
    sent_counts: Counter[str] = Counter()
    losses: Counter[tuple[str, str]] = Counter()
    sink = msgspec.structs.replace(
        sink, block_keys_on_error=False
    )  # the dry run decides on each message alone
    for name, messages in samples.items():
        if not messages:
            continue
        good_count, reasons, delivery_counts = 0, _RejectionReasons(), empty_counts()
        delivery, partition = None, None
        for message in messages:
            if isinstance(message, DecodeError):
                reasons.add(message.code, message.reason)
                continue
            if delivery is None or message.partition != partition:
                # an unpaired half is dropped: its other half may come after the sample
                if delivery is not None:
                    delivery.add_counts()
                partition = message.partition
                delivery = delivery_of(
                    source,
                    sink,
                    partitions,
                    pipeline.pure_steps,
                    delivery_counts,
                    is_dry_run=True,
                )
            converted = delivery.push(message)
            good_count += not any(isinstance(outcome, RejectedMessage) for outcome in converted)
            for outcome in converted:
                if isinstance(outcome, RejectedMessage):
                    reasons.add(outcome.code, outcome.reason)
                else:
                    sent_counts[outcome.topic or ""] += 1
        if delivery is not None:
            delivery.add_counts()
        losses.update(delivery_counts.losses)
        yield _sample_finding(name, source.format, messages, good_count, reasons)
    if sent_counts:
        topic_counts = ", ".join(
            f"{topic} ({count})" for topic, count in sent_counts.most_common(MAX_SHOWN)
        )
        suffix = f" and {len(sent_counts) - MAX_SHOWN} more" if len(sent_counts) > MAX_SHOWN else ""
        total = sum(sent_counts.values())
        yield ok("sink", f"they would be {total} {sink.format} messages in {topic_counts}{suffix}")
    yield from _loss_findings(sink, losses)


def _loss_findings(sink: KafkaSink, losses: Counter[Loss]) -> Iterator[Finding]:
    """Yield the losses of the messages that would be sent; loss of metadata is no warning."""
    by_class: dict[LossClass, list[str]] = {}
    for (field, reasons), count in losses.most_common(MAX_SHOWN):
        by_class.setdefault(loss_class(field), []).append(f"{count} {field} ({reasons})")
    for loss_class_, losses_of_class in sorted(by_class.items()):
        finding_of = warning if loss_class_ is LossClass.DATA else ok
        yield finding_of(
            "sink", f"{sink.format} would lose {loss_class_}: {'; '.join(losses_of_class)}"
        )
    for text in LossWarnings(sink.on_loss, sink.format).of(losses):
        yield warning("sink", text)
