"""Tools: what a model may call, what it is made from, and how its arguments are read."""
