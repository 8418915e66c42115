"""The worker runs tasks. `worker.py` is where to begin, and `run.py` is how it is put together."""

from buquet.worker.context import TaskContext
from buquet.worker.run import RunReport
from buquet.worker.worker import Worker

__all__ = ["RunReport", "TaskContext", "Worker"]
