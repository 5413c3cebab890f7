# SPDX-License-Identifier: Apache-2.0
"""Golden files: messages of producers with their events, and the output of our encoders.

::

    <folder>/native/<case>.jsonl                      canonical events, one per line
    <folder>/<format>/<producer>-<version>/<case>/    messages of a producer, with their events
        value, key, headers, topic                    one message (headers: JSON pairs) ...
        records.jsonl                                 ... or several, one record per line
        options.json                                  options of the format, if needed
        event.jsonl                                   the events, as native-json
        ORIGIN                                        how and where it was captured (or one above)
    <folder>/<format>/encoded/<case>.jsonl            the encoded native/<case>, as records
    <folder>/<format>/encoded/<case>.LOSS             its losses: field, reason
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from changelane.codec import Codec, OnLoss, get_codec
from changelane.conversion.message_files import LineFormat, line_of, read_record
from changelane.errors import EncodeError
from changelane.event import ChangeEvent
from changelane.message import Message


class Case(msgspec.Struct, frozen=True):
    """The messages of a producer and their events."""

    name: str
    options: dict[str, Any]
    messages: tuple[Message, ...]
    events: tuple[ChangeEvent, ...]
    origin: str


def native_names(folder: Path) -> list[str]:
    """Return the names of the canonical cases."""
    return sorted(path.stem for path in (folder / "native").glob("*.jsonl"))


def native_events(folder: Path, name: str) -> tuple[ChangeEvent, ...]:
    """Return the events of a canonical case."""
    return tuple(_events(folder / "native" / f"{name}.jsonl"))


def _events(path: Path) -> Iterator[ChangeEvent]:
    codec = get_codec("native-json")
    for line in path.read_bytes().split(b"\n"):
        if line:
            yield from codec.decode(Message(line))


def captured(folder: Path, format_name: str) -> list[Path]:
    """Return the folders of the producers' cases of a format."""
    return sorted(path.parent for path in (folder / format_name).glob("*/*/event.jsonl"))


def read_case(path: Path) -> Case:
    """Read a producer's case."""
    options = path / "options.json"
    origins = [place / "ORIGIN" for place in (path, path.parent) if (place / "ORIGIN").exists()]
    return Case(
        f"{path.parent.name}/{path.name}",
        msgspec.json.decode(options.read_bytes()) if options.exists() else {},
        tuple(_messages(path)),
        tuple(_events(path / "event.jsonl")),
        origins[0].read_text("utf-8") if origins else "",
    )


def _messages(path: Path) -> Iterator[Message]:
    records = path / "records.jsonl"
    if records.exists():
        yield from map(read_record, records.read_bytes().splitlines())
        return
    parts = {
        name: (path / name).read_bytes().removesuffix(b"\n")
        for name in ("value", "key", "headers", "topic")
        if (path / name).exists()
    }
    headers = msgspec.json.decode(parts.get("headers", b"[]"), type=list[tuple[str, str | None]])
    yield Message(
        parts.get("value"),
        parts.get("key"),
        tuple((name, None if text is None else text.encode()) for name, text in headers),
        parts["topic"].decode() if "topic" in parts else None,
    )


def encode_case(codec: Codec, events: tuple[ChangeEvent, ...]) -> dict[str, bytes]:
    """Return suffix -> content of a case's golden files: messages, and losses if there are any."""
    lines: list[bytes] = []
    losses: dict[str, None] = {}
    for event in events:
        try:
            encoded = codec.encode(event, on_loss=OnLoss.IGNORE)
        except EncodeError as error:
            losses[f"event: {error}"] = None
            continue
        losses.update(dict.fromkeys(f"{field}: {reason}" for field, reason in encoded.losses))
        lines.extend(line_of(message, LineFormat.RECORD) or b"" for message in encoded.messages)
    files = {
        "jsonl": b"".join(lines),
        "LOSS": "".join(f"{loss}\n" for loss in sorted(losses)).encode(),
    }
    return {ending: content for ending, content in files.items() if content}


def stored_case(folder: Path, format_name: str, name: str) -> dict[str, bytes]:
    """Return the stored golden files of a case."""
    paths = {end: folder / format_name / "encoded" / f"{name}.{end}" for end in ("jsonl", "LOSS")}
    return {ending: path.read_bytes() for ending, path in paths.items() if path.exists()}


def write_case(folder: Path, format_name: str, name: str, files: dict[str, bytes]) -> None:
    """Store the golden files of a case, and remove obsolete ones."""
    place = folder / format_name / "encoded"
    place.mkdir(parents=True, exist_ok=True)
    for ending in ("jsonl", "LOSS"):
        path = place / f"{name}.{ending}"
        if ending in files:
            path.write_bytes(files[ending])
        else:
            path.unlink(missing_ok=True)
