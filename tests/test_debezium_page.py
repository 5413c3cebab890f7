# SPDX-License-Identifier: Apache-2.0
"""The connector files of docs/debezium.md are JSON, have every setting, and fit the captures."""

import json
import re
from pathlib import Path

import pytest

from changelane.pipeline import connector_settings

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / connector_settings.PAGE).read_text("utf-8")
CAPTURED = ROOT / "tests" / "golden" / "debezium-json" / "captured"
FILES = dict(
    re.findall(r"^`([\w-]+)[.]json`:\n\n```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
)
EVERYWHERE = {
    "skipped.operations": "none",
    "provide.transaction.metadata": "true",
    "decimal.handling.mode": "precise",
    "heartbeat.interval.ms": "10000",
    "tombstones.on.delete": "true",
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
}
BINLOG = {"bigint.unsigned.handling.mode": "precise", "include.schema.changes": "true"}
FIX = re.compile(r"([a-z]+(?:[.][a-z]+)+)=(\w+)")


def test_there_is_a_file_for_each_database():
    assert list(FILES) == ["shop-postgres", "shop-mysql", "shop-mariadb"]


@pytest.mark.parametrize("name", FILES)
def test_a_connector_file_is_json_with_every_setting_that_a_stream_needs(name):
    connector = json.loads(FILES[name])
    assert connector.keys() == {"name", "config"}
    assert connector["name"] == name
    config = connector["config"]
    assert {type(value) for value in config.values()} == {str}
    wanted = EVERYWHERE | ({} if "postgres" in name else BINLOG)
    assert wanted.items() <= config.items()
    assert config["time.precision.mode"] != "connect"
    # what a connector of its own needs to be told apart from others
    assert {"topic.prefix", "database.server.id"} & config.keys()
    described = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    names = {each for line in described for each in re.findall(r"`([\w.]+)`", line)}
    assert wanted.keys() <= names


def test_every_setting_that_a_finding_names_is_in_a_file_or_the_table():
    text = Path(connector_settings.__file__).read_text("utf-8")
    settings = FIX.findall(text)
    assert len(settings) > 6
    for name, value in settings:
        assert f'"{name}": "{value}"' in PAGE or f"`{name}" in PAGE, name


def test_the_page_has_the_words_of_each_finding():
    table = PAGE.partition("| finding |")[2]
    text = Path(connector_settings.__file__).read_text("utf-8")
    for words in (
        "have no column types",
        "decimals arrive as floating-point numbers",
        "unsigned numbers from 2^63 on arrive as negative numbers",
        "times have milliseconds only",
        "changes have no position in their",
        "updates have no before image",
        "unchanged large values are not sent",
        "there is no heartbeat topic",
    ):
        assert words in table
        assert words in text


@pytest.mark.parametrize(
    ("grant", "capture"),
    [
        ("BINLOG MONITOR, SLAVE MONITOR", "mariadb-schema.sql"),
        ("GRANT SELECT ON ALL TABLES IN SCHEMA public TO dbz", "postgres-schema.sql"),
        ("GRANT USAGE ON SCHEMA public TO dbz", "postgres-schema.sql"),
        ("CREATE ROLE dbz LOGIN REPLICATION PASSWORD", "postgres-schema.sql"),
    ],
)
def test_the_rights_are_those_that_the_captures_were_made_with(grant, capture):
    (line,) = (line for line in PAGE.splitlines() if grant in line)
    made = (CAPTURED / capture).read_text("utf-8")
    statement = line.partition(";")[0].partition("'")[0]
    assert statement.strip() in made
