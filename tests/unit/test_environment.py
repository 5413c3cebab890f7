"""The session that `changelane.spark.session` begins."""

import pytest

from changelane.spark.runtime import environment


@pytest.mark.parametrize(("told", "is_ours"), [("", True), ("-Xmx1g -XX:+UseZGC", False)])
def test_a_jvm_has_one_collector(
    monkeypatch: pytest.MonkeyPatch, told: str, *, is_ours: bool
) -> None:
    """A JVM does not start that is told two."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", told)
    options = environment._started(("delta",))["spark.driver.extraJavaOptions"].split()
    assert ("-XX:+UseParallelGC" in options) is is_ours
