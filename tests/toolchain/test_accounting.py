import math
from dataclasses import replace

import pytest

from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.target import Target
from mlc_evaluation.step_costs import step_cost
from mlc_toolchain.accounting import accounting
from model_zoo import qwen3_moe, registry
from quantization.schemes import get_scheme

EXPERTS, CHOSEN = 16, 3
SIZES = {"vocab_size": 256, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
CONFIG = replace(qwen3_moe.TINY, **SIZES, moe_intermediate_size=32, num_experts=EXPERTS, num_experts_per_tok=CHOSEN)
BYTES = {"uint32": 4, "float16": 2, "float32": 4}


@pytest.mark.parametrize("scheme", ["q0f16", "q4f16_1"])
def test_steps_of_a_model_with_experts_read_the_chosen_ones(scheme: str) -> None:
    exported = registry.export_model(CONFIG, get_scheme(scheme), "float16")
    functions = {name: f for name, f in exported.mod.functions.items() if "prefill" not in name}
    lowered = run_passes(exported.mod.with_functions(functions), pipeline(Target("cpu:x86-64-v3")))
    states = {s.prefix + name for s in exported.states for name in s.fields()}
    metadata = {"accounting": accounting(lowered, states), "kv_bytes_per_token": 0}

    sizes = {p.name: math.prod(p.shape) * BYTES[p.dtype] for p in exported.params if "embed_tokens" not in p.name}
    experts = sum(size for name, size in sizes.items() if ".moe_" in name)
    others = sum(sizes.values()) - experts
    assert step_cost(metadata, "decode", 1).weight_bytes == others + experts * CHOSEN // EXPERTS
    assert step_cost(metadata, "batch_decode", 2).weight_bytes == others + experts * 2 * CHOSEN // EXPERTS
    assert step_cost(metadata, "batch_decode", 9).weight_bytes == others + experts
