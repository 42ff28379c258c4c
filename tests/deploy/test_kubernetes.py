"""The manifests: strictly valid, and saying what the README promises."""

from __future__ import annotations

import os
import shutil
import subprocess
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


def build(folder: Path) -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        if folder.name != "base":
            pytest.skip("overlays need kubectl")
        paths = [path for path in folder.glob("*.yaml") if path.name != "kustomization.yaml"]
        return [document for path in paths for document in load_all(path)]
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.mark.parametrize(
    ("codes", "tries", "code", "made"),
    [
        ([0], 5, 0, 1),
        ([1, 1, 0], 5, 0, 3),
        ([1, 137, 1], 3, 1, 3),
        ([2, 0], 5, 2, 1),
    ],
)
def test_what_is_tried_again(codes, tries, code, made, tmp_path):
    command = tmp_path / "command.sh"
    command.write_text(
        f"echo x >>{tmp_path}/made; set -- {' '.join(map(str, codes))}\n"
        f'shift $(($(wc -l <{tmp_path}/made) - 1)); exit "$1"\n'
    )
    done = subprocess.run(
        ["sh", str(FOLDER / "entrypoint.sh"), "sh", str(command)],
        env={
            "PATH": os.environ["PATH"],
            "TMPDIR": str(tmp_path),
            "DASKCLUST_TRIES": str(tries),
            "DASKCLUST_PAUSE": "0",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code
    assert len((tmp_path / "made").read_text().split()) == made
    assert ("given up" in done.stderr) == (tries > 1 and code == 1)


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
