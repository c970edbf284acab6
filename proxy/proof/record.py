"""A comparison for machines: plain dictionaries, no prompt or answer text in them."""

import math
from collections.abc import Mapping

from proxy.proof.arm import Arm, Sample
from proxy.proof.session import Outcome


def as_record(outcome: Outcome) -> dict[str, object]:
    """Everything a reader of ``--json`` may want; values that are not known are null."""
    return {
        "refused": outcome.refused,
        "withheld": outcome.withheld,
        "interrupted": outcome.course.interrupted,
        "seed": outcome.plan.seed,
        "loads": [load.name for load in outcome.plan.loads],
        "arms": {arm.name: _arm(arm) for arm in (outcome.plan.plain, outcome.plan.speculative)},
        "discovered": {name: plain_value(found._replace(cards=())) for name, found in outcome.found.items()},
        "prompts": plain_value(outcome.diversity),
        "findings": plain_value(outcome.findings),
        "cells": plain_value(outcome.cells),
        "savings": plain_value(outcome.savings),
        "samples": [_sample(sample) for sample in outcome.course.samples],
    }


def _arm(arm: Arm) -> dict[str, object]:
    return {"url": arm.url, "model": arm.model or None, "surface": arm.surface, "body": dict(arm.body)}


def _sample(sample: Sample) -> object:
    return plain_value(sample._replace(text=""))


def plain_value(value: object) -> object:
    """Named tuples become objects, other sequences arrays, NaN null."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: plain_value(item) for key, item in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
