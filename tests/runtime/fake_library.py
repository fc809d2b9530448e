"""A fake compiled model in numpy with the interface of lib.so, and a model folder for it.

The model: the next token is (sum of all ids so far + the bias parameter) modulo V. Ids go through the embedding, into
the pages of keys and values, and back out through the page table, so that a wrong position, page or sequence gives a
wrong token.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from mlc_runtime.arrays import tvm_ffi
from mlc_runtime.library import ForkSafeLock, Library
from tests.compiler.sampling_reference import filtered

HIDDEN, LAYERS, HEADS, HEAD_DIM, PAGE = 8, 2, 1, 4, 16
BIAS = 7
HIDDEN_STATES = "batch_prefill_to_last_hidden_states"
EOS, BOS = "<eos>", "<bos>"


class FakeLibrary(Library):
    """Python functions with the foreign function interface of compiled ones."""

    def __init__(self, metadata: dict):
        self.path = Path("fake.so")
        self.num_threads = None
        self.lock = ForkSafeLock()
        self.metadata = metadata
        self.calls: list[str] = []
        self.live_contexts: set[int] = set()
        self._code = {
            "context_create": self._create,
            "context_destroy": self.live_contexts.discard,
            "pack_negate": lambda ctx, source, packed: np.negative(source, out=packed),
            "embed": self._embed,
            "prefill": self._prefill,
            "decode": self._prefill_rows,
            "batch_decode": self._prefill_rows,
            "batch_prefill": self._batch_prefill,
            "batch_verify": self._verify,
            HIDDEN_STATES: self._hidden_states,
            "penalize": penalize,
            "sample": sample,
            "sample_filtered": sample_filtered,
            "logprobs": logprobs,
        }

    def raw(self, name: str) -> Callable[..., object]:
        def call(*args: object) -> object:
            self.calls.append(name)
            return self._code[name](*(np.from_dlpack(a) if isinstance(a, tvm_ffi.Tensor) else a for a in args))

        return tvm_ffi.convert(call)

    def _create(self, num_threads: int) -> int:
        self.live_contexts.add(1000 + num_threads)
        return 1000 + num_threads

    def _embed(self, ctx, input_ids, packed_params, out):
        assert ctx in self.live_contexts
        table, negated_bias = params(packed_params, self.metadata)
        assert negated_bias.item() == -BIAS
        out[...] = table[input_ids]

    def _attend(self, embed, k_pages, v_pages, page_table, token_seq, token_pos) -> np.ndarray:
        """Append the tokens to the pages; returns, per token, the sum of the ids up to its position."""
        sums = []
        for x, seq, pos in zip(embed.reshape(-1, HIDDEN), token_seq, token_pos, strict=True):
            if pos < 0:
                continue
            page, slot = page_table[seq, pos // PAGE], pos % PAGE
            k_pages[:, page, 0, :, slot] = x[:HEAD_DIM]
            v_pages[:, page, 0, slot, :] = x[:HEAD_DIM]
        for seq, pos in zip(token_seq, token_pos, strict=True):
            pages = page_table[seq, : pos // PAGE + 1]
            assert len(set(pages.tolist())) == len(pages)
            keys = k_pages[-1, pages, 0, 0].reshape(-1)[: pos + 1]
            values = v_pages[0, pages, 0, :, 0].reshape(-1)[: pos + 1]
            assert np.array_equal(keys, values)
            sums.append(int(keys.sum()))
        return np.array(sums)

    def _write(self, sums: np.ndarray, logits: np.ndarray) -> None:
        vocab = self.metadata["vocab_size"]
        logits[...] = 0.0
        logits.reshape(-1, vocab)[np.arange(len(sums)), (sums + BIAS) % vocab] = 10.0

    def _prefill(self, ctx, embed, k, v, table, seq, pos, packed, logits):
        assert embed.shape[1] <= self.metadata["prefill_chunk_size"]
        self._write(self._attend(embed, k, v, table, seq, pos)[-1:], logits)

    def _prefill_rows(self, ctx, embed, k, v, table, seq, pos, packed, logits):
        self._write(self._attend(embed, k, v, table, seq, pos), logits)

    def _batch_prefill(self, ctx, embed, positions, k, v, table, seq, pos, packed, logits):
        assert embed.shape[1] <= self.metadata["prefill_chunk_size"]
        self._write(self._attend(embed, k, v, table, seq, pos)[positions], logits)

    _verify = _prefill_rows

    def _hidden_states(self, ctx, embed, k, v, table, seq, pos, packed, hidden):
        """Hidden states: the id of each token, and the sum of the ids up to it."""
        assert embed.shape[1] <= self.metadata["prefill_chunk_size"]
        hidden[...] = 0.0
        hidden[0, :, 0], hidden[0, :, 1] = embed[0, :, 0], self._attend(embed, k, v, table, seq, pos)


def penalize(ctx, logits, token_ids, counts, bias, presence, frequency, repetition):
    for row, (ids, times) in enumerate(zip(token_ids, counts, strict=True)):
        found = logits[row, ids[ids >= 0]] + bias[row, ids >= 0]
        factor = np.where(times < 0, 1, repetition[row])[ids >= 0]
        taken = np.where(times > 0, presence[row] + times * frequency[row], 0)[ids >= 0]
        logits[row, ids[ids >= 0]] = np.where(found > 0, found / factor, found * factor) - taken


def sample(ctx, logits, temperature, top_p, uniform, token):
    """Inverse transform sampling from the most likely tokens with cumulative probability top_p."""
    for row in range(len(token)):
        order = np.argsort(-logits[row], kind="stable")
        if temperature[row] == 0:
            token[row] = order[0]
            continue
        p = np.exp((logits[row][order] - logits[row].max()) / temperature[row])
        p /= p.sum()
        kept = p[: int(np.searchsorted(np.cumsum(p), top_p[row])) + 1]
        token[row] = order[int(np.searchsorted(np.cumsum(kept) / kept.sum(), uniform[row], side="right"))]


def sample_filtered(ctx, logits, temperature, top_k, top_p, min_p, typical_p, uniform, token):
    for row in range(len(token)):
        x = logits[row].astype(np.float64) / (temperature[row] or 1e-9)
        p = np.exp(x - x.max())
        p = filtered(p / p.sum(), top_k[row], top_p[row], min_p[row], typical_p[row])
        token[row] = np.searchsorted(np.cumsum(p) / p.sum(), uniform[row], side="right")


def logprobs(ctx, logits, token, chosen, top, tokens):
    logs = logits - logits.max(1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(1, keepdims=True))
    order = np.argsort(-logs, axis=1, kind="stable")[:, : top.shape[1]]
    chosen[...] = logs[np.arange(len(token)), token]
    top[...], tokens[...] = np.take_along_axis(logs, order, 1), order


def params(table: np.ndarray, metadata: dict) -> tuple[np.ndarray, np.ndarray]:
    """The embedding and the packed bias that the addresses in `table` point to."""
    assert all(address % 64 == 0 for address in table)
    vocab = metadata["vocab_size"]
    embedding = (ctypes.c_float * (vocab * HIDDEN)).from_address(int(table[0]))
    bias = ctypes.c_float.from_address(int(table[1]))
    return np.frombuffer(embedding, np.float32).reshape(vocab, HIDDEN), np.frombuffer(bias, np.float32)


def next_token(ids: list[int], vocab: int) -> int:
    return (sum(ids) + BIAS) % vocab


def greedy(ids: list[int], count: int, vocab: int) -> list[int]:
    """The tokens that the model generates after `ids`."""
    ids = list(ids)
    for _ in range(count):
        ids.append(next_token(ids, vocab))
    return ids[-count:]


def metadata(vocab: int, context: int = 64, chunk: int = 8, batch: int = 4) -> dict:
    pages = ["num_pages", HEADS]
    cache = [
        tensor("k_pages", [LAYERS, *pages, HEAD_DIM, PAGE]),
        tensor("v_pages", [LAYERS, *pages, PAGE, HEAD_DIM]),
        tensor("page_table", ["num_seqs", "max_pages"], "int32"),
    ]
    packed = tensor("packed_params", [2], "int64")

    def model_function(batch_size, seq_len, logits, more=()):
        tokens = [tensor(name, ["n"], "int32") for name in ("token_seq", "token_pos")]
        inputs = [tensor("input_embed", [batch_size, seq_len, HIDDEN]), *more, *cache, *tokens, packed]
        return {"inputs": inputs, "outputs": [tensor("logits", logits)], "workspace_bytes": 0}

    rows = [tensor(name, ["batch_size"]) for name in ("temperature", "top_p", "uniform")]
    filters = [tensor(name, ["batch_size"]) for name in ("temperature", "top_p", "min_p", "typical_p", "uniform")]
    filters.insert(1, tensor("top_k", ["batch_size"], "int32"))
    tokens = [tensor(name, ["batch_size", "num_tokens"], "int32") for name in ("token_ids", "counts")]
    tokens.append(tensor("bias", ["batch_size", "num_tokens"]))
    factors = [tensor(name, ["batch_size"]) for name in ("presence", "frequency", "repetition")]
    penalized = [tensor("logits", ["batch_size", vocab]) | {"written": True}, *tokens, *factors]
    return {
        "format": "mlc-lib-3",
        "model_type": "fake",
        "quantization": "q0f32",
        "vocab_size": vocab,
        "context_window_size": context,
        "prefill_chunk_size": chunk,
        "max_batch_size": batch,
        "params": [
            {"name": "embedding", "shape": [vocab, HIDDEN], "dtype": "float32", "packed": None},
            {
                "name": "bias",
                "shape": [1],
                "dtype": "float32",
                "packed": {"shape": [1], "dtype": "float32", "function": "pack_negate"},
            },
        ],
        "task": "chat",
        "sliding_window_size": -1,
        "attention_sink_size": 0,
        "tensor_parallel_shards": 1,
        "pipeline_parallel_stages": 1,
        "kv_state_kind": "kv_cache",
        "memory_usage": {},
        "states": [
            {
                "kind": "paged_kv",
                "prefix": "",
                "num_hidden_layers": LAYERS,
                "num_key_value_heads": HEADS,
                "head_dim": HEAD_DIM,
                "v_head_dim": HEAD_DIM,
                "page_size": PAGE,
                "dtype": "float32",
                "sliding_window_size": -1,
                "attention_sink_size": 0,
            }
        ],
        "functions": {
            "embed": {
                "inputs": [tensor("input_ids", ["seq_len"], "int32"), packed],
                "outputs": [tensor("embedding", ["seq_len", HIDDEN])],
            },
            "prefill": model_function(1, "seq_len", [1, 1, vocab]),
            "decode": model_function(1, 1, [1, 1, vocab]),
            "batch_decode": model_function("batch_size", 1, ["batch_size", 1, vocab]),
            "batch_prefill": model_function(
                1, "seq_len", [1, "batch_size", vocab], [tensor("logit_positions", ["batch_size"], "int32")]
            ),
            "batch_verify": model_function(1, "seq_len", [1, "seq_len", vocab]),
            HIDDEN_STATES: model_function(1, "seq_len", [1, "seq_len", HIDDEN]),
            "penalize": {"inputs": penalized, "outputs": []},
            "sample": {
                "inputs": [tensor("logits", ["batch_size", vocab]), *rows],
                "outputs": [tensor("token", ["batch_size"], "int32")],
            },
            "sample_filtered": {
                "inputs": [tensor("logits", ["batch_size", vocab]), *filters],
                "outputs": [tensor("token", ["batch_size"], "int32")],
            },
            "logprobs": {
                "inputs": [tensor("logits", ["batch_size", vocab]), tensor("token", ["batch_size"], "int32")],
                "outputs": [
                    tensor("logprob", ["batch_size"]),
                    tensor("top", ["batch_size", 20]),
                    tensor("tokens", ["batch_size", 20], "int32"),
                ],
            },
        },
    }


def tensor(name: str, shape: list, dtype: str = "float32") -> dict:
    return {"name": name, "shape": shape, "dtype": dtype}


def byte_tokenizer() -> tokenizers.Tokenizer:
    """One token per byte, in the byte-level form of GPT-2, and two special tokens: 258 ids."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOS, BOS])
    return tokenizer


TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[a]{% endif %}"
)


def write_folder(folder: Path, vocab: int = 258, **config: object) -> Path:
    """A model folder for the fake library: weights (the bias as f32-to-bf16), config, tokenizer, chat template."""
    embedding = np.zeros((vocab, HIDDEN), np.float32)
    embedding[:, :HEAD_DIM] = np.arange(vocab)[:, None]
    write_weights(folder, {"embedding": (embedding, "raw"), "bias": (np.array([BIAS], np.float32), "f32-to-bf16")})
    defaults = {"temperature": 0.0, "top_p": 1.0, "eos_token_id": 256, "conv_template": {}}
    (folder / "mlc-chat-config.json").write_text(json.dumps(defaults | config))
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": BOS, "eos_token": {"content": EOS}}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def write_weights(folder: Path, tensors: dict[str, tuple[np.ndarray, str]]) -> None:
    """Write tensor-cache.json and one shard with the given arrays, each with its storage format.

    f32-to-bf16 changes float32 arrays only: the public tool writes that format in every record.
    """
    data, records = b"", []
    for name, (array, storage) in tensors.items():
        narrow = storage == "f32-to-bf16" and array.dtype == np.float32
        raw = array.astype(ml_dtypes.bfloat16 if narrow else array.dtype).tobytes()
        records.append(
            {
                "name": name,
                "shape": list(array.shape),
                "dtype": array.dtype.name,
                "format": storage,
                "nbytes": len(raw),
                "byteOffset": len(data),
            }
        )
        data += raw
    shard = {"dataPath": "params_shard_0.bin", "format": "raw-shard", "nbytes": len(data), "records": records}
    shard["md5sum"] = hashlib.md5(data).hexdigest()
    (folder / "params_shard_0.bin").write_bytes(data)
    (folder / "tensor-cache.json").write_text(json.dumps({"metadata": {}, "records": [shard]}))
