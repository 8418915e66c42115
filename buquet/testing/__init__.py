"""For tests, of buquet and of what uses it: a clock, faults, the rules of a store."""
