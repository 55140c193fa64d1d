"""pyinfra is loaded late in a run, perhaps after the libraries that queried a hub."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import urllib3.util.ssl_
from llamaherd.deploy.run import load_pyinfra
load_pyinfra()
"""


def test_pyinfra_is_loaded_after_ssl_without_a_warning() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
