"""Streams over HTTP: their offsets and messages, bulk reads as Arrow, and named readers."""
