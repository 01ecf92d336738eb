"""Which number formats the instructions of this CPU compute, and compute rightly.

A processor's announcement is not enough: some virtual machines announce instructions that end a
process with SIGILL, and without VNNI 16-bit sums of 8-bit products saturate. So products of the
largest and smallest values are computed in a process of their own and compared with exact ones.
"""

import json
import subprocess
import sys
from functools import cache

import torch

from sbert_core.choices import Precision

PROBE_SECONDS = 120.0
NUM_INPUTS, NUM_OUTPUTS, NUM_ROWS = 384, 64, 96
# The probe finds our packages where this process found them.
PROBE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from sbert_core.encoder.instructions import check_products; check_products(sys.argv[2])"
)


def require_instructions(precision: Precision) -> None:
    """ValueError if this CPU cannot compute in bfloat16 or int8."""
    reason = why_unsupported(precision)
    if reason is not None:
        raise ValueError(
            f"precision {precision} is not supported by this CPU: {reason}; use float32"
        )


@cache
def why_unsupported(precision: Precision) -> str | None:
    """Why this CPU cannot compute in a number format; None if it can. Two seconds, once."""
    if not is_announced(precision):
        needed = {Precision.INT8: "AVX512-VNNI", Precision.BFLOAT16: "AVX512-BF16 or AMX"}
        return f"it has no {needed[precision]}"
    probe = [sys.executable, "-c", PROBE, json.dumps(sys.path), precision]
    try:
        done = subprocess.run(
            probe, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"a product took more than {PROBE_SECONDS:.0f} s"
    if done.returncode < 0:
        return f"its instructions end a process with signal {-done.returncode}"
    lines = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else (lines[-1] if lines else "a trial product failed")


def is_announced(precision: Precision) -> bool:
    """Does the processor announce the instructions of a number format?"""
    if precision is Precision.INT8:
        return torch.cpu._is_vnni_supported() or torch.cpu._is_avx512_bf16_supported()
    is_supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return is_supported and (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )


def check_products(precision: str) -> None:
    """Compute products of extreme values; exit with a sentence on stderr if one is wrong."""
    from sbert_core.encoder.int8_products import InputRange  # noqa: PLC0415 - not for callers
    from sbert_core.encoder.linear_products import pack_linear  # noqa: PLC0415

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (NUM_OUTPUTS, NUM_INPUTS), generator=generator) * 2.0 - 1.0
    signs[0], signs[1] = 1.0, -1.0  # the largest sums of either sign
    rows = torch.randint(0, 2, (NUM_ROWS, NUM_INPUTS), generator=generator) * 2.0 - 1.0
    rows[0], rows[1] = 1.0, -1.0
    for size in (1.0, 2.0**-20, 2.0**20):
        wanted = (rows.double() * size) @ signs.double().T
        extremes = InputRange(rows.amin(0) * size, rows.amax(0) * size)
        product = pack_linear(signs, None, Precision(precision), extremes)
        got = product.project(rows * size).double()
        # Sums of up to 384 ones are exact in int8, and in bfloat16 but for the last rounding.
        if not torch.allclose(got, wanted, rtol=2.0**-7, atol=size * 1e-3):
            worst = (got - wanted).abs().max().item() / size
            sys.exit(f"a product is off by {worst:.3g}")
