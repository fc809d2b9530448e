# ruff: noqa
# Calls of graph functions are replaced by the callee's bindings, recursively; its sizes are replaced by the arguments'
# sizes. Fused groups stay calls.
@I.ir_module
class Module:
    @R.function(private=True)
    def twice(x: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
        k = T.int64()
        doubled: R.Tensor((k,), "float32") = R.add(x, x)
        return doubled

    @R.function(private=True)
    def four_times(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        m = T.int64()
        cls = Module
        two: R.Tensor((m,), "float32") = cls.twice(x)
        four: R.Tensor((m,), "float32") = cls.twice(two)
        return four

    @R.function(private=True)
    def fused(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"Primitive": True})
        negated: R.Tensor((4,), "float32") = R.negative(x)
        return negated

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "float32")):
        n = T.int64()
        cls = Module
        flat: R.Tensor((n * 4,), "float32") = R.reshape(x, R.shape([n * 4]))
        four: R.Tensor((n * 4,), "float32") = cls.four_times(flat)
        group: R.Tensor((4,), "float32") = cls.fused(y)
        return (four, group)


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function(private=True)
    def twice(x: R.Tensor(("k",), dtype="float32")) -> R.Tensor(("k",), dtype="float32"):
        k = T.int64()
        doubled: R.Tensor((k,), dtype="float32") = R.add(x, x)
        return doubled

    @R.function(private=True)
    def four_times(x: R.Tensor(("m",), dtype="float32")) -> R.Tensor(("m",), dtype="float32"):
        m = T.int64()
        doubled: R.Tensor((m,), dtype="float32") = R.add(x, x)
        two: R.Tensor((m,), dtype="float32") = doubled
        doubled_1: R.Tensor((m,), dtype="float32") = R.add(two, two)
        four: R.Tensor((m,), dtype="float32") = doubled_1
        return four

    @R.function(private=True)
    def fused(x: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
        R.func_attr({"Primitive": True})
        negated: R.Tensor((4,), dtype="float32") = R.negative(x)
        return negated

    @R.function
    def main(x: R.Tensor(("n", 4), dtype="float32"), y: R.Tensor((4,), dtype="float32")) -> R.Tuple(
        R.Tensor(("n * 4",), dtype="float32"), R.Tensor((4,), dtype="float32")
    ):
        n = T.int64()
        cls = Module
        flat: R.Tensor((n * 4,), dtype="float32") = R.reshape(x, R.shape([n * 4]))
        doubled: R.Tensor((n * 4,), dtype="float32") = R.add(flat, flat)
        two: R.Tensor((n * 4,), dtype="float32") = doubled
        doubled_1: R.Tensor((n * 4,), dtype="float32") = R.add(two, two)
        four: R.Tensor((n * 4,), dtype="float32") = doubled_1
        four_1: R.Tensor((n * 4,), dtype="float32") = four
        group: R.Tensor((4,), dtype="float32") = cls.fused(y)
        return (four_1, group)
