# SPDX-License-Identifier: Apache-2.0
"""py4j's gateway to the JVM: names that are looked up once, and maps that are read at once.

py4j asks the JVM for each part of ``jvm.org.apache.spark.sql.functions.col`` whenever it is read,
and the JVM looks for a class of each name in all jars. PySpark does so for every column of an
expression: a small batch of one table has four hundred such lookups.
"""

from typing import Any, Final

import msgspec
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView


class _KeptNames:
    """Keeps the packages, classes and methods that its names mean; fields may change."""

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)  # type: ignore[misc]  # each subclass has py4j's
        kind = type(value)
        if kind is JavaPackage and not name.islower():
            return value  # the class of a jar that a session may add later
        if kind in _KEPT:
            value.__class__ = _KEPT[kind]
        elif kind is not JavaMember:
            return value
        self.__dict__[name] = value
        return value


class _KeptView(_KeptNames, JVMView):  # type: ignore[misc]  # py4j has no types
    pass


class _KeptPackage(_KeptNames, JavaPackage):  # type: ignore[misc]  # py4j has no types
    pass


class _KeptClass(_KeptNames, JavaClass):  # type: ignore[misc]  # py4j has no types
    pass


_KEPT: Final = {JavaPackage: _KeptPackage, JavaClass: _KeptClass}


def keep_names(jvm: Any) -> None:
    """Keep the names that are read from now on from the view of a JVM, ``SparkSession._jvm``."""
    if type(jvm) is JVMView:
        jvm.__class__ = _KeptView


def texts_of(jvm: Any, java_map: Any) -> dict[str, str]:
    """Return the texts of a Java map by their keys.

    py4j's own view of a map calls the JVM for each entry, and ends with an exception.
    """
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    return msgspec.json.decode(mapper.writeValueAsString(java_map), type=dict[str, str])
