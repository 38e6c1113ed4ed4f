"""Drafts that are wrong on purpose, rewritten from a whole model with the gguf package."""

from pathlib import Path
from typing import Any


def rewrite(source: str | Path, destination: Path, *, layers: int | None = None, roll: int = 0) -> Path:
    """`source` with only its first `layers` blocks, and with each token's embedding moved on by `roll` ids: the file then
    speaks another vocabulary than its header says (its output head is the embedding too)."""
    import gguf
    import numpy as np

    reader: Any = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer: Any = gguf.GGUFWriter(destination, architecture)
    blocks = f"{architecture}.block_count"
    for field in reader.fields.values():
        if field.name.startswith(("GGUF.", "general.architecture")):
            continue
        array = field.types[0] == gguf.GGUFValueType.ARRAY
        value = layers if field.name == blocks and layers is not None else field.contents()
        writer.add_key_value(field.name, value, field.types[0], sub_type=field.types[-1] if array else None)
    for tensor in reader.tensors:
        parts = tensor.name.split(".")
        if parts[0] == "blk" and layers is not None and int(parts[1]) >= layers:
            continue
        data = np.roll(tensor.data, roll, axis=0) if tensor.name == "token_embd.weight" and roll else tensor.data
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return destination
