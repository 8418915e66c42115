"""Where tasks meet the store: batches, the records of workers, and locks."""
