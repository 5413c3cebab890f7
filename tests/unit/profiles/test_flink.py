# SPDX-License-Identifier: Apache-2.0
"""Where messages of Flink's connector ``upsert-kafka`` go."""

from changelane import profiles
from changelane.event import DataChange, Key, Op, Truncate
from changelane.profiles.partitioners import kafka_partition
from changelane.schema import TableId

COUNT = 7
TABLE = TableId(name="orders")


def sent(event, **options):
    profile = profiles.load("flink", options)
    codec = profile.codec("plain-json")
    encode = lambda part: codec.encode(part, on_loss="ignore")  # noqa: E731 - one line
    return profile.encode(event, encode, lambda _: COUNT).messages


def test_rows_are_placed_by_the_bytes_of_their_key():
    event = DataChange(Op.CREATE, TABLE, Key(("id",)), after={"id": 7, "a": "x"})
    (message,) = sent(event)
    assert (message.topic, message.key) == ("orders", b'{"id":7}')
    assert message.partition == kafka_partition(b'{"id":7}', COUNT)
    assert sent(event, topics='{"orders": "o"}')[0].topic == "o"


def test_a_change_of_the_key_is_a_null_and_a_row():
    row = {"id": 8, "a": "x"}
    event = DataChange(Op.UPDATE, TABLE, Key(("id",)), before=row | {"id": 7}, after=row)
    first, second = sent(event)
    assert (first.key, first.value) == (b'{"id":7}', None)
    assert (second.key, second.value) == (b'{"id":8}', b'{"id":8,"a":"x"}')
    assert not sent(Truncate(TABLE))
