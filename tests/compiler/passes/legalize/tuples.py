# ruff: noqa
# Fields of a tuple variable are bound to variables; functions with several results return a tuple.
@I.ir_module
class Module:
    @R.function
    def main(parts: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((2, 4), "float32")), x: R.Tensor((2, 7), "float32")):
        with R.dataflow():
            joined = R.concat(parts, axis=1)
            both = R.split(R.add(joined, x), indices_or_sections=[3], axis=1)
            again = R.concat(both, axis=1)
            R.output(both, again)
        return (both, again)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function
    def main(
        parts: R.Tuple(R.Tensor((2, 3), dtype="float32"), R.Tensor((2, 4), dtype="float32")),
        x: R.Tensor((2, 7), dtype="float32"),
    ) -> R.Tuple(
        R.Tuple(R.Tensor((2, 3), dtype="float32"), R.Tensor((2, 4), dtype="float32")), R.Tensor((2, 7), dtype="float32")
    ):
        cls = Module
        with R.dataflow():
            joined_in0: R.Tensor((2, 3), dtype="float32") = parts[0]
            joined_in1: R.Tensor((2, 4), dtype="float32") = parts[1]
            joined = R.call_tir(cls.concat, (joined_in0, joined_in1), out_sinfo=R.Tensor((2, 7), dtype="float32"))
            lv = R.call_tir(cls.add, (joined, x), out_sinfo=R.Tensor((2, 7), dtype="float32"))
            both = R.call_tir(
                cls.split, (lv,), out_sinfo=[R.Tensor((2, 3), dtype="float32"), R.Tensor((2, 4), dtype="float32")]
            )
            again_in0: R.Tensor((2, 3), dtype="float32") = both[0]
            again_in1: R.Tensor((2, 4), dtype="float32") = both[1]
            again = R.call_tir(cls.concat, (again_in0, again_in1), out_sinfo=R.Tensor((2, 7), dtype="float32"))
            R.output(both, again)
        return (both, again)

    @T.prim_func(private=True)
    def concat(
        tensors0: T.Buffer((2, 3), "float32"),
        tensors1: T.Buffer((2, 4), "float32"),
        concat: T.Buffer((2, 7), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        for i0, i1 in T.grid(2, 7):
            with T.block("concat"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(tensors0[v_i0, v_i1], tensors1[v_i0, v_i1 - 3])
                T.writes(concat[v_i0, v_i1])
                concat[v_i0, v_i1] = T.if_then_else(v_i1 < 3, tensors0[v_i0, v_i1], tensors1[v_i0, v_i1 - 3])

    @T.prim_func(private=True)
    def add(x: T.Buffer((2, 7), "float32"), y: T.Buffer((2, 7), "float32"), add: T.Buffer((2, 7), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        for i0, i1 in T.grid(2, 7):
            with T.block("add"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1], y[v_i0, v_i1])
                T.writes(add[v_i0, v_i1])
                add[v_i0, v_i1] = x[v_i0, v_i1] + y[v_i0, v_i1]

    @T.prim_func(private=True)
    def split(x: T.Buffer((2, 7), "float32"), split: T.Buffer((2, 3), "float32"), split_1: T.Buffer((2, 4), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 2})
        # with T.block("root"):
        for i0, i1 in T.grid(2, 3):
            with T.block("split"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, v_i1])
                T.writes(split[v_i0, v_i1])
                split[v_i0, v_i1] = x[v_i0, v_i1]
        for i0, i1 in T.grid(2, 4):
            with T.block("split_1"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(x[v_i0, 3 + v_i1])
                T.writes(split_1[v_i0, v_i1])
                split_1[v_i0, v_i1] = x[v_i0, 3 + v_i1]
