"""``changelane check``: what the file alone tells, and how findings end, without Spark."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from changelane.cli import main
from changelane.errors import UnreachableError
from changelane.pipeline.config_checks import Finding, exit_code, ok, problem, warning

SOURCE = {
    "type": "kafka",
    "bootstrap_servers": "nowhere.invalid:1",
    "topics": "t",
    "format": "native-json",
}
TABLES = {"type": "delta", "path": "lake"}
TOPICS = {
    "type": "kafka",
    "bootstrap_servers": "nowhere.invalid:1",
    "topic": "out",
    "format": "canal-json",
    "checkpoint": "state",
}


def check(folder: Path, source: dict[str, Any], sink: dict[str, Any], **more: Any) -> Result:
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps({"name": "shop", "source": source, "sink": sink} | more))
    done = CliRunner().invoke(main, ["check", "--offline", str(file)])
    assert [path.name for path in folder.iterdir()] == ["pipeline.yaml"]
    return done


def test_offline_it_reads_the_file_alone(tmp_path: Path) -> None:
    done = check(tmp_path, SOURCE, TABLES)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (
        f"ok       configuration: pipeline shop: native-json of t to delta tables in "
        f"{tmp_path}/lake\n"
    )
    done = check(tmp_path, SOURCE, TOPICS)
    assert done.stdout.endswith("pipeline shop: native-json of t to canal-json in topic out\n")


def test_a_format_without_positions_is_a_warning(tmp_path: Path) -> None:
    done = check(tmp_path, SOURCE | {"format": "canal-json"}, TABLES)
    assert done.exit_code == 0
    assert "warning  order: canal-json has no positions" in done.stdout
    assert "ordered by their offsets" in done.stdout
    by_id = SOURCE | {"format": "canal-json", "order_by_event_id": True}
    by_id |= {"type": "kafka", "bootstrap_servers": "here:1", "topics": "in"}
    by_id = {name: value for name, value in by_id.items() if name != "path"}
    assert "ordered by the offsets in their event ids" in check(tmp_path, by_id, TABLES).stdout


@pytest.mark.parametrize(
    ("format", "options", "warns"),
    [
        ("canal-json", {"tables_without_key": "append"}, True),
        ("canal-json", {"mode": "append"}, True),
        ("canal-json", {"mode": "history"}, True),
        ("canal-json", {"tables": {"clicks": {"mode": "append"}}}, True),
        ("canal-json", {}, False),
        # times at the source tell nothing: the message decides between two of them
        ("lindorm-json", {"tables_without_key": "append"}, True),
        ("debezium-json", {"tables_without_key": "append"}, False),
    ],
)
def test_rows_that_come_twice_when_they_are_sent_again_are_a_warning(
    tmp_path: Path, format: str, options: dict[str, Any], warns: bool
) -> None:
    done = check(tmp_path, SOURCE | {"format": format}, TABLES, options=options)
    assert done.exit_code == 0
    told = f"warning  repeats: {format} has no positions, so events that a producer"
    assert (told in done.stdout) == warns


@pytest.mark.parametrize(
    ("source", "sink", "more", "told"),
    [
        ({"format": "native-jsn"}, TABLES, {}, "source.format: .*did you mean 'native-json'"),
        ({"format_options": {"x": 1}}, TABLES, {}, "source.format: "),
        ({}, TOPICS | {"format": "canal-jso"}, {}, "sink.format: .*did you mean 'canal-json'"),
        (
            {},
            {name: value for name, value in TOPICS.items() if name != "topic"}
            | {"profile": "debezium"},
            {},
            "sink.profile: profile debezium writes .*, not canal-json",
        ),
        ({}, TABLES, {"optoins": {}}, "configuration: .*did you mean 'options'"),
        (
            {"bootstrap_servers": "${NOT_SET_HERE}"},
            TABLES,
            {},
            "configuration: .*NOT_SET_HERE is not set",
        ),
        ({}, TABLES, {"options": {"metrics_port": 70000}}, "configuration: .*metrics_port"),
    ],
)
def test_what_is_wrong_is_one_line_and_ends_with_2(
    tmp_path: Path, source: dict[str, Any], sink: dict[str, Any], more: Any, told: str
) -> None:
    done = check(tmp_path, SOURCE | source, sink, **more)
    assert done.exit_code == 2
    (line,) = done.stdout.splitlines()
    assert line.startswith("problem  ")
    assert re.search(told, line), line


def test_a_missing_extra_for_metrics_is_reported_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = check(tmp_path, SOURCE, TABLES, options={"metrics_port": 9400})
    assert done.exit_code == 2
    assert "changelane[metrics]" in done.stdout


def test_secrets_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    secret = {"spark_options": {"kafka.sasl.jaas.config": "${SECRET}"}}
    for source in (secret, secret | {"format": "x"}, {"topics": "${SECRET}", "format": []}):
        assert "hunter2" not in check(tmp_path, SOURCE | source, TABLES).output


def test_a_problem_ends_with_2_and_with_1_when_all_of_them_do_not_answer() -> None:
    away = problem("source", "x", is_unreachable=True)
    assert exit_code([ok("a", "b"), warning("c", "d")]) == 0
    assert exit_code([warning("c", "d"), away, away]) == 1
    assert exit_code([away, problem("sink", "wrong")]) == 2


def test_a_finding_is_one_line_with_its_fix() -> None:
    assert str(Finding("warning", "topic t", "it is odd", "mend it")) == (
        "warning  topic t: it is odd: mend it"
    )
    assert str(ok("topic t", "fine")) == "ok       topic t: fine"


def test_a_run_without_an_answer_of_the_broker_ends_with_1_as_a_check_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(file: str) -> None:
        raise UnreachableError(f"the broker of {file} does not answer")

    monkeypatch.setattr("changelane.cli.run.load", load)
    done = CliRunner().invoke(main, ["run", "x.yaml"])
    assert (done.exit_code, done.stderr) == (1, "Error: the broker of x.yaml does not answer\n")
