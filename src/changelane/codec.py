# SPDX-License-Identifier: Apache-2.0
"""Codecs by public name; detection of formats; conversion of one message."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from changelane import formats
from changelane.errors import ChangelaneError, DecodeError, EncodeError, UnsupportedError
from changelane.event import ChangeEvent
from changelane.formats.contract import nesting
from changelane.formats.contract.cached_reducer import CachedReducer
from changelane.formats.contract.capabilities import Carries
from changelane.formats.contract.consistency import consistent_event
from changelane.formats.contract.format import Format, Framing, StreamDecoder
from changelane.formats.contract.lane import Lanes
from changelane.formats.contract.losses import DEFAULT, Loss, LossPolicy, OnLoss, refused
from changelane.formats.contract.options import SECRET_OPTIONS
from changelane.formats.contract.reducer import Reducer
from changelane.formats.contract.row_writing import WritingOf
from changelane.message import Message
from changelane.reason_codes import ReasonCode

Decode = Callable[[Message], tuple[ChangeEvent, ...]]
"""Returns the events of a message; raises :class:`~changelane.errors.DecodeError`."""


class Encoded(msgspec.Struct, frozen=True):
    """The messages of one encoded event, and the losses of the encoding."""

    messages: tuple[Message, ...]
    losses: tuple[Loss, ...] = ()


class Codec:
    """A format with its options under its public name. Frozen, picklable, thread-safe."""

    __slots__ = (
        *("_checked", "_decode", "_encode", "_format", "_framing", "_options", "_reduce"),
        "name",
    )

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self._options = dict(options)
        self._format: Format = formats.load(name, self._options)
        self._decode = self._format.decode
        self._encode = self._format.encode
        self._framing: Framing | None = getattr(self._format, "framing", None)
        carries = self._format.carries
        self._reduce = CachedReducer(carries)
        self._checked = None if carries.inconsistent else carries

    def __reduce__(self) -> tuple[object, ...]:
        return (Codec, (self.name, self._options))

    def __repr__(self) -> str:
        options = "".join(
            f", {name}={'***' if name in SECRET_OPTIONS else repr(value)}"
            for name, value in self._options.items()
        )
        return f"get_codec({self.name!r}{options})"

    @property
    def carries(self) -> Carries:
        """The capabilities of the format."""
        return self._format.carries

    @property
    def lanes(self) -> Lanes | None:
        """The lanes of plain row changes; ``None`` if the format has none."""
        return getattr(self._format, "lanes", None)

    @property
    def reducer(self) -> Reducer:
        """The reduction of events to the capabilities of the format."""
        return self._reduce.reducer

    @property
    def row_writing(self) -> WritingOf | None:
        """How the format writes plain row changes; ``None`` if it does not state it."""
        return getattr(self._format, "row_writing", None)

    @property
    def framing(self) -> Framing | None:
        """How messages are framed for a schema registry; ``None`` if they are not."""
        return self._framing

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message into events.

        Raises:
            DecodeError: The message is not in this format (the error names path and coordinates),
                or a value is nested too deeply for every format (``too_deep``).
        """
        return self._checked_events(self._decode, message)

    @property
    def has_streams(self) -> bool:
        """Whether messages depend on earlier ones, so that a stream reads more than :meth:`decode`.

        A stream has one order and one reader. Without it, as in the tasks of Spark, a message that
        depends on another one is rejected.
        """
        return hasattr(self._format, "open_stream")

    def open_stream(self) -> Decode:
        """Return the decoder of messages in their order, which keeps state between them.

        Each partition of a topic is a stream of its own. If the messages of the format are
        independent, the decoder is :meth:`decode`.
        """
        open_stream = getattr(self._format, "open_stream", None)
        if open_stream is None:
            return self.decode
        decoders: dict[tuple[str | None, int | None], StreamDecoder] = {}

        def decode(message: Message) -> tuple[ChangeEvent, ...]:
            name = message.topic, message.partition
            decoder = decoders.get(name)
            if decoder is None:
                decoder = decoders[name] = open_stream()
            return self._checked_events(decoder.decode, message)

        return decode

    @staticmethod
    def _checked_events(decode: Decode, message: Message) -> tuple[ChangeEvent, ...]:
        try:
            events = decode(message)
        except DecodeError as error:
            raise error.at(message.where) from None
        except RecursionError:
            raise DecodeError(
                nesting.REASON, code=ReasonCode.TOO_DEEP, where=message.where
            ) from None
        for event in events:
            if (name := nesting.too_deep(event)) is not None:
                reason = f"the value of {name!r} is {nesting.REASON}"
                raise DecodeError(reason, code=ReasonCode.TOO_DEEP, where=message.where)
        return events

    def encode(self, event: ChangeEvent, *, on_loss: str | LossPolicy = DEFAULT) -> Encoded:
        """Encode an event, and list the losses.

        Args:
            event: The event.
            on_loss: The policy for losses; the default accepts losses of metadata.

        Raises:
            UnsupportedError: *on_loss* does not accept one of the losses.
            EncodeError: The event cannot be encoded.
            UnreachableError: A schema registry does not answer, or rejects the schema.
        """
        encoded = self.encode_unframed(event, on_loss=on_loss)
        if self._framing is None:
            return encoded
        return Encoded(tuple(map(self._framing.frame, encoded.messages)), encoded.losses)

    def encode_unframed(
        self, event: ChangeEvent, *, on_loss: str | LossPolicy = DEFAULT
    ) -> Encoded:
        """Encode an event as :meth:`encode` does, without :attr:`framing`.

        The caller frames the messages when they have the topics to which they are written.

        Raises:
            UnsupportedError: *on_loss* does not accept one of the losses.
            EncodeError: The event cannot be encoded.
        """
        if (name := nesting.too_deep(event)) is not None:
            raise EncodeError(f"the value of {name!r} is {nesting.REASON}")
        reduced, losses = self.reduce(event)
        encode_losses: list[Loss] = []
        if len(reduced) == 1:
            messages = self._encode(reduced[0], report=encode_losses.append)
        else:
            messages = tuple(
                message
                for part in reduced
                for message in self._encode(part, report=encode_losses.append)
            )
        if encode_losses:
            losses = tuple(dict.fromkeys((*losses, *encode_losses)))
        if losses and (refused_losses := refused(on_loss, losses)):
            raise UnsupportedError(self.name, refused_losses)
        return Encoded(messages, losses)

    def reduce(self, event: ChangeEvent) -> tuple[tuple[ChangeEvent, ...], tuple[Loss, ...]]:
        """Return the part of an event that the format can carry, and the losses.

        Raises:
            EncodeError: The event has no image of the row that it changes.
        """
        if self._checked is None:
            return self._reduce(event)
        consistent, losses = consistent_event(event, self._checked)
        if not losses:
            return self._reduce(event)
        reduced, reduce_losses = self._reduce(consistent)
        return reduced, (*losses, *reduce_losses)

    def detects(self, message: Message) -> bool:
        """Whether a message looks like this format."""
        return self._format.detects(message)


def get_codec(name: str, **options: Any) -> Codec:
    """Return the codec of a public name such as ``debezium-json``.

    Raises:
        UnknownNameError: No format or option has that name; the error suggests the nearest one.
        ConfigError: An option's value is wrong.
    """
    return Codec(name, options)


def convert(
    message: Message | bytes,
    source: str | Codec,
    target: str | Codec,
    *,
    on_loss: str | LossPolicy = DEFAULT,
) -> Encoded:
    """Convert one message into messages of another format.

    The result lists the metadata that the target cannot carry. Data that the target cannot carry
    is an error, unless *on_loss* accepts the loss. Update halves in separate messages are not
    joined; ``changelane convert`` joins them.

    Raises:
        DecodeError: The message is not in the source format.
        UnsupportedError: *on_loss* does not accept one of the losses.
        EncodeError: An event cannot be encoded.
    """
    reader = get_codec(source) if isinstance(source, str) else source
    writer = get_codec(target) if isinstance(target, str) else target
    message = Message(message) if isinstance(message, bytes) else message
    messages: list[Message] = []
    losses: list[Loss] = []
    for event in reader.decode(message):
        encoded = writer.encode(event, on_loss=on_loss)
        messages.extend(encoded.messages)
        losses.extend(encoded.losses)
    return Encoded(tuple(messages), tuple(losses))


__all__ = ["Codec", "EncodeError", "Encoded", "LossPolicy", "OnLoss", "convert", "get_codec"]


def detect(messages: Sequence[Message]) -> tuple[str, tuple[str, ...]]:
    """Return the format that recognises the most messages, and the other formats with as many.

    Raises:
        DecodeError: No format recognises any of them.
    """
    votes: Counter[str] = Counter()
    plugin_names = [name for name in formats.names() if name not in formats.FORMATS]
    for name in (*plugin_names, *formats.FORMATS):  # the first of equal counts wins
        try:
            codec = get_codec(name)
        except (ChangelaneError, ImportError):
            continue  # the format's library is not installed, or the format requires an option
        votes[name] = sum(codec.detects(message) for message in messages)
    most_votes = max(votes.values(), default=0)
    if most_votes == 0:
        reason = f"the format cannot be detected; name it with -f: {', '.join(votes)}"
        values = [message.value for message in messages if message.value is not None]
        if values and all(map(_has_registry_header, values)):
            reason = f"the first messages look like those of a schema registry. {formats.REGISTRY}"
        raise DecodeError(reason, code=ReasonCode.UNKNOWN_FORMAT)
    best = [name for name, count in votes.items() if count == most_votes]
    return best[0], tuple(best[1:])


def _has_registry_header(value: bytes) -> bool:
    """Whether a value begins with the header of a schema registry: a zero byte, a schema id."""
    return len(value) > 5 and value.startswith(b"\0")
