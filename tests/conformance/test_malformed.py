# SPDX-License-Identifier: Apache-2.0
"""No message, however spoilt, gets more out of a format than a DecodeError without values."""

from pathlib import Path

import pytest

from changelane import formats, get_codec
from changelane.testing import MALFORMED_CHECKS, check_spoilt_golden, golden

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
NAMES = formats.names()
CAPTURED = [path for name in NAMES for path in golden.captured(GOLDEN, name)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", MALFORMED_CHECKS, ids=lambda check: check.__name__)
def test_format(check, name):
    check(get_codec(name))


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: "/".join(path.parts[-3:]))
def test_spoilt_golden(path):
    case = golden.read_case(path)
    check_spoilt_golden(get_codec(path.parts[-3], **case.options), case)
