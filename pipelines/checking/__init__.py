"""What is found out before work begins: places of a job file, the nodes of a cluster."""
