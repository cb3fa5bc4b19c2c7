"""A small multi-stage speech server."""
