"""A lost checkpoint: what applying the whole source again would do."""

import pytest

from changelane.errors import ConfigError
from changelane.pipeline.options import Options, TableOptions
from changelane.spark.state.offset_log import lost_checkpoint_warning

POSITIONS = frozenset({"mysql"})


@pytest.mark.parametrize(
    ("options", "positions"),
    [
        (Options(), frozenset()),
        (Options(mode="append"), POSITIONS),
        (Options(tables={"t": TableOptions(mode="append")}), POSITIONS),
    ],
)
def test_tables_that_know_repeated_events_are_written_again(options, positions) -> None:
    assert "whole source is read" in lost_checkpoint_warning("/c", options, positions)


@pytest.mark.parametrize(
    ("options", "positions", "tables"),
    [
        (Options(tables_without_key="append"), POSITIONS, "a table without a key would"),
        (Options(mode="append"), frozenset(), "a table of the mode `append` would"),
        (Options(mode="append"), frozenset({"time"}), "a table of the mode `append` would"),
        (
            Options(tables_without_key="append", tables={"t": TableOptions(mode="append")}),
            frozenset(),
            "a table without a key and a table of the mode `append` would",
        ),
    ],
)
def test_tables_that_would_get_rows_twice_stop_the_run(options, positions, tables) -> None:
    with pytest.raises(ConfigError, match=tables):
        lost_checkpoint_warning("/c", options, positions)
