"""The shape of the house: who may import whom, and what an import costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import daskclust

PACKAGE = Path(daskclust.__file__).parent
ROOT = Path(__file__).resolve().parents[1]

#: The only places that may import Dask: what runs it, what reads and makes data, what starts it.
KNOW_DASK = {
    "core.engine",
    "core.storage",
    "config",
    "datasets",
    "testing",
    "scenes",
    "tables",
    "app",
}
#: Conversions and checks of what users pass, before the engine sees it.
KNOW_DASK_ARRAYS = {"core/estimator/arrow.py", "core/estimator/validation.py"}
#: Modules that may import the package itself, inside functions only.
USE_THE_WHOLE = {"__main__", "app", "core.persistence"}
#: Modules that every other may import.
FOR_ALL = {"exceptions", "config"}


def _name(path: Path) -> str:
    """Dotted name below the package; "" for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@dataclass(frozen=True)
class Import:
    """One module of the package imports another; names are below the package."""

    importer: str
    imported: str
    deferred: bool

    @property
    def edge(self) -> tuple[str, str]:
        return self.importer, self.imported


def _room(name: str) -> str:
    """Folder of a module: inside the core, the folder there."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "core" and len(parts) > 1 else parts[0]


def _wing(room: str) -> str:
    return room.split(".")[0]


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _absolute(path: Path) -> Iterator[tuple[str, bool]]:
    """Dotted names that a file imports, and whether a function has to run for it."""
    nodes = [(node, False) for node in _parsed(path).body]
    while nodes:
        node, inside = nodes.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, inside
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrow"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", inside
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        nodes += [(child, inside) for child in ast.iter_child_nodes(node)]


def _imports(name: str, path: Path) -> Iterator[Import]:
    """Modules of the package that a file imports, at its top or inside functions."""
    for full, deferred in _absolute(path):
        package, _, below = full.partition(".")
        if package != "daskclust":
            continue
        # The longest name that is a module; what follows is something in it.
        while below and below not in MODULES:
            below = below.rpartition(".")[0]
        if below != name:
            yield Import(name, below, deferred)


@cache
def _all_imports() -> list[Import]:
    """Not read when tests are collected: that would cost each run two seconds."""
    return [found for name, path in MODULES.items() for found in _imports(name, path)]


def _may_import(part: str, prefix: str = "") -> dict[str, set[str]]:
    """Read the folders of one table of ARCHITECTURE.md."""
    table: dict[str, set[str]] = {}
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for line in text.split(f"### {part}\n")[1].split("\n#")[0].splitlines():
        row = re.fullmatch(r"\| `(\w+)` \| .*\.(?: [A-Z].*\.)? \|(.*)\|", line)
        if row is not None:
            table[prefix + row[1]] = {prefix + name for name in re.findall(r"`(\w+)`", row[2])}
    return table


TOP, CORE = _may_import("Top level"), _may_import("The core", "core.")
FAMILIES, APPLICATIONS = _may_import("Families"), _may_import("Applications")
MAY_IMPORT = {**TOP, **CORE, **FAMILIES, **APPLICATIONS}
#: Plots are drawn on demand: matplotlib is loaded by the functions that draw.
DRAWN_ON_DEMAND = ("selection", "plotting")


def _circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the nodes of a circle, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _graph(edges: Iterator[tuple[str, str]]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for importer, imported in edges:
        graph.setdefault(importer, set()).add(imported)
    return graph


def test_every_folder_is_in_the_tables() -> None:
    rooms = {_room(name) for name in MODULES} - {"", "__main__", "core"}
    assert rooms == set(MAY_IMPORT)
    allowed = {room for rooms in MAY_IMPORT.values() for room in rooms}
    assert allowed <= rooms | {"core"}
    assert not _circle(MAY_IMPORT)


def test_imports_go_one_way() -> None:
    wrong = {
        found.edge
        for found in _all_imports()
        if found.imported
        and (room := _room(found.importer)) in MAY_IMPORT
        and (other := _room(found.imported)) not in MAY_IMPORT[room] | {room} | FOR_ALL
        and not (_wing(other) == "core" and "core" in MAY_IMPORT[room])
        and (_wing(room), other) != ("core", "core.array_types")
        and other != "_version"
    }
    assert not wrong, f"not in the tables of ARCHITECTURE.md: {wrong}"


def test_the_wall() -> None:
    below = {
        "core": {"core"},
        "tables": {"core", "preprocessing", "tables"},
        "scenes": {"core", "scenes", "colors"},
    }
    families = list(FAMILIES)
    for at, family in enumerate(families):
        below[family] = {"core", "colors", "plotting", *families[: at + 1]}
    below["explain"].add("scenes")  # profiles of the pixels of a cube
    assert {"cluster", "density", "selection"} <= set(families)
    wrong = {
        found.edge
        for found in _all_imports()
        if (wing := _wing(_room(found.importer))) in below
        and found.imported
        and _wing(_room(found.imported)) not in below[wing] | FOR_ALL | {"_version"}
    }
    assert not wrong
    early = {found.edge for found in _all_imports() if not found.deferred}
    assert not {edge for edge in early if (_room(edge[0]), _room(edge[1])) == DRAWN_ON_DEMAND}


def test_only_the_edges_import_the_whole_package_and_only_inside_functions() -> None:
    users = {found for found in _all_imports() if not found.imported}
    assert {_room(found.importer) for found in users} <= USE_THE_WHOLE
    assert all(found.deferred for found in users)


def _private(name: str) -> bool:
    return any(part.startswith("_") for part in name.split(".")[1:])


def test_no_folder_imports_an_underscore_module_of_another() -> None:
    wrong = {
        found.edge
        for found in _all_imports()
        if _private(found.imported) and _wing(_room(found.importer)) != _wing(_room(found.imported))
    }
    assert not wrong, f"make public what others need: {wrong}"


def test_there_is_no_circle_of_files_or_of_folders() -> None:
    inner = [found.edge for found in _all_imports() if found.imported]
    assert _circle(_graph(iter(inner))) == []
    rooms = ((_room(a), _room(b)) for a, b in inner if _room(a) != _room(b))
    assert _circle(_graph(rooms)) == []
    # A search that cannot find a circle would pass, too.
    assert set(_circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


def test_only_the_engine_and_the_edges_know_dask() -> None:
    wrong = {
        (name, full)
        for name, path in MODULES.items()
        if _room(name) not in KNOW_DASK and str(path.relative_to(PACKAGE)) not in KNOW_DASK_ARRAYS
        for full, _ in _absolute(path)
        if full.split(".")[0] in ("dask", "distributed")
    }
    assert not wrong


#: What Dask and distributed do not document, by module or attribute; each with a contract test.
UNDOCUMENTED = {
    "dask.base": {"get_scheduler"},
    "dask.core": {"flatten", "get_dependencies", "istask"},
    "dask.optimization": {"cull"},
    "dask._task_spec": None,
    "distributed.protocol.pickle": None,
    "dask.highlevelgraph": None,
}
REACHES = {"__dask_graph__", "__dask_keys__", "scheduler_info"}
#: Asks whether a value is a collection, and gives the scheduler's report to people.
ALLOWED_REACHES = {"core/persistence/schema.py", "app/commands/doctor.py"}


def _reached(path: Path) -> set[str]:
    """Return what a module takes of Dask that Dask does not document."""
    found: set[str] = set()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module in UNDOCUMENTED:
            names, banned = {alias.name for alias in node.names}, UNDOCUMENTED[node.module]
            found |= names if banned is None else names & banned
        elif isinstance(node, ast.Attribute) and node.attr in REACHES:
            found.add(node.attr)
    return found


def test_only_one_module_reaches_beyond_the_api_of_dask() -> None:
    reaches = {str(path.relative_to(PACKAGE)): _reached(path) for path in MODULES.values()}
    assert reaches.pop("core/engine/private_api.py")
    wrong = {
        path: found for path, found in reaches.items() if found and path not in ALLOWED_REACHES
    }
    assert not wrong


#: Names with an underscore that their documentation promises all the same.
PROMISED = {"_replace", "_asdict", "_fields", "_exit", "_getframe", "_meta"}
#: Modules that reach beyond a public API, each with a test of what it takes; and of argparse's
#: parser, what its subclass sees.
SURFACES = {
    "core/engine/private_api.py": "tests/core/engine/test_dask_surface.py",
    "core/estimator/parameters.py": "tests/core/estimator/test_parameters.py",
    "core/storage/private_api.py": "tests/core/storage/test_surface.py",
    "app/commands/console.py": "tests/app/commands/test_console.py",
}


def _underscored(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield names with one underscore before them, and whether each is defined here."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    asked = {c.args[1] for c in calls if ast.unparse(c.func) in ("getattr", "hasattr")}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, True
        elif isinstance(node, ast.arg | ast.alias):
            yield node.arg if isinstance(node, ast.arg) else node.asname or "", True
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            yield name, isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Attributes that are set by name.
            yield node.value if node.value.isidentifier() else "", node not in asked
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("daskclust"):
            parts = ".".join([node.module or "", *(alias.name for alias in node.names)])
            yield from ((part, False) for part in parts.split("."))


def test_only_contract_modules_reach_beyond_the_api_of_others() -> None:
    found = {
        str(path.relative_to(PACKAGE)): {
            (name, own)
            for name, own in _underscored(_parsed(path))
            if name.startswith("_") and name[1:2].islower()
        }
        for path in MODULES.values()
    }
    own = {name for names in found.values() for name, here in names if here}
    own |= {path.stem for path in MODULES.values()}
    foreign = {
        path: reached
        for path, names in found.items()
        if (reached := {name for name, _ in names} - own - PROMISED)
    }
    for path, test in SURFACES.items():
        assert foreign.pop(path), path
        assert (ROOT / test).is_file()
    assert foreign == {}, "in one module with a contract test: see SURFACES"


def test_kernels_do_not_load_dask() -> None:
    names = sorted(n for n in MODULES if _room(n) in ("core.kernels", "core.reduction"))
    code = (
        "import importlib, sys, types\n"
        # The package itself imports the engine: load the kernels without it.
        f"package = types.ModuleType('daskclust'); package.__path__ = [{str(PACKAGE)!r}]\n"
        "sys.modules['daskclust'] = package\n"
        f"for name in {names!r}: importlib.import_module('daskclust.' + name)\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('dask', 'distributed')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_starts_nothing_and_loads_no_extra() -> None:
    code = (
        "import sys\n"
        "import dask.array\n"  # which registers array types of what happens to be installed
        "before = set(sys.modules)\n"
        "import threading; n = threading.active_count()\n"
        "import daskclust\n"
        "new = {m.split('.')[0] for m in set(sys.modules) - before}\n"
        "extra = new & {'distributed', 'matplotlib', 'xarray', 'pandas', 'bokeh', 'zarr'}\n"
        "assert not extra, extra\n"
        "assert threading.active_count() == n\n"
        # Workers import the engine with their first task, then what labels rows, and this is a
        # third of what it takes.
        "import daskclust.core.engine, daskclust.core.kernels.draws\n"
        "import daskclust.scenes, daskclust.datasets, daskclust.core.estimator.row_functions\n"
        "assert not {'sklearn', 'scipy.stats', 'scipy.optimize'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there_and_documented() -> None:
    for name in daskclust.__all__:
        value = getattr(daskclust, name)
        assert name == "__version__" or value.__doc__, name


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        daskclust.no_such_thing  # noqa: B018


def test_names_of_test_files_are_unique() -> None:
    # pytest imports test files by their base name: of two with one name, the second is an error.
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        places.setdefault(path.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_numbers_that_choose_stand_where_the_table_says() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("## What is chosen by cost")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if "`" in line]
    assert len(rows) > 10
    for _, constants, place in rows:
        path = PACKAGE / place.strip(" |`")
        set_there = {
            node.id
            for node in ast.walk(_parsed(path))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        assert set(re.findall(r"`(\w+)`", constants)) <= set_there, place
