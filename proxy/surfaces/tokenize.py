"""Text to token ids and back. Engines serve the bare paths, so those come first and are the ones sent on."""

from proxy.surfaces.proxied import Proxied

TOKENIZE = Proxied("tokenize", "/tokenize", "/v1/tokenize")
DETOKENIZE = Proxied("detokenize", "/detokenize", "/v1/detokenize")
