# SPDX-License-Identifier: Apache-2.0
"""The conformance kit: the checks that every format must pass, also third-party formats.

Tests of a third-party format use it so::

    import pytest
    from changelane import get_codec
    from changelane.testing import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_acme_conforms(check):
        check(get_codec("acme-json"))

:mod:`changelane.testing.golden` describes golden files, and ``tests/conformance`` of this project
has the tests for golden files and pairs of formats. The kit needs Hypothesis (``changelane[dev]``).
"""

from changelane.testing import golden
from changelane.testing.conformance import (
    CHECKS,
    EVENT_CHECKS,
    MALFORMED_CHECKS,
    SUITE_CHECKS,
    ConformanceError,
    check_decode_golden,
    check_encode_golden,
    check_minimum,
    check_pair,
    check_spoilt_golden,
)
from changelane.testing.event_strategies import events
from changelane.testing.impossible_events import wild_events
from changelane.testing.profile_checks import check_profile

__all__ = [
    "CHECKS",
    "EVENT_CHECKS",
    "MALFORMED_CHECKS",
    "SUITE_CHECKS",
    "ConformanceError",
    "check_decode_golden",
    "check_encode_golden",
    "check_minimum",
    "check_pair",
    "check_profile",
    "check_spoilt_golden",
    "events",
    "golden",
    "wild_events",
]
