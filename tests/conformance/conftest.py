# SPDX-License-Identifier: Apache-2.0
"""The option that rewrites the golden files."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden",
        choices=["check", "write"],
        default="check",
        help="compare the encoders' golden files (default), or write them anew",
    )


@pytest.fixture(scope="session")
def golden_folder() -> Path:
    return Path(__file__).resolve().parent.parent / "golden"


@pytest.fixture(scope="session")
def writes_golden(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("--golden", default="check") == "write"
