# SPDX-License-Identifier: Apache-2.0
"""mypy accepts ``protocols.py``: the types of the public API and of the implementations."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_protocols_and_public_api_have_their_types():
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "tests/typing/protocols.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
