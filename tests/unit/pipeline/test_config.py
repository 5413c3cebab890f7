"""Pipeline files: typed, with the nearest name for a wrong one, and secrets that stay secret."""

import re
from pathlib import Path
from typing import Any

import pytest

from changelane.codec import get_codec
from changelane.errors import ConfigError, UnknownNameError
from changelane.pipeline.config import Pipeline, load, parse
from changelane.pipeline.files_source import FilesSource
from changelane.pipeline.lake_sinks import IcebergSink, Partition
from changelane.pipeline.row_options import RowOptions
from changelane.schema import TableId
from changelane.spark.lake.modes import TableMode, mode_of, modes_of

LEAST = """
name: shop
source: {type: files, path: changes, format: debezium-json}
sink: {type: delta, path: lake}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(text, "utf-8")
    return path


def test_the_least_pipeline_has_sound_defaults(tmp_path: Path) -> None:
    found = load(written(tmp_path, LEAST))
    assert found.name == "shop"
    assert found.options.trigger == "available_now"
    assert found.options.tables_without_key == "quarantine"
    assert found.options.max_errors is None
    assert found.source.line_format == "auto"


def test_relative_paths_are_relative_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    found = load(written(tmp_path, LEAST + "options: {checkpoint: marks}\n"))
    assert found.source.path == str(tmp_path / "changes")
    assert found.sink.path == str(tmp_path / "lake")
    assert found.checkpoint == str(tmp_path / "marks")


def test_absolute_paths_and_addresses_stay(tmp_path: Path) -> None:
    text = LEAST.replace("changes", "s3a://bucket/changes").replace("path: lake", "path: /lake")
    found = load(written(tmp_path, text))
    assert found.source.path == "s3a://bucket/changes"
    assert found.sink.path == "/lake"


def test_the_checkpoint_is_in_the_sink_by_default(tmp_path: Path) -> None:
    found = load(written(tmp_path, LEAST))
    assert found.checkpoint == str(tmp_path / "lake/_changelane/checkpoints/shop")


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("sinc: {}", "sink"),
        ("options: {chekpoint: x}", "checkpoint"),
        ("options: {key: {}}", "keys"),
        ("options: {tables: {orders: {moed: history}}}", "mode"),
    ],
)
def test_an_unknown_key_names_the_nearest_one(tmp_path: Path, wrong: str, near: str) -> None:
    with pytest.raises(UnknownNameError, match=f"did you mean '{near}'") as caught:
        load(written(tmp_path, LEAST + wrong + "\n"))
    assert isinstance(caught.value, ConfigError)


@pytest.mark.parametrize(("section", "wrong", "near"), [("source", "formt", "format")])
def test_an_unknown_key_of_a_section_names_the_nearest_one(
    tmp_path: Path, section: str, wrong: str, near: str
) -> None:
    text = LEAST.replace("{type: files", f"{{{wrong}: x, type: files")
    with pytest.raises(UnknownNameError, match=f"key in {section} '{wrong}'.*'{near}'"):
        load(written(tmp_path, text))


def test_variables_are_read_from_the_environment(tmp_path: Path) -> None:
    text = LEAST.replace("path: lake", "path: '${BUCKET}/${NAME}'")
    found = load(written(tmp_path, text), {"BUCKET": "s3a://b", "NAME": "shop"})
    assert found.sink.path == "s3a://b/shop"


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    text = LEAST.replace("path: lake", "path: '${BUCKET_OF_LAKE}'")
    with pytest.raises(ConfigError, match="BUCKET_OF_LAKE is not set"):
        load(written(tmp_path, text), {})


@pytest.mark.parametrize(
    "place",
    [
        "options: {trigger: '${SECRET}'}",
        "options: {epoch: '${SECRET}'}",
        "options: {max_errors: '${SECRET}'}",
        "options: {keys: '${SECRET}'}",
        "options: '${SECRET}'",
        "options: {mode: 'x-${SECRET}'}",
        "options: {tables: {orders: {mode: '${SECRET}'}}}",
        "options: {tables: {orders: {partition_by: ['${SECRET}', '${SECRET}']}}}",
        "options: {tables: {orders: {partition_by: ['days(${SECRET})']}}}",
        "transforms: [{type: '${SECRET}'}]",
        "transforms: [{type: cast, columns: {a: '${SECRET}'}}]",
        "transforms: [{type: route, pattern: a, table: '{${SECRET}}'}]",
        "transforms: [{type: mask, columns: [a], method: '${SECRET}'}]",
    ],
)
@pytest.mark.parametrize("secret", ["hunter2", 'hunter\'s "2"\n'])
def test_the_value_of_a_variable_is_never_shown(tmp_path: Path, place: str, secret: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, LEAST + place + "\n"), {"SECRET": secret})
    assert "hunter" not in str(caught.value)
    assert "hunter" not in repr(caught.value)


@pytest.mark.parametrize("told", ["${KIND}", "debezium-${KIND}"])
@pytest.mark.parametrize("kind", ["hunter2", "q"])
def test_an_error_names_the_variable_of_a_format_not_its_value(
    tmp_path: Path, told: str, kind: str
) -> None:
    text = LEAST.replace("debezium-json", f"'{told}'")
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text), {"KIND": kind})
    assert str(caught.value).startswith(f"source.format: unknown format '{told}'; ")


def test_values_of_options_of_formats_and_profiles_are_not_shown(tmp_path: Path) -> None:
    options = "debezium-json, format_options: {tombstones: '${SECRET}'}"
    with pytest.raises(
        ConfigError, match=r"source.format: .*\$\{SECRET\}.* is not one of"
    ) as caught:
        load(written(tmp_path, LEAST.replace("debezium-json", options)), {"SECRET": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_value_that_looks_like_a_variable_is_not_filled_twice(tmp_path: Path) -> None:
    text = LEAST.replace("path: lake", "path: '/${ONE}'")
    found = load(written(tmp_path, text), {"ONE": "${TWO}", "TWO": "no"})
    assert found.sink.path == "/${TWO}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a pipeline"),
        ("- a\n- b\n", "is not a pipeline"),
        ("name: [", "is not YAML"),
        ("name: shop\n", "the pipeline is invalid: source is missing"),
        (LEAST.replace("type: files", "type: kafca"), "source.type: 'kafca' is not"),
        (LEAST.replace("name: shop", "name: 7"), "name: expected a text"),
        (LEAST + "options: {epoch: high}\n", "options.epoch: expected a whole"),
        (LEAST + "options: {epoch: -1}\n", "options.epoch: must be at least 0"),
        (LEAST + "options: {epoch: 4294967296}\n", "must be at most 4294967295"),
        (LEAST + "options: {trigger: continuous, interval: 10 sek}\n", "30 days"),
        (LEAST.replace("name: shop", "name: a/../../b"), "the name of a folder"),
        (LEAST.replace("name: shop", "name: ' '"), "the name of a folder"),
    ],
)
def test_errors_of_a_pipeline_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("file", "name"),
    [("orders.yaml", "orders"), ("my orders.v2.yml", "my-orders"), ("7.yaml", "7"), ("…", "shop")],
)
def test_a_pipeline_without_a_name_gets_one_proposed(tmp_path: Path, file: str, name: str) -> None:
    path = tmp_path / file
    path.write_text(LEAST.replace("name: shop\n", ""), "utf-8")
    with pytest.raises(ConfigError, match="The name identifies its checkpoint") as error:
        load(path)
    proposed = re.search("`(name: .*)`", str(error.value))[1]
    assert proposed == f'name: "{name}"'
    path.write_text(LEAST.replace("name: shop", proposed), "utf-8")
    assert load(path).name == name


def test_another_key_that_is_missing_is_named(tmp_path: Path) -> None:
    for key, part in (("path", " path: changes,"), ("format", ", format: debezium-json")):
        with pytest.raises(ConfigError, match=f"source: {key} is missing"):
            load(written(tmp_path, LEAST.replace(part, "")))
    with pytest.raises(ConfigError, match="is invalid: source is missing"):
        load(written(tmp_path, "name: shop\n"))


@pytest.mark.parametrize("name", ["debezium-avro", "avro", "Debezium_Avro", "confluent-avro"])
def test_a_format_with_a_schema_registry_is_explained(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, LEAST.replace("debezium-json", name)))
    assert f"source.format: unknown format '{name}': Debezium's Avro" in str(error.value)
    assert "serde=avro-registry" in str(error.value)
    assert "org.apache.kafka.connect.json.JsonConverter" in str(error.value)
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("debezium", "debezium-flat-json behind ExtractNewRecordState"),
        ("maxwell", "did you mean 'maxwell-json'"),
        ("ticdc", "TiCDC's open protocol is ticdc-open-json"),
        ("flink", "canal-json reads its Canal JSON"),
        ("dts", "dts-avro, or canal-json"),
        ("json", "changelane inspect"),
        ("dts_avro", "did you mean 'dts-avro'?"),
        ("Canal JSON", "did you mean 'canal-json'?"),
        ("canal-jsn", "did you mean 'canal-json'?"),
        ("debezium-jsn", "did you mean 'debezium-json'?"),
    ],
)
def test_a_format_that_is_called_otherwise_is_explained(name: str, hint: str) -> None:
    with pytest.raises(UnknownNameError, match=re.escape(hint)):
        get_codec(name)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "none.yaml")


def test_a_file_that_is_no_text_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(ConfigError, match="is not YAML"):
        load(path)


def test_the_credentials_of_a_registry_come_from_the_environment(tmp_path: Path) -> None:
    options = "format: debezium-json, format_options: {serde: avro-registry, registry: /r, %s}"
    text = LEAST.replace("format: debezium-json", options)
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, text % "registry_auth: 'ann:pw1'"))
    assert "source.format_options.registry_auth from the environment" in str(error.value)
    assert "pw1" not in str(error.value)
    found = load(written(tmp_path, text % "registry_auth: '${AUTH}'"), {"AUTH": "ann:pw1"})
    assert found.source.format_options["registry_auth"] == "ann:pw1"


def test_a_mapping_is_a_pipeline_too() -> None:
    raw: dict[str, Any] = {
        "name": "shop",
        "source": {"type": "files", "path": "in", "format": "canal-json"},
        "sink": {"type": "delta", "path": "out"},
        "options": {"keys": {"orders": ["id"]}},
    }
    found = parse(raw)
    assert isinstance(found, Pipeline)
    assert found.options.keys == {"orders": ("id",)}


def test_the_order_of_tracked_columns_is_none(tmp_path: Path) -> None:
    options = "options: {tables: {t: {mode: history, track_history_column_list: [b, a, b]}}}\n"
    asked = modes_of(load(written(tmp_path, LEAST + options)).options).of(TableId(None, None, "t"))
    assert mode_of(asked.properties) == asked
    # nor for callers who have no file
    asked = TableMode("history", track_except=("b", "a"))
    assert mode_of(asked.properties) == asked


def test_tables_have_the_mode_of_the_pipeline_or_their_own(tmp_path: Path) -> None:
    options = """
options:
  mode: append
  tables:
    orders: {mode: history, track_history_column_list: [state]}
    users: {}
"""
    found = load(written(tmp_path, LEAST + options)).options
    assert found.mode == "append"
    assert found.tables["orders"].mode == "history"
    assert found.tables["orders"].track_history_column_list == ["state"]
    assert found.tables["users"].mode is None


BOTH_LISTS = (
    "{tables: {orders: {mode: history, track_history_column_list: [a], "
    "track_history_except_column_list: [b]}}}"
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{mode: overwrite}", "options.mode: 'overwrite' is not one of upsert, history, append"),
        ("{tables: {orders: {mode: scd2}}}", "options.tables.orders.mode: 'scd2' is"),
        (
            "{tables: {orders: {track_history_column_list: [a]}}}",
            r"options.tables.orders: track_history_\* options need `mode: history`",
        ),
        ("{mode: history, deletes: soft}", "deletes: soft needs the mode upsert"),
        (
            "{tables: {clicks: {mode: append, deletes: soft}}}",
            "tables.clicks: deletes: soft needs the mode upsert",
        ),
        (
            BOTH_LISTS,
            "remove one of them",
        ),
    ],
)
def test_a_mode_that_cannot_be_is_refused(tmp_path: Path, options: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(written(tmp_path, f"{LEAST}options: {options}\n"))


@pytest.mark.parametrize(
    ("told", "column", "function", "size"),
    [
        ("country", "country", None, None),
        (" a b ", "a b", None, None),
        ("days(created at)", "created at", "days", None),
        ("bucket(16, id)", "id", "bucket", 16),
        ("truncate( 4,name)", "name", "truncate", 4),
        ("bucket(id)", "bucket(id)", None, None),
    ],
)
def test_a_partition_is_a_column_or_a_function_of_one(
    told: str, column: str, function: str | None, size: int | None
) -> None:
    assert Partition.parse(told) == Partition(column, function, size)


@pytest.mark.parametrize(
    ("sink", "options", "message"),
    [
        ("delta", "{tables: {a: {partition_by: [days(t)]}}}", "Delta partitions by columns only"),
        ("delta", "{tables: {a: {partition_by: [a.b]}}}", "a dot or backtick"),
        ("iceberg", "{tables: {a: {partition_by: [_changelane_order]}}}", "changelane's own"),
        ("delta", "{properties: {changelane.order: x}}", "changelane's own"),
        ("delta", "{tables: {a: {properties: {Changelane.table: x}}}}", "changelane's own"),
        ("delta, location: far", "{}", "must end in /{table}"),
        ('iceberg, location: "far/{table}"', "{}", "set a catalog, or remove location"),
        ("iceberg, namespace: shop", "{}", "namespace needs a catalog.*set a catalog, or remove"),
        ("iceberg, catalog: {type: hive}, namespace: Shop", "{}", "small letters"),
        (
            "iceberg, catalog: {catalog-impl: org.apache.iceberg.hive.HiveCatalog}, namespace: a.b",
            "{}",
            "small letters",
        ),
    ],
)
def test_a_layout_that_cannot_be_is_refused(
    tmp_path: Path, sink: str, options: str, message: str
) -> None:
    text = LEAST.replace("delta", sink) + f"options: {options}\n"
    with pytest.raises(ConfigError, match=message):
        load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("sink", "partitions", "message"),
    [
        ("delta", "[a, b, A]", "A occurs twice, as a and as A: keep one"),
        ("iceberg", "[a, a]", "a occurs twice, as a and as a"),
        ("iceberg", "[days(t), hours(t)]", "t occurs twice, as days.t. and as hours.t."),
        ("iceberg", "['bucket(4, a)', 'bucket(8, a)']", "a occurs twice"),
        ("iceberg", "['bucket(id, 16)']", r"bucket.id, 16. is not valid: write bucket\(16, id\)"),
        ("iceberg", "['truncate(name)']", r"write truncate\(4, name\)"),
        ("iceberg", "['Day(t)']", r"write days\(t\)"),
        ("iceberg", "['bucket(0, id)']", "the number must be at least 1"),
        ("iceberg", "[weeks(t)]", "unknown function weeks.t.; there are years.c., months.c."),
        ("delta", "['bucket(id, 16)']", "Delta partitions by columns only"),
    ],
)
def test_partitions_that_no_table_can_have_are_refused_with_the_right_form(
    tmp_path: Path, sink: str, partitions: str, message: str
) -> None:
    tables = f"options: {{tables: {{shop.a: {{partition_by: {partitions}}}}}}}\n"
    with pytest.raises(ConfigError, match=f"^options.tables.shop.a.partition_by: .*{message}"):
        load(written(tmp_path, LEAST.replace("delta", sink) + tables))


def test_a_column_may_make_two_partitions_of_different_kinds(tmp_path: Path) -> None:
    tables = "options: {tables: {a: {partition_by: [t, days(t), 'bucket(4, t)', f (x)]}}}\n"
    found = load(written(tmp_path, LEAST.replace("delta", "iceberg") + tables))
    assert found.options.tables["a"].partition_by == ["t", "days(t)", "bucket(4, t)", "f (x)"]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("{properties: {delta.foo: x}}", "options.properties: Delta has no property 'delta.foo'"),
        (
            "{tables: {a: {properties: {delta.appendOnyl: 'true'}}}}",
            "options.tables.a.properties: .*did you mean 'delta.appendOnly'",
        ),
    ],
)
def test_properties_that_delta_does_not_have_are_refused(
    tmp_path: Path, told: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(written(tmp_path, f"{LEAST}options: {told}\n"))
    load(written(tmp_path, f"{LEAST.replace('delta', 'iceberg')}options: {told}\n"))
    any_name = "{spark_options: {spark.databricks.delta.allowArbitraryProperties.enabled: 'true'}, "
    load(written(tmp_path, f"{LEAST}options: {any_name}{told[1:]}\n"))


def test_other_properties_of_delta_tables_are_free(tmp_path: Path) -> None:
    told = "{owner: me, DELTA.APPENDONLY: 'true', delta.feature.x: y, delta.constraints.c: a > 1}"
    found = load(written(tmp_path, f"{LEAST}options: {{properties: {told}}}\n"))
    assert len(found.options.properties) == 4


@pytest.mark.parametrize("path", ["pipeline.yaml", "pipeline.yaml/lake"])
def test_a_file_is_no_place_for_tables(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match=r"sink.path: .*pipeline.yaml is a file, not a folder"):
        load(written(tmp_path, LEAST.replace("path: lake", f"path: {path}")))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("options: {}\nname: x\n", "has the key name twice, in line 2 and in line 6: keep one"),
        (
            "options:\n  tables:\n    shop.orders: {}\n    a: {}\n    shop.orders: {}\n",
            "has the key options.tables.shop.orders twice, in line 7 and in line 9",
        ),
        ("transforms:\n- {type: rename,\n   type: mask}\n", r"transforms\[0\].type twice"),
    ],
)
def test_a_duplicate_key_is_rejected(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(written(tmp_path, LEAST + more))


def test_parts_of_a_file_may_be_named_and_used_again(tmp_path: Path) -> None:
    tables = "options:\n  tables:\n    a: &one {mode: history}\n    b: *one\n    c: {<<: *one}\n"
    found = load(written(tmp_path, LEAST + tables)).options.tables
    assert {one.mode for one in found.values()} == {"history"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            LEAST + "options: {mode: upsrt}",
            "options.mode: 'upsrt' is not one of upsert, history, append; did you mean 'upsert'",
        ),
        (
            LEAST + "options: {tables: {shop.orders: {mode: upsrt}}}",
            "options.tables.shop.orders.mode: 'upsrt' is not one of upsert, history, append; did",
        ),
        (LEAST.replace("delta", "icberg"), "sink.type: 'icberg' is not one of .*mean 'iceberg'"),
        (
            LEAST.replace("type: delta, ", ""),
            "sink: type is missing; expected one of delta, iceberg",
        ),
        (
            LEAST.replace("debezium-json", "debezum-json"),
            "source.format: unknown format 'debezum-json'; did you mean 'debezium-json'",
        ),
        (
            LEAST + "options: {tables: {shop.orders: {partition_by: day}}}",
            "options.tables.shop.orders.partition_by: expected a list, got a text",
        ),
        (
            LEAST + "options: {tables: {a: {properties: {x: 7}}}}",
            "options.tables.a.properties.x: expected a text, got a whole number: put it in",
        ),
        (LEAST + "options: {tables: {7: {}}}", "options.tables: one of its keys: expected a text"),
        (LEAST + "options: {maintenance: sometimes}", "'sometimes' is not one of auto, off"),
        (
            LEAST + "options: {maintenance: {snapshot_retention: 1}}",
            "options.maintenance.snapshot_retention: expected a text",
        ),
        (
            LEAST + "options: {maintenance: {small_file: 1}}",
            "key in options.maintenance 'small_file'.*'small_files'",
        ),
        (
            LEAST + "options: {tombstone_retention: soon}",
            "options: tombstone_retention: a span of time is",
        ),
        (
            LEAST + "transforms: [{type: mask, method: hsh}]",
            "transform 1: method: 'hsh' is not",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_path_and_what_is_allowed(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(written(tmp_path, text + "\n"))


def test_tables_may_lie_in_a_catalog_and_far_away(tmp_path: Path) -> None:
    sink = 'iceberg, catalog: {type: rest, uri: "${URI}"}, location: "far/{table}"'
    text = LEAST.replace("delta", sink)
    found = load(written(tmp_path, text), {"URI": "x"})
    assert isinstance(found.sink, IcebergSink)
    assert found.sink.catalog == {"type": "rest", "uri": "x"}
    assert found.sink.location == f"{tmp_path}/far/{{table}}"
    with pytest.raises(UnknownNameError, match="catalog"):
        load(written(tmp_path, LEAST.replace("delta", "iceberg, catalogs: {}")))


def test_soft_deletes_are_for_rows_of_delta_and_iceberg(tmp_path: Path) -> None:
    options = "{deletes: soft, tables: {past: {mode: history}, bare: {deletes: hard}}}"
    modes = modes_of(load(written(tmp_path, f"{LEAST}options: {options}\n")).options)
    tables = [TableId(None, None, name) for name in ("past", "bare", "orders")]
    kept = {str(table): modes.of(table).keeps_deleted for table in tables}
    assert kept == {"past": False, "bare": False, "orders": True}
    for options in ("{deletes: soft}", "{tables: {a: {deletes: soft}}}"):
        told = LEAST.replace("delta", "hudi")
        assert "hudi" in told
        with pytest.raises(ConfigError, match="Hudi"):
            load(written(tmp_path, f"{told}options: {options}\n"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lineSep": "\r\n"}, "lines end with a line feed"),
        ({"pathGlobFilter": "*.x"}, r"use source\.glob"),
        ({"cleanSource": "burn"}, "off, delete or archive"),
        ({"cleanSource": "archive"}, "needs spark_options.sourceArchiveDir"),
        ({"maxBytesPerTrigger": "much"}, "must be a size"),
        ({"maxFilesPerTrigger": "0"}, "at least 1"),
    ],
)
def test_options_of_sparks_file_source_that_would_read_something_else_are_refused(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        FilesSource(path="in", format="native-json", spark_options=options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "format is missing"),
        ({"rows": RowOptions(), "format": "debezium-json"}, "rows has no format"),
        ({"rows": RowOptions(), "line_format": "value"}, "rows has no format"),
    ],
)
def test_a_files_source_has_messages_of_a_format_or_rows(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        FilesSource(path="in", **options)


def test_rows_of_files_have_the_native_form_and_names_of_their_own() -> None:
    lines, rows = (
        FilesSource(path="in", format="canal-json"),
        FilesSource(path="in", rows=RowOptions()),
    )
    assert rows.format == "native-json"
    assert "csv" in rows.name_pattern
    assert "jsonl.zst" in lines.name_pattern
    assert "parquet" in lines.name_pattern
    assert "csv" not in lines.name_pattern
    assert FilesSource(path="in", rows=RowOptions(), glob="*.csv").name_pattern == "*.csv"


def test_options_of_sparks_file_source_that_make_sense_are_taken() -> None:
    told = {
        "latestFirst": "TRUE",
        "cleansource": "Archive",
        "sourceArchiveDir": "done",
        "maxFilesPerTrigger": "7",
        "maxBytesPerTrigger": "2k",
        "maxFileAge": "7d",
        "fs.s3a.endpoint": "x",
    }
    one = FilesSource(path="in", format="native-json", spark_options=told)
    assert (one.is_newest_first, one.clean, one.archive) == (True, "archive", "done")
    assert (one.max_files, one.max_bytes) == (7, 2048)
    assert one.hadoop == {"fs.s3a.endpoint": "x"}
    plain = FilesSource(path="in", format="native-json", max_files_per_batch=3)
    assert (plain.max_files, plain.max_bytes, plain.clean) == (3, None, "off")
