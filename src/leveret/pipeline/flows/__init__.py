"""The commands of `leveret pipeline` as functions: each wires broker, lake and transforms."""
