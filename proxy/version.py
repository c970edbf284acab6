"""The version, written once: packaging, ``--version``, the journal and ``/version`` take it from here."""

from importlib.util import find_spec

VERSION = "0.1.0"


def compiled() -> bool:
    """Whether judgement and relay run as machine code (``deploy/build_hook.py``) or from its source."""
    found = find_spec("policies.decide")
    return found is not None and not (found.origin or "").endswith(".py")
