# SPDX-License-Identifier: Apache-2.0
"""The shape of the code: who may import whom, how large a module may be, what is public."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).resolve().parent
SOURCE = TESTS.parent / "src"
PACKAGE = SOURCE / "changelane"

# A module imports only modules before its own in this list, or of its own package. Imports inside
# functions and under TYPE_CHECKING count; names in a table for importlib do not.
ORDER = """
    reason_codes errors position validation types sql_types schema ddl event message formats codec
    profiles apply transforms schema_registries pipeline conversion data_files datahub capture spark
    cli testing
""".split()

# The packages of spark/, in the same way; all may import the modules directly in spark/.
ROOMS = """
    runtime rows lake state evolution maintenance apply sources run sinks replay check verify
""".split()

# No input or output, no clock, no chance, no logging up to here.
PURE = ORDER[: ORDER.index("transforms") + 1]
IMPURE = set(
    "asyncio http logging multiprocessing os pathlib random shutil socket sqlite3 ssl subprocess "
    "tempfile threading time urllib.request".split()
)

SPARK = {"pyspark", "py4j", "delta"}

MOST_LINES = 500  # style: about 450 lines a module
VAGUE = set(
    "told one found held kept known tells gone mine theirs ours taken made here there other others "
    "rest each what asked wanted met came left seen done until whole few more most built alone "
    "apart anew beside given odd told_as untaken named".split()
)
"""Names that do not say what a variable holds."""
MOST_VAGUE = 0.01  # share; mature data libraries have 0.001 to 0.007
MOST_TYPES = 6  # annotated types that parameters of one name may have
OF_MANY_TYPES = {
    name: reason
    for reason, names in {
        "a value, or a type, of any column": "value values kind",
        "the same thing in the class of each format, sink or layer": (
            "event change message row rows batch block report error options source state entry "
            "fields part parts raw plan table declared"
        ),
        "its names, its values or its bytes": "key columns",
        "the sides of any comparison": "before after first second got new",
    }.items()
    for name in names.split()
}
"""Parameter names that may have more types, with the reason."""

GENERIC_NAMES = {"base", "common", "helpers", "misc", "util", "utils"}
GENERIC_PREFIXES = ("Abstract", "Base")
GENERIC_SUFFIXES = ("Factory", "Helper", "Impl", "Manager", "Util", "Utils")


class Import(NamedTuple):
    """One module that a module of ours imports, by full dotted names."""

    importer: str
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}: imports {self.target}"


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_of(module: str, path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                origin = ".".join([*above, origin] if origin else above)
            for alias in node.names:
                # `from changelane import errors` imports a module, not a name of the facade.
                inner = f"{origin}.{alias.name}"
                yield Import(module, node.lineno, inner if inner in MODULES else origin)


@cache
def imports() -> list[Import]:
    return [found for module, path in MODULES.items() for found in imports_of(module, path)]


def within(target: str, package: str) -> bool:
    return target == package or target.startswith(f"{package}.")


def layer(module: str) -> str:
    """The name in ORDER of the module; the facade `changelane` itself is ''."""
    return module.split(".")[1] if "." in module else ""


def ours(found: Import) -> bool:
    return within(found.target, "changelane")


def test_every_module_has_a_place_in_the_order() -> None:
    layers = {layer(module) for module in MODULES} - {"", "__main__"}
    assert layers <= set(ORDER), f"add to ORDER where it belongs: {sorted(layers - set(ORDER))}"


def test_imports_go_one_way() -> None:
    rank = {name: place for place, name in enumerate(ORDER)}
    wrong = [
        found
        for found in imports()
        if ours(found)
        and layer(found.importer) in rank  # the facade and __main__ may import everything
        and layer(found.target) != layer(found.importer)
        and rank.get(layer(found.target), len(ORDER)) >= rank[layer(found.importer)]
        # the facade is above the library and below the commands
        and not (
            found.target == "changelane" and layer(found.importer) in {"cli", "demo", "testing"}
        )
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_imports_between_the_rooms_of_spark_go_one_way() -> None:
    def room(module: str) -> str:
        return module.split(".")[2] if module.count(".") >= 2 else ""

    inside = [found for found in imports() if within(found.importer, "changelane.spark")]
    wrong = [
        found
        for found in inside
        if room(found.importer) != room(found.target)
        and room(found.target) in ROOMS
        and room(found.importer)  # the facade
        and ROOMS.index(room(found.target))
        > (ROOMS.index(room(found.importer)) if room(found.importer) in ROOMS else -1)
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_no_format_imports_another_format() -> None:
    """But the interface, and the envelope that Debezium's family shares."""
    shared = {"changelane.formats.contract", "changelane.formats.debezium_envelope"}

    def family(module: str) -> str:
        return ".".join(module.split(".")[:3])

    wrong = [
        found
        for found in imports()
        if found.importer.startswith("changelane.formats.")
        and found.target.startswith("changelane.formats.")
        and family(found.target) != family(found.importer)
        and (family(found.target) not in shared or family(found.importer) == min(shared))
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_only_spark_imports_pyspark() -> None:
    wrong = [
        found
        for found in imports()
        if found.target.partition(".")[0] in SPARK and layer(found.importer) != "spark"
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_the_test_kit_needs_no_spark() -> None:
    wrong = [
        found
        for found in imports()
        if layer(found.importer) == "testing" and within(found.target, "changelane.spark")
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_the_core_is_pure() -> None:
    wrong = [
        found
        for found in imports()
        if layer(found.importer) in PURE and any(within(found.target, impure) for impure in IMPURE)
    ]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("module", MODULES)
def test_module_is_short_enough(module: str) -> None:
    lines = len(MODULES[module].read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES, f"{module} has {lines} lines: split it by concept"


def test_names_of_definitions_are_precise() -> None:
    modules = [m for m in MODULES if GENERIC_NAMES & set(m.split("."))]
    classes = [
        f"{module}.{node.name}"
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and (
            node.name.lstrip("_").startswith(GENERIC_PREFIXES)
            or node.name.endswith(GENERIC_SUFFIXES)
        )
    ]
    assert not modules + classes


def test_names_of_variables_are_precise() -> None:
    names: Counter[str] = Counter()
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] += 1
            elif isinstance(node, ast.arg) and node.arg not in {"self", "cls"}:
                names[node.arg] += 1
    vague = {name: count for name, count in names.items() if name in VAGUE}
    share = sum(vague.values()) / names.total()
    assert share <= MOST_VAGUE, f"{share:.2%}: {Counter(vague).most_common(15)}"


def kind_of(annotation: ast.expr) -> str:
    """An annotation without what does not matter here: None, and which collection it is."""
    text = re.sub(r"['\"]", "", ast.unparse(annotation))
    text = re.sub(r"\s*\|\s*(None|Unset)\b", "", text)
    text = re.sub(r"\b(Iterable|Sequence|Collection|Iterator|list|set|frozenset)\[", "many[", text)
    text = re.sub(r"\btuple\[(.*), \.\.\.\]", r"many[\1]", text)
    text = re.sub(r"\b(dict|Mapping)\[", "map[", text)
    return re.sub(r"\b(object|Any)\b", "Any", text)


def test_parameters_of_one_name_have_few_types() -> None:
    types: dict[str, set[str]] = {}
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.arg) and node.annotation is not None:
                types.setdefault(node.arg, set()).add(kind_of(node.annotation))
    many = {name: sorted(kinds) for name, kinds in types.items() if len(kinds) > MOST_TYPES}
    assert many.keys() <= OF_MANY_TYPES.keys(), {n: many[n] for n in many.keys() - OF_MANY_TYPES}
    assert OF_MANY_TYPES.keys() <= many.keys(), "these need no exception any more"


def test_the_page_of_the_architecture_has_the_order_of_imports() -> None:
    page = (TESTS.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    first, second = page.partition("## On Spark")[::2]
    assert re.findall(r"^\| `(\w+)` \|", first, re.MULTILINE) == ORDER
    assert (
        re.findall(r"^\| `(\w+)` \|", second.partition("## Dependencies")[0], re.MULTILINE) == ROOMS
    )


def test_no_document_is_cited_that_readers_do_not_have() -> None:
    citation = re.compile(r"\b[AB]-\d|\b[AB] (section )?\d|\bapply\.md|\bdesign\.md")
    wrong = [
        f"{module}, line {number}: {line.strip()}"
        for module, path in MODULES.items()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if citation.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_reason_codes_are_members_of_their_enum() -> None:
    """A code is written as a member, and each member is used."""
    from changelane.reason_codes import ReasonCode

    literals, used = [], set()
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "code":
                if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                    literals.append(f"{module}, line {node.value.lineno}: {node.value.value!r}")
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ReasonCode":
                used.add(node.attr)
    assert not literals
    assert used == set(ReasonCode.__members__)
    assert all(code.cause.endswith(".") and code.fix.endswith(".") for code in ReasonCode)


def test_public_names_are_pinned() -> None:
    """Whoever changes the public names changes public_names.txt, and the changelog, too."""
    import changelane

    text = (TESTS / "public_names.txt").read_text(encoding="utf-8")
    pinned = {line for raw in text.splitlines() if (line := raw.partition("#")[0].strip())}
    public = set(getattr(changelane, "__all__", ()))
    assert public == pinned, (
        f"not in public_names.txt: {sorted(public - pinned)}; "
        f"not in changelane.__all__: {sorted(pinned - public)}"
    )
    assert all(hasattr(changelane, name) for name in pinned)
