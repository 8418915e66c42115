"""What a producer or an operator holds: submit tasks, find them, wait for them, change them."""
