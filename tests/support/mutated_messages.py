# SPDX-License-Identifier: Apache-2.0
"""Messages with changed members or bytes, for tests of lanes."""

import copy
import json
from collections.abc import Callable
from typing import Any

from debezium_source_blocks import PLACEHOLDER
from hypothesis import strategies as st

from changelane.formats.ticdc.open.wire import framed, frames
from changelane.message import Message


class Raw(str):
    """JSON text."""

    __slots__ = ()


Node = Any
"""A list of pairs for an object, a list for an array, :class:`Raw` for a number, or a value."""


class Pairs(list[tuple[str, Node]]):
    """The members of an object, which may repeat."""


def load(data: bytes) -> Node:
    return json.loads(data, object_pairs_hook=Pairs, parse_int=Raw, parse_float=Raw)


def dump(node: Node) -> str:
    if isinstance(node, Pairs):
        return "{" + ",".join(f"{json.dumps(k)}:{dump(v)}" for k, v in node) + "}"
    if isinstance(node, list):
        return "[" + ",".join(map(dump, node)) + "]"
    return str(node) if isinstance(node, Raw) else json.dumps(node, ensure_ascii=False)


def places(node: Node, path: tuple[str, ...] = ()) -> list[tuple[Pairs, int, tuple[str, ...]]]:
    """Return the members of the objects of a message, without those of its schema block."""
    found: list[tuple[Pairs, int, tuple[str, ...]]] = []
    if isinstance(node, Pairs):
        for index, (name, value) in enumerate(node):
            found.append((node, index, (*path, name)))
            if name != "schema" or isinstance(value, str):
                found.extend(places(value, (*path, name)))
    elif isinstance(node, list):
        for item in node:
            found.extend(places(item, path))
    return found


VALUES: tuple[Node, ...] = (
    *(None, True, False, "", "x", "é", "1.5", "NaN", "Infinity", "-Infinity", "+Infinity"),
    *("AA==", "AB==", "AAE=", "not base64", "2024-02-30", "2024-01-01Z", "24:00:00", "a\u0000b"),
    *("2024-01-01T00:00:00Z", "2024-01-01T00:00:00.123456789Z", "+12345-01-01T00:00:00Z"),
    *("c", "u", "d", "r", "t", "U", "false", "true", "incremental", "postgresql", "mysql"),
    *('["11","22"]', "binlog.000002", "binlog", '[null,"1"]', PLACEHOLDER, [PLACEHOLDER]),
    *("X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", Pairs([(PLACEHOLDER, PLACEHOLDER)])),
    *map(Raw, ("0", "-0", "1.0", "1e2", "-0.0", "1e400", "-1", "1.25", "1E-7", "NaN", "01")),
    *map(Raw, (str(2**31), str(-(2**31) - 1), str(2**63 - 1), str(2**63), str(-(2**63) - 1))),
    *map(Raw, (str(2**64), "9" * 400, '"\\ud800"', '"\\ud83d\\ude00"', '"\\u0001"', '"\x01"')),
    *([], [1], [None, "a"], Pairs(), Pairs([("a", Raw("1"))]), Raw("[" * 250 + "]" * 250)),
    *(Pairs([("scale", Raw("2")), ("value", "AA==")]), Pairs([("wkb", "AQ=="), ("srid", None)])),
)


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """Return a message with some changed, removed, repeated or added members, or other bytes."""
    root = load(data)
    for _ in range(draw(st.integers(1, 2))):
        found = places(root)
        if not found:
            break
        images = [
            place
            for place in found
            if place[2][-2:-1] in {("before",), ("after",), ("data",), ("old",)}
        ]
        target = draw(st.sampled_from(images if images and draw(st.booleans()) else found))
        members, index, _ = target
        name, value = members[index]
        match draw(st.integers(0, 7)):
            case 0:
                del members[index]
            case 1:
                other = copy.deepcopy(draw(st.sampled_from(VALUES)))
                members.insert(draw(st.integers(0, len(members))), (name, other))
            case 2:
                other_name = draw(st.sampled_from(["new", "op", "Id", name + "2"]))
                members.append((other_name, copy.deepcopy(value)))
            case 3:
                members.append(members.pop(index))
            case 4:
                other_members, other_index, _ = draw(st.sampled_from(found))
                if other_index < len(other_members):
                    members[index] = (name, copy.deepcopy(other_members[other_index][1]))
            case _:
                members[index] = (name, copy.deepcopy(draw(st.sampled_from(VALUES))))
    text = dump(root)
    if draw(st.integers(0, 9)) == 0:
        text = draw(
            st.sampled_from((text + " ", " " + text, text + "x", text[:-1], "\ufeff" + text))
        )
    return text.encode("utf-8", "surrogatepass")


@st.composite
def in_frames(draw: st.DrawFn, value: bytes) -> bytes:
    """Return a value of TiCDC's open protocol with changed JSON, or with another frame."""
    parts = [draw(mutations(part)) if part else part for part in frames(value, 0, "$")]
    changed = b"".join(map(framed, parts))
    return draw(st.sampled_from((changed, changed, changed, changed + framed(b"{}"), changed[:-1])))


@st.composite
def changed_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Return bytes with one byte changed, removed or added, or cut off."""
    place = draw(st.integers(0, len(data) - 1))
    new = bytes([draw(st.integers(0, 255))])
    head, tail, longer = data[:place], data[place + 1 :], data[place:]
    forms = (head + new + tail, head + tail, head + new + longer, head, data + new)
    return draw(st.sampled_from(forms))


def mutations_of(format: str) -> Callable[[bytes], st.SearchStrategy[bytes]]:
    """Return the strategy of changed messages of a format, by a message's value."""
    return {"dts-avro": changed_bytes, "ticdc-open-json": in_frames}.get(format, mutations)


def mutated_copies(data: st.DataObject, messages: list[Message]) -> list[Message]:
    """Return one or two mutated messages for each message."""
    return [
        Message(data.draw(mutations(one.value or b"")), one.key, one.headers, one.topic)
        for one in messages * data.draw(st.integers(1, 2))
    ]


def with_source(message: Message, source: dict[str, Any]) -> Message:
    """Return a message of changelane with the source block of a connector."""
    root = load(message.value or b"null")
    payload = dict(root).get("payload", root) if isinstance(root, Pairs) else root
    if isinstance(payload, Pairs):
        names = [name for name, _ in payload]
        if "source" in names:
            block = load(json.dumps(source).encode())
            payload[names.index("source")] = ("source", block)
    value = dump(root).encode("utf-8", "surrogatepass")
    return Message(value, message.key, message.headers, message.topic)
