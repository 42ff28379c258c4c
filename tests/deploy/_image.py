"""The steps of a Dockerfile without a container engine: overlays of this machine's root.

Each stage is an overlay file system whose lower layer is the root of this machine, in the place
of the base image; `RUN` is run in it by ``unshare`` and ``chroot``.  What a stage writes lies in
its upper folder: nothing of the machine is changed.  Needs the superuser.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

KNOWN = {"ARG", "FROM", "ENV", "RUN", "COPY", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
#: How this machine reaches package registries, as an engine would be told by build arguments.
_PASSED_ON = ("PIP_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE")


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile: word and rest, continued lines joined.

    Unknown words are errors.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        assert word in KNOWN, line
        found.append((word, rest.strip()))
    return found


def can_build() -> bool:
    """Whether this machine lets us mount overlays."""
    if os.getuid() != 0 or shutil.which("unshare") is None:
        return False
    probe = (
        "d=$(mktemp -d) && mount -t tmpfs none $d && mkdir $d/u $d/w $d/m && "
        "mount -t overlay none -o lowerdir=/usr,upperdir=$d/u,workdir=$d/w $d/m; "
        "code=$?; exit $code"
    )
    done = subprocess.run(["unshare", "--mount", "sh", "-c", probe], capture_output=True)
    return done.returncode == 0


@dataclass
class Stage:
    """A stage of an image: an overlay over this machine's root."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    directory: str = "/"
    entry: list[str] = field(default_factory=list)

    @property
    def upper(self) -> Path:
        return self.folder / "upper"

    def begin(self) -> Stage:
        for name in ("upper", "work", "merged"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "merged").chmod(0o755)
        self.upper.chmod(0o755)
        # The base image has a `python` that everybody may run.
        programs = self.upper / "usr" / "local" / "bin"
        programs.mkdir(parents=True)
        base = Path(sys.executable).resolve()
        # No link: from the folder of a link Python would guess where its library is.
        (programs / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(str(base))} "$@"\n')
        (programs / "python").chmod(0o755)
        for path in base.parents:
            if path.stat().st_mode & 0o001 == 0:
                (self.upper / path.relative_to("/")).mkdir(parents=True, exist_ok=True)
                (self.upper / path.relative_to("/")).chmod(0o755)
        return self

    def run(
        self,
        words: list[str],
        *,
        user: str = "0:0",
        binds: dict[str, Path] | None = None,
        read_only: bool = False,
        timeout: float = 3600,
        **more: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the stage; with its root read-only but for `binds`."""
        names = {name: self.folder / name for name in ("upper", "work", "merged")}
        merged = shlex.quote(str(names["merged"]))
        script = [
            "set -e",
            "mount -t overlay overlay -o "
            f"lowerdir=/,upperdir={names['upper']},workdir={names['work']} {merged}",
            f"mount --rbind /dev {merged}/dev",
            f"mount -t proc proc {merged}/proc",
        ]
        for place, source in (binds or {}).items():
            script += [f"mkdir -p {merged}{place}", f"mount --bind {source} {merged}{place}"]
        if read_only:
            script.append(f"mount -o remount,ro,bind {merged}")
        uid, _, gid = user.partition(":")
        enter = ["chroot", f"--userspec={uid}:{gid}", "--groups=", str(names["merged"])]
        inside = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/root",
            **self.environment,
            **more,
        }
        settings = [f"{name}={value}" for name, value in inside.items()]
        shell = 'cd "$1" && shift && exec "$@"'
        command = [*enter, "env", "-i", *settings, "sh", "-c", shell, "sh", self.directory, *words]
        script.append("exec " + shlex.join(command))
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", "\n".join(script)],
            capture_output=True,
            text=True,
            timeout=timeout,
        )


def build(dockerfile: Path, context: Path, folder: Path, *, skip: tuple[str, ...] = ()) -> Stage:
    """Do what a Dockerfile says, and return its last stage.

    Parameters
    ----------
    dockerfile, context : Path
    folder : Path
        For the layers.
    skip : tuple of str
        Beginnings of `RUN` instructions to leave out.
    """
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    registries = {k: v for k, v in os.environ.items() if k.upper().startswith(_PASSED_ON)}
    for word, rest in instructions(dockerfile.read_text()):
        if word == "ARG":
            name, _, value = rest.partition("=")
            arguments[name] = value
            continue
        if word == "FROM":
            image, *alias = Template(rest).substitute(arguments).split(" AS ")
            assert image.startswith("python:"), image
            stage = Stage(folder / f"stage{len(stages)}").begin()
            stages[alias[0] if alias else str(len(stages))] = stage
            continue
        assert stage is not None
        if word == "ENV":
            path = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **stage.environment}
            for setting in shlex.split(rest):
                name, _, value = setting.partition("=")
                stage.environment[name] = Template(value).substitute(path)
        elif word == "COPY":
            copy(rest, stage, stages, context)
        elif word == "RUN":
            if not rest.startswith(skip or ("\0",)):
                done = stage.run(["sh", "-c", rest], **registries)
                assert done.returncode == 0, f"{rest}\n{done.stdout}{done.stderr}"
        elif word == "USER":
            stage.user = rest
        elif word == "WORKDIR":
            stage.directory = rest
            (stage.upper / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "ENTRYPOINT":
            stage.entry = [part.strip('" ') for part in rest.strip("[]").split(",")]
    assert stage is not None
    return stage


def copy(rest: str, stage: Stage, stages: dict[str, Stage], context: Path) -> None:
    """Do what COPY does, as far as files and folders are named one by one."""
    *words, target = shlex.split(rest)
    root = context
    if words[0].startswith("--from="):
        root = stages[words.pop(0).removeprefix("--from=")].upper
    for word in words:
        source = root / word.lstrip("/")
        place = stage.upper / target.lstrip("/")
        if source.is_dir():
            shutil.copytree(
                source,
                place,
                symlinks=True,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("__pycache__") if root is context else None,
            )
            continue
        place = place / source.name if target.endswith("/") else place
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)
