"""Two GPUs of this machine that are not there: stand-ins for NVIDIA's library and nvidia-smi, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import smi_stream


def put_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make both stand-ins in a folder, and have programs find them there first."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!{sys.executable} -I\n" + Path(smi_stream.__file__).read_text())
    program.chmod(0o755)
    source = Path(smi_stream.__file__).with_name("nvml_cards.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(source)], check=True)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
