"""The core made resident on a cluster: state and resources, nothing clever."""
