# SPDX-License-Identifier: Apache-2.0
"""Messages to rows of Arrow and back."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from changelane.message import Message
from changelane.spark.rows.decode import message_batches, messages_of

_DATA = st.none() | st.binary(max_size=8)
_HEADERS = st.lists(st.tuples(st.text(max_size=4), _DATA), max_size=3).map(tuple)
_MESSAGES = st.builds(
    Message,
    value=_DATA,
    key=_DATA,
    headers=_HEADERS,
    topic=st.none() | st.text(max_size=4),
    partition=st.none() | st.integers(0, 99),
    offset=st.none() | st.integers(0, 1 << 62),
)


@given(messages=st.lists(_MESSAGES, max_size=12), start=st.integers(0, 12))
def test_the_messages_of_a_part_of_a_batch(messages: list[Message], start: int) -> None:
    """Spark hands batches on as they are, or parts of them."""
    batches = list(message_batches(messages))
    found = [message for batch in batches for message in messages_of(batch.slice(start))]
    assert found == messages[start:]


def test_header_lists_that_are_null_among_others() -> None:
    kinds = pa.struct([("key", pa.string()), ("value", pa.binary())])
    lists = [None, [{"key": "a", "value": b"1"}], [], [{"key": "b", "value": None}]]
    columns = {
        "value": pa.array([b"0", b"1", b"2", b"3"]),
        "key": pa.nulls(4, pa.binary()),
        "headers": pa.array(lists, pa.list_(kinds)),
        "topic": pa.array(["t"] * 4),
        "partition": pa.array([0] * 4, pa.int32()),
        "offset": pa.array(range(4), pa.int64()),
        "_blocked": pa.array([False] * 4),
    }
    headers = [message.headers for message in messages_of(pa.RecordBatch.from_pydict(columns))]
    assert headers == [(), (("a", b"1"),), (), (("b", None),)]
