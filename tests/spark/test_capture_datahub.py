# SPDX-License-Identifier: Apache-2.0
"""A real MariaDB into a DataHub in memory, by the vendor's own client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from capture_lines import Captured, mariadb
from click.testing import CliRunner
from datahub_server import ID, KEY, Server, serving
from pyspark.sql import SparkSession

from changelane.cli import main

__all__ = ["mariadb"]
pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")

ACCESS: Final = {"access_id": "${DATAHUB_ID}", "access_key": "${DATAHUB_KEY}", "project": "shop"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("DATAHUB_ID", ID)
    monkeypatch.setenv("DATAHUB_KEY", KEY)
    with serving() as found:
        yield found


def test_a_mariadb_is_sent_to_a_topic_of_datahub(
    spark: SparkSession, server: Server, tmp_path: Path, mariadb: Captured
) -> None:
    assert spark.sparkContext.appName
    sink = {"type": "datahub", "endpoint": server.endpoint, "topic": "line", **ACCESS}
    sink |= {"format": "datahub-blob", "on_loss": "warn", "checkpoint": "sent"}
    sink["create"] = {"shards": 1, "days": 1}
    file = tmp_path / "send.yaml"
    source = {"type": "segments", "path": str(mariadb.log)}
    file.write_text(json.dumps({"name": "send", "source": source, "sink": sink}))
    done = CliRunner().invoke(main, ["run", str(file), "--output", "json"])
    assert done.exit_code == 0, done.output
    assert not any(batch["quarantined"] for batch in json.loads(done.stdout)["batches"])
    told = [json.loads(one.values[0] or b"") for one in server.topics["line"].records]
    payloads = [one["payload"] for one in told]
    # the rows of the first load have the sequence -1, and all others one of their own
    sequences = [one.get("sequenceId") for one in payloads if one["op"] != "CREATE"]
    assert sequences.count("-1") == mariadb.first_rows
    assert {one["op"] for one in payloads if one.get("sequenceId") == "-1"} == {"INSERT"}
    assert {"TRUNCATE", "ALTER"} <= {one["op"] for one in payloads}

    rows: dict[tuple[int, str], int] = {}
    for one in told:
        if one["schema"].get("source", {}).get("tableName") != "pairs":
            continue
        before, after = (one["payload"].get(image) for image in ("before", "after"))
        if before is not None:
            rows.pop((before["dataColumn"]["a"], before["dataColumn"]["b"]), None)
        if after is not None:
            row = after["dataColumn"]
            rows[row["a"], row["b"]] = row["n"]
    expected = mariadb.tables["pairs"].values()
    assert {(str(a), b, str(n)) for (a, b), n in rows.items()} == set(expected)
