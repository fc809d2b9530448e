import numpy as np
import pytest

from model_zoo.config import DecoderConfig
from model_zoo.weight_expr import CheckpointTensor, Concat, Oriented, Permute, Transpose, UnitRows
from model_zoo.weight_map import WeightMap, WeightMapError
from model_zoo.weight_rules import grouped_qkv


def shapes_of(arrays):
    return {name: array.shape for name, array in arrays.items()}


def produce(weight_map, parameters, arrays):
    plan = weight_map.resolve(parameters, shapes_of(arrays))
    return {p.name: p.value.evaluate(arrays.__getitem__) for p in plan.productions}


def matrix(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_unnamed_parameters_keep_their_name():
    arrays = {"norm.weight": matrix(3)}
    assert np.array_equal(produce(WeightMap(), {"norm.weight": (3,)}, arrays)["norm.weight"], arrays["norm.weight"])


def test_concat_applies_to_weight_and_bias():
    arrays = {f"{p}.{kind}": matrix(*shape) for p in "qk" for kind, shape in (("weight", (2, 3)), ("bias", (2,)))}
    m = WeightMap()
    m.concat("qk", ["q", "k"], axis=0)
    made = produce(m, {"qk.weight": (4, 3), "qk.bias": (4,)}, arrays)
    assert np.array_equal(made["qk.weight"], np.concatenate([arrays["q.weight"], arrays["k.weight"]]))
    assert np.array_equal(made["qk.bias"], [0, 1, 0, 1])


def test_transpose_swaps_a_weight_and_keeps_a_bias():
    arrays = {"c.weight": matrix(2, 3), "c.bias": matrix(3)}
    m = WeightMap()
    m.transpose("c")
    made = produce(m, {"c.weight": (3, 2), "c.bias": (3,)}, arrays)
    assert np.array_equal(made["c.weight"], arrays["c.weight"].T)
    assert np.array_equal(made["c.bias"], [0, 1, 2])


def test_a_computed_parameter_is_a_function_of_arrays():
    arrays = {"a": matrix(2, 3).astype(np.float16), "b": matrix(3, 2)}
    m = WeightMap()
    m.computed("ab", ["a", "b"], lambda a, b: a.T - b)
    made = produce(m, {"ab": (3, 2)}, arrays)
    assert made["ab"].tolist() == [[0, 2], [-1, 1], [-2, 0]]
    with pytest.raises(WeightMapError, match="1 tensors do not have the shape") as error:
        m.resolve({"ab": (2, 3)}, shapes_of(arrays))
    assert error.value.where == ("ab has shape [3, 2]; the config gives [2, 3] (<lambda>(a, b))",)
    with pytest.raises(WeightMapError) as error:
        m.resolve({"ab": (3, 2)}, {"a": (2, 3), "b": (4, 2)})
    assert "got float32 [2, 3], float32 [4, 2]; ValueError: operands could not be" in error.value.where[0]


def test_split_takes_its_sizes_from_the_targets():
    m = WeightMap()
    m.split(["q", "k"], "qk")
    made = produce(m, {"q.weight": (3, 2), "k.weight": (1, 2)}, {"qk.weight": matrix(4, 2)})
    assert np.array_equal(made["q.weight"], [[0, 1], [2, 3], [4, 5]])
    assert np.array_equal(made["k.weight"], [[6, 7]])


def test_split_must_use_the_whole_source():
    m = WeightMap()
    m.split(["q", "k"], "qk")
    with pytest.raises(WeightMapError, match="take 4 of 5 along axis 0"):
        m.resolve({"q.weight": (3, 2), "k.weight": (1, 2)}, {"qk.weight": (5, 2)})


def test_stack_of_concatenations_as_for_experts():
    arrays = {f"{e}.{w}": matrix(2, 2) + 10 * e for e in range(3) for w in ("w1", "w3")}
    m = WeightMap()
    m.stack("experts", [Concat((CheckpointTensor(f"{e}.w1"), CheckpointTensor(f"{e}.w3"))) for e in range(3)])
    made = produce(m, {"experts": (3, 4, 2)}, arrays)["experts"]
    assert np.array_equal(made[2], [[20, 21], [22, 23], [20, 21], [22, 23]])


def test_permute_reorders_rows_of_weight_and_bias():
    m = WeightMap()
    m.permute("q", view=(1, 2, 2), order=(0, 2, 1))
    made = produce(m, {"q.weight": (4, 1), "q.bias": (4,)}, {"q.weight": matrix(4, 1), "q.bias": matrix(4)})
    assert made["q.weight"].ravel().tolist() == [0, 2, 1, 3]
    assert made["q.bias"].tolist() == [0, 2, 1, 3]


def test_permute_reorders_columns():
    m = WeightMap()
    m.permute("up.weight", view=(2, 2), order=(1, 0), axis=1)
    made = produce(m, {"up.weight": (2, 4)}, {"up.weight": matrix(2, 4)})["up.weight"]
    assert made.tolist() == [[0, 2, 1, 3], [4, 6, 5, 7]]


def test_row_blocks_of_transposed_and_permuted_experts_are_blocks_of_experts():
    experts = matrix(3, 5, 4)
    value = Permute((Transpose((CheckpointTensor("up"),)),), (2, 2), (1, 0), 1)
    blocks = list(value.row_blocks(lambda name: experts, lambda name: iter([experts[:1], experts[1:]])))
    assert [block.shape for block in blocks] == [(1, 4, 5), (2, 4, 5)]
    assert np.array_equal(np.concatenate(blocks), np.swapaxes(experts, 1, 2)[:, [0, 2, 1, 3]])


def test_row_blocks_of_a_transposed_matrix_are_one():
    rows = matrix(3, 2)
    value = Transpose((CheckpointTensor("c"),))
    blocks = list(value.row_blocks(lambda name: rows, lambda name: iter([rows[:1], rows[1:]])))
    assert [block.tolist() for block in blocks] == [rows.T.tolist()]


def test_offset_is_added_in_float32():
    m = WeightMap()
    m.offset("norm.weight", 1.0)
    made = produce(m, {"norm.weight": (2,)}, {"norm.weight": np.array([0.5, 2.0**-12], np.float16)})
    assert made["norm.weight"].tolist() == [1.5, 1 + 2.0**-12]


def test_unit_rows_have_length_1():
    m = WeightMap()
    m.rename("head.weight", UnitRows((CheckpointTensor("head.weight"),)))
    made = produce(m, {"head.weight": (2, 2)}, {"head.weight": np.array([[3, 4], [0, 0]], np.float16)})["head.weight"]
    np.testing.assert_allclose(made, [[0.6, 0.8], [0, 0]], rtol=1e-6)


def test_rows_of_queries_keys_and_values_by_group():
    """Two groups of two queries, a key and a value, heads of one element."""
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 1, "intermediate_size": 1}
    config = DecoderConfig(vocab_size=1, hidden_size=4, num_hidden_layers=1, **sizes)
    m = WeightMap()
    m.rename("qkv", grouped_qkv(config, "wqkv"))
    arrays = {"wqkv.bias": np.array(["q0", "q1", "k0", "v0", "q2", "q3", "k1", "v1"])}
    made = produce(m, {"qkv.bias": (8,)}, arrays)["qkv.bias"]
    assert made.tolist() == ["q0", "q1", "q2", "q3", "k0", "k1", "v0", "v1"]


def test_row_blocks_of_a_concatenation_are_its_parts():
    arrays = {"a": matrix(1, 2), "b": matrix(2, 2)}
    rows = {"a": [arrays["a"]], "b": [arrays["b"][:1], arrays["b"][1:]]}
    both = Concat((CheckpointTensor("a"), CheckpointTensor("b")))
    blocks = list(both.row_blocks(arrays.__getitem__, lambda name: iter(rows[name])))
    assert [block.shape for block in blocks] == [(1, 2), (1, 2), (1, 2)]
    assert np.array_equal(np.concatenate(blocks), both.evaluate(arrays.__getitem__))


def test_one_source_can_make_two_parameters():
    m = WeightMap()
    m.rename("head", "wte")
    made = produce(m, {"wte.weight": (2, 2), "head.weight": (2, 2)}, {"wte.weight": matrix(2, 2)})
    assert np.array_equal(made["head.weight"], made["wte.weight"])


def test_order_follows_the_first_source_in_the_checkpoint():
    m = WeightMap()
    m.concat("qk", ["q", "k"])
    plan = m.resolve({"norm.weight": (1,), "qk.weight": (2, 1), "o.weight": (1,)},
                     {"k.weight": (1, 1), "o.weight": (1,), "q.weight": (1, 1), "norm.weight": (1,)})  # fmt: skip
    assert [p.name for p in plan.productions] == ["qk.weight", "o.weight", "norm.weight"]


def test_a_ruled_parameter_comes_before_the_one_of_the_tensors_own_name():
    """The order of the public tool for the tied head of GPT-2."""
    m = WeightMap()
    m.rename("lm_head", "wte")
    plan = m.resolve({"wte.weight": (4, 2), "lm_head.weight": (4, 2)}, {"wte.weight": (4, 2)})
    assert [p.name for p in plan.productions] == ["lm_head.weight", "wte.weight"]


def test_missing_and_left_over_names_are_listed_with_near_matches():
    m = WeightMap()
    m.concat("layer.qkv", [f"layer.{p}_proj" for p in "qkv"])
    sources = {f"layer.{p}_proj.weight": (1, 1) for p in "qk"} | {"layer.v_prj.weight": (1, 1)}
    with pytest.raises(WeightMapError) as caught:
        m.resolve({"layer.qkv.weight": (3, 1)}, sources)
    assert caught.value.where == (
        "parameter layer.qkv.weight needs layer.v_proj.weight, which the checkpoint lacks (near: layer.v_prj.weight)",
        "tensor layer.v_prj.weight [1, 1] of the checkpoint has no use in the model (near: layer.v_proj.weight)",
    )


def test_a_bias_that_the_model_lacks_is_not_dropped():
    m = WeightMap()
    m.concat("qk", ["q", "k"])
    sources = {"q.weight": (1, 1), "k.weight": (1, 1), "q.bias": (1,)}
    with pytest.raises(WeightMapError, match="0 missing and 1 left-over"):
        m.resolve({"qk.weight": (2, 1)}, sources)


def test_wrong_shape_names_both_sides():
    with pytest.raises(WeightMapError) as caught:
        WeightMap().resolve({"o.weight": (4, 4)}, {"o.weight": (4, 2)})
    assert "o.weight has shape [4, 2]; the config gives [4, 4]" in caught.value.where[0]


def test_concat_of_misfitting_shapes_is_reported():
    m = WeightMap()
    m.concat("qk", ["q", "k"])
    with pytest.raises(WeightMapError) as caught:
        m.resolve({"qk.weight": (2, 3)}, {"q.weight": (1, 3), "k.weight": (1, 2)})
    assert "cannot concatenate along axis 0: got shapes [1, 3], [1, 2]" in caught.value.where[0]


def test_unused_patterns_and_tied_copies():
    m = WeightMap()
    m.unused("*.rotary_emb.inv_freq")
    m.tied("lm_head", to="embed")
    sources = {"embed.weight": (2, 1), "0.rotary_emb.inv_freq": (8,), "lm_head.weight": (2, 1)}
    plan = m.resolve({"embed.weight": (2, 1)}, sources)
    assert plan.unused == ("0.rotary_emb.inv_freq",)
    assert plan.copies == (("lm_head.weight", "embed.weight"),)
    assert m.resolve({"embed.weight": (2, 1)}, {"embed.weight": (2, 1)}).copies == ()


@pytest.mark.parametrize("spelled", ["wte.weight", "transformer.wte.weight"])
@pytest.mark.parametrize("written", ["wte.weight", "transformer.wte.weight"])
def test_optional_prefix_works_both_ways(spelled, written):
    m = WeightMap()
    m.optional_prefix("transformer.")
    m.rename("embed.weight", spelled)
    m.unused("h.*.attn.bias")
    plan = m.resolve({"embed.weight": (2,)}, {written: (2,), "transformer.h.0.attn.bias": (1,)})
    assert [str(p.value) for p in plan.productions] == [written]


def test_a_parameter_produced_twice_is_an_error():
    m = WeightMap()
    m.rename("a.weight", "b.weight")
    m.rename("a", "c")
    with pytest.raises(WeightMapError) as caught:
        m.resolve({"a.weight": (1,)}, {"b.weight": (1,), "c.weight": (1,)})
    assert "parameter a.weight is produced by two rules" in caught.value.where


def test_a_rule_for_an_unknown_parameter_is_an_error():
    m = WeightMap()
    m.rename("nothing", "a")
    with pytest.raises(WeightMapError) as caught:
        m.resolve({"a.weight": (1,)}, {"a.weight": (1,)})
    assert caught.value.where == ("rule for nothing: the model has no such parameter",)


def test_plan_prints_its_arithmetic():
    m = WeightMap()
    m.concat("qk", ["q", "k"], axis=0)
    plan = m.resolve({"qk.weight": (2, 1)}, {"q.weight": (1, 1), "k.weight": (1, 1)})
    assert str(plan) == "qk.weight [2, 1] = concat(q.weight, k.weight, axis=0)"


@pytest.mark.parametrize("swapped", [False, True])
def test_the_last_axes_are_swapped_where_the_shape_differs(swapped):
    expected = np.arange(24.0).reshape(2, 3, 4)
    stored = expected.swapaxes(1, 2) if swapped else expected
    value = Oriented((CheckpointTensor("x"),), (2, 3, 4))
    assert value.shape({"x": stored.shape}) == (2, 3, 4)
    np.testing.assert_array_equal(value.evaluate(lambda name: stored), expected)
    blocks = value.row_blocks(lambda name: stored, lambda name: iter([stored[:1], stored[1:]]))
    np.testing.assert_array_equal(np.concatenate(list(blocks)), expected)
