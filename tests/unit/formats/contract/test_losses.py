# SPDX-License-Identifier: Apache-2.0
"""Which losses there are, whether each is one of data or of metadata, and which of them pass."""

import ast
import json
import pickle
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given

import changelane
from changelane import UNAVAILABLE, LossPolicy, Message, convert, formats, get_codec
from changelane.cli import main
from changelane.conversion.loss_report import losses_between, probes
from changelane.errors import ConfigError, UnknownNameError, UnsupportedError
from changelane.formats.contract.capabilities import _type_name
from changelane.formats.contract.losses import (
    LOSSES,
    LossClass,
    LossWarnings,
    is_declared,
    loss_class,
    loss_name,
    loss_of,
    loss_text,
    refused,
)
from changelane.pipeline.config import parse
from changelane.testing.event_strategies import events
from changelane.testing.value_outcomes import ROWS, event_of

PACKAGE = Path(changelane.__file__).parent
WRITERS = [*PACKAGE.glob("*.py"), *PACKAGE.glob("formats/**/*.py"), *PACKAGE.glob("datahub/*.py")]


def _field(node):
    """The field of a loss that stands in the code: its literal part."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        return node.values[0].value
    return None


def _pairs(tree):
    """Pairs of a field and a reason: what is reported, counted, or stands as a constant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            wanted = node.args
        elif isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "losses":
            wanted = [node.slice]
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Return):
            wanted = [node.value]
        else:
            continue
        is_report = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "report"
        is_loss = "Loss" in ast.unparse(getattr(node, "annotation", None) or ast.Constant(""))
        is_named = isinstance(node, ast.Subscript) or is_report or is_loss
        for one in wanted:
            if isinstance(one, ast.Tuple) and len(one.elts) == 2 and is_named:
                yield _field(one.elts[0])


def test_every_loss_that_a_writer_reports_is_declared():
    found = {
        field
        for path in WRITERS
        for field in _pairs(ast.parse(path.read_text("utf-8")))
        if field is not None
    }
    assert {"position", "event:truncate", "before", "type:", "value:", "details."} <= found
    assert len(found) > 50
    wrong = {field for field in found if not is_declared(field.rstrip(":."))}
    assert not wrong


@pytest.mark.parametrize("source", formats.FORMATS)
def test_every_loss_between_two_formats_is_declared(source):
    codec = get_codec(source)
    for target in formats.FORMATS:
        for field, _ in losses_between(codec, get_codec(target)):
            assert is_declared(field), (target, field)


@pytest.mark.parametrize(
    ("source", "target", "losses"),
    [
        ("wal2json", "maxwell-json", {"before", "position", "type:array", "source_time"}),
        ("canal-json", "maxwell-json", {"before", "details", "source_time", "type:json"}),
        ("shareplex-json", "ticdc-avro", {"position", "transaction.id"}),
        ("shareplex-json", "plain-json", {"before", "operation:c"}),
    ],
)
def test_losses_to_a_format_that_needs_names_are_those_of_rows_with_names(source, target, losses):
    fields = {field for field, _ in losses_between(get_codec(source), get_codec(target))}
    assert "event" in fields  # without the names
    assert not losses - fields


@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_loss_of_a_value_of_any_type_is_declared(name):
    codec = get_codec(name)
    for row in ROWS:
        try:
            encoded = codec.encode(event_of(row), on_loss="ignore")
        except changelane.EncodeError:
            continue
        assert all(is_declared(field) for field, _ in encoded.losses), encoded.losses


@given(event=events(get_codec("native-json").carries))
def test_every_loss_of_any_event_is_declared(event):
    for name in formats.FORMATS:
        try:
            losses = get_codec(name).encode(event, on_loss="ignore").losses
        except changelane.EncodeError:
            continue
        assert all(is_declared(field) for field, _ in losses), losses


def test_every_type_has_a_name_as_a_loss():
    kinds = {_type_name(row.kind) for row in ROWS}
    assert len(kinds) > 20
    assert all(is_declared(f"type:{kind}") and is_declared(f"value:{kind}") for kind in kinds)


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("value:float", "data"),
        ("unavailable", "data"),
        ("absent", "data"),
        ("operation:u", "data"),
        ("key_change", "data"),
        ("event:truncate", "data"),
        ("event:schema", "data"),
        ("event:message", "data"),
        ("table.name", "data"),
        ("event:tombstone", "metadata"),
        ("event:transaction", "metadata"),
        ("event:watermark", "metadata"),
        ("source.version", "metadata"),
        ("schema.nullable", "metadata"),
        ("transaction.id", "metadata"),
        ("position", "metadata"),
        ("type:uuid", "metadata"),
        ("details.extra", "metadata"),
        ("none such", "data"),
    ],
)
def test_a_loss_is_of_data_or_of_metadata(field, kind):
    assert loss_class(field) == kind


# -- the policy ---------------------------------------------------------------------------------

LOST = (("position", "a"), ("schema.nullable", "b"), ("value:float", "c"), ("event:truncate", "d"))


@pytest.mark.parametrize(
    ("accept", "left"),
    [
        ((), ["position", "schema.nullable", "value:float", "event:truncate"]),
        (("metadata",), ["value:float", "event:truncate"]),
        (("data",), ["position", "schema.nullable"]),
        (("metadata", "data"), []),
        (("schema", "value"), ["position", "event:truncate"]),
        (("schema.nullable", "value.float"), ["position", "event:truncate"]),
        (("schema.default", "value:float"), ["position", "schema.nullable", "event:truncate"]),
        (("event",), ["position", "schema.nullable", "value:float"]),
    ],
)
def test_losses_pass_by_class_by_group_and_by_name(accept, left):
    assert [field for field, _ in refused(LossPolicy(accept=accept), LOST)] == left
    for word in ("warn", "ignore"):
        assert refused(LossPolicy(accept=accept, otherwise=word), LOST) == ()


def test_the_words_mean_all_losses():
    assert refused("raise", LOST) == LOST
    assert refused("warn", LOST) == refused("ignore", LOST) == ()
    with pytest.raises(ValueError, match="maybe"):
        refused("maybe", LOST)


@pytest.mark.parametrize(
    ("name", "near"),
    [("metdata", "metadata"), ("schema.nulable", "schema.nullable"), ("sorce", "source")],
)
def test_a_name_that_no_loss_has_names_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"unknown loss '{name}'; did you mean '{near}'"):
        LossPolicy(accept=(name,))


def test_a_policy_can_be_sent_to_workers():
    policy = LossPolicy(accept=("metadata", "value.float"), otherwise="warn")
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_a_loss_in_a_report_can_be_read_again():
    for loss in [("event:tombstone", "a (b) c"), ("position", "not written (x)")]:
        assert loss_of(loss_text(loss)) == loss


def test_a_lost_position_is_told_once_unless_it_is_accepted_by_name():
    warnings = LossWarnings(LossPolicy(), "canal-json")
    told = [list(warnings.of(LOST)) for _ in range(3)]
    assert [len(one) for one in told] == [1, 0, 0]
    assert told[0][0].startswith("canal-json does not carry position (a): ")
    assert list(LossWarnings("warn", "x").of(LOST))
    assert not list(LossWarnings("ignore", "x").of(LOST))
    assert not list(LossWarnings(LossPolicy(accept=("metadata", "position")), "x").of(LOST))


# -- what passes by default ---------------------------------------------------------------------


def change(**fields):
    value = {"op": "c", "table": {"name": "t"}, "after": {"id": 1}} | fields
    return Message(json.dumps(value).encode())


def test_a_message_loses_metadata_by_default_and_no_data():
    placed = change(position={"domain": "sequence", "value": 1})
    done = convert(placed, "native-json", "canal-json")
    assert [loss_class(field) for field, _ in done.losses] == ["metadata"] * len(done.losses)
    assert "position" in dict(done.losses)
    schema = [{"name": "id", "type": "int64"}, {"name": "v", "type": "float64"}]
    lost = change(schema=schema, after={"id": 1, "v": "NaN"})
    with pytest.raises(UnsupportedError) as error:
        convert(lost, "native-json", "canal-json")
    assert [field for field, _ in error.value.losses] == ["value:float"]
    assert "accept: [metadata, value.float]" in str(error.value)
    assert "--accept metadata,value.float" in str(error.value)
    policy = LossPolicy(accept=("metadata", "value.float"))
    assert convert(lost, "native-json", "canal-json", on_loss=policy).messages


@pytest.mark.parametrize("name", formats.FORMATS)
def test_what_passes_by_default_keeps_operation_columns_and_key(name):
    """What reduction leaves, for everything that the most expressive format can say."""
    codec = get_codec(name)
    for event in probes(get_codec("native-json").carries):
        reduced, losses = codec.reduce(event)
        if refused(LossPolicy(), losses):
            continue
        kind = event.__struct_config__.tag
        if not reduced:
            assert kind in {"tombstone", "transaction", "watermark"}
            continue
        (left,) = reduced
        assert left.__struct_config__.tag == kind
        for field in ("op", "key"):
            assert getattr(left, field, None) == getattr(event, field, None)
        for field in ("before", "after"):
            had, has = getattr(event, field, None), getattr(left, field, None)
            assert (had is None) == (has is None)
            if had is not None:
                assert _states(had) == _states(has)


def _states(image):
    """What is known of each column: a value, NULL, or nothing."""
    return {
        name: value if value is None or value is UNAVAILABLE else "a value"
        for name, value in image.items()
    }


@pytest.mark.parametrize("name", ["debezium-mariadb-schema", "debezium-mariadb-noschema"])
def test_a_topic_of_debezium_becomes_canal_as_it_is(corpus, tmp_path, name):
    """Changes, deletes with tombstones, transactions and statements of MariaDB."""
    source = corpus / "captured" / f"{name}.jsonl"
    arguments = ["convert", "-f", "debezium-json", "-t", "canal-json", str(source)]
    run = CliRunner().invoke(main, [*arguments, str(tmp_path / "out")], catch_exceptions=False)
    assert run.exit_code == 0, run.output
    assert "refused" not in run.output
    assert run.stderr.count("does not carry position (a mysql position is not written)") == 1
    lost = [line for line in run.stderr.splitlines() if line.endswith(", metadata")]
    assert any("source.server (not written), metadata" in line for line in lost)
    assert not [line for line in run.stderr.splitlines() if line.endswith(", data")]
    read = [
        event
        for line in (tmp_path / "out").read_bytes().splitlines()
        for event in get_codec("canal-json").decode(Message(_value(line)))
    ]
    assert sum(event.__struct_config__.tag == "data" for event in read) > 40
    shown = CliRunner().invoke(main, [*arguments, "--output", "json", str(tmp_path / "again")])
    told = json.loads(shown.stderr)
    assert {one["class"] for one in told["losses"]} == {"metadata"}
    assert told["on_loss"] == {"accept": ["metadata"], "else": "raise"}
    assert (told["refused"], len(told["warnings"])) == ([], 1)


def _value(line):
    return json.loads(line)["value"].encode()


def test_of_a_topic_with_values_that_canal_lacks_only_these_fail(corpus, tmp_path):
    source = corpus / "captured" / "debezium-postgres-schema.jsonl"
    arguments = ["convert", "-f", "debezium-json", "-t", "canal-json", "--output", "json"]
    run = CliRunner().invoke(main, [*arguments, str(source), str(tmp_path / "out")])
    assert run.exit_code == 1
    told = json.loads(run.stderr)
    assert set(told["failures"]) == {"unsupported"}
    assert {one["class"] for one in told["losses"]} == {"metadata"}
    refusals = {one["field"] for one in told["refused"]}
    assert {"value:float", "unavailable", "event:message"} <= refusals
    assert {one["class"] for one in told["refused"]} == {"data"}
    names = ",".join(["metadata", *map(loss_name, sorted(refusals))])
    more = ["--accept", names, str(source), str(tmp_path / "out")]
    assert CliRunner().invoke(main, [*arguments, *more]).exit_code == 0


# -- where users write it -----------------------------------------------------------------------


def sink(on_loss):
    source = {
        "type": "kafka",
        "bootstrap_servers": "h:1",
        "topics": ["a"],
        "format": "debezium-json",
    }
    target = {"type": "kafka", "bootstrap_servers": "h:1", "topic": "b", "format": "canal-json"}
    target |= {"checkpoint": "state"} | ({} if on_loss is None else {"on_loss": on_loss})
    return parse({"name": "x", "source": source, "sink": target}).sink.on_loss


def test_a_pipeline_names_what_may_be_lost():
    assert sink(None) == LossPolicy() == LossPolicy(accept=("metadata",), otherwise="raise")
    for word in ("raise", "warn", "ignore"):
        assert sink(word) == word
    told = sink({"accept": ["metadata", "schema.nullable"], "else": "warn"})
    assert told == LossPolicy(accept=("metadata", "schema.nullable"), otherwise="warn")
    assert sink({"accept": ["source"]}).otherwise == "raise"


@pytest.mark.parametrize(
    ("on_loss", "why"),
    [
        ("maybe", "sink.on_loss: its value is not one of raise, warn, ignore"),
        ({"accept": ["schema.nulable"]}, "did you mean 'schema.nullable'"),
        ({"accept": ["metadata"], "else": "rise"}, "did you mean 'raise'"),
        ({"acept": ["metadata"]}, "did you mean 'accept'"),
        ({"otherwise": "warn"}, "unknown key in sink.on_loss 'otherwise'"),
    ],
)
def test_a_wrong_policy_of_a_pipeline_is_explained(on_loss, why):
    with pytest.raises((ConfigError, UnknownNameError)) as error:
        sink(on_loss)
    assert why in str(error.value)


def run(*arguments, data):
    args = ["convert", "-f", "native-json", "-t", "canal-json", *arguments]
    return CliRunner().invoke(main, args, input=data, catch_exceptions=False)


PLACED = change(position={"domain": "sequence", "value": 1}).value


def test_the_command_line_takes_the_same_names():
    assert run(data=PLACED).exit_code == 0
    refusal = run("--on-loss", "raise", data=PLACED)
    assert refusal.exit_code == 1
    assert "--accept metadata,type.unknown,position" in refusal.stderr
    assert run("--accept", "source,schema", data=PLACED).exit_code == 1
    named = run("--accept", "position,type, schema", "--accept", "source", data=PLACED)
    assert named.exit_code == 0, named.stderr
    assert "does not carry" not in named.stderr
    rest = run("--accept", "source", "--on-loss", "ignore", data=PLACED)
    assert "ignored (--output json lists them)" in rest.stderr
    wrong = run("--accept", "posision", data=PLACED)
    assert wrong.exit_code == 2
    assert "--accept: unknown loss 'posision'; did you mean 'position'?" in wrong.stderr


def test_every_group_says_what_it_means():
    assert all(group.meaning for group in LOSSES.values())
    assert {group.kind for group in LOSSES.values()} == set(LossClass)
    assert msgspec.json.decode(msgspec.json.encode(LossPolicy())) == {
        "accept": ["metadata"],
        "else": "raise",
    }
