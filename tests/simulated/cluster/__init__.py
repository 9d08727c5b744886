"""Whole clusters of `ClusterMember`s with real links, on simulated time, network and disks."""
