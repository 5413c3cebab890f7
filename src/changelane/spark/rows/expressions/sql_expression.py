# SPDX-License-Identifier: Apache-2.0
"""SQL expressions of users over the columns of a row: checked, and evaluated safely.

An expression may fail for a row, for example by a division by zero. The failure must neither stop
the batch nor quote the row in an error. ANSI mode must stay on, because sums would overflow without
an error. Spark's own ``TryEval`` therefore evaluates the expression and returns NULL on failure.

The expression is the body of a lambda over the row. Outside a lambda Spark would evaluate common
subexpressions first, without ``TryEval``. The lambda also separates the columns of the row from
changelane's own.
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

_ROW: Final = "_changelane_lambda_row"
_VALUE: Final = "v"
_FORBIDDEN_GROUPS: Final = {
    "agg_funcs": "aggregates rows",
    "window_funcs": "reads other rows",
    "generator_funcs": "returns several rows",
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
"""Functions whose value may change when a batch runs again, or that group rows by time."""
_CURRENT_TIME_LITERAL: Final = re.compile(
    r"\b(?:date|timestamp(?:_ntz|_ltz)?)\s*['\"]\s*(?:now|today|tomorrow|yesterday)\b",
    re.IGNORECASE,
)
_FORBIDDEN_NODES: Final = {
    "ScalarSubquery": "has a subquery",
    "Exists": "has a subquery",
    "ListQuery": "has a subquery",
    "InSubquery": "has a subquery",
    "WindowExpression": "reads other rows",
    "UnresolvedWindowExpression": "reads other rows",
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
        where: The name of its option in messages, such as ``transform 2 (filter)``.

    Attributes:
        columns: The columns that it reads, as the expression spells them.

    Raises:
        ConfigError: The text is no expression over one row, or its value may change when a batch
            runs again.
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
            self._reject("depends on the current time")
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
        msg = f"{self._where} {why}: an expression may only read the columns of one row"
        raise ConfigError(f"{msg}, and must have the same value when a batch runs again")

    def _check(self, node: Any) -> None:
        """Reject a forbidden node of the expression."""
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
            msg = f"{self._where} calls {name!r}, which is not a built-in function of Spark"
            raise ConfigError(msg)
        if why := _FORBIDDEN_GROUPS.get(str(function.get().getGroup())):
            self._reject(f"calls {name}, which {why}")
        if name in _NONDETERMINISTIC or (name == "unix_timestamp" and node.children().size() == 0):
            self._reject(f"calls {name}, which has another value in another run")

    def _check_name(self, parts: Any) -> None:
        """Reject a clock without parentheses, such as ``current_date``."""
        name = str(parts.apply(0)).lower()
        if (
            parts.size() == 1
            and name in _NONDETERMINISTIC
            and name.startswith(("current_", "localtime"))
        ):
            self._reject(f"calls {name}, which has another value in another run")

    def evaluate(self, row: str) -> Column:
        """Return the value over a column of rows: a struct of ``v``; NULL = it failed.

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
            ConfigError: The expression does not fit the types of the columns.
        """
        frame = spark.createDataFrame([], StructType().add("r", row))
        try:
            result = frame.select(self.evaluate("r").alias("result"))
            (resolved,) = _elements(result._jdf.queryExecution().analyzed().expressions())
        except PySparkException as error:
            condition = str(error.getCondition() or "").lower().replace("_", " ")
            msg = f"{self._where} does not fit the types of its columns ({condition})"
            raise ConfigError(msg) from None
        clock = any(_class_name(node).startswith(_CLOCK_PREFIXES) for node in _walk(resolved))
        if clock or not resolved.deterministic():
            self._reject("has another value in another run")
        kind = result.schema["result"].dataType
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
    """Yield the references to columns; inside a lambda the parser makes variables of all names."""
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
