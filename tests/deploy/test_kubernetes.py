"""The manifests: strictly valid, and saying what the README promises."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
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
    known = {"apiVersion", "kind", "resources", "patches", "labels", "replacements"}
    assert set(kustomization) <= known
    found: list[dict[str, Any]] = []
    for resource in kustomization["resources"]:
        path = (folder / resource).resolve()
        found += build(path) if path.is_dir() else load_all(path)
    for patch in kustomization.get("patches", []):
        assert set(patch) == {"path", "target"}
        # By kind alone: a patch that goes by a name is lost, without a word, with another name.
        assert set(patch["target"]) == {"kind"}
        hits = [i for i, d in enumerate(found) if d["kind"] == patch["target"]["kind"]]
        assert len(hits) == 1
        found[hits[0]] = patched(found[hits[0]], load_all(folder / patch["path"])[0])
    for replacement in kustomization.get("replacements", []):
        assert replacement["source"]["fieldPath"] == "metadata.name"
        (source,) = (d for d in found if d["kind"] == replacement["source"]["kind"])
        for target in replacement["targets"]:
            (document,) = (d for d in found if d["kind"] == target["select"]["kind"])
            for path in target["fieldPaths"]:
                steps, last = path.removesuffix("]").split(".[")
                place = document
                for step in steps.split("."):
                    place = place[step]
                assert last in place
                place[last] = source["metadata"]["name"]
    return found


def build_by_kubectl(folder: Path) -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def in_order(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for document in documents:
        # Labels that kustomize adds to all.
        labels = document["metadata"].pop("labels", {})
        document["metadata"]["labels"] = {
            key: value for key, value in labels.items() if key != "app.kubernetes.io/name"
        }
        if not isinstance(document.get("kind"), str):
            raise AssertionError(document)
    return sorted(documents, key=lambda d: (d["kind"], d["metadata"]["name"]))


@pytest.mark.parametrize("builder", [build, build_by_kubectl])
@pytest.mark.parametrize("name", ["base", *OVERLAYS])
def test_another_name_changes_nothing_else(name, builder, tmp_path):
    """Patches and the network policy went by the job's name, and were gone with it."""
    folder = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, folder)
    job = folder / "base" / "job.yaml"
    text = job.read_text()
    assert text.count("  name: daskclust-fit\n") == 1
    job.write_text(text.replace("  name: daskclust-fit\n", "  name: scene-2\n"))
    place = Path("base") if name == "base" else Path("overlays") / name
    was, renamed = builder(FOLDER / place), builder(folder / place)
    assert "daskclust-fit" not in json.dumps(renamed)
    assert json.loads(json.dumps(was).replace("daskclust-fit", "scene-2")) == renamed
    if name == "tls":
        assert json.dumps(renamed).count("tls") > 30


@pytest.mark.parametrize("name", ["base", *OVERLAYS])
def test_it_is_built_here_as_kustomize_does(name):
    folder = FOLDER / ("base" if name == "base" else f"overlays/{name}")
    found = in_order(build_by_kubectl(folder))
    mine = in_order(build(folder))
    for document in found:
        if document["kind"] != "DaskJob":
            document["metadata"]["labels"].pop("app.kubernetes.io/part-of", None)
    assert found == mine


@pytest.mark.parametrize("name", ["base", *OVERLAYS])
def test_all_pods_are_covered_by_the_policy_and_know_their_job(name):
    documents = build(FOLDER / ("base" if name == "base" else f"overlays/{name}"))
    (job,) = (d for d in documents if d["kind"] == "DaskJob")
    (policy,) = (d for d in documents if d["kind"] == "NetworkPolicy")
    wanted = policy["spec"]["podSelector"]["matchLabels"]
    # The operator gives the labels of the job to scheduler, workers and the job's pod.
    assert wanted.items() <= job["metadata"]["labels"].items()
    peers = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert peers == wanted
    cluster = job["spec"]["cluster"]["spec"]
    for pod in (
        job["spec"]["job"]["spec"],
        cluster["worker"]["spec"],
        cluster["scheduler"]["spec"],
    ):
        names = [variable["name"] for variable in pod["containers"][0]["env"]]
        assert len(set(names)) == len(names)
        if "DASK_SCHEDULER_ADDRESS" in names:
            # Variables stand for those before them only.
            assert names.index("DASKCLUST_JOB") < names.index("DASK_SCHEDULER_ADDRESS")
    runner = job["spec"]["job"]["spec"]
    assert runner["restartPolicy"] == "Never"
    assert runner["activeDeadlineSeconds"] > 0


@pytest.mark.parametrize(
    ("codes", "tries", "code", "made"),
    [
        ([0], 5, 0, 1),
        ([1, 1, 0], 5, 0, 3),
        ([1, 137, 1], 3, 1, 3),
        ([2, 0], 5, 2, 1),
        ([143, 0], 5, 143, 1),
        ([1, 0], 1, 1, 1),
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


@pytest.mark.parametrize("tries", ["1", "3"])
def test_a_job_that_is_told_to_end_tells_its_command(tries, tmp_path):
    command = tmp_path / "command.sh"
    command.write_text(
        f"trap 'echo told >{tmp_path}/told; exit 143' TERM; echo >{tmp_path}/there\n"
        "while :; do sleep 0.05; done\n"
    )
    process = subprocess.Popen(
        ["sh", str(FOLDER / "entrypoint.sh"), "sh", str(command)],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "DASKCLUST_TRIES": tries},
    )
    while not (tmp_path / "there").exists():
        time.sleep(0.02)
    process.terminate()
    assert process.wait(60) == 143
    assert (tmp_path / "told").exists()


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


def test_the_images_versions_are_all_pinned():
    """Versions of what the dependencies need moved: the image was another one each time."""
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (FOLDER / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.split("==")[0]) for line in lines if "==" in line}
    wanted = [("daskclust", ("dashboard", "plot", "s3", "xarray")), ("hatchling", ())]
    seen = set()
    while wanted:
        name, extras = wanted.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            needed = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue
        for requirement in needed:
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in ("", *extras)):
                found = canonicalize_name(requirement.name)
                wanted.append((found, tuple(sorted(requirement.extras))))
    assert {name for name, _ in seen} - {"daskclust"} <= pinned
    image = (FOLDER / "Dockerfile").read_text()
    # Of the packages that build it, too.
    assert "PIP_CONSTRAINT=/tmp/constraints.txt" in image
    assert "/src[dashboard,plot,s3,xarray]" in image
    assert "prometheus-client" in pinned
    # One base image for both stages, by tag and digest.
    (base,) = re.findall(r"^ARG PYTHON=(.*)$", image, re.MULTILINE)
    assert re.fullmatch(r"3\.11(\.\d+)?-slim-bookworm@sha256:[0-9a-f]{64}", base)
    stages = re.findall(r"^FROM (\S+)", image, re.MULTILINE)
    assert stages == ["python:${PYTHON}"] * 2
    # A newer digest takes its place in both.
    assert "--build-arg PYTHON=3.11-slim-bookworm@sha256:<" in image
    assert "--build-arg PYTHON=3.11-slim-bookworm@sha256:<" in (FOLDER / "README.md").read_text()


def test_what_goes_into_the_image():
    """The Dockerfile copies what is not ignored, and nothing of what is."""
    ignored = (FOLDER.parents[1] / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied = [
        word
        for line in (FOLDER / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    for word in copied:
        assert any(word == path or word.startswith(f"{path}/") for path in kept), word
        assert (FOLDER.parents[1] / word).exists()
    assert "**/__pycache__" in ignored


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
