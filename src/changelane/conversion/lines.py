# SPDX-License-Identifier: Apache-2.0
"""One run of ``changelane convert``: reads and writes lines of messages, reports failures."""

import contextlib
import fnmatch
from collections.abc import Iterable, Iterator
from functools import partial
from typing import IO, Any, NamedTuple

import msgspec

from changelane.codec import Codec, Encoded, get_codec
from changelane.conversion.group_transactions import (
    INCOMPLETE_MARK,
    MAX_BUFFERED,
    CollectTransactions,
)
from changelane.conversion.join_update_halves import JoinHalves, Orphans
from changelane.conversion.message_files import Line, LineFormat, Lines, line_of, record_of
from changelane.conversion.summary import Failure, Summary
from changelane.conversion.topic_input import TopicInput
from changelane.errors import (
    DecodeError,
    EncodeError,
    TransformError,
    UnsupportedError,
)
from changelane.event import ChangeEvent, Control, HalfUpdate
from changelane.formats.contract import json
from changelane.formats.contract.losses import Loss, LossWarnings
from changelane.message import Message
from changelane.profiles.profile import Profile
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId
from changelane.transforms.chain import Chain


class _OutputPlace(NamedTuple):
    """The origin of an event, and the format of its output lines."""

    line: int
    origin: Message
    form: LineFormat


class StopAtFailureError(Exception):
    """The first failure of a run with ``--fail-fast``."""


class Conversion:
    """One run: reads lines, writes lines, and counts.

    Args:
        patterns: Globs on the full name of the table; without globs, every event passes.
        failures: The output for messages and events that failed.
        orphans: Whether an unpaired half of an update is a failure, or becomes a plain delete or
            insert.
        transactions: ``off``; ``report`` or ``mark`` to write the operations of a transaction
            together. Both list incomplete ones in the summary, ``mark`` also in the output.
        max_buffered: The maximum number of buffered events of transactions.
        profile: The producer whose rules determine the topics; without it there are no topics.
        partitions: The number of partitions of each topic; ``None`` if unknown.
        chain: The transforms of events.
    """

    def __init__(
        self,
        source: Codec,
        target: Codec,
        summary: Summary,
        *,
        output_form: LineFormat | None = None,
        patterns: tuple[str, ...] = (),
        failures: IO[bytes] | None = None,
        fail_fast: bool = False,
        orphans: Orphans = Orphans.HALF,
        transactions: str = "off",
        max_buffered: int = MAX_BUFFERED,
        profile: Profile | None = None,
        partitions: int | None = None,
        chain: Chain | None = None,
    ) -> None:
        self._chain = Chain(()) if chain is None else chain
        self._place = _OutputPlace(0, Message(None), LineFormat.VALUE)
        self.summary = summary
        self._profile = profile
        self._partitions = partitions
        self._source = source
        self._target = target
        self._native = get_codec("native-json")
        self._collect: CollectTransactions | None = None
        if transactions != "off":
            self._collect = CollectTransactions(
                max_buffered=max_buffered,
                has_marks=transactions == "mark",
                report=summary.count_incomplete,
            )
        self._warnings = LossWarnings(summary.on_loss, target.name)
        self._join = JoinHalves(orphans=orphans)
        self._output_form = output_form
        self._patterns = patterns
        self._failures = failures
        self._fail_fast = fail_fast

    def run(self, lines: Lines | TopicInput, output: IO[bytes]) -> Iterator[None]:
        """Convert all lines; yield after each line, so that the caller can show progress."""
        place = _OutputPlace(0, Message(None), self._output_form or LineFormat.VALUE)
        for line in lines:
            self.summary.messages += 1
            form = self._output_form or lines.form or LineFormat.VALUE
            place = self._place = _OutputPlace(line.number, _message_of(line), form)
            other_events: list[ChangeEvent] = []
            with self._counting_failure():
                for event in self._events(line):
                    for joined in self._released(event):
                        if self._collect is not None or isinstance(joined, HalfUpdate):
                            other_events.append(joined)
                        else:
                            self._write(joined, place, output)
            # released events of other lines
            self._write_each(other_events, place, output)
            yield
        self._write_each(self._remaining_events(), place, output)

    def _released(self, event: ChangeEvent) -> list[ChangeEvent]:
        """Send an event through the stateful transforms; return the released events."""
        try:
            collected = (event,) if self._collect is None else self._collect.push(event)
            return [
                event
                for transformed in self._transformed(collected)
                for event in self._join.push(transformed)
            ]
        except (StopAtFailureError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other lines
            failure = Failure(
                self._place.line, "join", self._source.name, "defect", _defect_text(error)
            )
            self._fail_with_event(failure, event, self._place)
            return []

    def _transformed(self, events: tuple[ChangeEvent, ...]) -> Iterator[ChangeEvent]:
        """Yield the transformed events of the selected tables."""
        for event in self._of_tables(events):
            if not self._chain.transforms or _is_mark(event):
                yield event
                continue
            try:
                transformed = self._chain(event)
            except TransformError as error:
                self._fail_to_transform(event, error.code, str(error))
            except Exception as error:  # noqa: BLE001 - a defect must not stop the other lines
                self._fail_to_transform(event, "defect", _defect_text(error))
            else:
                if transformed is None:
                    self.summary.excluded += 1
                else:
                    yield transformed

    def _remaining_events(self) -> Iterator[ChangeEvent]:
        """Yield the buffered events."""
        if self._collect is not None:
            for event in self._transformed(self._collect.flush()):
                yield from self._join.push(event)
            self.summary.duplicates = self._collect.state.duplicates
        yield from self._join.flush()

    def _write_each(
        self, events: Iterable[ChangeEvent], place: _OutputPlace, output: IO[bytes]
    ) -> None:
        """Write events, each from a message of its own."""
        for event in events:
            if isinstance(event, HalfUpdate):
                self._refuse_orphan(event, place)
                continue
            with self._counting_failure():
                self._write(event, place, output)

    @contextlib.contextmanager
    def _counting_failure(self) -> Iterator[None]:
        """Count one failed message if a part of it fails."""
        before = self.summary.failures.total()
        try:
            yield
        finally:
            if self.summary.failures.total() > before:
                self.summary.failed_messages += 1

    def _refuse_orphan(self, half: HalfUpdate, place: _OutputPlace) -> None:
        error = "the other half of the update is missing"
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
            self._fail_to_decode(line, DecodeError(_defect_text(error), code=ReasonCode.DEFECT))
            return ()
        self.summary.events += len(events)
        return events

    def _of_tables(self, events: tuple[ChangeEvent, ...]) -> tuple[ChangeEvent, ...]:
        if not self._patterns:
            return events
        wanted_events = tuple(event for event in events if self._is_wanted(event))
        self.summary.filtered += len(events) - len(wanted_events)
        return wanted_events

    def _is_wanted(self, event: ChangeEvent) -> bool:
        if _is_mark(event):
            return True
        changed = event.change if isinstance(event, HalfUpdate) else event
        name = str(getattr(changed, "table", ""))
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._patterns)

    def _write(self, event: ChangeEvent, place: _OutputPlace, output: IO[bytes]) -> None:
        topic = self._chain.topic(getattr(event, "table", TableId()))
        for message in self._encode(event, place):
            addressed = _with_topic(message, place.origin, topic)
            try:
                text = line_of(addressed, place.form)
            except EncodeError as error:
                failure = Failure(place.line, "write", self._target.name, "not_a_line", str(error))
                self._fail(failure, addressed)
                continue
            if text is None:
                self.summary.tombstones_left_out += 1
                continue
            if place.form is LineFormat.VALUE and message.key is not None:
                self.summary.keys_left_out += 1
            output.write(text)
            self.summary.written += 1

    def _encode(self, event: ChangeEvent, place: _OutputPlace) -> tuple[Message, ...]:
        try:
            encoded = self._encoded(event)
        except EncodeError as error:
            self._fail_to_encode(event, place, error)
            return ()
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other lines
            self._fail_to_encode(event, place, EncodeError(_defect_text(error)))
            return ()
        self._count(encoded.losses)
        return encoded.messages

    def _count(self, losses: tuple[Loss, ...]) -> None:
        """Count the losses of a written event."""
        loss_counts = self.summary.losses
        count_before = len(loss_counts)
        loss_counts.update(losses)
        if len(loss_counts) > count_before:
            self.summary.warnings.extend(self._warnings.of(losses))

    def _encoded(self, event: ChangeEvent) -> Encoded:
        encode = partial(self._target.encode, on_loss=self.summary.on_loss)
        if self._profile is None:
            return encode(event)
        return self._profile.encode(event, encode, lambda _: self._partitions)

    def _fail_to_decode(self, line: Line, error: DecodeError) -> None:
        stage = "decode" if isinstance(line.content, Message) else "read"
        failure = Failure(line.number, stage, self._source.name, error.code, str(error), error.path)
        self._fail(failure, *self._withheld(_message_of(line)))

    def _fail_to_transform(self, event: ChangeEvent, reason: str, error: str) -> None:
        failure = Failure(self._place.line, "transform", self._source.name, reason, error)
        if self._chain.is_masking:
            # the message may contain values that a mask hides
            self._fail(failure, *self._withheld(self._place.origin))
        else:
            self._fail_with_event(failure, event, self._place)

    def _withheld(self, message: Message) -> tuple[Message, str | None]:
        """Return the storable part of a message that was not transformed, and its form."""
        if not self._chain.is_masking:
            return message, None
        redacted = self._chain.redacted
        stored_message = msgspec.structs.replace(
            message, value=redacted(message.value), key=redacted(message.key), headers=()
        )
        return stored_message, "hash"

    def _fail_to_encode(self, event: ChangeEvent, place: _OutputPlace, error: EncodeError) -> None:
        reason = "not_encodable"
        if isinstance(error, UnsupportedError):
            reason = "unsupported"
            self.summary.refused.update(error.losses)
        failure = Failure(place.line, "encode", self._target.name, reason, str(error))
        self._fail_with_event(failure, event, place)

    def _fail_with_event(self, failure: Failure, event: ChangeEvent, place: _OutputPlace) -> None:
        try:
            message, form = self._native.encode(event).messages[0], "native-json"
        except Exception:  # noqa: BLE001 - without the event, the failure contains its message
            message, withheld = self._withheld(place.origin)
            form = withheld or self._source.name
        self._fail(failure, message, form)

    def _fail(self, failure: Failure, message: Message, form: str | None = None) -> None:
        failure = msgspec.convert(_escaped(msgspec.to_builtins(failure)), Failure)
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
            self._failures.write(json.dumps(_escaped(record | record_of(message))) + b"\n")
        if self._fail_fast:
            raise StopAtFailureError


def _message_of(line: Line) -> Message:
    return line.content if isinstance(line.content, Message) else Message(line.raw)


def _escaped(part: Any) -> Any:
    """Escape the lone surrogates in a failure, which UTF-8 cannot contain.

    Names from a file of transforms may contain them; without escapes, a rejected message would be
    lost.
    """
    match part:
        case str():
            return part.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {name: _escaped(inner) for name, inner in part.items()}
        case list() | tuple():
            return [_escaped(inner) for inner in part]
        case _:
            return part


def _defect_text(error: Exception) -> str:
    return f"a defect of changelane ({type(error).__name__}): please report it with this message"


def _is_mark(event: ChangeEvent) -> bool:
    return isinstance(event, Control) and event.type == INCOMPLETE_MARK


def _with_topic(message: Message, origin: Message, topic: str | None = None) -> Message:
    """Return an output message with the topic and time of its origin, unless it has its own.

    The topic of a route has priority. Partition and offset are not copied, because they belong to
    the input.
    """
    return Message(
        message.value,
        message.key,
        message.headers,
        topic or (origin.topic if message.topic is None else message.topic),
        message.partition,
        message.offset,
        origin.timestamp_ms if message.timestamp_ms is None else message.timestamp_ms,
    )
