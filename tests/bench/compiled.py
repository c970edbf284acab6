"""The project as the image has it: installed into a folder, its judgement translated to machine code.

Built once for each state of the source, and kept in .cache.
"""

import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "compiled"


def compiled(optimise: str = "3") -> Path:
    """A folder for PYTHONPATH. ``optimise``: the C compiler's level. Raises RuntimeError with pip's words."""
    place = CACHE / _digest(optimise)
    if place.exists():
        return place
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps"]
        command += ["--no-build-isolation", "--no-compile", "--target", f"{made}/app", str(ROOT)]
        env = os.environ | {"DRAFTLANE_COMPILE": "1", "MYPYC_OPT_LEVEL": optimise}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        Path(made, "app").rename(place)
    return place


def importing(code: Path) -> dict[str, str]:
    """The environment of a process that imports the gateway from ``code``, and the tests from here."""
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(code), str(ROOT))), "PYTHONSAFEPATH": "1"}


def _digest(*more: str) -> str:
    """What the build depends on."""
    files = [path for room in ("policies", "proxy") for path in (ROOT / room).rglob("*") if path.is_file()]
    files += [ROOT / "deploy/build_hook.py", ROOT / "pyproject.toml"]
    told = sha256(repr((sys.version, *more)).encode())
    for path in sorted(path for path in files if "__pycache__" not in path.parts):
        told.update(path.name.encode() + b"\0" + path.read_bytes())
    return told.hexdigest()[:16]
