"""Write GGUF files of a checkpoint with llama.cpp's quantizer; runs in llama.cpp's environment.

python -m peers.gguf_files CHECKPOINT_FOLDER OUTPUT.gguf [Q4_0 | Q8_0 | Q4_K_M | ... [mixed [IMPORTANCE]]]

All matrices have one type; with "mixed", llama.cpp chooses the types. IMPORTANCE: a file of ``peers.importance_files``.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
from safetensors.numpy import load_file

from peers import importance_files


def write_f16(folder: Path, path: Path) -> None:
    """Write the Llama in a folder as a float16 GGUF without a tokenizer."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for file in sorted(folder.glob("*.safetensors")):
        for name, value in load_file(file).items():
            stored = names.get_name(name, try_suffixes=(".weight",))
            if stored is None:
                raise RuntimeError(f"{name} has no name in GGUF files")
            writer.add_tensor(stored, _stored(name, value, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _stored(name: str, value: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Convert a tensor to GGUF's form: norms in float32, and rotary pairs of queries and keys in adjacent rows."""
    if value.ndim == 1:
        return value.astype(np.float32)
    value = value.astype(np.float16)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    count = next((count for key, count in heads.items() if key in name), None)
    if count is None:
        return value
    return value.reshape(count, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)


def quantize(source: Path, target: Path, kind: str, pure: bool, means: dict[str, np.ndarray]) -> None:
    """Quantize a GGUF. pure: all matrices, with embeddings and head, in one type. means: mean squares of inputs."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.pure = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}"), pure
    if means:
        params.imatrix = _importances(means)
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), params):
        raise RuntimeError(f"llama.cpp does not quantize {source}")


def _importances(means: dict[str, np.ndarray]) -> Any:
    """llama.cpp's array of importance structs, ended by one without a name. ``means`` must outlive it."""
    entry = llama_cpp.llama_model_imatrix_data
    numbers = ctypes.POINTER(ctypes.c_float)
    known = [entry(name.encode(), values.ctypes.data_as(numbers), len(values)) for name, values in means.items()]
    return (entry * (len(known) + 1))(*known)


def main(folder: Path, target: Path, kind: str = "F16", how: str = "pure", measured: str = "") -> None:
    if kind == "F16":
        return write_f16(folder, target)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        source = Path(scratch) / "F16.gguf"
        write_f16(folder, source)
        quantize(source, target, kind, how == "pure", importance_files.read(Path(measured)) if measured else {})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
