"""The engines the gateway knows, in one table."""

from proxy.engines.base import Engine
from proxy.engines.llamacpp import LLAMACPP
from proxy.engines.sglang import SGLANG
from proxy.engines.tgi import TGI
from proxy.engines.trtllm import TRTLLM
from proxy.engines.unknown import UNKNOWN
from proxy.engines.vllm import VLLM

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (VLLM, SGLANG, LLAMACPP, TRTLLM, TGI, UNKNOWN)}
"""By name; ``unknown`` is always there."""
