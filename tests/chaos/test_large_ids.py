"""Ids that together pass the 2 GiB of Arrow's 32-bit offsets: 5 GiB of memory, half a minute."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sbert_core.large_strings import take_narrow, widen_array

ID_BYTES = 32 * 2**20
NUM_IDS = 68  # 2.1 GiB


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ids_beyond_2_gib_are_combined_found_and_published():
    # All chunks are slices of one buffer; only what is combined takes memory.
    ids = pa.array([f"{n:03d}" + "x" * (ID_BYTES - 3) for n in range(2)])
    column = pa.chunked_array([ids[n % 2 : n % 2 + 1] for n in range(NUM_IDS)])
    with pytest.raises(pa.ArrowInvalid, match="offset overflow"):
        column.combine_chunks()
    wide = widen_array(column)
    assert wide.type == pa.large_string() and len(wide) == NUM_IDS
    assert pc.index_in(widen_array(ids[1:]), wide).to_pylist() == [1]
    made = take_narrow(wide, pa.array([*range(NUM_IDS), None]), pa.string())
    assert made.type == pa.string() and made.num_chunks == 2
    assert pc.utf8_slice_codeunits(made, 0, 3).to_pylist() == ["000", "001"] * 34 + [None]
