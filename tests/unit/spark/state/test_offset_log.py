"""A lost checkpoint: what applying the whole source again would do."""

import pytest

from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.kafka_source import KafkaSource
from changelane.pipeline.lake_sinks import DeltaSink
from changelane.pipeline.options import Options, TableOptions
from changelane.spark.state.offset_log import lost_checkpoint_warning

POSITIONS = "maxwell-json"
TIMES = "lindorm-json"
NONE = "canal-json"


def pipeline_of(options: Options, source_format: str, starting_offsets="earliest") -> Pipeline:
    source = KafkaSource(
        bootstrap_servers="broker:9092",
        topics="t",
        format=source_format,
        starting_offsets=starting_offsets,
    )
    return Pipeline(name="shop", source=source, sink=DeltaSink(path="/lake"), options=options)


@pytest.mark.parametrize(
    ("options", "source_format"),
    [
        (Options(), NONE),
        (Options(mode="append"), POSITIONS),
        (Options(tables={"t": TableOptions(mode="append")}), POSITIONS),
    ],
)
def test_tables_that_know_repeated_events_are_written_again(options, source_format) -> None:
    for starts in ("earliest", {"t": {0: 7}}):
        pipeline = pipeline_of(options, source_format, starts)
        assert "whole source is read" in lost_checkpoint_warning(pipeline)


@pytest.mark.parametrize(
    ("options", "source_format", "tables"),
    [
        (Options(tables_without_key="append"), POSITIONS, "a table without a key would"),
        (Options(mode="append"), NONE, "a table of the mode `append` would"),
        (Options(mode="append"), TIMES, "a table of the mode `append` would"),
        (
            Options(tables_without_key="append", tables={"t": TableOptions(mode="append")}),
            NONE,
            "a table without a key and a table of the mode `append` would",
        ),
    ],
)
def test_tables_that_would_get_rows_twice_stop_the_run(options, source_format, tables) -> None:
    with pytest.raises(ConfigError, match=tables):
        lost_checkpoint_warning(pipeline_of(options, source_format))


def test_messages_that_would_be_skipped_stop_the_run() -> None:
    with pytest.raises(ConfigError, match="latest would skip the messages after them"):
        lost_checkpoint_warning(pipeline_of(Options(), POSITIONS, "latest"))
