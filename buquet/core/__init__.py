"""Values and the rules about them, pure: no I/O, no clock, no chance, no threads."""
