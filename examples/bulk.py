"""Submit many tasks, in one call or as a stream. The tasks of a batch share their writes."""

from collections import Counter
from collections.abc import Iterator

from buquet import Worker, connect

queue = connect("memory:")
worker = Worker(queue, threads=4)


@worker.task("square")
def square(input: int) -> int:
    return input * input


tasks = queue.submit_many([("square", number) for number in range(1000)], ttl_seconds=3600)
print(len(tasks), "tasks in", len({task.batch_id for task in tasks}), "batches")


def readings() -> Iterator[tuple[str, int]]:
    """Stand for a source of any length: `submit_stream` reads it in bounded memory."""
    for number in range(250):
        yield "square", number


streamed = [task.id for task in queue.submit_stream(readings(), batch_size=50)]
print(len(streamed), "more as a stream")

worker.run(burst=True)

ended = queue.wait([task.id for task in tasks] + streamed, timeout=10)
print(dict(Counter(str(task.status) for task in ended)))
print(sum(task.output for task in ended[:1000]))

# Output:
# 1000 tasks in 10 batches
# 250 more as a stream
# {'completed': 1250}
# 332833500
