"""Figures of drift on a played host: written where the exporter reads them, and nowhere else."""

from __future__ import annotations

import pytest

from llamaherd.layout import DRIFT_FILE, EXPORTER_UNIT, FIGURES_DATA, UNITS
from llamaherd.onhost.files import Delivery, DriftInput, write_drift
from llamaherd.onhost.system import FailedError
from tests.support.inspected_host import InspectedHost

UNIT = str(UNITS / EXPORTER_UNIT)
READS = f"ExecStart=/bin/exporter --collector.textfile.directory={FIGURES_DATA} \\\n"
HOSTILE = "x 1\nEND\n$(touch /x) '\"` é\n"


def test_figures_are_written_as_they_are_and_no_program_runs() -> None:
    host = InspectedHost(texts={UNIT: READS})
    assert write_drift(DriftInput(HOSTILE), host) == Delivery(read=True)
    file = host.files[str(DRIFT_FILE)]
    assert (file.text, file.mode, host.ran) == (HOSTILE, 0o644, [])


@pytest.mark.parametrize("texts", [{}, {UNIT: ""}, {UNIT: READS.replace(str(FIGURES_DATA), "/var/lib/other")}])
def test_without_an_exporter_that_reads_them_nothing_is_written(texts: dict[str, str]) -> None:
    host = InspectedHost(texts=texts)
    assert write_drift(DriftInput("x 1\n"), host) == Delivery(read=False)
    assert host.files.keys() == texts.keys()


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    host = InspectedHost(texts={UNIT: READS})
    monkeypatch.setattr(host, "write", full)
    with pytest.raises(FailedError, match=r"drift\.prom could not be written: No space left on device") as failed:
        write_drift(DriftInput("x 1\n"), host)
    assert failed.value.fix == "check whether the disk is full or read-only"
