# SPDX-License-Identifier: Apache-2.0
"""``changelane convert``: messages of one format into another, from file to file."""

import contextlib
import fnmatch
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import IO, Any, NamedTuple

import click

from changelane import profiles
from changelane.cli import options
from changelane.cli.progress import Progress
from changelane.cli.summary import SHOWN_FAILURES, Budget, Failure, Summary
from changelane.codec import Codec, Encoded, OnLoss, get_codec
from changelane.errors import ConfigError, DecodeError, EncodeError, UnsupportedError
from changelane.event import ChangeEvent, Control, HalfUpdate
from changelane.files import (
    Line,
    LineForm,
    Lines,
    is_same_file,
    line_of,
    open_input,
    open_output,
    record_of,
)
from changelane.message import Message
from changelane.profile import Profile
from changelane.serdes import json
from changelane.transforms.join import JoinHalves, Orphans
from changelane.transforms.transactions import MARK, MOST_HELD, CollectTransactions

_FORMS = click.Choice(["auto", *(form.value for form in LineForm)])


class _Place(NamedTuple):
    """Where an event comes from, and how its messages are written."""

    line: int
    origin: Message
    form: LineForm


class _StopAtFailureError(Exception):
    """The first failure, with ``--fail-fast``."""


class Conversion:
    """One run: reads lines, writes lines, and counts.

    Args:
        patterns: Globs on the full name of the table; none lets every event pass.
        failures: Where messages and events that failed are written.
        orphans: Whether half an update without its other half is a failure, or is written as the
            delete or insert that it looks like.
        transactions: ``off``; ``report`` or ``mark`` to release the operations of a transaction
            together, and to tell of an incomplete one in the summary, or there and in the output.
        most_held: How many events are held back for that at most.
        profile: Where messages go; without one they go nowhere.
        partitions: How many partitions each topic has; ``None`` = not known.
    """

    def __init__(
        self,
        source: Codec,
        target: Codec,
        summary: Summary,
        *,
        output_form: LineForm | None = None,
        patterns: tuple[str, ...] = (),
        failures: IO[bytes] | None = None,
        fail_fast: bool = False,
        orphans: Orphans = Orphans.HALF,
        transactions: str = "off",
        most_held: int = MOST_HELD,
        profile: Profile | None = None,
        partitions: int | None = None,
    ) -> None:
        self.summary = summary
        self._profile = profile
        self._partitions = partitions
        self._source = source
        self._target = target
        self._native = get_codec("native-json")
        self._collect: CollectTransactions | None = None
        if transactions != "off":
            self._collect = CollectTransactions(
                most_held=most_held,
                marks=transactions == "mark",
                report=summary.tell_incomplete,
            )
        self._join = JoinHalves(orphans=orphans)
        self._output_form = output_form
        self._patterns = patterns
        self._failures = failures
        self._fail_fast = fail_fast

    def run(self, lines: Lines, output: IO[bytes]) -> Iterator[None]:
        """Convert all lines; yields after each, so that the caller can show progress."""
        place = _Place(0, Message(None), self._output_form or LineForm.VALUES)
        for line in lines:
            self.summary.messages += 1
            form = self._output_form or lines.form or LineForm.VALUES
            place = _Place(line.number, _message_of(line), form)
            others: list[ChangeEvent] = []
            with self._counting_failure():
                for event in self._events(line):
                    for joined in self._released(event):
                        if self._collect is not None or isinstance(joined, HalfUpdate):
                            others.append(joined)
                        else:
                            self._write(joined, place, output)
            # these are messages of other lines
            self._write_each(others, place, output)
            yield
        self._write_each(self._rest(), place, output)

    def _released(self, event: ChangeEvent) -> Iterator[ChangeEvent]:
        """Send an event through the transforms; yield what may go on."""
        collected = (event,) if self._collect is None else self._collect.push(event)
        for kept in self._of_tables(collected):
            yield from self._join.push(kept)

    def _rest(self) -> Iterator[ChangeEvent]:
        """Yield what the transforms hold back."""
        if self._collect is not None:
            for kept in self._of_tables(self._collect.flush()):
                yield from self._join.push(kept)
            self.summary.duplicates = self._collect.state.duplicates
        yield from self._join.flush()

    def _write_each(self, events: Iterable[ChangeEvent], place: _Place, output: IO[bytes]) -> None:
        """Write events of as many messages."""
        for event in events:
            if isinstance(event, HalfUpdate):
                self._refuse_orphan(event, place)
                continue
            with self._counting_failure():
                self._write(event, place, output)

    @contextlib.contextmanager
    def _counting_failure(self) -> Iterator[None]:
        """Count one failed message if anything fails inside."""
        before = self.summary.failures.total()
        try:
            yield
        finally:
            if self.summary.failures.total() > before:
                self.summary.failed_messages += 1

    def _refuse_orphan(self, half: HalfUpdate, place: _Place) -> None:
        error = "half an update, whose other half did not come up to this line"
        failure = Failure(place.line, "join", self._source.name, "orphan_half", error)
        with self._counting_failure():
            self._fail_with_event(failure, half, place)

    def _events(self, line: Line) -> Iterable[ChangeEvent]:
        if isinstance(line.content, DecodeError):
            self._fail_to_decode(line, line.content)
            return ()
        try:
            events = self._source.decode(line.content)
        except DecodeError as error:
            self._fail_to_decode(line, error)
            return ()
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other lines
            self._fail_to_decode(line, DecodeError(_defect(error), code="defect"))
            return ()
        self.summary.events += len(events)
        return events

    def _of_tables(self, events: tuple[ChangeEvent, ...]) -> tuple[ChangeEvent, ...]:
        if not self._patterns:
            return events
        kept = tuple(event for event in events if self._is_wanted(event))
        self.summary.filtered += len(events) - len(kept)
        return kept

    def _is_wanted(self, event: ChangeEvent) -> bool:
        if isinstance(event, Control) and event.type == MARK:
            return True
        changed = event.change if isinstance(event, HalfUpdate) else event
        name = str(getattr(changed, "table", ""))
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._patterns)

    def _write(self, event: ChangeEvent, place: _Place, output: IO[bytes]) -> None:
        for message in self._encode(event, place):
            placed = _placed(message, place.origin)
            try:
                text = line_of(placed, place.form)
            except EncodeError as error:
                failure = Failure(place.line, "write", self._target.name, "not_a_line", str(error))
                self._fail(failure, placed)
                continue
            if text is None:
                self.summary.tombstones_left_out += 1
                continue
            if place.form is LineForm.VALUES and message.key is not None:
                self.summary.keys_left_out += 1
            output.write(text)
            self.summary.written += 1

    def _encode(self, event: ChangeEvent, place: _Place) -> tuple[Message, ...]:
        try:
            encoded = self._encoded(event)
        except EncodeError as error:
            self._fail_to_encode(event, place, error)
            return ()
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other lines
            self._fail_to_encode(event, place, EncodeError(_defect(error)))
            return ()
        self.summary.losses.update(encoded.losses)
        return encoded.messages

    def _encoded(self, event: ChangeEvent) -> Encoded:
        encode = partial(self._target.encode, on_loss=self.summary.on_loss)
        if self._profile is None:
            return encode(event)
        return self._profile.encode(event, encode, lambda _: self._partitions)

    def _fail_to_decode(self, line: Line, error: DecodeError) -> None:
        stage = "decode" if isinstance(line.content, Message) else "read"
        failure = Failure(line.number, stage, self._source.name, error.code, str(error), error.path)
        self._fail(failure, _message_of(line))

    def _fail_to_encode(self, event: ChangeEvent, place: _Place, error: EncodeError) -> None:
        reason = "not_encodable"
        if isinstance(error, UnsupportedError):
            reason = "unsupported"
            self.summary.losses.update(error.losses)
        failure = Failure(place.line, "encode", self._target.name, reason, str(error))
        self._fail_with_event(failure, event, place)

    def _fail_with_event(self, failure: Failure, event: ChangeEvent, place: _Place) -> None:
        try:
            self._fail(failure, self._native.encode(event).messages[0], "native-json")
        except EncodeError:
            self._fail(failure, place.origin, self._source.name)

    def _fail(self, failure: Failure, message: Message, form: str | None = None) -> None:
        self.summary.fail(failure)
        if self._failures is not None:
            record: dict[str, Any] = {
                "line": failure.line,
                "stage": failure.stage,
                "reason": failure.reason,
                "path": failure.path,
                "error": failure.error,
                "format": form or failure.format,
            }
            self._failures.write(json.dumps(record | record_of(message)) + b"\n")
        if self._fail_fast:
            raise _StopAtFailureError


def _message_of(line: Line) -> Message:
    return line.content if isinstance(line.content, Message) else Message(line.raw)


def _defect(error: Exception) -> str:
    return f"a defect of changelane ({type(error).__name__}): please report it with this message"


def _placed(message: Message, origin: Message) -> Message:
    """Give a written message the topic and time of the one it comes from, unless it has its own.

    Partition and offset are places in the log that was read, and say nothing about another one.
    """
    return Message(
        message.value,
        message.key,
        message.headers,
        origin.topic if message.topic is None else message.topic,
        message.partition,
        message.offset,
        origin.timestamp_ms if message.timestamp_ms is None else message.timestamp_ms,
    )


@click.command(
    epilog="Failures: a message that cannot be read, or an event that cannot be written without "
    "a loss, is told on stderr, written to --failures, and the conversion goes on. "
    "Exit code 0: at most --max-failures messages failed; 1: more, or --fail-fast stopped; "
    "2: wrong use."
)
@click.argument("input_path", metavar="[IN]", default="-")
@click.argument("output_path", metavar="[OUT]", default="-")
@click.option("-f", "--from", "source", required=True, metavar="FORMAT", help="Format of IN.")
@click.option("-t", "--to", "target", required=True, metavar="FORMAT", help="Format of OUT.")
@click.option(
    "--input-as",
    type=_FORMS,
    default="auto",
    help="values: a line is the value of a message; records: an object with topic, key, value, "
    "headers ...; auto (default): records when the first line has topic and value.",
)
@click.option(
    "--output-as", type=_FORMS, default="auto", help="The same for OUT; auto (default): as IN."
)
@click.option(
    "--on-loss",
    type=click.Choice([policy.value for policy in OnLoss]),
    default=OnLoss.RAISE.value,
    help="What FORMAT cannot carry makes the event a failure (raise, the default), is counted and "
    "listed (warn), or only counted (ignore).",
)
@click.option(
    "--failures",
    "failures_path",
    metavar="FILE",
    help="Write what failed there: unreadable messages as they came, unwritable events as "
    "native-json, each a record with its line and reason.",
)
@click.option(
    "--max-failures",
    default="0",
    metavar="N|P%",
    help="How many messages may fail (a number, or a share of those read) with exit code 0 all "
    "the same. Default: 0. The conversion goes on in any case.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure; OUT is not written.")
@click.option(
    "--orphan-halves",
    "orphans",
    type=click.Choice(["fail", "pass"]),
    default="fail",
    help="Where two messages tell one update (DataHub) and only one of them came: it fails "
    "(default), or is written as the delete or insert that it looks like.",
)
@click.option(
    "--transactions",
    type=click.Choice(["off", "report", "mark"]),
    default="off",
    help="Write the operations of a transaction together and in their order, once all of them are "
    "there (formats that number them: SharePlex, Debezium). What came of a transaction that stays "
    "incomplete is written as well, and told in the summary (report), or there and by a message "
    "before it (mark). Default: off, the order of IN.",
)
@click.option(
    "--most-held",
    type=click.IntRange(min=0),
    default=MOST_HELD,
    show_default=True,
    help="How many events --transactions holds back at most; the oldest transaction that is not "
    "complete is written when there are more.",
)
@click.option(
    "--table",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Only events of tables whose full name (such as shop.public.orders) matches this glob; "
    "may be given more than once.",
)
@click.option(
    "--profile",
    "profile_name",
    metavar="NAME",
    help="Write records as this producer places them in Kafka: topic, key, headers and partition "
    "(changelane profiles lists them). Default: as the format has them.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="How many partitions each topic has, for --profile.",
)
@options("from", "format of --from")
@options("to", "format of --to")
@options("profile", "producer of --profile")
@click.option(
    "--output",
    "summary_form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Form of the summary on stderr.",
)
def convert(
    input_path: str,
    output_path: str,
    *,
    source: str,
    target: str,
    input_as: str,
    output_as: str,
    on_loss: str,
    failures_path: str | None,
    max_failures: str,
    fail_fast: bool,
    orphans: str,
    transactions: str,
    most_held: int,
    patterns: tuple[str, ...],
    from_options: dict[str, str],
    to_options: dict[str, str],
    profile_name: str | None,
    partitions: int | None,
    profile_options: dict[str, str],
    summary_form: str,
) -> None:
    """Turn the messages in IN into another format, and write them to OUT.

    IN and OUT are paths or - (the default); endings .gz and .zst mean compressed. OUT takes its
    place when it is complete. A summary goes to stderr.

    \b
    changelane convert -f debezium-json -t canal-json in.jsonl.gz out.jsonl
    """  # noqa: D301 - click's own marker of a paragraph that keeps its lines
    summary = Summary(source, target, OnLoss(on_loss), Budget.parse(max_failures))
    if failures_path is not None:
        for name, path in (("IN", input_path), ("OUT", output_path)):
            if is_same_file(path, failures_path):
                raise ConfigError(f"{name} and --failures are the same file")
    reader = get_codec(source, **from_options)
    if profile_name is None:
        if profile_options or partitions:
            raise ConfigError("--profile-option and --partitions need --profile")
        profile, writer = None, get_codec(target, **to_options)
    else:
        profile = profiles.load(profile_name, profile_options)
        writer = profile.codec(target, to_options)
        if output_as == LineForm.VALUES:
            raise ConfigError("--profile writes records, whose topics and keys are what it tells")
        output_as = LineForm.RECORDS
    quiet = summary_form == "json"
    told = 0
    _stop_cleanly_when_terminated()
    with ExitStack() as stack:
        opened = stack.enter_context(open_input(input_path))
        failures = stack.enter_context(open_output(failures_path)) if failures_path else None
        lines = Lines(opened.stream, None if input_as == "auto" else LineForm(input_as))
        conversion = Conversion(
            reader,
            writer,
            summary,
            output_form=None if output_as == "auto" else LineForm(output_as),
            patterns=patterns,
            failures=failures,
            fail_fast=fail_fast,
            orphans=Orphans.HALF if orphans == "fail" else Orphans.CHANGE,
            transactions=transactions,
            most_held=most_held,
            profile=profile,
            partitions=partitions,
        )
        try:
            with open_output(output_path) as output, Progress(opened, quiet=quiet) as progress:
                for _ in conversion.run(lines, output):
                    if not quiet:
                        told = _tell(summary, told)
                    progress.advance(summary)
        except _StopAtFailureError:
            summary.stopped = "stopped at the first failure (--fail-fast)"
        except DecodeError as error:  # the input itself cannot be read on
            summary.stopped = str(error)
    if quiet:
        click.echo(summary.as_json(), err=True)
    else:
        _tell(summary, told)
        click.echo(summary.as_text(), err=True)
    if summary.stopped or not summary.is_within_budget:
        sys.exit(1)


def _tell(summary: Summary, told: int) -> int:
    """Print the failures that were not told yet; return how many are told."""
    for failure in summary.first_failures[told:]:
        click.echo(str(failure), err=True)
    if told < SHOWN_FAILURES == len(summary.first_failures):
        click.echo("further failures are only counted", err=True)
    return len(summary.first_failures)


def _stop_cleanly_when_terminated() -> None:
    def stop(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    with contextlib.suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGTERM, stop)
