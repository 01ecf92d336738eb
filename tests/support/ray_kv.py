"""Ray's internal key-value store as a dictionary, so that workers can be called without Ray."""

from types import SimpleNamespace

import pytest
import ray
from ray.experimental import internal_kv


class FakeKv:
    """What `ray.experimental.internal_kv` needs of its client."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    def internal_kv_put(self, key, value, overwrite, namespace):
        is_new = key not in self.values
        if is_new or overwrite:
            self.values[key] = value
        return int(is_new)

    def internal_kv_get(self, key, namespace):
        return self.values.get(key)

    def internal_kv_del(self, key, is_prefix, namespace):
        return int(self.values.pop(key, None) is not None)

    def internal_kv_keys(self, prefix, namespace):
        return [key for key in self.values if key.startswith(prefix)]


@pytest.fixture
def ray_kv(monkeypatch) -> FakeKv:
    """The store of a Ray that does not run, and the id of an actor in it."""
    store = FakeKv()
    monkeypatch.setattr(internal_kv, "global_gcs_client", store)
    actor = SimpleNamespace(get_actor_id=lambda: "actor-1")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: actor)
    return store
