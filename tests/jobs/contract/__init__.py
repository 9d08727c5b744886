"""The contract of every store, tested over HTTP. Each test has a namespace of its own."""
