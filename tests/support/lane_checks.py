# SPDX-License-Identifier: Apache-2.0
"""Checks that a format's lanes give the rows and the errors of its event path."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from lane_messages import ARGUMENTS, lane_rows, numbered, read
from mutated_messages import mutations

from changelane import get_codec
from changelane.errors import EncodeError
from changelane.message import Message
from changelane.testing.conformance import EFFORT
from changelane.testing.event_strategies import data_changes

GOLDEN = Path(__file__).parents[1] / "golden"

Options = Sequence[dict[str, Any]]


def goldens(format: str) -> list[Message]:
    """Return the stored messages of a format with values."""
    folder = GOLDEN / format
    messages = [one for path in sorted(folder.glob("*/*.jsonl")) for one in read(path)]
    for path in sorted(folder.glob("*/*/value")):
        key = path.with_name("key")
        messages.append(Message(path.read_bytes(), key.read_bytes() if key.exists() else None))
    return [Message(one.value, one.key, one.headers, "t") for one in messages if one.value]


def count(format: str, messages: Sequence[Message], options: Any = None, **arguments: Any) -> int:
    """Compare both ways, and return the number of plain messages."""
    return lane_rows(numbered(messages), options, format, **arguments)[0]


def check_stored(format: str, options: Options, *, least: float = 0.4) -> None:
    """Compare the stored messages, each sent three times: the first may open a lane."""
    messages = [copy for one in goldens(format) for copy in (one, one, one)]
    for each in options:
        plain, with_row = lane_rows(numbered(messages), each, format)
        assert plain > least * with_row


def check_mutated(
    format: str,
    options: Options,
    mutate: Callable[[bytes], st.SearchStrategy[bytes]] = mutations,
    *,
    messages: Sequence[Message] = (),
) -> None:
    """Compare messages, or else the stored ones, with parts of them changed."""
    plain: list[int] = []
    messages = messages or goldens(format)
    plain_messages = [one for one in messages if count(format, [one] * 3, options[0])]

    @settings(max_examples=30 * EFFORT)
    @given(
        st.data(),
        st.lists(
            st.sampled_from(plain_messages) | st.sampled_from(messages), min_size=1, max_size=3
        ),
        st.sampled_from(ARGUMENTS),
        st.sampled_from(options),
    )
    def check(data: st.DataObject, chosen: list[Message], arguments: Any, options: Any) -> None:
        mutated: list[Message] = []
        for one in chosen * data.draw(st.integers(1, 2)):
            key = one.key
            if key and data.draw(st.integers(0, 3)) == 0:
                key = data.draw(st.sampled_from((None, b"", b"null", key + b" ", b'{"x":1}')))
            mutated.append(Message(data.draw(mutate(one.value or b"")), key, one.headers, "t"))
        sent = [*chosen, *mutated, *chosen, *mutated, *chosen]
        plain.append(count(format, sent, options, **arguments))

    check()
    assert sum(number > 0 for number in plain) > 0.2 * len(plain)


def check_generated(format: str) -> None:
    """Compare the messages of generated events."""
    plain: list[int] = []
    codec = get_codec(format)

    @settings(max_examples=15 * EFFORT)
    @given(data_changes(codec.carries), data_changes(codec.carries))
    def check(change: Any, other: Any) -> None:
        messages: list[Message] = []
        for event in (change, other):
            try:
                messages += codec.encode(event, on_loss="ignore").messages
            except EncodeError:
                continue
        plain.append(count(format, messages * 3))

    check()
    # few examples, whose share differs between runs: about half of them with some formats
    assert sum(number > 0 for number in plain) > 0.05 * len(plain)
