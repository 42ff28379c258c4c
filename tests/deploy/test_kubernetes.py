"""The manifests: strictly valid, and saying what the README promises."""

from __future__ import annotations

import copy
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

jsonschema = pytest.importorskip("jsonschema", reason="needs the extra `deploy`")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs the extra `deploy`")

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())


def load_all(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def patched(document: Any, operations: list[dict[str, Any]]) -> Any:
    """Apply a JSON patch (RFC 6902: add and replace are all that is used)."""
    document = copy.deepcopy(document)
    for operation in operations:
        *path, last = operation["path"].lstrip("/").split("/")
        place = document
        for part in path:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if isinstance(place, list):
            if last == "-":
                assert operation["op"] == "add"
                place.append(operation["value"])
            else:
                assert operation["op"] == "replace"
                place[int(last)] = operation["value"]
        else:
            assert operation["op"] == "add" or last in place, operation
            place[last] = operation["value"]
    return document


def build(folder: Path) -> list[dict[str, Any]]:
    """Do what kustomize does, as far as these overlays need it; unknown keys fail."""
    kustomization = load_all(folder / "kustomization.yaml")[0]
    assert set(kustomization) <= {"apiVersion", "kind", "resources", "patches", "labels"}
    found: list[dict[str, Any]] = []
    for resource in kustomization["resources"]:
        path = (folder / resource).resolve()
        found += build(path) if path.is_dir() else load_all(path)
    for patch in kustomization.get("patches", []):
        assert set(patch) == {"path", "target"}
        target = patch["target"]
        hits = [
            i
            for i, document in enumerate(found)
            if document["kind"] == target["kind"] and document["metadata"]["name"] == target["name"]
        ]
        assert len(hits) == 1
        found[hits[0]] = patched(found[hits[0]], load_all(folder / patch["path"])[0])
    return found


def custom_schema(kind: str) -> dict[str, Any]:
    operator = pytest.importorskip("dask_kubernetes.operator", reason="needs the extra `deploy`")
    # As the chart installs them: references resolved.
    for path in Path(operator.__file__).parent.rglob("crds/*.yaml"):
        for document in load_all(path):
            if document["spec"]["names"]["kind"] == kind:
                return document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    raise AssertionError(f"no definition of {kind}")


def strict(schema: Any) -> Any:
    """Refuse what a schema does not name, as the API server prunes it without a word."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: strict(value) for key, value in schema.items()}
    if (
        isinstance(schema.get("properties"), dict)
        and "additionalProperties" not in schema
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        out["additionalProperties"] = False
    return out


def check(document: dict[str, Any]) -> None:
    if document["apiVersion"].startswith("kubernetes.dask.org/"):
        schema = strict(custom_schema(document["kind"]))
        # The schema of a resource leaves its head to Kubernetes.
        body = {key: v for key, v in document.items() if key in ("spec",)}
        schema["properties"] = {k: v for k, v in schema["properties"].items() if k == "spec"}
        schema.pop("required", None)
        # `int-or-string` has no type of its own in JSON schema.
        jsonschema.Draft7Validator(schema).validate(body)
        return
    kubernetes_validate.validate(document, "1.29", strict=True)


@pytest.mark.parametrize("name", ["base", *OVERLAYS])
def test_every_manifest_is_strictly_valid(name):
    folder = FOLDER / "base" if name == "base" else FOLDER / "overlays" / name
    documents = build(folder)
    assert {document["kind"] for document in documents} >= {"DaskJob", "NetworkPolicy"}
    for document in documents:
        check(document)


def test_unknown_fields_fail():
    (job,) = (d for d in build(FOLDER / "base") if d["kind"] == "DaskJob")
    job["spec"]["job"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(jsonschema.ValidationError, match="imagePullPolice"):
        check(job)
    (policy,) = (d for d in build(FOLDER / "base") if d["kind"] == "NetworkPolicy")
    policy["spec"]["ingres"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        check(policy)


def bytes_of(text: str) -> float:
    units = {"MiB": 2**20, "GiB": 2**30, "Mi": 2**20, "Gi": 2**30}
    for unit, factor in units.items():
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise AssertionError(text)


@pytest.mark.parametrize("name", ["base", *OVERLAYS])
def test_pods_are_restricted_and_workers_know_their_memory(name):
    folder = FOLDER / "base" if name == "base" else FOLDER / "overlays" / name
    (job,) = (d for d in build(folder) if d["kind"] == "DaskJob")
    cluster = job["spec"]["cluster"]["spec"]
    pods = [job["spec"]["job"]["spec"], cluster["worker"]["spec"], cluster["scheduler"]["spec"]]
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["terminationGracePeriodSeconds"] >= 10
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert container["resources"]["limits"]["memory"]
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted <= {volume["name"] for volume in pod["volumes"]}
    worker = pods[1]["containers"][0]
    (limit,) = (a.partition("=")[2] for a in worker["args"] if a.startswith("--memory-limit"))
    share = bytes_of(limit) / bytes_of(worker["resources"]["limits"]["memory"])
    assert 0.85 <= share <= 0.92
    assert worker["resources"]["limits"]["memory"] == worker["resources"]["requests"]["memory"]
    (checkpoint,) = (
        a.partition("=")[2]
        for a in pods[0]["containers"][0]["args"]
        if a.startswith("--checkpoint")
    )
    claims = {v["name"] for v in pods[0]["volumes"] if "persistentVolumeClaim" in v}
    mounts = {m["mountPath"]: m["name"] for m in pods[0]["containers"][0]["volumeMounts"]}
    assert mounts[str(Path(checkpoint).parent)] in claims


def test_no_secret_is_written_down():
    for path in FOLDER.rglob("*.yaml"):
        for document in load_all(path):
            if isinstance(document, dict):
                assert document.get("kind") != "Secret", path


def test_the_images_versions_satisfy_the_package():
    from packaging.requirements import Requirement

    tomllib = pytest.importorskip("tomllib")
    root = FOLDER.parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    pinned = dict(
        line.split("==")
        for line in (FOLDER / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    pinned = {name.lower(): version for name, version in pinned.items()}
    for text in project["dependencies"]:
        requirement = Requirement(text)
        assert pinned[requirement.name.lower()] in requirement.specifier, text


def _others_may_run(program: str) -> bool:
    path = Path(program).resolve()
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in [path, *path.parents])


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser may become another user")
@pytest.mark.skipif(
    not _others_may_run(sys.executable), reason="other users may not run this Python"
)
def test_the_entry_command_runs_for_another_user_who_may_write_nowhere(tmp_path):
    """As in the image: user 10001, package and home read-only, one folder to write to."""
    package = tmp_path / "image" / "daskclust"
    source = FOLDER.parents[1] / "daskclust"
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    entry = tmp_path / "image" / "entrypoint.sh"
    shutil.copy(FOLDER / "entrypoint.sh", entry)
    cache = tmp_path / "image" / "numba-cache"
    cache.mkdir()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    shutil.chown(scratch, 10001, 10001)
    for path in [tmp_path, *tmp_path.parents]:
        if path != Path("/") and path.stat().st_uid == 0:
            path.chmod(path.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path / "image"),
        "TMPDIR": str(scratch),
        "PYTHONPATH": str(tmp_path / "image"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(scratch / "numba-cache"),
        "DASKCLUST_IMAGE_CACHE": str(cache),
        # What the operator adds.
        "DASK_SCHEDULER_ADDRESS": "tcp://daskclust-fit-scheduler.default.svc.cluster.local:8786",
        "DASK_WORKER_NAME": "daskclust-fit-default-worker-1",
    }
    done = subprocess.run(
        ["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", "sh", str(entry),
         sys.executable, "-m", "daskclust", "demo", "--help"],
        env=environment,
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "usage: daskclust demo" in done.stdout
    assert (scratch / "numba-cache").is_dir()
