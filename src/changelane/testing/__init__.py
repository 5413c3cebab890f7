# SPDX-License-Identifier: Apache-2.0
"""The conformance kit: what every format has to pass, for our formats and for those of others.

A format of your own passes it from your own tests::

    import pytest
    from changelane import get_codec
    from changelane.testing import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_acme_conforms(check):
        check(get_codec("acme-json"))

Golden files and pairs of formats: :mod:`changelane.testing.golden` describes the files, and
``tests/conformance`` of this project shows the tests. Needs Hypothesis (``changelane[dev]``).
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
