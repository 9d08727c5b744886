"""The name of a topic within the shards store."""

TopicName = tuple[str, str]  # namespace, topic
