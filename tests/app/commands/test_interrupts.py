"""Ctrl-C while the package is imported: quiet for the command line, as ever for programs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is another thing on Windows")
@pytest.mark.parametrize(
    ("program", "before", "code", "said"),
    [
        ("-m", "", 130, "daskclust: interrupted\n"),
        ("/usr/bin/daskclust", "", 130, "daskclust: interrupted\n"),
        ("analysis.py", "", 1, "KeyboardInterrupt\n"),
        # A shell's background job.
        ("-m", "signal.signal(signal.SIGINT, signal.SIG_IGN)", 0, ""),
    ],
)
def test_ctrl_c_during_the_import(program: str, before: str, code: int, said: str) -> None:
    # The signal comes while the package imports what is heavy.
    script = f"""
import os, signal, sys
sys.argv[0] = {program!r}
{before}
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "daskclust.config":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
try:
    import daskclust
except KeyboardInterrupt:
    sys.stderr.write("KeyboardInterrupt\\n")
    sys.exit(1)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (code, said)
