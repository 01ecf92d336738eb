"""Jobs whose processes have one method changed, to fail in a chosen way."""

# Imported by every Python of a job through PYTHONPATH: changes one method of one module.
SABOTAGE = """
import importlib.abc, importlib.util, os, sys

def deadly(plain, self, texts, **options):
    if any("deadly" in str(text) for text in texts):
        os._exit(9)
    return plain(self, texts, **options)

def full(plain, self, name, data):
    if name.startswith("data/"):
        raise OSError(28, "No space left on device")
    return plain(self, name, data)

def hungry(plain, self, texts, **options):
    waste = [bytearray(b"x" * 2**26) for _ in range(96)]
    return plain(self, texts, **options)

def heavy(plain, *args, **options):
    waste = [bytearray(b"x" * 2**26) for _ in range(96)]
    return plain(*args, **options)

PLANS = {
    "heavy": ("sbert_core.encoder.encoder", "Encoder", "load", heavy),
    "hungry": ("sbert_core.encoder.encoder", "Encoder", "encode_report", hungry),
    "deadly": ("sbert_core.encoder.encoder", "Encoder", "encode_report", deadly),
    "full": ("sbert_core.storage", "LocalStorage", "put", full),
}

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        module_name, class_name, method, change = PLANS[os.environ["SABOTAGE"]]
        if name != module_name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            owner = getattr(module, class_name)
            plain = getattr(owner, method)
            setattr(owner, method, lambda *args, **options: change(plain, *args, **options))

        spec.loader.exec_module = exec_module
        return spec

if os.environ.get("SABOTAGE"):
    sys.meta_path.insert(0, Finder())
"""


def sabotaged(tmp_path, plan: str) -> dict[str, str]:
    (tmp_path / "sitecustomize.py").write_text(SABOTAGE)
    return {"PYTHONPATH": str(tmp_path), "SABOTAGE": plan}
