"""The shape of the house: who may import whom, and what an import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import daskclust

PACKAGE = Path(daskclust.__file__).parent

#: The arrow: estimators -> engine -> reduction -> kernels.
MAY_IMPORT = {
    "kernels": {"kernels"},
    "reduction": {"kernels", "reduction"},
    "engine": {"kernels", "reduction", "engine", "exceptions", "_warnings"},
}
#: The only places that may know Dask: what runs it, what reads and makes data, what starts it.
KNOW_DASK = {
    "engine",
    "config",
    "cube",
    "datasets",
    "testing",
    "cli",
    "commands",
    "storage",
    "report",
}
#: Checks of the type and shape of what users hand in, before the engine sees it.
KNOW_DASK_ARRAYS = {"estimator/inputs.py"}


def _imports(path: Path) -> set[str]:
    """Dotted names a module imports, at its top or inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrow"
            found.add(node.module or "")
    return found


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_the_import_arrow_never_points_back(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    if room not in MAY_IMPORT:
        return
    own = {
        name.split(".")[1]
        for name in _imports(path)
        if name.startswith("daskclust.") and len(name.split(".")) > 1
    }
    assert own <= MAY_IMPORT[room], f"{path.name} imports {own - MAY_IMPORT[room]}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_the_engine_and_the_edges_know_dask(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    room = relative.parts[0].removesuffix(".py")
    dask = {name for name in _imports(path) if name.split(".")[0] in ("dask", "distributed")}
    if room in KNOW_DASK or str(relative) in KNOW_DASK_ARRAYS:
        return
    assert not dask, f"{relative} imports {dask}"


#: What Dask and distributed do not document, by module or attribute; each with a contract test.
UNDOCUMENTED = {
    "dask.base": {"get_scheduler"},
    "dask.core": {"flatten", "get_dependencies", "istask"},
    "dask.optimization": {"cull"},
    "dask._task_spec": None,
    "dask.highlevelgraph": None,
}
REACHES = {"__dask_graph__", "__dask_keys__", "scheduler_info"}
#: Asks whether a value is a collection, and gives the scheduler's report to people.
ALLOWED_REACHES = {"persistence/schema.py", "commands/doctor.py"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_one_module_reaches_beyond_the_api_of_dask(path: Path) -> None:
    if path.name == "dask_surface.py" or str(path.relative_to(PACKAGE)) in ALLOWED_REACHES:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in UNDOCUMENTED:
            names = {alias.name for alias in node.names}
            banned = UNDOCUMENTED[node.module]
            assert not (names if banned is None else names & banned), f"{path.name}: {names}"
        elif isinstance(node, ast.Attribute):
            assert node.attr not in REACHES, f"{path.name} uses {node.attr}"


def test_kernels_do_not_load_dask() -> None:
    code = (
        "import sys, importlib.util as u\n"
        "import types\n"
        # The package itself imports the engine: load the kernels without it.
        f"package = types.ModuleType('daskclust'); package.__path__ = [{str(PACKAGE)!r}]\n"
        "sys.modules['daskclust'] = package\n"
        "import daskclust.kernels.nearest.assign, daskclust.kernels.constraints\n"
        "import daskclust.kernels.sparsity, daskclust.kernels.moments\n"
        "import daskclust.reduction\n"
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
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there_and_documented() -> None:
    for name in daskclust.__all__:
        value = getattr(daskclust, name)
        assert name == "__version__" or value.__doc__, name


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        daskclust.no_such_thing  # noqa: B018
