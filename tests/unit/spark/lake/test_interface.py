"""Which lakes changelane sees to, and which do it themselves."""

import pytest

from changelane.spark.lake.delta import Delta
from changelane.spark.lake.hudi import Hudi
from changelane.spark.lake.iceberg import Iceberg
from changelane.spark.lake.interface import MaintainedLake


@pytest.mark.parametrize(("kind", "is_kept"), [(Delta, True), (Iceberg, True), (Hudi, False)])
def test_a_lake_with_all_the_work_of_maintenance_is_kept(kind: type, is_kept: bool) -> None:
    lake = kind.__new__(kind)
    lake.spark = None
    assert isinstance(lake, MaintainedLake) is is_kept
