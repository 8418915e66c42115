"""Stores: memory, SQLite and S3 behind one protocol."""

from buquet.store.base import Change, Conflict, Listed, Store, Stored
from buquet.store.memory import MemoryStore

__all__ = ["Change", "Conflict", "Listed", "MemoryStore", "Store", "Stored"]
