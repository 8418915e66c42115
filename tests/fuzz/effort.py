"""How much is tried: a little and always the same in `make test`, much and at random by itself."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
"""Whether to go on for long, with other examples each time: see `make fuzz`."""

TIMES_MORE = 20
"""How many times more examples a long run tries."""

_WITHOUT = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def examples(count: int, **more: Any) -> settings:
    """Settings for a test that tries so many examples in `make test`."""
    return settings(
        max_examples=count * (TIMES_MORE if IS_LONG else 1),
        derandomize=not IS_LONG,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
        suppress_health_check=[*_WITHOUT, HealthCheck.function_scoped_fixture],
        **more,
    )
