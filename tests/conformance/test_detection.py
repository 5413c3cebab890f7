# SPDX-License-Identifier: Apache-2.0
"""``inspect`` knows every format by its messages; where they may be another's, it says so."""

from pathlib import Path

import pytest

from changelane import Message, formats, get_codec
from changelane.codec import detect
from changelane.conversion.message_files import read_record
from changelane.errors import DecodeError
from changelane.event import DataChange
from changelane.testing import golden

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
NAMES = formats.names()
CAPTURED = [path for name in NAMES for path in golden.captured(GOLDEN, name)]
# Formats with Debezium's envelope that more tells than Debezium's own: it is named besides.
FAMILY = {"arcion-json", "cdl-debezium-json", "lindorm-json"}


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: "/".join(path.parts[-3:]))
def test_what_a_producer_wrote_is_detected(path):
    name = path.parts[-3]
    messages = [m for m in golden.read_case(path).messages if m.value is not None]
    if not messages:
        return  # a tombstone is anybody's
    found, others = detect(messages)
    assert found == name
    if name == "cockroachdb-json":  # enriched messages have Debezium's envelope, others do not
        assert set(others) <= {"debezium-json"}
    else:
        assert set(others) == ({"debezium-json"} if name in FAMILY else set())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_detected_or_reads_the_same_as_what_is_told(name):
    for path in sorted((GOLDEN / name / "encoded").glob("*.jsonl")):
        records = [read_record(line) for line in path.read_bytes().splitlines()]
        messages = [message for message in records if message.value is not None]
        if not messages:
            continue
        found, others = detect(messages)
        if found != name and name not in others:
            # Debezium's notices stay as they are in a stream of flattened rows
            events = [get_codec(found).decode(message) for message in messages]
            assert events == [get_codec(name).decode(message) for message in messages], path.name
            assert not any(isinstance(one, DataChange) for event in events for one in event)


@pytest.mark.parametrize("schema_id", [0, 1, 42, 2**31])
def test_a_message_of_a_schema_registry_is_not_taken_for_dts(schema_id):
    # a record of DTS starts with a version, whose byte 0x00 is the registry's mark as well
    framed = b"\x00" + schema_id.to_bytes(4, "big") + b"\x02\x0eorders\x00\x02\x06" + bytes(40)
    with pytest.raises(DecodeError, match="look like those of a schema registry"):
        detect([Message(framed)])


@pytest.mark.parametrize("data", [b'{"id":1,"note":"x"}', b"1,2,3", b"\xff\xfe", b'["INSERT"]'])
def test_what_is_no_change_is_not_guessed(data):
    with pytest.raises(DecodeError, match="name it with -f"):
        detect([Message(data)])


def test_most_of_the_messages_decide():
    rows = [golden.read_case(path).messages[0] for path in CAPTURED if "canal-json" in path.parts]
    stray = Message(b'{"op":"c","table":{"name":"t"},"after":{"id":1}}')
    assert detect([stray, *rows]) == ("canal-json", ())
