"""``/v1/embeddings``."""

from proxy.surfaces.proxied import Proxied

EMBEDDINGS = Proxied("embeddings", "/v1/embeddings", "/embeddings")
