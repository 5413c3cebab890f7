# SPDX-License-Identifier: Apache-2.0
"""Captured databases into tables, while the engine, Spark and the database are killed with -9.

``make soak`` does the same with more seeds, kills and rows.
"""

import random
from pathlib import Path
from typing import Final

import captured_kills
import pytest
from captured_kills import PRODUCTS, SURVIVED
from pyspark.sql import SparkSession

LAKES: Final = dict(zip(PRODUCTS, ("delta", "iceberg"), strict=True))
KILLS: Final = 6


def test_tables_equal_a_database_after_one_kill_of_each_kind(
    spark: SparkSession, tmp_path: Path
) -> None:
    installed = captured_kills.installed_products()
    if not installed:
        pytest.skip("no database is installed")
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    product = chance.choice(installed)
    tables = ("pairs", "altered", "events")
    with captured_kills.shop_of(product, LAKES[product], tmp_path, tables) as shop:
        runs = [[*chance.sample(SURVIVED, 2), "jvm"]]
        captured_kills.killed_rounds(
            shop, chance, runs, longest_s=2, early_share=0, large_rows=500, altering_share=0.02
        )
        found = captured_kills.differences(spark, shop, tables)
        assert found == [], f"{product}, seed {seed}"


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("product", PRODUCTS)
def test_tables_equal_a_database_after_many_kills(
    spark: SparkSession, tmp_path: Path, product: str
) -> None:
    if product not in captured_kills.installed_products():
        pytest.skip(f"{product} is not installed")
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    with captured_kills.shop_of(product, LAKES[product], tmp_path) as shop:
        runs = captured_kills.drawn_kills(chance, KILLS)
        captured_kills.killed_rounds(
            shop, chance, runs, longest_s=10, large_rows=20_000, altering_share=0.05
        )
        assert captured_kills.differences(spark, shop) == [], f"{product}, seed {seed}"
