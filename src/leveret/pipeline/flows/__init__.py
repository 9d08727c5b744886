"""The commands of `leveret pipeline` as functions that connect broker, lake and transforms."""
