# SPDX-License-Identifier: Apache-2.0
"""Messages of Spark lose the values of rows that they quote, whatever characters these have."""

import re

import pytest

from changelane.spark.runtime.jars import LOG4J

redact = pytest.importorskip("changelane.spark.runtime.redact", exc_type=ImportError)

VALUES = ("SECRET", "it's SECRET", "a\nSECRET\nb", "SECRET 'SECRET' SECRET", 'a "SECRET', "a\\")
MESSAGES = (
    '[CAST_INVALID_INPUT] The value {sql} of the type "STRING" cannot be cast to "INT"',
    "[CONVERSION_INVALID_INPUT] The value {sql} ('f') of the type \"STRING\" cannot be converted",
    "[DELTA_VIOLATE] CHECK constraint c violated by row with values:\n - a : {raw}\n - b : {raw}",
)
STACK = "\n\tat org.apache.spark.Somewhere$.apply(Somewhere.scala:1)"


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("message", MESSAGES)
def test_no_part_of_a_value_stays_in_a_message(message: str, value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    text = message.format(sql=f"'{escaped}'", raw=value)
    for error_text in (text, text + STACK, f"Job aborted: {text}{STACK}\nCaused by: {text}{STACK}"):
        assert "SECRET" not in redact.without_values(error_text)
        assert "SECRET" not in redact.reason_of(RuntimeError(error_text))
        assert redact.without_values(error_text).count("Somewhere.scala") == error_text.count(STACK)


def test_a_quoted_value_with_an_escaped_quote_is_one_value() -> None:
    assert redact.without_values(r"Text 'it\'s SECRET' could not be parsed") == (
        "Text '...' could not be parsed"
    )


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("message", MESSAGES)
def test_the_pattern_of_the_log_leaves_values_out(message: str, value: str) -> None:
    (line,) = (line for line in LOG4J.read_text().splitlines() if "pattern = " in line)
    regex, replacement = line.removesuffix("}").rpartition("}{")[::2]
    regex = regex.rpartition("}{(?s)")[2].replace("\\\\", "\\")  # of a file of properties
    pattern, group = re.compile(regex, re.DOTALL), replacement.replace("$", "\\")
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    text = message.format(sql=f"'{escaped}'", raw=value)
    for error_text in (text, text + STACK, f"Job aborted: {text}{STACK}\nCaused by: {text}{STACK}"):
        assert "SECRET" not in pattern.sub(group, error_text)
        assert pattern.sub(group, error_text).count("Somewhere.scala") == error_text.count(STACK)


def test_the_log_has_each_exception_once_through_its_pattern() -> None:
    assert "alwaysWriteExceptions = false" in LOG4J.read_text()
