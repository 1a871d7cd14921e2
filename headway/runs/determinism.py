"""Which instructions of the processor runs are computed with.

Sums over wider registers are sums in another order, so torch gives other last bits where there is AVX-512 than where
there is not, and a chaotic run then ends with other numbers. Runs use what both kinds of machines have. For networks
of the study's size that takes no more time.
"""

from __future__ import annotations

import os
from pathlib import Path

COMMON = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""The variables by which torch, and MKL and oneDNN within it, are told what to do without."""
_PROCESSOR = Path("/proc/cpuinfo")


def use_common_instructions(processor: Path = _PROCESSOR) -> None:
    """Do without AVX-512 in this process and in those that it starts.

    A variable that is set already stays as it is. Torch reads them at its first operation: what it has chosen by then
    it keeps. So whoever computes something before a run begins should call this first.

    Args:
        processor: where the system tells what the processor can do; where it does not, nothing happens.
    """
    if _has_avx512(processor):
        for name, value in COMMON.items():
            os.environ.setdefault(name, value)


def _has_avx512(processor: Path) -> bool:
    try:
        lines = processor.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any("avx512f" in line.split() for line in lines if line.startswith("flags"))
