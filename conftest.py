"""Makes fixtures/ and guards/ plugins of every suite; nothing else."""

pytest_plugins = ["fixtures.workloads", "fixtures.judgement", "fixtures.benchmark", "guards"]
