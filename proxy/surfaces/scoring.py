"""Judgements without generated text. vLLM serves the bare paths, so those come first and are the ones sent on."""

from proxy.surfaces.proxied import Proxied

RERANK = Proxied("rerank", "/v1/rerank", "/rerank", "/v2/rerank")
SCORE = Proxied("score", "/score", "/v1/score")
CLASSIFY = Proxied("classify", "/classify", "/v1/classify")
POOLING = Proxied("pooling", "/pooling", "/v1/pooling")
