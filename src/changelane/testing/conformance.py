# SPDX-License-Identifier: Apache-2.0
"""The checks that every format must pass. Each is a function of a codec, and raises if it fails.

:data:`CHECKS` are the checks that need only the codec; the checks of golden files and of pairs
have further arguments.
"""

import json
import os
import pickle
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from changelane import formats
from changelane.codec import Codec, OnLoss, get_codec
from changelane.errors import DecodeError, EncodeError, UnsupportedError
from changelane.event import ChangeEvent, HalfUpdate
from changelane.formats.contract.capabilities import Carries, SchemaDetail
from changelane.message import Message
from changelane.testing import golden, malformed
from changelane.testing.compare import (
    decode_all,
    differences,
    explains,
    is_whole_update,
    shown,
    without_echoes,
)
from changelane.testing.event_strategies import events
from changelane.testing.impossible_events import wild_events

EXAMPLES: Final = 10
"""The number of Hypothesis examples of each check."""
EFFORT: Final = int(os.environ.get("CHANGELANE_EFFORT", "1"))
"""The factor for the number of all examples, which ``make fuzz`` increases."""
_ROW_LOSSES: Final = frozenset({"absent", "after", "before", "half", "operation", "unavailable"})
"""The groups of losses that may make an update a whole row."""
MOST_SECONDS: Final = 2.0
"""The maximum processor time for the decoding of one message, in seconds."""


class ConformanceError(AssertionError):
    """A format violates a check."""


def _examples(strategy: st.SearchStrategy[Any], check: Callable[[Any], None], count: int) -> None:
    """Run a check on generated examples, which are equal in every run."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    decorate = settings(
        max_examples=count * EFFORT,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=quiet,
    )
    decorate(given(strategy)(check))()


def _require(is_true: bool, text: str, *shown_events: ChangeEvent) -> None:  # noqa: FBT001 - reads as a sentence
    if not is_true:
        raise ConformanceError("\n".join([text, *map(shown, shown_events)]))


def _everything() -> Carries:
    return get_codec("native-json").carries


# -- events there and back ----------------------------------------------------------------------


def check_round_trip(codec: Codec, *, examples: int = EXAMPLES) -> None:
    """An event within the capabilities comes back: decode(encode(e)) is e, without losses."""

    def check(event: ChangeEvent) -> None:
        reduced, losses = codec.reduce(event)
        _require(
            reduced == (event,) and not losses,
            f"the reduction has losses: {losses}",
            event,
        )
        _compare(codec, event, reduced)

    _examples(events(codec.carries), check, examples)


def _compare(codec: Codec, event: ChangeEvent, want_events: Iterable[ChangeEvent]) -> None:
    """Encode an event and decode it again; each difference needs a loss of the encoder."""
    losses = codec.reduce(event)[1]
    encoded = codec.encode(event, on_loss=OnLoss.IGNORE)
    got = without_echoes(decode_all(codec, encoded.messages))
    if any(map(is_whole_update, got)) and not is_whole_update(event):
        groups = {field.partition(":")[0] for field, _ in encoded.losses}
        _require(
            not groups.isdisjoint(_ROW_LOSSES),
            "an update that may lack columns is read as a whole row, without a loss",
            event,
            *got,
        )
    want = list(want_events)
    own_losses = set(encoded.losses) - set(losses)
    if len(got) != len(want) and explains("event", own_losses):
        return
    _require(len(got) == len(want), f"{len(got)} events instead of {len(want)}", event)
    for got_event, want_event in zip(got, want, strict=True):
        found_differences = [
            difference
            for difference in differences(got_event, want_event, codec.carries)
            if not explains(difference, own_losses)
        ]
        _require(not found_differences, "\n".join(found_differences), want_event, got_event)


def check_minimum(carries: Carries, minimum: Carries) -> None:
    """A declaration contains at least the minimum capabilities of the format."""
    _require(not (short := shortfalls(carries, minimum)), f"not declared: {', '.join(short)}")


def shortfalls(carries: Carries, minimum: Carries) -> list[str]:
    """Return the fields in which a declaration is below another one."""
    return [
        field
        for field in Carries.__struct_fields__
        if not _covers(field, getattr(carries, field), getattr(minimum, field))
    ]


def _covers(field: str, declared: Any, least: Any) -> bool:
    match declared:
        case frozenset():
            return bool(declared >= least)
        case bool():
            # text, an untyped value or a demand is the weaker capability
            smaller = field in {"text_only", "untyped_nulls", "requires_key"}
            return bool(declared <= least if smaller else declared >= least)
        case SchemaDetail():
            details = list(SchemaDetail)
            return details.index(declared) >= details.index(least)
        case _ if field in {"source_time", "process_time"}:
            units = ["", "s", "ms", "us", "ns"]
            return units.index(declared) >= units.index(least)
        case _:
            return bool(declared == least)


def check_honesty(codec: Codec, *, examples: int = EXAMPLES) -> None:
    """Losses are rejected or reported, as requested."""

    def check(event: ChangeEvent) -> None:
        reduced, losses = codec.reduce(event)
        try:
            encoded = codec.encode(event, on_loss=OnLoss.WARN)
        except UnsupportedError as error:
            raise ConformanceError("an accepted loss raises an error") from error
        except EncodeError:
            return
        reported_losses = set(encoded.losses)
        _require(set(losses) <= reported_losses, "a loss of the reduction is not reported", event)
        _require(all(all(loss) for loss in reported_losses), "a loss has no field or no reason")
        try:
            strict = codec.encode(event, on_loss=OnLoss.RAISE)
        except UnsupportedError as error:
            _require(
                set(error.losses) == reported_losses,
                "raise and warn report other losses",
                event,
            )
        else:
            _require(not reported_losses and strict == encoded, "a loss is not raised", event)
        _compare(codec, event, reduced)

    _examples(events(_everything()), check, examples)


def check_stability(codec: Codec, *, examples: int = EXAMPLES) -> None:
    """Two encodings give equal bytes; after one pass, decode and encode change nothing."""

    def check(event: ChangeEvent) -> None:
        try:
            first = codec.encode(event, on_loss=OnLoss.IGNORE).messages
        except EncodeError:
            return
        again = codec.encode(event, on_loss=OnLoss.IGNORE).messages
        _require(first == again, "two encodings of an event give different bytes", event)
        second = _through(codec, first)
        third = _through(codec, second)
        _require(second == third, "decode and encode do not reach a fixed point", event)

    _examples(events(_everything()), check, examples)


def check_own_reading(codec: Codec, *, examples: int = EXAMPLES) -> None:
    """Decode reads every message that encode writes; else encode rejects the event."""

    def check(event: ChangeEvent) -> None:
        try:
            encoded = codec.encode(event, on_loss=OnLoss.IGNORE)
        except EncodeError:
            return
        except Exception as error:
            name = type(error).__name__
            raise ConformanceError(f"{name} instead of EncodeError: {shown(event)}") from error
        for message in encoded.messages:
            try:
                codec.decode(message)
            except DecodeError as error:
                failure = f"does not read what it wrote ({error}): {message.value!r}"
                raise ConformanceError("\n".join([failure, shown(event)])) from error
        if not encoded.losses and not isinstance(event, HalfUpdate):
            _compare(codec, event, codec.reduce(event)[0])

    _examples(wild_events(), check, examples)


def _through(codec: Codec, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    decoded = without_echoes(decode_all(codec, messages))
    return tuple(
        message
        for event in decoded
        for message in codec.encode(event, on_loss=OnLoss.IGNORE).messages
    )


def check_pair(
    source: Codec, target: Codec, suite: Iterable[ChangeEvent], *, examples: int = 0
) -> None:
    """A conversion of two formats keeps their common capabilities, and changes nothing else."""

    def check(event: ChangeEvent) -> None:
        try:
            middle = decode_all(source, source.encode(event, on_loss=OnLoss.IGNORE).messages)
        except EncodeError:
            return
        for middle_event in without_echoes(middle):
            reduced = target.reduce(middle_event)[0]
            try:
                _compare(target, middle_event, reduced)
            except EncodeError:
                continue

    for event in suite:
        check(event)
    if examples:
        _examples(events(source.carries), check, examples)


# -- golden files -------------------------------------------------------------------------------


def check_decode_golden(codec: Codec, case: golden.Case) -> None:
    """The messages of a producer give exactly the stored events."""
    _require(bool(case.origin), f"{case.name}: ORIGIN is missing")
    got = [event for message in case.messages for event in codec.decode(message)]
    text = [_native(event) for event in got]
    want = [_native(event) for event in case.events]
    _require(text == want, f"{case.name}:\n{text}\ninstead of\n{want}")


def _native(event: ChangeEvent) -> str:
    value = get_codec("native-json").encode(event).messages[0].value
    return "" if value is None else value.decode()


def check_encode_golden(codec: Codec, folder: Path, name: str, *, write: bool = False) -> None:
    """A canonical case gives the stored bytes and the stored losses."""
    files = golden.encode_case(codec, golden.native_events(folder, name))
    if write:
        golden.write_case(folder, codec.name, name, files)
    stored = golden.stored_case(folder, codec.name, name)
    _require(bool(stored), f"{codec.name}/encoded/{name} is missing: pytest --golden=write")
    _require(files == stored, f"{codec.name}/encoded/{name} differs:\n{files}\nnot\n{stored}")


# -- values -------------------------------------------------------------------------------------


def check_long_values(codec: Codec) -> None:
    """A value of one mebibyte comes back."""
    event = malformed.SECRET_EVENTS[0]
    for note in ("x" * (1 << 20), "\U0001f600" * (1 << 18)):
        image = dict(event.after or {}) | {"note": note}
        long = type(event)(event.op, event.table, event.key, after=image, schema=event.schema)
        _compare(codec, long, codec.reduce(long)[0])


def check_detection(codec: Codec) -> None:
    """A format recognises its own messages, and no messages that are not change events."""
    for message in _secret_messages(codec):
        _require(codec.detects(message), f"does not recognise its own {message.value!r}")
    _require(not codec.detects(Message(None)), "recognises a tombstone")
    for data in (b"", b"{}", b"[]", b"null", b'{"id":1}', b"\xff", b"<a/>", b"[" * 100_000):
        _require(not codec.detects(Message(data)), f"recognises {data[:20]!r}")


# -- malformed messages -------------------------------------------------------------------------


def check_malformed(codec: Codec) -> None:
    """A malformed message gives a DecodeError with path and without values, or complete events."""
    for data in _secret_values(codec):
        for spoil in (malformed.truncations, malformed.flipped_bits):
            _check_malformed(codec, spoil(data))
        if _is_json(data):
            _check_malformed(codec, malformed.flipped_types(data))
            _check_malformed(codec, malformed.missing_fields(data))
            _check_malformed(codec, malformed.duplicate_fields(data))
    _examples(st.binary(max_size=40), lambda data: _check_malformed(codec, [data]), EXAMPLES)


def check_spoilt_golden(codec: Codec, case: golden.Case) -> None:
    """A producer's message that is cut or has a wrong type is rejected, or decoded completely."""
    data = max((message.value or b"" for message in case.messages), key=len)
    _check_malformed(codec, malformed.truncations(data))
    if _is_json(data):
        _check_malformed(codec, malformed.flipped_types(data))
        _check_malformed(codec, malformed.missing_fields(data))


def check_hostile(codec: Codec) -> None:
    """Huge exponents, deep nesting and odd literals are decoded or rejected in short time."""
    data = _secret_values(codec)[1]
    if _is_json(data):
        _check_malformed(codec, malformed.huge_numbers(data), encode=True)
        _check_malformed(codec, malformed.literals(data), encode=True)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _secret_messages(codec: Codec) -> list[Message]:
    encoded = [codec.encode(e, on_loss=OnLoss.IGNORE).messages for e in malformed.SECRET_EVENTS]
    _require(all(encoded), "a row change has no message")
    return [message for messages in encoded for message in messages if message.value is not None]


def _secret_values(codec: Codec) -> list[bytes]:
    return [message.value or b"" for message in _secret_messages(codec)]


def _check_malformed(
    codec: Codec, messages_to_check: Iterable[bytes], *, encode: bool = False
) -> None:
    for index, data in enumerate(messages_to_check):
        start = time.thread_time()
        # every other message has a malformed key, too
        decoded = decode_or_refuse(codec, Message(data, data if index % 2 else None))
        if encode:
            for event in decoded:
                _encode_everywhere(event)
        took = time.thread_time() - start
        _require(took < MOST_SECONDS, f"{took:.1f} s for {data[:2000]!r}")


def decode_or_refuse(codec: Codec, message: Message) -> tuple[ChangeEvent, ...]:
    """Return the events of a message; empty if it is correctly rejected.

    Raises:
        ConformanceError: The error is no DecodeError, has no path, or contains a value.
    """
    try:
        events_read = codec.decode(message)
    except DecodeError as error:
        text = "\n".join(_traceback_texts(error))
        _require(error.path.startswith("$"), f"no path: {error!r}")
        if any(secret in text for secret in malformed.SECRETS):
            raise ConformanceError(f"the error contains a value: {error}") from None
        return ()
    except Exception as error:
        name = type(error).__name__
        raise ConformanceError(f"{name} instead of DecodeError: {message.value!r}") from error
    _require(isinstance(events_read, tuple), "decode does not return a tuple")
    return events_read


def _traceback_texts(error: BaseException) -> Iterator[str]:
    """Yield the texts in the traceback of an error, including its causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield f"{cause} {cause!r} {getattr(cause, '__notes__', '')}"
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _encode_everywhere(event: ChangeEvent) -> None:
    for codec in _all_codecs():
        with suppress(EncodeError):
            codec.encode(event, on_loss=OnLoss.IGNORE)


@cache
def _all_codecs() -> tuple[Codec, ...]:
    return tuple(map(get_codec, formats.names()))


# -- the codec as an object ---------------------------------------------------------------------


def check_pickling(codec: Codec, suite: Iterable[ChangeEvent]) -> None:
    """A pickled codec gives equal results, including errors."""
    again: Codec = pickle.loads(pickle.dumps(codec))  # noqa: S301 - our own bytes
    _require(again.name == codec.name, "pickle changes the name of the codec")
    for event in suite:
        _require(
            _outcome(codec, event) == _outcome(again, event),
            "a pickled codec gives other results",
            event,
        )


def check_purity(codec: Codec, suite: Iterable[ChangeEvent]) -> None:
    """No network, files, clock or state: equal inputs always give equal results."""
    cases = list(suite)
    expected = [_outcome(codec, event) for event in cases]
    with _isolated():
        single_outcomes = [_outcome(codec, event) for event in reversed(cases)]
    _require(single_outcomes[::-1] == expected, "the result depends on earlier calls")
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: [_outcome(codec, event) for event in cases], range(4)):
            _require(result == expected, "the result depends on other threads")


@contextmanager
def _isolated() -> Iterator[None]:
    """Raise at every use of files, network and clocks."""

    def refuse(*_args: object, **_kwargs: object) -> Any:
        raise ConformanceError("a format opens files, or uses the network or the clock")

    with ExitStack() as stack:
        for name in ("builtins.open", "io.open", "os.open", "time.time", "time.time_ns"):
            stack.enter_context(mock.patch(name, refuse))
        stack.enter_context(mock.patch.object(socket, "socket", refuse))
        yield


def _outcome(codec: Codec, event: ChangeEvent) -> object:
    """Return all results of a codec for an event, as comparable text."""
    try:
        encoded = codec.encode(event, on_loss=OnLoss.IGNORE)
    except EncodeError as error:
        return str(error)
    decoded = [_native(event) for message in encoded.messages for event in codec.decode(message)]
    return encoded.messages, encoded.losses, decoded


EVENT_CHECKS: Final[tuple[Callable[[Codec], None], ...]] = (
    check_round_trip,
    check_honesty,
    check_stability,
    check_own_reading,
    check_long_values,
    check_detection,
)
MALFORMED_CHECKS: Final[tuple[Callable[[Codec], None], ...]] = (check_malformed, check_hostile)

CHECKS: Final = EVENT_CHECKS + MALFORMED_CHECKS
"""The checks that need only the codec."""

SUITE_CHECKS: Final[tuple[Callable[[Codec, Iterable[ChangeEvent]], None], ...]] = (
    check_pickling,
    check_purity,
)
"""The checks that also need a suite of events."""
