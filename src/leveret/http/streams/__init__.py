"""Streams over HTTP: what they hold, their messages, bulk reads as Arrow, named readers."""
