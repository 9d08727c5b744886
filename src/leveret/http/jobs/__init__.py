"""The jobs API: calls of clients and workers, and calls of operators."""
