# SPDX-License-Identifier: Apache-2.0
"""No format changes a value without a word: each value of each source type, in each format."""

import msgspec
import pytest

from changelane import LossPolicy, Message, formats, get_codec
from changelane.errors import EncodeError
from changelane.event import Op
from changelane.formats.contract.losses import LOSSES
from changelane.testing.value_outcomes import ROWS, Fate, event_of, outcome
from changelane.types import parse_type

NAMES = formats.names()
TOLD = {Fate.FOREIGN, Fate.LOSSY, Fate.REFUSED}


@pytest.mark.parametrize("name", NAMES)
def test_a_value_comes_back_or_something_is_told(name):
    codec = get_codec(name)
    for row in ROWS:
        found = outcome(codec, row)
        assert found.fate is not Fate.SILENT, (row.product, row.source_type, row.title, found)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_told_can_be_refused(name):
    codec = get_codec(name)
    for row in ROWS:
        found = outcome(codec, row)
        if found.reports or found.fate in TOLD:
            with pytest.raises(EncodeError):
                codec.encode(event_of(row), on_loss="raise")


# Any loss but one of a value.
OTHERS = LossPolicy(accept=tuple(LOSSES.keys() - {"value", "column", "after", "absent", "null"}))


@pytest.mark.parametrize("name", NAMES)
def test_a_value_that_is_not_kept_is_refused_by_default(name):
    codec = get_codec(name)
    for row in ROWS:
        if outcome(codec, row).fate in TOLD:
            with pytest.raises(EncodeError):
                codec.encode(event_of(row))
            with pytest.raises(EncodeError):
                codec.encode(event_of(row), on_loss=OTHERS)


def test_a_change_that_nobody_tells_is_found():
    class Liar:
        """Reads every value as the text "x"."""

        def __getattr__(self, name):
            return getattr(get_codec("native-json"), name)

        def decode(self, message: Message):
            (event,) = get_codec("native-json").decode(message)
            return (msgspec.structs.replace(event, after={"id": 1, "v": "x"}),)

    assert {outcome(Liar(), row).fate for row in ROWS} == {Fate.SILENT}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("decimal(1000000,2)", None),
        ("decimal(5,1000000000)", None),
        ("decimal(5,-1000000000)", None),
        ("bits(100000000000)", "101"),
        ("bits(100000000000)", None),
    ],
)
def test_a_type_of_absurd_size_is_read_again_or_refused(name, text, value):
    codec = get_codec(name)
    row = msgspec.structs.replace(ROWS[0], kind=parse_type(text), source_type=text, value=value)
    event = event_of(row)
    try:
        encoded = codec.encode(event, on_loss="ignore")
    except EncodeError:
        return
    messages = encoded.messages
    assert all(len(message.value) < 10_000 for message in messages)
    (change,) = codec.decode(messages[0])
    # the row of a format of documents has the value inside of a document, which is reported
    assert change.after.get("v") == value or "column" in dict(encoded.losses)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("snapshot", ["true", "last", "incremental", "false", ""])
@pytest.mark.parametrize("op", [Op.CREATE, Op.READ])
def test_an_insert_with_the_word_of_a_snapshot_stays_one_or_is_told(name, op, snapshot):
    codec = get_codec(name)
    event = event_of(next(row for row in ROWS if row.product == "postgresql"))
    source = msgspec.structs.replace(event.source, snapshot=snapshot)
    event = msgspec.structs.replace(event, op=op, source=source)
    encoded = codec.encode(event, on_loss="ignore")
    (change,) = codec.decode(encoded.messages[0])
    told = {field for field, _ in encoded.losses}
    assert change.op is op or told & {"operation:c", "operation:r", "operation:upsert"}
    assert change.source.snapshot == snapshot or "source.snapshot" in told
