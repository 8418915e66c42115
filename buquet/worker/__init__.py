"""The worker: threads that run tasks."""

from buquet.worker.context import TaskContext
from buquet.worker.worker import Worker

__all__ = ["TaskContext", "Worker"]
