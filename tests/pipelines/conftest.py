"""One Ray for all tests of jobs, in processes of its own; every job joins and leaves it."""

import os

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


@pytest.fixture(scope="session")
def ray_address(tmp_path_factory):
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - only jobs that need Ray pay for it

    before = os.environ.get("RAY_AUTH_MODE")
    os.environ["RAY_AUTH_MODE"] = "disabled"
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 4,
            "object_store_memory": 200 * 2**20,
            "include_dashboard": False,
        },
    )
    yield cluster.address
    cluster.shutdown()
    os.environ.pop("RAY_AUTH_MODE")
    if before is not None:
        os.environ["RAY_AUTH_MODE"] = before
