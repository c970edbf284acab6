"""Who may come in, and who may try again.

Intent: refuse early with a time to come back rather than queue without bound; cap retries as a share of arrivals, since
retrying everything while everything fails doubles the load (SRE practice: retry budgets).
Reads: requests in flight, capacities, durations. Settings: ``admission``.
When it is wrong: limits on in-flight counts know nothing of request size. Off by default: engines queue by themselves.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policies.backend import Backend
from policies.settings import AdmissionSettings

if TYPE_CHECKING:
    from policies.fleet import Fleet


def limit(backend: Backend, rules: AdmissionSettings) -> int | None:
    """Requests this backend may hold; None: no limit."""
    limits = []
    if rules.max_in_flight is not None:
        limits.append(rules.max_in_flight)
    if rules.max_queue is not None and backend.capacity:
        limits.append(backend.capacity + rules.max_queue)
    return min(limits) if limits else None


def with_room(candidates: Sequence[Backend], rules: AdmissionSettings) -> Sequence[Backend]:
    """Candidates below their limit."""
    if rules.max_in_flight is None and rules.max_queue is None:
        return candidates
    return [backend for backend in candidates if _has_room(backend, rules)]


def _has_room(backend: Backend, rules: AdmissionSettings) -> bool:
    most = limit(backend, rules)
    return most is None or backend.in_flight < most


def retry_after(candidates: Sequence[Backend], rules: AdmissionSettings) -> float:
    """Seconds until a place is likely to be free: the mean duration of a request ÷ requests in flight, at least 1."""
    soonest = min((b.request_seconds / max(1, b.in_flight) for b in candidates), default=1.0)
    return min(max(1.0, soonest), rules.longest_retry_after_seconds)


def may_retry(fleet: "Fleet") -> bool:
    """Whether the retry budget has room for one more try elsewhere (moving a stalled request away is always free)."""
    return fleet.retries >= 1.0
