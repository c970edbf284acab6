"""The API surfaces: one file and one entry here each."""

from proxy.surfaces.audio import SPEECH, TRANSCRIPTIONS, TRANSLATIONS
from proxy.surfaces.base import Surface
from proxy.surfaces.chat import Chat
from proxy.surfaces.completions import Completions
from proxy.surfaces.embeddings import EMBEDDINGS
from proxy.surfaces.extra import extra
from proxy.surfaces.messages import CountTokens, Messages
from proxy.surfaces.responses import Responses
from proxy.surfaces.scoring import CLASSIFY, POOLING, RERANK, SCORE
from proxy.surfaces.tokenize import DETOKENIZE, TOKENIZE

SURFACES: tuple[Surface, ...] = (
    Chat(),
    Completions(),
    Responses(),
    Messages(),
    CountTokens(),
    EMBEDDINGS,
    RERANK,
    SCORE,
    CLASSIFY,
    POOLING,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    SPEECH,
    TOKENIZE,
    DETOKENIZE,
)
"""Paths of a surface: the first of its bare or ``/v1`` twins is the one backends are asked at."""

__all__ = ["SURFACES", "extra"]
