"""Build hook: with DRAFTLANE_COMPILE=1 a wheel holds what a request passes as machine code beside its source.

mypyc, which mypy brings along, translates the typed modules of the judgement, and those of the relay, as they are and all in
one unit, so that they call each other directly: the same decisions and the same bytes, in half the time (docs/speed.md).
Without the variable the wheel is pure Python and needs no C compiler. An editable installation is always pure: a stale
translation would hide the source that is being edited.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WISH = "DRAFTLANE_COMPILE"
PACKAGES = ("policies", "proxy")
DIRECT = "-fno-plt -fno-semantic-interposition" if sys.platform == "linux" else ""
"""For the C compiler: translated code calls the interpreter all the time, and without trampolines a request took a tenth less
(the best of seven interleaved rounds each: 33.4 of 37.7 µs)."""
RECORDS = ("decision", "events", "lesson", "settings")
"""Of ``policies``; stay source: their annotations are read at run time, and mypyc keeps none."""
OFF_THE_WAY = ("__init__", "explain", "keepsake", "replay", "roofline", "simulation", "snapshot")
"""Of ``policies``; stay source, with all that begins like them: no request waits for them."""
ON_THE_WAY = [
    "door",
    "ending",
    "gateway",
    "histogram",
    "journal_lines",
    "log",
    "metrics",
    "models",
    "outbox",
    "outgoing",
    "pace",
    "patience",
    "relay",
    "safe_names",
    "splice",
    "waves",
    "meter/*",
    "wire/*",
    "surfaces/base",
    "surfaces/body",
    "surfaces/chat",
    "surfaces/choices",
    "surfaces/completions",
    "surfaces/failure",
    "surfaces/long_text",
    "surfaces/messages",
    "surfaces/prompt",
    "surfaces/responses",
    "surfaces/traits",
]
"""Of ``proxy``: what every request passes. The records that msgspec reads (``outcome``, ``surfaces/shapes``) are not among it."""
OF_UVICORN = "wire/server"
"""Stays source: its class comes from uvicorn's, and a translated one may not."""


def wanted() -> bool:
    """Whether the caller asked for it. Raises ValueError for words that are neither yes nor no."""
    word = os.environ.get(WISH, "")
    if word not in ("", "0", "1"):
        raise ValueError(f"{WISH}={word}: say 1 to compile, or leave it away")
    return word == "1"


def translated(root: Path) -> list[str]:
    """The modules that become machine code, as paths below ``root``."""
    judgement = [path.stem for path in (root / "policies").glob("*.py")]
    deciding = [f"policies/{name}" for name in judgement if name not in RECORDS and not name.startswith(OFF_THE_WAY)]
    passed = [path for name in ON_THE_WAY for path in (root / "proxy").glob(f"{name}.py")]
    relaying = {str(path.relative_to(root).with_suffix("")) for path in passed} - {f"proxy/{OF_UVICORN}"}
    return [f"{name}.py" for name in sorted((*deciding, *relaying))]


def compiled(root: Path, workshop: Path) -> list[Path]:
    """Translate a copy of the packages inside ``workshop``; the extension modules. Raises RuntimeError with the tool's words."""
    for package in PACKAGES:
        shutil.copytree(root / package, workshop / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    done = subprocess.run(
        [sys.executable, "-m", "mypyc", "--strict", *translated(root)],
        cwd=workshop,
        env=os.environ | {"MYPYPATH": ".", "CFLAGS": f"{os.environ.get('CFLAGS', '')} {DIRECT}".strip()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"mypyc could not translate draftlane (it needs a C compiler and Python's headers):\n{done.stdout[-2000:]}"
        )
    made = workshop.glob("*.so"), *((workshop / package).rglob("*.so") for package in PACKAGES)
    return sorted(path for paths in made for path in paths)


class Compiled(BuildHookInterface):  # type: ignore[type-arg]  # any builder will do
    """What hatchling calls; see the module."""

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling: the translator, and whose types it has to know."""
        return ["mypy[mypyc]>=2", *self.metadata.core.dependencies] if wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the extension modules to the wheel."""
        if version == "editable" or not wanted():
            return
        self._workshop = tempfile.TemporaryDirectory(prefix="draftlane-")  # goes by itself should the build fail
        workshop = Path(self._workshop.name)
        modules = compiled(Path(self.root), workshop)
        build_data["force_include"] |= {str(path): str(path.relative_to(workshop)) for path in modules}
        build_data["infer_tag"] = True
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written; the workshop may go."""
        if hasattr(self, "_workshop"):
            self._workshop.cleanup()
