# SPDX-License-Identifier: Apache-2.0
"""One run of ``changelane convert``: reads and writes lines of messages, reports failures."""

import fnmatch
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import IO, Any, Final, NamedTuple

import msgspec

from changelane.codec import Codec, Encoded, get_codec
from changelane.conversion.group_transactions import (
    INCOMPLETE_MARK,
    MAX_BUFFERED,
    CollectTransactions,
)
from changelane.conversion.join_update_halves import JoinHalves, Orphans
from changelane.conversion.lanes import ConversionLanes, conversion_lanes
from changelane.conversion.message_files import LineFormat, line_of, record_of
from changelane.conversion.message_input import Block, MessageInput
from changelane.conversion.summary import Failure, Summary
from changelane.errors import (
    DecodeError,
    EncodeError,
    TransformError,
    UnreachableError,
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

_MAX_EVENTS: Final = 1000
"""The maximum number of buffered events that are written at once."""


class _OutputPlace(NamedTuple):
    """The origin of an event, and the format of its output lines."""

    line: int
    origin: Message
    form: LineFormat


class StopAtFailureError(Exception):
    """The first failure of a run with ``--fail-fast``."""


class Conversion:
    """One run: reads lines, writes lines, and counts.

    Attributes:
        summary: The counts.
        failures: The output for messages and events that failed, if any.
        join: The join of update halves.
        lanes: The lanes of plain messages; ``None`` if there are none.

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
        transforms: The transforms of events.
        lanes: Convert plain messages without events; the result is the same.
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
        transforms: Chain | None = None,
        lanes: bool = True,
    ) -> None:
        self._chain = Chain(()) if transforms is None else transforms
        self._place = _OutputPlace(0, Message(None), LineFormat.VALUE)
        self.summary = summary
        self._profile = profile
        self._partitions = partitions
        self._source = source
        self._decode = source.open_stream()
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
        self.join = JoinHalves(orphans=orphans)
        self._output_form = output_form
        self._patterns = patterns
        self.failures = failures
        self._fail_fast = fail_fast
        self._failure_count = 0
        self._only_joins = self._collect is None and not patterns and not self._chain.transforms
        # a profile decides about the topic, which names the subject of a schema
        encode = target.encode if profile is None else target.encode_unframed
        self._encode_event = partial(encode, on_loss=summary.on_loss)
        self._frame = None if target.framing is None else target.framing.frame
        self.lanes = None
        if lanes and self._collect is None and not self._chain.transforms and profile is None:
            self.lanes = conversion_lanes(source, target, reads_streams=True)
        self._only_event: ChangeEvent | None = None
        self._written: list[bytes] = []
        self._loss_counts: Counter[tuple[Loss, ...]] = Counter()

    @property
    def source_version(self) -> int:
        """The version of the decoder's plans, which changes if the decoder learns columns."""
        lanes = self._source.lanes
        return 0 if lanes is None else lanes.version

    def run(self, lines: MessageInput, output: IO[bytes]) -> Iterator[None]:
        """Convert all lines; yield after each block, so that the caller can show progress."""
        for block in lines.blocks():
            self.convert(block, output)
            yield
        self.finish(output)

    def convert(self, block: Block, output: IO[bytes]) -> None:
        """Convert a block of lines."""
        self._with_output(output, partial(self._convert_block, block))

    def finish(self, output: IO[bytes]) -> None:
        """Write the buffered events, at the end of the input."""
        remaining_events = self._remaining_events()
        for event in remaining_events:
            events = chain((event,), islice(remaining_events, _MAX_EVENTS - 1))
            self._with_output(output, partial(self._write_each, events))

    def add(self, summary: Summary) -> None:
        """Add the counts of a block that another process converted."""
        self.summary.add(summary)
        self._add_losses(summary.losses)

    def _with_output(self, output: IO[bytes], convert: Callable[[], None]) -> None:
        """Write the converted lines, also if the conversion stops."""
        try:
            convert()
        finally:
            output.write(b"".join(self._written))
            self.summary.written += len(self._written)
            self._written.clear()
            self._count_plain()
            self._count_losses()

    def _convert_block(self, block: Block) -> None:
        form = self._output_form or block.form or LineFormat.VALUE
        lanes, content = self._usable_lanes(), None
        for number, raw, content in block.contents():
            if lanes is not None and isinstance(content, Message):
                converted = lanes.convert(content)
                if converted is not None:
                    messages, variant = converted
                    lanes.add_written(variant)
                    for message in messages:
                        self._write_plain(message, content, form)
                    continue
            origin = Message(raw) if isinstance(content, DecodeError) else content
            self._place = _OutputPlace(number, origin, form)
            self._convert_line(content)
            lanes = self._usable_lanes()
        if isinstance(content, Message):
            self._place = _OutputPlace(number, content, form)

    def _usable_lanes(self) -> ConversionLanes | None:
        """Return the lanes of plain messages; ``None`` if events wait for later ones."""
        return self.lanes if self.join.passes_changes else None

    def _write_plain(self, message: Message, origin: Message, form: LineFormat) -> None:
        if form is not LineFormat.VALUE:
            self._written.append(json.dumps(record_of(_with_topic(message, origin))) + b"\n")
        elif message.value is None:
            self.summary.tombstones_left_out += 1
        else:
            self.summary.keys_left_out += message.key is not None
            self._written.append(message.value + b"\n")

    def _convert_line(self, content: Message | DecodeError) -> None:
        """Convert one line, and count a failed message if a part of it fails."""
        self._count_plain()
        self.summary.messages += 1
        failure_count = self._failure_count
        other_events: list[ChangeEvent] = []
        try:
            for event in self._events(content):
                for joined in self._released(event):
                    if self._collect is not None or isinstance(joined, HalfUpdate):
                        other_events.append(joined)
                    else:
                        self._write(joined)
        finally:
            if self._failure_count > failure_count:
                self.summary.failed_messages += 1
        # released events of other lines
        self._write_each(other_events)

    def _released(self, event: ChangeEvent) -> Sequence[ChangeEvent]:
        """Send an event through the stateful transforms; return the released events."""
        try:
            if self._only_joins:
                return self.join.push(event)
            collected = (event,) if self._collect is None else self._collect.push(event)
            return [
                event
                for transformed in self._transformed(collected)
                for event in self.join.push(transformed)
            ]
        except (StopAtFailureError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other lines
            failure = Failure(
                self._place.line, "join", self._source.name, "defect", _defect_text(error)
            )
            self._fail_with_untransformed(failure, event)
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
                yield from self.join.push(event)
            self.summary.duplicates = self._collect.state.duplicates
        yield from self.join.flush()

    def _write_each(self, events: Iterable[ChangeEvent]) -> None:
        """Write events, each from a message of its own."""
        for event in events:
            failure_count = self._failure_count
            try:
                if isinstance(event, HalfUpdate):
                    self._refuse_orphan(event)
                else:
                    self._write(event)
            finally:
                if self._failure_count > failure_count:
                    self.summary.failed_messages += 1

    def _refuse_orphan(self, half: HalfUpdate) -> None:
        error = "the other half of the update is missing"
        failure = Failure(self._place.line, "join", self._source.name, "orphan_half", error)
        self._fail_with_event(failure, half)

    def _events(self, content: Message | DecodeError) -> tuple[ChangeEvent, ...]:
        if isinstance(content, DecodeError):
            self._fail_to_decode("read", content)
            return ()
        try:
            events = self._decode(content)
        except DecodeError as error:
            self._fail_to_decode("decode", error)
            return ()
        except UnreachableError:
            raise  # a schema registry does not answer; the message may be right
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other lines
            defect = DecodeError(_defect_text(error), code=ReasonCode.DEFECT)
            self._fail_to_decode("decode", defect)
            return ()
        self.summary.events += len(events)
        self._only_event = events[0] if len(events) == 1 else None
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

    def _write(self, event: ChangeEvent) -> None:
        place, topic = self._place, None
        if self._chain.transforms:
            topic = self._chain.topic(getattr(event, "table", TableId()))
        for message in self._encode(event):
            is_value = place.form is LineFormat.VALUE
            line = message if is_value else _with_topic(message, place.origin, topic)
            try:
                text = line_of(line, place.form)
            except EncodeError as error:
                failure = Failure(place.line, "write", self._target.name, "not_a_line", str(error))
                self._fail(failure, _with_topic(message, place.origin, topic))
                continue
            if text is None:
                self.summary.tombstones_left_out += 1
                continue
            if is_value and message.key is not None:
                self.summary.keys_left_out += 1
            self._written.append(text)

    def _encode(self, event: ChangeEvent) -> tuple[Message, ...]:
        try:
            encoded = self._encoded(event)
        except EncodeError as error:
            self._fail_to_encode(event, error)
            return ()
        except UnreachableError:
            raise  # a schema registry does not answer, or rejects the schema
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other lines
            self._fail_to_encode(event, EncodeError(_defect_text(error)))
            return ()
        self._loss_counts[encoded.losses] += 1
        if self.lanes is not None and event is self._only_event:
            self.lanes.learn(self._place.origin, event, encoded)
        return encoded.messages

    def _count_plain(self) -> None:
        """Count the plain messages, each of which has one event."""
        if self.lanes is None:
            return
        for losses, count, _ in self.lanes.take_counts():
            self.summary.messages += count
            self.summary.events += count
            self._loss_counts[losses] += count
            self.join.skip(count)

    def _count_losses(self) -> None:
        """Add the losses of the written events to the summary.

        The names of losses are in the order of the events, because equal losses are one entry.
        """
        for losses, event_count in self._loss_counts.items():
            self._add_losses(dict.fromkeys(losses, event_count))
        self._loss_counts.clear()

    def _add_losses(self, counted: Mapping[Loss, int]) -> None:
        loss_counts = self.summary.losses
        count_before = len(loss_counts)
        loss_counts.update(counted)
        if len(loss_counts) > count_before:
            self.summary.warnings.extend(self._warnings.of(counted))

    def _encoded(self, event: ChangeEvent) -> Encoded:
        if self._profile is None:
            return self._encode_event(event)
        return self._profile.encode(
            event, self._encode_event, lambda _: self._partitions, frame=self._frame
        )

    def _fail_to_decode(self, stage: str, error: DecodeError) -> None:
        place = self._place
        failure = Failure(place.line, stage, self._source.name, error.code, str(error), error.path)
        self._fail(failure, *self._withheld(place.origin))

    def _fail_to_transform(self, event: ChangeEvent, reason: str, error: str) -> None:
        failure = Failure(self._place.line, "transform", self._source.name, reason, error)
        self._fail_with_untransformed(failure, event)

    def _fail_with_untransformed(self, failure: Failure, event: ChangeEvent) -> None:
        if self._chain.is_masking:  # the event may contain values that a mask hides
            self._fail(failure, *self._withheld(self._place.origin))
        else:
            self._fail_with_event(failure, event)

    def _withheld(self, message: Message) -> tuple[Message, str | None]:
        """Return the storable part of a message that was not transformed, and its form."""
        if not self._chain.is_masking:
            return message, None
        redacted = self._chain.redacted
        stored_message = msgspec.structs.replace(
            message, value=redacted(message.value), key=redacted(message.key), headers=()
        )
        return stored_message, "hash"

    def _fail_to_encode(self, event: ChangeEvent, error: EncodeError) -> None:
        reason = "not_encodable"
        if isinstance(error, UnsupportedError):
            reason = "unsupported"
            self.summary.refused.update(error.losses)
        failure = Failure(self._place.line, "encode", self._target.name, reason, str(error))
        self._fail_with_event(failure, event)

    def _fail_with_event(self, failure: Failure, event: ChangeEvent) -> None:
        try:
            message, form = self._native.encode(event).messages[0], "native-json"
        except Exception:  # noqa: BLE001 - without the event, the failure contains its message
            message, withheld = self._withheld(self._place.origin)
            form = withheld or self._source.name
        self._fail(failure, message, form)

    def _fail(self, failure: Failure, message: Message, form: str | None = None) -> None:
        failure = msgspec.convert(_escaped(msgspec.to_builtins(failure)), Failure)
        self.summary.fail(failure)
        self._failure_count += 1
        if self.failures is not None:
            record: dict[str, Any] = {
                "line": failure.line,
                "stage": failure.stage,
                "reason": failure.reason,
                "path": failure.path,
                "error": failure.error,
                "format": form or failure.format,
            }
            self.failures.write(json.dumps(_escaped(record | record_of(message))) + b"\n")
        if self._fail_fast:
            raise StopAtFailureError


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
