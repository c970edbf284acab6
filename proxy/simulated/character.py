"""How a simulated engine behaves: its speeds, its drafts, its limits. All figures are settings, none is a measurement."""

from dataclasses import dataclass

DIALECTS = ("vllm", "llamacpp")
METHODS = ("draft", "ngram")

LEAN = {"code-edit": 0.18, "json": 0.12, "code": 0.05, "text": -0.15, "long-input": -0.20}
"""Added to the acceptance per kind of content: copied text is easy to foresee, prose is not."""
HEAT = 0.25
"""Taken from the acceptance per unit of temperature."""
MATCHES = {"code-edit": 0.60, "json": 0.35, "code": 0.20, "long-input": 0.10, "text": 0.03}
"""Share of steps in which an n-gram method finds something to draft from."""
MATCHED_ACCEPTANCE = 0.92
"""n-gram drafts are all-or-nothing: once one matches, most of it holds."""


@dataclass(frozen=True)
class Character:
    """A simulated engine's settings."""

    dialect: str = "vllm"
    model: str = "simulated-model"
    depth: int = 0
    """Draft tokens per step; 0 does not speculate."""
    method: str = "draft"
    acceptance: float = 0.7
    """Chance that a draft token is accepted, for content of no particular kind at temperature 0; 0 and 1 are exact."""
    by_content: bool = True
    """Let acceptance depend on kind of content and temperature."""
    step_ms: float = 20.0
    """An engine step without load."""
    token_us: float = 150.0
    """Added to a step per token it verifies, over all requests."""
    draft_ms: float = 0.6
    """Added to a step per draft token (the drafter runs them one after another)."""
    prefill_us: float = 100.0
    """Added to a step per prompt token it reads."""
    chunk_tokens: int = 2048
    """Prompt tokens read in one step at most."""
    max_requests: int = 64
    """Requests it works on at once; more of them wait."""
    context_tokens: int = 32_768
    cache_blocks: int = 4096
    """Blocks of prompt remembered, 64 characters each; 0 caches nothing."""
    output_scale: float = 1.0
    """Multiplies the natural length of answers."""
    seed: int = 0
    request_metrics: bool = True
    """Put ``metrics.speculative_decoding`` on answers (vLLM) or ``timings`` (llama.cpp)."""
    key: str | None = None
    """Required as a bearer token under /v1 when set."""

    def __post_init__(self) -> None:
        """Refuse what cannot be simulated."""
        if self.dialect not in DIALECTS:
            raise ValueError(f"engine must be one of {', '.join(DIALECTS)}")
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}")
        if not 0 <= self.acceptance <= 1:
            raise ValueError("acceptance must be between 0 and 1")
        if min(self.step_ms, self.token_us, self.draft_ms, self.prefill_us, self.depth, self.cache_blocks) < 0:
            raise ValueError("times, draft tokens and cache cannot be negative")
        if min(self.chunk_tokens, self.max_requests, self.context_tokens) < 1 or self.output_scale <= 0:
            raise ValueError("chunk, max requests, context and output scale must be positive")

    @property
    def counts_at_end(self) -> bool:
        """llama.cpp's counters move only when a request ends."""
        return self.dialect == "llamacpp"

    def alpha(self, kind: str, temperature: float) -> float:
        """Chance that a draft token of such a request is accepted, given the ones before it were."""
        if not self.by_content or self.acceptance in (0.0, 1.0):
            return self.acceptance
        base = MATCHED_ACCEPTANCE if self.method == "ngram" else self.acceptance + LEAN.get(kind, 0.0)
        return min(max(base - HEAT * min(temperature, 2.0), 0.02), 0.98)

    def drafting(self, kind: str, temperature: float) -> float:
        """Share of steps of such a request that carry a draft."""
        if self.method != "ngram" or not self.by_content:
            return 1.0
        return MATCHES.get(kind, MATCHES["text"]) * (1 - 0.6 * min(temperature, 1.0))

    def step_seconds(self, verified: int, drafts: bool, prompt_tokens: int) -> float:
        """Duration of a step that verifies so many tokens and reads so many prompt tokens."""
        micro = self.token_us * verified + self.prefill_us * prompt_tokens
        return (self.step_ms + (self.draft_ms * self.depth if drafts else 0.0)) / 1e3 + micro / 1e6
