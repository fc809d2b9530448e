"""After every pass of a compilation, the printed module parses back to the same module."""

import pytest

from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.script import parse, to_text
from mlc_compiler.target import Target
from model_zoo import registry
from model_zoo.llama import LlamaConfig
from quantization.schemes import get_scheme
from tests.model_zoo.exported import without_functions

CONFIG = LlamaConfig(
    vocab_size=96,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    context_window_size=64,
)


LEFT_OUT = ("prefill", "batch_decode", "batch_verify", "batch_prefill_to_last_hidden_states", "sample", "logprobs")
CASES = [("znver4", "q4f16_1"), ("x86-64-v3", "q4f16_1"), ("x86-64", "q0f32")]


@pytest.mark.parametrize(("cpu", "scheme"), CASES)
def test_every_pass_leaves_a_module_that_reads_back(cpu: str, scheme: str):
    target, texts = Target(f"cpu:{cpu}"), []
    assert target.has("avx512vnni") == (cpu == "znver4") and target.has("avx2") == (cpu != "x86-64")

    def check(mod: IRModule) -> None:
        printed = to_text(mod)
        if printed.text not in texts[-1:]:
            again = parse(printed.text, printed.constants)
            assert first_difference(again, mod) is None
        texts.append(printed.text)

    exported = registry.export_model(CONFIG, get_scheme(scheme)).mod
    run_passes(without_functions(exported, LEFT_OUT), pipeline(target), check=check)
    assert len(texts) == len(pipeline(target)) and len(set(texts)) > 15
