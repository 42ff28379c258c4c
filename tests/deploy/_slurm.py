"""A real SLURM on this machine, for tests: controller, node daemon and munge in a folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")

_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
JobRequeue=1
SchedulerParameters=sched_interval=5,bf_interval=5
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=20000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES:4
"""


def missing_programs() -> list[str]:
    """Programs of SLURM that are not there."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def install() -> None:
    """Install SLURM from Debian's packages; only for the superuser."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", *PACKAGES]):
        subprocess.run(command, check=True, env=environment, timeout=600, **quiet)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run(*command: str, timeout: float = 60) -> str:
    """Run a command of SLURM and return what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout.strip()


def wait_for(what, timeout: float, every: float = 0.5):
    """Wait until `what()` is true and return it; AssertionError after `timeout` seconds."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(every)
    raise AssertionError(f"waited {timeout} s in vain for {what}")


def job_field(job: str, name: str) -> str:
    """Return a field of `scontrol show job`."""
    for word in run("scontrol", "--oneliner", "show", "job", job).split():
        key, _, value = word.partition("=")
        if key == name:
            return value
    raise KeyError(name)


@contextmanager
def slurm(folder: Path) -> Iterator[Path]:
    """Start SLURM with its state in `folder`; SLURM_CONF points at its configuration."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname()
    configuration = folder / "slurm.conf"
    configuration.write_text(
        _CONFIGURATION.format(host=host, folder=folder, controller=_free_port(), node=_free_port())
    )
    (folder / "cgroup.conf").write_text("")
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(configuration)
    started: list[subprocess.Popen] = []
    munge = Path("/run/munge")
    own_munge = not (munge / "munge.socket.2").exists()
    try:
        if own_munge:
            munge.mkdir(exist_ok=True)
            shutil.chown(munge, "munge")
            munge.chmod(0o755)
            # In the foreground, so that it is ended by its own number.
            started.append(_start(folder, "munged", "runuser", "-u", "munge", "--", "munged", "-F"))
            wait_for((munge / "munge.socket.2").exists, 30, every=0.1)
        started.append(_start(folder, "slurmctld", "slurmctld", "-D"))
        started.append(_start(folder, "slurmd", "slurmd", "-D", "-N", host))
        # A node that was invalid once stays drained.
        wait_for(lambda: "idle" in _states(host), 60)
        yield folder
    finally:
        subprocess.run(["scancel", "--user=root"], capture_output=True, timeout=30, check=False)
        time.sleep(1)
        for process in reversed(started):
            _stop(process)
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


def _start(folder: Path, name: str, *command: str) -> subprocess.Popen:
    with (folder / f"{name}.out").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _states(host: str) -> str:
    done = subprocess.run(["sinfo", "-h", "-o", "%t"], capture_output=True, text=True, check=False)
    if "drain" in done.stdout or "inval" in done.stdout:
        resume = ["scontrol", "update", f"nodename={host}", "state=resume"]
        subprocess.run(resume, capture_output=True, check=False)
    return done.stdout


def _stop(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
