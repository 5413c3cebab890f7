"""Of two runs that begin at the same moment, one goes on."""

from collections.abc import Mapping
from typing import Any

import pytest

from changelane.spark.state.fencing import FencedError, create_fencing_token, is_of_others


class Properties:
    """Properties of one table, read by a run before another one's are written."""

    def __init__(self, *, has_one_writer: bool = False) -> None:
        self.has_one_writer = has_one_writer
        self.held: dict[str, str] = {}
        self.meanwhile: Any = None

    def properties(self, table: str) -> dict[str, str]:
        del table
        return dict(self.held)

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None:
        del table
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            meanwhile()
        self.held.update(properties)


def test_a_run_whose_number_another_one_took_stops():
    lake: Any = Properties()
    first: list[Any] = []
    lake.meanwhile = lambda: first.append(create_fencing_token(lake, "side", "shop"))
    second = create_fencing_token(lake, "side", "shop")
    assert second.number == first[0].number
    second.check(lake.properties("side"))
    with pytest.raises(FencedError):
        first[0].check(lake.properties("side"))
    # a table that the first one wrote holds no token, and does not stop the second
    second.check(first[0].properties)


@pytest.mark.parametrize(
    ("writer", "has_one_writer", "is_other"),
    [
        ("shop", False, False),
        ("other", False, True),
        ("shop", True, False),
        ("other", True, False),
        (None, False, False),
    ],
)
def test_a_table_of_a_folder_with_one_number_is_of_each_pipeline(
    writer: str | None, has_one_writer: bool, is_other: bool
):
    lake: Any = Properties(has_one_writer=has_one_writer)
    token = None if writer is None else create_fencing_token(lake, "side", writer)
    properties = {"table": "t"} | ({} if token is None else token.properties)
    assert is_of_others(properties, "shop") == is_other
