"""Other weights of a model that is there: each tensor in a coarser type, written by the library of GGUF."""

from __future__ import annotations

from pathlib import Path

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, quants

_EXACT, _COARSE = (GGMLQuantizationType.F32, GGMLQuantizationType.F16), GGMLQuantizationType.Q4_0


def requantized(source: Path, to: Path) -> Path:
    """A file with the same model in Q4_0, which is written unless it is there."""
    if to.exists():
        return to
    read, unfinished = GGUFReader(source), to.with_suffix(".part")
    architecture = read.get_field("general.architecture")
    assert architecture
    writer = GGUFWriter(unfinished, architecture.contents())
    for field in read.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            writer.add_key_value(
                field.name, field.contents(), kind, field.types[-1] if kind == GGUFValueType.ARRAY else None
            )
    for tensor in read.tensors:
        if tensor.tensor_type in _EXACT:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        else:
            exact = quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, quants.quantize(exact, _COARSE), raw_dtype=_COARSE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(to)
    return to
