"""Reports: what people and programs are shown of a verdict."""
