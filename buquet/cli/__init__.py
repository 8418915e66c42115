"""The command line: the only place that draws. It knows the queue; the queue does not know it."""
