"""Tests of the management page in a browser."""
