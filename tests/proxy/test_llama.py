"""Putting the weights together, and refusing what the engine would abort for."""

import hashlib
from pathlib import Path

import pytest

from proxy import llama

CHUNKS = (b"GGUF" * 1000, b"tail")


def _package(folder: Path, name: str, sha256: str) -> None:
    for number, chunk in enumerate(CHUNKS):
        (folder / f"chunk{number}").write_bytes(chunk)
    paths = [str(folder / f"chunk{number}") for number in range(len(CHUNKS))]
    (folder / f"{name}.py").write_text(
        f"MODEL_NAME = 'm.gguf'\nEXPECTED_SHA256 = {sha256!r}\n\n\ndef chunk_paths():\n    return {paths!r}\n"
    )


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A weights package of two small chunks, named after its folder."""
    name = f"weights_{abs(hash(tmp_path))}"
    _package(tmp_path, name, hashlib.sha256(b"".join(CHUNKS)).hexdigest())
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(llama, "WEIGHTS_PACKAGE", name)
    monkeypatch.setattr(llama, "ENGINE_PACKAGE", "json")
    return tmp_path


def test_weights_are_put_together_once_with_progress(package: Path) -> None:
    seen: list[tuple[int, int]] = []
    stored = llama.weights(lambda done, total: seen.append((done, total)), package / "cache")
    assert stored.read_bytes() == b"".join(CHUNKS)
    assert seen == [(4000, 4004), (4004, 4004)]
    (package / "chunk0").unlink()
    assert llama.weights(None, package / "cache") == stored


def test_a_damaged_file_in_the_cache_is_replaced(package: Path) -> None:
    stored = llama.weights(None, package / "cache")
    stored.write_bytes(b"half")
    assert llama.weights(None, package / "cache").read_bytes() == b"".join(CHUNKS)


def test_damaged_packages_are_refused_and_leave_no_file(package: Path) -> None:
    (package / "chunk1").write_bytes(b"tale")
    with pytest.raises(llama.EngineUnavailable, match="damaged"):
        llama.weights(None, package / "cache")
    assert list((package / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_said(package: Path) -> None:
    (package / "cache").write_text("a file where the folder should be")
    with pytest.raises(llama.EngineUnavailable, match="cannot be put together"):
        llama.weights(None, package / "cache")


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "WEIGHTS_PACKAGE", "no_such_weights")
    monkeypatch.setattr(llama, "ENGINE_PACKAGE", "json")
    assert llama.missing() is not None
    with pytest.raises(llama.EngineUnavailable, match="not installed: no_such_weights"):
        llama.weights()
    monkeypatch.setattr(llama, "WEIGHTS_PACKAGE", "csv")
    assert llama.missing() is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "eagle"},
        {"slots": 0},
        {"threads": 0},
        {"match_tokens": 0},
        {"least_draft_tokens": 9, "most_draft_tokens": 8},
    ],
)
def test_a_tuning_the_engine_would_abort_for_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be|shorter"):
        llama.Tuning(**wrong)  # type: ignore[arg-type]  # the point is a wrong value


def test_the_child_refuses_a_wrong_tuning_with_the_operators_exit_status() -> None:
    with pytest.raises(SystemExit) as left:
        llama.main(["--kind", "eagle"])
    assert left.value.code == 2


def test_the_cache_follows_the_users_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert llama.cache_folder() == tmp_path / "draftlane"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert llama.cache_folder() == tmp_path / ".cache" / "draftlane"
