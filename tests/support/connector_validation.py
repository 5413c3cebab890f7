# SPDX-License-Identifier: Apache-2.0
"""The validation of a connector's configuration by Debezium itself, in a JVM of its own."""

import json
import subprocess
import sys
from typing import Any

_VALIDATE = """
import json, sys
import jpype
config = json.load(sys.stdin)
jpype.startJVM(classpath=[sys.argv[1] + "/*"], convertStrings=True)
connector = jpype.JClass(config["connector.class"])()
properties = jpype.JClass("java.util.HashMap")(config)
errors = {
    value.name(): list(map(str, value.errorMessages()))
    for value in connector.validate(properties).configValues()
    if value.errorMessages()
}
json.dump(errors, sys.stdout)
"""


def validation_errors(product: str, config: dict[str, str], password: str) -> dict[str, Any]:
    """Return the errors of Debezium's connector, with the file of the secrets replaced."""
    from changelane.spark.runtime.jars import fetch_debezium

    config = {**config, "database.password": password}
    process = subprocess.run(
        [sys.executable, "-c", _VALIDATE, str(fetch_debezium(product))],
        input=json.dumps(config),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    errors: dict[str, Any] = json.loads(process.stdout)
    return errors
