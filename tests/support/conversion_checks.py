# SPDX-License-Identifier: Apache-2.0
"""Compares both ways of conversions, lanes and events."""

import io
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from changelane import get_codec
from changelane.codec import Codec, OnLoss
from changelane.conversion.destinations import Address, EventEncoder
from changelane.conversion.lines import Conversion
from changelane.conversion.message_files import LineFormat
from changelane.conversion.partition import Delivery, empty_counts
from changelane.conversion.summary import Summary
from changelane.conversion.topic_input import MessageBlock
from changelane.errors import EncodeError
from changelane.formats.contract.losses import DEFAULT, LossPolicy
from changelane.message import Message
from changelane.pipeline.error_budget import Budget


class Blocks(NamedTuple):
    """Messages as an input in blocks."""

    messages: list[Message]

    def blocks(self) -> Iterator[MessageBlock]:
        for start in range(0, len(self.messages), 7):
            yield MessageBlock(start + 1, self.messages[start : start + 7])


def converted(
    messages: list[Message],
    source: Codec,
    target: Codec,
    policy: Any,
    *,
    has_lanes: bool,
    form: LineFormat = LineFormat.RECORD,
) -> tuple[list[bytes], int]:
    """Return the output, the summary and the failures, and the number of plain messages."""
    output, failures = io.BytesIO(), io.BytesIO()
    summary = Summary(source.name, target.name, policy, Budget.parse("0", "--max-errors"))
    conversion = Conversion(
        source,
        target,
        summary,
        output_form=form,
        failures=failures,
        lanes=has_lanes,
    )
    for _ in conversion.run(Blocks(messages), output):  # type: ignore[arg-type]
        pass
    plain_count = 0
    if conversion.lanes is not None:
        assert conversion.lanes.difference_count == 0
        plain_count = conversion.lanes.count
    return [*output.getvalue().split(b"\n"), summary.as_json(), failures.getvalue()], plain_count


def plain_count(
    messages: Iterable[Message],
    options: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
    *,
    source: str = "debezium-json",
    writer: str = "canal-json",
    policy: OnLoss | LossPolicy = DEFAULT,
    form: LineFormat = LineFormat.RECORD,
) -> int:
    """Compare both ways, and return the number of plain messages."""
    sent = list(messages)

    def codecs() -> tuple[Codec, Codec]:
        return get_codec(source, **(options or {})), get_codec(writer, **(target or {}))

    expected, none = converted(sent, *codecs(), policy, has_lanes=False, form=form)
    found, count = converted(sent, *codecs(), policy, has_lanes=True, form=form)
    assert found == expected
    assert none == 0
    return count


def plain_share(messages: list[Message], options: dict[str, Any], **arguments: Any) -> float:
    """Compare both ways for each message alone, and return the share of those that are plain."""
    return sum(plain_count([one] * 3, options, **arguments) > 0 for one in messages) / len(messages)


def delivered(
    messages: list[Message],
    source: str,
    on_loss: Any,
    *,
    has_lanes: bool,
    writer: str = "canal-json",
    **options: Any,
) -> tuple[Any, int]:
    """Return the outcomes and the counts of a partition, and the number of plain messages."""
    place = {name: options.pop(name) for name in ("by_source", "topic") if name in options}
    address = Address(place.pop("topic", "out"), **place)
    write = EventEncoder(get_codec(writer), on_loss, address, {"out": 4, "cdc.orders": 2}.get)
    counts = empty_counts()
    delivery = Delivery(get_codec(source), write, counts=counts, lanes=has_lanes, **options)
    outcomes = [outcome for message in messages for outcome in delivery.push(message)]
    outcomes += delivery.flush()
    count = 0
    if delivery.lanes is not None:
        assert delivery.lanes.difference_count == 0
        count = delivery.lanes.count
    return (outcomes, counts), count


def mixed_messages(
    draw: Any, mutate: Any, codec: Codec, chosen: list[Message], change: Any
) -> list[Message]:
    """Return stored messages and those of a generated change, some of them mutated.

    Args:
        draw: The ``draw`` of Hypothesis's data.
        mutate: Returns the strategy of mutations of a value.
        codec: Encodes the change, if it can.
        chosen: The stored messages.
        change: The generated change.
    """
    try:
        encoded = codec.encode(change, on_loss="ignore").messages
    except EncodeError:
        encoded = ()
    chosen = [*chosen, *(Message(m.value, m.key, (), "t") for m in encoded if m.value)]
    mutated = [msgspec.structs.replace(one, value=draw(mutate(one.value or b""))) for one in chosen]
    return [*chosen * 3, *mutated, *chosen, *mutated]
