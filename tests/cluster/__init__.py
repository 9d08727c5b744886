"""Tests of the cluster: the simulator, traces, formats, and bugs that they must notice."""
