"""The embedded synthesis task: a real voice on a CPU, from wheels."""
