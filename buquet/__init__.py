"""A task queue on an S3 bucket or a SQLite file, with deadlines: start by then, or never."""
