"""Stores: memory, SQLite and S3 behind one protocol."""

from buquet.store.base import PAGE, Change, Conflict, Listed, Store, Stored
from buquet.store.memory import MemoryStore

__all__ = ["PAGE", "Change", "Conflict", "Listed", "MemoryStore", "Store", "Stored"]
