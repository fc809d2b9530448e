"""The runtime with compiled code: a general module, and a tiny Llama whose functions must give consistent results."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler.driver import build_library
from mlc_compiler.ir.module import IRModule
from mlc_compiler.script.parser import parse
from mlc_compiler.target import Target
from mlc_errors import MLCError
from mlc_runtime import LLM, Library
from mlc_runtime.arguments import ArgumentError
from mlc_runtime.library import Context
from mlc_toolchain.compile import CompileOptions, compile_model
from tests.runtime.fake_library import byte_tokenizer, write_weights

MODULE = """
from mlc_compiler.script import I, R, T

@I.ir_module
class Module:
    @R.function
    def main(a: R.Tensor(("n", 40), "float32"), b: R.Tensor((40, "m"), "float32")):
        with R.dataflow():
            product = R.matmul(a, b)
            exp = R.exp(a)
            R.output(product, exp)
        return (product, exp)

    @R.function
    def twice(a: R.Tensor(("n", 2), "float16")):
        with R.dataflow():
            joined = R.concat((a, a), axis=0)
            sum = R.add(joined, joined)
            R.output(sum)
        return sum
"""

LLAMA = {
    "hidden_size": 40,
    "intermediate_size": 56,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 20,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 258,
    "tie_word_embeddings": True,
    "position_embedding_base": 10000.0,
    "context_window_size": 64,
    "prefill_chunk_size": 8,
    "max_batch_size": 4,
}
UNUSED = ("sliding_window_size", "attention_sink_size")
ONES = ("tensor_parallel_shards", "pipeline_parallel_stages", "temperature", "repetition_penalty", "top_p")
ZEROS = ("presence_penalty", "frequency_penalty", "pad_token_id", "bos_token_id", "eos_token_id")
VOCAB = LLAMA["vocab_size"]


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Library:
    path = tmp_path_factory.mktemp("general") / "lib.so"
    build_library(parse(MODULE), Target("cpu"), path)
    return Library(path, num_threads=2)


def test_a_general_module(library):
    rng = np.random.default_rng(0)
    a, b = rng.random((7, 40), np.float32), rng.random((40, 13), np.float32)
    product, exp = library["main"](a, b)
    np.testing.assert_allclose(product, a @ b, rtol=1e-5)
    np.testing.assert_allclose(exp, np.exp(a), rtol=1e-6)
    h = rng.random((5, 2)).astype(np.float16)
    assert np.array_equal(library["twice"](h), 2 * np.concatenate([h, h]))
    assert library["main"](a[:0], b)[0].shape == (0, 13)


A, B, OUT = np.ones((3, 40), np.float32), np.ones((40, 5), np.float32), np.ones((3, 5), np.float32)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((A,), "main: takes 5 arguments; got 2"),
        ((A, B.astype(np.float64), OUT, A.copy()), "argument b has another dtype .*expected float32"),
        ((A, B[0], OUT, A.copy()), "argument b has 1 axes; expected 2"),
        ((A, B, OUT[:2], A.copy()), "argument out0 has size 2 on axis 0; expected 3"),
        ((A, B[:, ::2], OUT, A.copy()), "argument b is not contiguous"),
        ((A, None, OUT, A.copy()), "argument b is not a tensor"),
    ],
)
def test_the_library_checks_raw_calls_itself(library, args, message):
    with pytest.raises((TypeError, ValueError), match=message):
        library.raw("main")(library.context.handle, *args)


def test_an_invalid_context_is_refused(library):
    with pytest.raises(TypeError, match="the first argument is not a context"):
        library.raw("main")(0, A, B, OUT, A.copy())


def test_a_library_that_is_compiled_again_is_loaded_again(tmp_path):
    path, x = tmp_path / "lib.so", np.ones(4, np.float32)
    for operator, expected in (("negative", -1), ("abs", 1)):
        function = parse(f"@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n    return R.{operator}(x)")
        build_library(IRModule({"main": function}), Target("cpu"), path)
        assert Library(path)["main"](x).tolist() == [expected] * 4


def test_libraries_with_a_flipped_bit_are_refused(library, tmp_path):
    """Before the code is mapped, wherever the bit is: 150 places."""
    data, rng = library.path.read_bytes(), np.random.default_rng(0)
    for bit in rng.integers(8 * len(data), size=150).tolist():
        image = bytearray(data)
        image[bit // 8] ^= 1 << bit % 8
        (tmp_path / "lib.so").write_bytes(image)
        with pytest.raises(MLCError):
            Library(tmp_path / "lib.so").raw("main")


def test_contexts_with_any_number_of_threads_agree(library):
    expected = library["main"](A, B)[0]
    for threads in (1, 3):
        out = np.zeros_like(OUT)
        with Context(library, threads) as context:
            library.raw("main")(context.handle, A, B, out, A.copy())
        assert np.array_equal(out, expected)


def test_shapes_that_do_not_belong_together(library):
    with pytest.raises(ArgumentError, match=r"main: argument 'b' has shape \[39, 5\]; expected float32 \[40, m\]"):
        library["main"](A, B[:39])


@pytest.fixture(scope="module")
def llm(tmp_path_factory) -> LLM:
    """A two-layer Llama with random weights, in the order and layouts of its library's metadata."""
    folder = tmp_path_factory.mktemp("llama")
    write_config(folder)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    compile_model(CompileOptions(model=folder, output=folder / "lib.so", device="cpu"))
    rng = np.random.default_rng(0)
    params = Library(folder / "lib.so").metadata["params"]
    arrays = {p["name"]: rng.normal(0, 0.2, p["shape"]).astype(p["dtype"]) for p in params}
    write_weights(folder, {name: (array, "raw") for name, array in arrays.items()})
    return LLM(folder, num_threads=2)


def write_config(folder: Path) -> None:
    config = {"version": "0.1.0", "model_type": "llama", "quantization": "q0f32", "model_config": LLAMA}
    config |= {name: LLAMA[name] for name in ("vocab_size", "context_window_size", "prefill_chunk_size")}
    config |= dict.fromkeys(UNUSED, -1) | dict.fromkeys(ONES, 1) | dict.fromkeys(ZEROS, 0)
    roles = {"roles": {"user": "U", "assistant": "A"}}
    config |= {"active_vocab_size": VOCAB, "tokenizer_files": [], "tokenizer_info": {}, "conv_template": roles}
    (folder / "mlc-chat-config.json").write_text(json.dumps(config))


IDS = np.random.default_rng(1).integers(0, VOCAB, 30).tolist()


def test_packed_weights(llm):
    packed = [p for p in llm.model.spec.params if p.packed]
    assert packed and all(a.ctypes.data % 64 == 0 for a in llm.model.params.arrays)


def test_prefill_decode_and_verify_agree(llm):
    logits = llm.logits(IDS)  # four chunks
    session = llm.new_session()
    np.testing.assert_allclose(session.prefill(IDS), logits[-1], atol=1e-5)
    session.reset()
    steps = np.stack([session.decode_step(i).copy() for i in IDS])
    np.testing.assert_allclose(steps, logits, atol=1e-5)
    session.truncate(11)
    np.testing.assert_allclose(session.prefill(IDS[11:20]), logits[19], atol=1e-5)


def test_sequences_in_a_batch_do_not_see_each_other(llm):
    prompts = [IDS, IDS[:3], IDS[:17], IDS[5:9], IDS[:1]]
    alone = [llm.generate(p, max_tokens=20, temperature=0).token_ids for p in prompts]
    together = [r.token_ids for r in llm.generate(prompts, max_tokens=20, temperature=0)]
    assert together == alone
    assert len(set(alone)) == len(alone)


def test_greedy_tokens_are_the_most_likely_ones(llm):
    answer = llm.generate(IDS, max_tokens=20, temperature=0).token_ids
    logits = llm.logits([*IDS, *answer])
    assert logits[len(IDS) - 1 : -1].argmax(-1).tolist() == list(answer)


def test_penalized_tokens_are_the_most_likely_ones_after_the_penalties(llm):
    settings = {"presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.2}
    answer = list(llm.generate(IDS, max_tokens=20, temperature=0, **settings).token_ids)
    logits = llm.logits([*IDS, *answer])[len(IDS) - 1 : -1]
    for step, row in enumerate(logits):
        for token in {*IDS, *answer[:step]}:
            count = answer[:step].count(token)
            row[token] = row[token] / 1.2 if row[token] > 0 else row[token] * 1.2
            row[token] -= 1.5 + 0.5 * count if count else 0
    assert logits.argmax(-1).tolist() == answer
    assert answer != list(llm.generate(IDS, max_tokens=20, temperature=0).token_ids)


def test_biased_tokens_are_the_most_likely_ones_with_the_bias(llm):
    """A token outside of the text is not repeated: its sum is not divided."""
    plain = llm.logits(IDS)[-1]
    first, second = plain.argsort()[::-1][:2].tolist()
    needed = float(plain[first] - plain[second])
    for bias, token in ((needed - 0.01, first), (needed + 0.01, second)):
        settings = {"max_tokens": 1, "temperature": 0, "logit_bias": {second: bias}}
        assert llm.generate(IDS, **settings).token_ids == (token,)
        assert [r.token_ids for r in llm.generate([IDS, IDS], **settings)] == [(token,), (token,)]
    absent = next(t for t in range(1, VOCAB) if t not in IDS)  # 0 ends an answer
    only = llm.generate(IDS, max_tokens=3, temperature=0, logit_bias={absent: 50}, repetition_penalty=2)
    assert only.token_ids == (absent,) * 3


def test_sampled_tokens_lie_in_the_nucleus(llm):
    logits = np.repeat(llm.logits(IDS)[-1:], 4, axis=0)
    temperature, top_p = np.array([0, 0.7, 1, 2], np.float32), np.array([1, 0.5, 0.9, 0.3], np.float32)
    seen = [set() for _ in range(4)]
    for uniform in np.linspace(0, 1, 200, endpoint=False, dtype=np.float32):
        for row, token in enumerate(llm.library["sample"](logits, temperature, top_p, np.full(4, uniform))):
            seen[row].add(int(token))
    assert seen[0] == {int(logits[0].argmax())}
    for row in (1, 2, 3):
        p = np.exp(logits[row].astype(np.float64) / temperature[row])
        order = np.argsort(-p)
        nucleus = order[: int(np.searchsorted(np.cumsum(p[order]) / p.sum(), top_p[row])) + 1]
        assert seen[row] <= set(nucleus.tolist()) and len(seen[row]) > len(nucleus) // 4


def test_threads_share_a_compiled_model(llm):
    """Each of four threads asks 20 times; the answers are those of one thread."""
    settings = [{"temperature": 0}, {"temperature": 0.9, "top_k": 20, "seed": 7}]
    prompts = [[5, 1 + i, 9, 30 + i] for i in range(20)]
    expected = [llm.generate(p, max_tokens=6, **settings[i % 2]).token_ids for i, p in enumerate(prompts)]

    def ask(i: int) -> bool:
        return llm.generate(prompts[i], max_tokens=6, **settings[i % 2]).token_ids == expected[i]

    with ThreadPoolExecutor(4) as pool:
        right = list(pool.map(ask, list(range(20)) * 4))
    assert right == [True] * 80


WILD = np.array([1 << 28, -(1 << 28), (1 << 31) - 1, -(1 << 31), -1, 0, 1, 64], np.int32)
CALLS = {"prefill": (1, 8), "decode": (1, 1), "batch_prefill": (1, 8), "batch_decode": (4, 1), "batch_verify": (1, 8)}


@pytest.mark.parametrize("function", CALLS)
@pytest.mark.parametrize("array", ["page_table", "token_seq", "token_pos", "logit_positions"])
def test_values_out_of_range_write_no_other_page(llm, function, array):
    """Pages, sequences, positions that do not exist: results are finite, and no other page is written."""
    batch, length = CALLS[function]
    n = batch * length
    inputs = {
        "input_embed": np.ones((batch, length, LLAMA["hidden_size"]), np.float32),
        "k_pages": np.zeros((2, 3, 2, 20, 16), np.float32),
        "v_pages": np.zeros((2, 3, 2, 16, 20), np.float32),
        "page_table": np.array([[1, 1, 1], [1, 1, 1]], np.int32),
        "token_seq": np.zeros(n, np.int32),
        "token_pos": np.arange(n, dtype=np.int32),
        "logit_positions": np.array([0, n - 1], np.int32),
    }
    for shift in range(len(WILD)):
        inputs[array].flat = np.resize(np.roll(WILD, shift), inputs[array].size)
        before = inputs["token_pos"].copy()
        (logits,) = llm.model.call(function, inputs)
        assert np.isfinite(logits).all() and np.array_equal(before, inputs["token_pos"])
        untouched = [2] if array == "page_table" else [0, 2]
        assert not inputs["k_pages"][:, untouched].any() and not inputs["v_pages"][:, untouched].any()


def test_ids_out_of_range_are_clamped(llm):
    (rows,) = llm.model.call("embed", {"input_ids": WILD})
    (expected,) = llm.model.call("embed", {"input_ids": WILD.clip(0, VOCAB - 1)})
    assert np.array_equal(rows, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -1.0])
def test_tokens_are_in_the_vocabulary_whatever_is_drawn_from(llm, value):
    ones = np.ones(3, np.float32)
    logits = np.zeros((3, VOCAB), np.float32)
    wild = np.full(3, value, np.float32)
    settings = {"temperature": ones, "top_p": ones, "uniform": ones}
    for name in settings:
        (token,) = llm.model.call("sample", {"logits": logits, **settings, name: wild})
        assert ((token >= 0) & (token < VOCAB)).all()
    (token,) = llm.model.call("sample", {"logits": logits + value, **settings})
    assert ((token >= 0) & (token < VOCAB)).all()


def test_penalties_of_ids_out_of_range_change_nothing(llm):
    settings = dict.fromkeys(("presence", "frequency", "repetition"), np.full(2, 1.5, np.float32))
    ids = np.resize(WILD, (2, 8))
    logits = llm.logits(IDS)[:2].copy()
    before = logits.copy()
    llm.library["penalize"](logits, ids, np.ones_like(ids), np.zeros(ids.shape, np.float32), *settings.values())
    changed = [i for i in WILD if 0 <= i < VOCAB]
    np.testing.assert_array_equal(np.delete(logits, changed, 1), np.delete(before, changed, 1))
    assert (logits[:, changed] < before[:, changed]).all()
