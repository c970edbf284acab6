"""Build hook: with DRAFTLANE_COMPILE=1 a wheel holds the judgement as machine code beside its source.

mypyc, which mypy brings along, translates the typed modules of ``policies`` as they are: the same decisions, each in
less than half the time (docs/speed.md). Without the variable the wheel is pure Python and needs no C compiler. An editable
installation is always pure: a stale translation would hide the source that is being edited.
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
RECORDS = ("decision", "events", "lesson", "settings")
"""Stay source: their annotations are read at run time, and mypyc keeps none."""
OFF_THE_WAY = ("__init__", "explain", "keepsake", "replay", "roofline", "simulation", "snapshot")
"""Stay source, with all that begins like them: no request waits for them."""


def wanted() -> bool:
    """Whether the caller asked for it. Raises ValueError for words that are neither yes nor no."""
    word = os.environ.get(WISH, "")
    if word not in ("", "0", "1"):
        raise ValueError(f"{WISH}={word}: say 1 to compile, or leave it away")
    return word == "1"


def translated(package: Path) -> list[Path]:
    """The modules that become machine code."""
    return sorted(
        path for path in package.glob("*.py") if path.stem not in RECORDS and not path.stem.startswith(OFF_THE_WAY)
    )


def compiled(package: Path, workshop: Path) -> list[Path]:
    """Translate a copy of the package inside ``workshop``; the extension modules. Raises RuntimeError with the tool's words."""
    shutil.copytree(package, workshop / package.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    names = [f"{package.name}/{path.name}" for path in translated(package)]
    done = subprocess.run(
        [sys.executable, "-m", "mypyc", "--strict", *names],
        cwd=workshop,
        env=os.environ | {"MYPYPATH": "."},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"mypyc could not compile {package.name} (it needs a C compiler and Python's headers):\n{done.stdout[-2000:]}"
        )
    return sorted([*workshop.glob("*.so"), *(workshop / package.name).glob("*.so")])


class CompiledJudgement(BuildHookInterface):  # type: ignore[type-arg]  # any builder will do
    """What hatchling calls; see the module."""

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling."""
        return ["mypy[mypyc]>=2"] if wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the extension modules to the wheel."""
        if version == "editable" or not wanted():
            return
        self._workshop = tempfile.TemporaryDirectory(prefix="draftlane-")  # goes by itself should the build fail
        workshop = Path(self._workshop.name)
        modules = compiled(Path(self.root) / "policies", workshop)
        build_data["force_include"] |= {str(path): str(path.relative_to(workshop)) for path in modules}
        build_data["infer_tag"] = True
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written; the workshop may go."""
        if hasattr(self, "_workshop"):
            self._workshop.cleanup()
