"""What every benchmark says of the machine it ran on."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

from fuaudit.training.engines import processors


def hardware() -> dict[str, str]:
    """Processor and versions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    packages = {name: version(name) for name in ("fuaudit", "torch", "numpy", "scipy")}
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": str(processors()),
        "python": platform.python_version(),
        **packages,
    }
