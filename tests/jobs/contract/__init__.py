"""What holds for every store, asked over HTTP. Each test has a namespace of its own."""
