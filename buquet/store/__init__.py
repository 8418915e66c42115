"""Stores: memory, SQLite and S3 behind one protocol."""

from buquet.store.base import COMMIT_TIME_LIMIT, PAGE, Change, Conflict, Listed, Store, Stored, walk
from buquet.store.check import check_store
from buquet.store.location import open_store
from buquet.store.memory import MemoryStore

__all__ = [
    "COMMIT_TIME_LIMIT",
    "PAGE",
    "Change",
    "Conflict",
    "Listed",
    "MemoryStore",
    "Store",
    "Stored",
    "check_store",
    "open_store",
    "walk",
]
