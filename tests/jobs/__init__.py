"""Tests of the jobs service: the contract of every store, and the features of each store."""
