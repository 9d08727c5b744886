"""Tests of the cluster: the simulator, traces, formats, and planted bugs."""
