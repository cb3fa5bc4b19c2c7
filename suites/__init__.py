"""One folder a task; base classes for the kinds of task beside them."""
