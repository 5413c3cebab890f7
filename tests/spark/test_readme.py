# SPDX-License-Identifier: Apache-2.0
"""The Spark examples of the README print what it says."""

import contextlib
import io
import re
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\s*```text\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_spark_examples_of_the_readme_print_what_it_says(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    examples = [
        found for found in EXAMPLE.findall(README.read_text("utf-8")) if "spark" in found[0]
    ]
    assert examples
    for code, shown in examples:
        printed = io.StringIO()
        names: dict = {}
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "README.md", "exec"), names)
        assert names["spark"].sparkContext is spark.sparkContext
        assert printed.getvalue().strip() == shown.strip()
