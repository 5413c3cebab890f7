# SPDX-License-Identifier: Apache-2.0
"""Lanes of formats with types in each message give the rows and the errors of the event path."""

import json
from typing import Any

import pytest
from lane_checks import check_generated, check_mutated, check_stored, count

from changelane import get_codec
from changelane.conversion.lanes import conversion_lanes
from changelane.message import Message

pytestmark = pytest.mark.usefixtures("early_lanes")

FORMATS: dict[str, tuple[dict[str, Any], ...]] = {
    "wal2json": ({}, {"keys": {"orders": ["id"], "all_types": ["id"]}}, {"date_order": "mdy"}),
}
LEAST_PLAIN = {"wal2json": 0.3}
"""The least share of plain messages of the stored ones."""


@pytest.mark.parametrize("format", FORMATS)
def test_stored_messages(format: str) -> None:
    check_stored(format, FORMATS[format], least=LEAST_PLAIN[format])


@pytest.mark.parametrize("format", FORMATS)
def test_mutated_messages(format: str) -> None:
    check_mutated(format, FORMATS[format])


@pytest.mark.parametrize("format", FORMATS)
def test_generated_events(format: str) -> None:
    check_generated(format)


def encoded(value: Any, key: Any = None) -> Message:
    texts = [None if part is None else json.dumps(part).encode() for part in (value, key)]
    return Message(texts[0], texts[1], (), "t")


# -- wal2json --------------------------------------------------------------------------------------


def column(name: str, type: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, "value": value} | more


ID, NAME, PRICE = (
    column("id", "integer", 1),
    column("name", "text", "a"),
    column("price", "numeric(8,2)", 1.25),
)
OLD_NAME = column("name", "text", "b")


def wal(action: str, columns: Any, identity: Any = None, **more: Any) -> Message:
    value = {"action": action, "xid": 733, "timestamp": "2026-11-26 13:39:12.399065+00"}
    value |= {"lsn": "0/152E168", "schema": "public", "table": "orders"}
    images = {"columns": columns, "identity": identity}
    value |= {name: image for name, image in images.items() if image is not None}
    return encoded(value | more)


def test_plain_messages_of_wal2json() -> None:
    for one in (
        wal("I", [ID, NAME, PRICE]),
        wal("I", [ID, NAME], pk=[{"name": "id", "type": "integer"}], xid=None, lsn=None),
        wal("I", [ID, column("name", "text", None)], timestamp=None, origin=1),
        wal("I", [ID | {"optional": False}, PRICE | {"optional": True}]),
        wal("I", [ID | {"value": "1"}, PRICE | {"value": "1.50"}]),
        wal("I", [ID, column("name", "integer[]", "{1,NULL}"), column("ok", "boolean", True)]),
        wal("U", [ID, NAME]),
        wal("U", [ID, NAME], [ID]),
        wal("U", [ID, NAME], [ID], pk=[{"name": "id", "type": "integer"}]),
        wal("U", [ID, NAME], [ID, OLD_NAME]),
        wal("U", [ID, NAME], [ID, OLD_NAME], pk=[{"name": "id", "type": "integer"}]),
        wal("D", None, [ID]),
        wal("D", None, [ID, NAME, PRICE]),
    ):
        assert count("wal2json", [one] * 3) == 2
        assert count("wal2json", [one] * 3, {"keys": {"public.orders": ["id"]}}) == 2
        assert count("wal2json", [one] * 3, images=False) == 2


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        (wal("I", [ID, NAME]), wal("I", [NAME, ID])),
        (wal("I", [ID, NAME]), wal("I", [ID])),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME | {"type": "varchar"}])),
        (wal("I", [ID, NAME]), wal("I", [ID | {"optional": False}, NAME])),
        (wal("I", [ID, NAME]), wal("I", [ID | {"value": "1"}, NAME])),
        (wal("I", [ID, NAME]), wal("I", [ID | {"value": 1.0}, NAME])),
        (wal("I", [ID, NAME]), wal("I", [ID | {"value": 1 << 31}, NAME])),
        (wal("I", [ID, NAME]), wal("I", [ID | {"value": True}, NAME])),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME], [ID])),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME], pk=[{"name": "name"}])),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME], lsn="0-1")),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME], timestamp="yesterday")),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME], table="")),
        (wal("I", [ID, NAME]), wal("D", None, [ID])),
        (wal("I", [ID, NAME]), wal("T", None)),
        (
            wal("I", [ID, PRICE | {"optional": False}]),
            wal("I", [ID, PRICE | {"optional": False, "value": None}]),
        ),
        (wal("U", [ID, NAME], [ID]), wal("U", [ID, NAME], [ID | {"value": 2}])),
        (wal("U", [ID, NAME], [ID]), wal("U", [ID, NAME], [ID | {"value": True}])),
        (wal("U", [ID, NAME], [ID]), wal("U", [ID, NAME], [ID, OLD_NAME])),
        (wal("U", [ID, NAME], [ID]), wal("U", [ID, NAME], [ID], pk=[])),
        (wal("U", [ID, NAME], [ID, NAME]), wal("U", [ID], [ID, NAME])),
        (wal("U", [ID, NAME], [ID, NAME]), wal("U", [ID, NAME], [NAME, ID])),
        (wal("D", None, [ID]), wal("D", [ID], [ID])),
        (wal("D", None, [ID]), wal("D", None, [ID, NAME])),
    ],
)
def test_other_messages_of_wal2json(plain: Message, other: Message) -> None:
    assert count("wal2json", [plain, plain, other]) == 1


@pytest.mark.parametrize(
    "one",
    [
        wal("I", [{"name": "id", "value": 1}]),  # without types
        wal("U", [NAME], [ID]),
        wal("U", [ID, NAME, PRICE], [ID], pk=[{"name": "name"}]),
        # equal texts of the key may be unequal values
        wal("U", [column("x", "real", "NaN"), NAME], [column("x", "real", "NaN")]),
    ],
)
def test_messages_of_wal2json_without_a_lane(one: Message) -> None:
    assert count("wal2json", [one] * 3) == 0


def test_the_messages_of_a_stream_are_not_converted_in_lanes() -> None:
    assert conversion_lanes(get_codec("wal2json"), get_codec("canal-json")) is None
