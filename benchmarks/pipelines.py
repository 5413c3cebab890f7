# SPDX-License-Identifier: Apache-2.0
"""The pipelines of ``changelane run`` over orders, and the commands that run them."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import orders

# the images before updates and deletes are complete, as with REPLICA IDENTITY FULL
FORMAT_OPTIONS: Final = {"schemas": {orders.TABLE: orders.TYPES}, "before_image": "full"}
KEYS: Final = {orders.TABLE: [orders.KEY]}


def source_files(folder: Path) -> dict[str, Any]:
    """Return the source of files of debezium-json messages."""
    return {
        "type": "files",
        "path": str(folder),
        "format": "debezium-json",
        "format_options": FORMAT_OPTIONS,
    }


def source_topic(servers: str, topic: str) -> dict[str, Any]:
    """Return the source of a topic of debezium-json messages."""
    return {
        "type": "kafka",
        "bootstrap_servers": servers,
        "topics": topic,
        "format": "debezium-json",
        "format_options": FORMAT_OPTIONS,
    }


def sink_topic(servers: str, topic: str, folder: Path) -> dict[str, Any]:
    """Return the sink of a topic of canal-json messages."""
    return {
        "type": "kafka",
        "bootstrap_servers": servers,
        "topic": topic,
        "format": "canal-json",
        "checkpoint": str(folder / "checkpoint"),
    }


def pipeline(
    source: Mapping[str, Any], sink: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a pipeline."""
    checked = {"max_errors": 0, **(options or {})}
    return {"name": "benchmark", "source": source, "sink": sink, "options": checked}


def lake(
    source: Mapping[str, Any], kind: str, path: Path, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a pipeline into the tables of a folder.

    Args:
        source: The source.
        kind: ``delta`` or ``iceberg``.
        path: The folder.
        options: More options.
    """
    sink = {"type": kind, "path": str(path)}
    return pipeline(source, sink, {"keys": KEYS, **(options or {})})


def run(configuration: Mapping[str, Any], path: Path) -> list[str]:
    """Write a pipeline to a file; return the command that runs it."""
    path.write_bytes(msgspec.json.encode(configuration))  # JSON is YAML
    return [sys.executable, "-m", "changelane", "run", str(path)]


def convert(source: Path, target: Path) -> list[str]:
    """Return the command that converts a file of debezium-json to canal-json."""
    command = [sys.executable, "-m", "changelane", "convert", "--from", "debezium-json"]
    return [*command, "--to", "canal-json", str(source), str(target)]
