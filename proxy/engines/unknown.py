"""Any other OpenAI-compatible server: nothing is taken for granted."""

from proxy.engines.habits import Habits

UNKNOWN = Habits(name="unknown")
"""Usage is not asked for: a server that validates strictly would refuse the request over our curiosity."""
