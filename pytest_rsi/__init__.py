"""pytest-rsi: measure, guard and confirm patches that make speech servers faster."""

__version__ = "0.1.0"
