"""Makes fixtures/, guards/ and faults/ plugins of every suite; nothing else."""

pytest_plugins = [
    "fixtures.workloads",
    "fixtures.judgement",
    "fixtures.benchmark",
    "fixtures.audit",
    "guards",
    "faults",
]
