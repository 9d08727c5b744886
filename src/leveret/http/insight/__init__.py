"""Search for messages, trace them, and explain why they do not move."""
