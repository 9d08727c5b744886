"""Sockets and uvicorn: accept HTTP connections and pass requests to the application."""
