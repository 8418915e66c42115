"""Hypothesis as a busy machine can take it: no time limit for a single example."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("buquet", deadline=None)
settings.load_profile("buquet")
