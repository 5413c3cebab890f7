"""Helpers of recapture.sh.

pace   send an SQL file to a client command, paragraph by paragraph, a second apart
dump   write the messages of some topics as record lines
spoil  deliver one line late and add one broken line
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def pace(sql: Path, client: list[str]) -> None:
    """Send `sql` to `client`, paragraph by paragraph, a second apart."""
    for paragraph in sql.read_text().split("\n\n"):
        statements = re.sub(r"^--.*\n?", "", paragraph, flags=re.MULTILINE).strip()
        if statements:
            subprocess.run(client, input=statements, text=True, check=True)
            time.sleep(1)


def dump(bootstrap: str, topics: list[str], target: Path) -> None:
    """Write every message of `topics`, sorted by time; within a partition, by offset."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "dump", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in topics])
    records: list[Record] = []
    while (message := consumer.poll(5)) is not None:  # a tombstone is falsy
        if message.error():
            sys.exit(str(message.error()))
        records.append(
            {
                "topic": message.topic(),
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": message.timestamp()[1],
                "key": text(message.key()),
                "value": text(message.value()),
                "headers": [[name, text(value)] for name, value in message.headers() or []],
            }
        )
    consumer.close()
    records.sort(key=lambda r: (r["timestamp"], topics.index(r["topic"]), r["offset"]))
    write(target, records)


def spoil(source: Path, target: Path, late: str, broken: str) -> None:
    """Deliver one line late and add one broken line.

    The first line with `late` in its value moves to the end. The first line with `broken` in its
    value is followed by a copy of it, cut in the middle of its payload. Offsets are renumbered
    in the new order.
    """
    records = [json.loads(line) for line in source.read_text().splitlines()]

    moved = records.pop(find(records, late))
    moved["timestamp"] = max(r["timestamp"] for r in records) + 1000
    records.append(moved)

    index = find(records, broken)
    value = records[index]["value"]
    payload = value.index('"payload":')
    cut = dict(records[index], value=value[: payload + (len(value) - payload) // 2])
    records.insert(index + 1, cut)

    offsets: dict[str, int] = {}
    for record in records:
        record["offset"] = offsets.get(record["topic"], 0)
        offsets[record["topic"]] = record["offset"] + 1
    write(target, records)


def find(records: list[Record], wanted: str) -> int:
    """Return the index of the first record with `wanted` in its value."""
    return next(i for i, r in enumerate(records) if wanted in (r["value"] or ""))


def text(data: bytes | None) -> str | None:
    """Decode a key or a value of Kafka; None stays None."""
    return None if data is None else data.decode()


def write(path: Path, records: list[Record]) -> None:
    """Write one JSON object a line."""
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("pace")
    command.add_argument("sql", type=Path)
    command.add_argument("client", nargs=argparse.REMAINDER, help="psql ... or mariadb ...")
    command = commands.add_parser("dump")
    command.add_argument("bootstrap")
    command.add_argument("target", type=Path)
    command.add_argument("topics", nargs="+")
    command = commands.add_parser("spoil")
    command.add_argument("source", type=Path)
    command.add_argument("target", type=Path)
    command.add_argument("--late", required=True)
    command.add_argument("--broken", required=True)
    arguments = vars(parser.parse_args())
    {"pace": pace, "dump": dump, "spoil": spoil}[arguments.pop("command")](**arguments)


if __name__ == "__main__":
    main()
