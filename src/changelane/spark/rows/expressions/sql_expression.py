# SPDX-License-Identifier: Apache-2.0
"""SQL expressions that users write over the columns of a row: checked, and evaluated safely.

A row that an expression fails for (a division by zero, a text that is no number) must neither stop
a batch nor be told in an error, and ANSI mode must stay on, or sums would silently wrap. So the
expression is evaluated inside Spark's own ``TryEval``, which makes NULL of what fails. It is the
body of a lambda over the row, because Spark evaluates common parts of other expressions ahead of
them, outside of ``TryEval``; for the same reason a column of the row never meets one of ours.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql.types import DataType, StructType

from changelane.errors import ConfigError
from changelane.spark.runtime.sql import quoted

_ROW: Final = "_changelane_one"
_VALUE: Final = "v"
_FORBIDDEN_GROUPS: Final = {
    "agg_funcs": "aggregates rows",
    "window_funcs": "looks at other rows",
    "generator_funcs": "makes several rows of one",
}
_NONDETERMINISTIC: Final = frozenset(
    """
    aes_encrypt curdate current_catalog current_database current_date current_schema current_time
    current_timestamp current_timezone current_user getdate input_file_block_length
    input_file_block_start input_file_name java_method localtimestamp
    monotonically_increasing_id now rand randn random randstr reflect session_user session_window
    shuffle spark_partition_id try_reflect uniform user uuid version window window_time
    """.split()
)
"""Functions that may say something else when a batch is run again, or that group rows by time."""
_CURRENT_TIME_LITERAL: Final = re.compile(
    r"\b(?:date|timestamp(?:_ntz|_ltz)?)\s*['\"]\s*(?:now|today|tomorrow|yesterday)\b",
    re.IGNORECASE,
)
_FORBIDDEN_NODES: Final = {
    "ScalarSubquery": "has a subquery",
    "Exists": "has a subquery",
    "ListQuery": "has a subquery",
    "InSubquery": "has a subquery",
    "WindowExpression": "looks at other rows",
    "UnresolvedWindowExpression": "looks at other rows",
    "UnresolvedStar": "has a star: name the columns",
    "UnresolvedRegex": "has a pattern of columns: name them",
    "NamedParameter": "has a parameter",
    "PosParameter": "has a parameter",
}
_CLOCK_PREFIXES: Final = ("Current", "Now", "CurDate", "LocalTimestamp")


class SqlExpression:
    """An expression over the columns of a row.

    Args:
        spark: The session.
        text: The expression.
        where: Where it stands, for people: ``transform 2 (filter)``.

    Attributes:
        columns: The columns that it reads, as it spells them.

    Raises:
        ConfigError: It is no expression, or none that says the same whenever it is asked.
    """

    def __init__(self, spark: SparkSession, text: str, where: str) -> None:
        self._where = where
        self._jvm: Any = spark._jvm
        if spark.version.startswith("3."):
            raise ConfigError(f"{where}: SQL expressions need Spark 4")
        try:
            state = spark._jsparkSession.sessionState()
            self._parser: Any = state.sqlParser()
            self._registry: Any = state.functionRegistry()
        except (AttributeError, Py4JError):
            msg = f"{where}: SQL expressions need a session with a JVM, not Spark Connect"
            raise ConfigError(msg) from None
        try:
            parsed = self._parser.parseExpression(text)
        except PySparkException as error:
            condition = str(error.getCondition() or "").lower().replace("_", " ")
            raise ConfigError(f"{where} is no SQL expression ({condition})") from None
        if _CURRENT_TIME_LITERAL.search(text):
            self._reject("tells the time")
        starts: list[int] = []
        names: dict[str, None] = {}
        for reference in _walk(parsed):
            self._check(reference)
        for reference in _references(parsed, frozenset()):
            self._check_name(reference.nameParts())
            starts.append(reference.origin().startIndex().get())
            names[reference.nameParts().apply(0)] = None
        self.columns: Final = tuple(names)
        if not names:
            self._reject("reads no column")
        prefixed = text
        for start in sorted(starts, reverse=True):
            prefixed = f"{prefixed[:start]}{quoted(_ROW)}.{prefixed[start:]}"
        self._text = prefixed

    def _reject(self, why: str) -> None:
        msg = f"{self._where} {why}; an expression is over the columns of one row"
        raise ConfigError(f"{msg}, and says the same whenever a batch is run again")

    def _check(self, node: Any) -> None:
        """Refuse a part of the expression."""
        kind = _class_name(node)
        if why := _FORBIDDEN_NODES.get(kind):
            self._reject(why)
        if kind != "UnresolvedFunction":
            return
        parts = node.nameParts()
        name = str(parts.apply(parts.size() - 1)).lower()
        function = self._registry.lookupFunction(
            self._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
        )
        if not function.isDefined() or str(function.get().getSource()) != "built-in":
            raise ConfigError(f"{self._where} has {name!r}, which is no function of Spark's own")
        if why := _FORBIDDEN_GROUPS.get(str(function.get().getGroup())):
            self._reject(f"has {name}, which {why}")
        if name in _NONDETERMINISTIC or (name == "unix_timestamp" and node.children().size() == 0):
            self._reject(f"has {name}, which another run answers otherwise")

    def _check_name(self, parts: Any) -> None:
        """Refuse a clock, which is asked without parentheses, too."""
        name = str(parts.apply(0)).lower()
        if (
            parts.size() == 1
            and name in _NONDETERMINISTIC
            and name.startswith(("current_", "localtime"))
        ):
            self._reject(f"has {name}, which another run answers otherwise")

    def evaluate(self, row: str) -> Column:
        """Return the outcome over a column that holds rows: a struct of ``v``, NULL = it failed.

        Args:
            row: The name of the column, a struct with at least the :attr:`columns`.
        """
        from pyspark.sql.classic.column import Column as Classic

        catalyst = self._jvm.org.apache.spark.sql.catalyst.expressions
        body = f"named_struct('{_VALUE}', ({self._text}\n))"
        text = f"element_at(transform(array({quoted(row)}), {quoted(_ROW)} -> {body}), 1)"
        tried = catalyst.TryEval(self._parser.parseExpression(text))
        column = self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(tried)
        return Classic(column)

    def result_type(self, spark: SparkSession, row: StructType) -> DataType:
        """Return the type of its values over rows of a type.

        Raises:
            ConfigError: It does not fit these columns.
        """
        frame = spark.createDataFrame([], StructType().add("r", row))
        try:
            result = frame.select(self.evaluate("r").alias("made"))
            (resolved,) = _elements(result._jdf.queryExecution().analyzed().expressions())
        except PySparkException as error:
            condition = str(error.getCondition() or "").lower().replace("_", " ")
            msg = f"{self._where} does not fit the types of its columns ({condition})"
            raise ConfigError(msg) from None
        clock = any(_class_name(node).startswith(_CLOCK_PREFIXES) for node in _walk(resolved))
        if clock or not resolved.deterministic():
            self._reject("says something else when it is asked again")
        kind = result.schema["made"].dataType
        if not isinstance(kind, StructType):
            raise TypeError(kind)
        return kind[_VALUE].dataType


def _class_name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _elements(sequence: Any) -> Iterator[Any]:
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in _elements(node.children()):
        yield from _walk(child)


def _references(node: Any, bound: frozenset[str]) -> Iterator[Any]:
    """Yield the names of columns; in a lambda the parser takes all names for its variables."""
    kind = _class_name(node)
    if kind == "LambdaFunction":
        own = {str(name.nameParts().apply(0)).lower() for name in _elements(node.arguments())}
        yield from _references(node.function(), bound | own)
        return
    is_free = (
        kind == "UnresolvedNamedLambdaVariable"
        and str(node.nameParts().apply(0)).lower() not in bound
    )
    if is_free or kind == "UnresolvedAttribute":
        yield node
    for child in _elements(node.children()):
        yield from _references(child, bound)
