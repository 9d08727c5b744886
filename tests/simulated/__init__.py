"""Nodes without a machine: time, network and disks are simulated, and one seed drives them all.

`schedule` holds the time and the events to come. A `NodeLoop` is the event loop of one node: the
node's own code runs on it unchanged. `network` connects nodes by simulated TCP connections.
"""
