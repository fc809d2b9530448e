# ruff: noqa
# Tuple and shape parameters are flattened, with their nesting in ``arguments``; a tensor of which only the rank is
# known gets symbolic sizes.
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        weights: R.Tuple(R.Tensor((4,), "float32"), R.Tuple(R.Tensor((4,), "float32"))),
        rows: R.Shape(["m"]),
        table: R.Tensor(ndim=2, dtype="int32"),
    ):
        n = T.int64()
        m = T.int64()
        scaled: R.Tensor((n, 4), "float32") = R.multiply(x, weights[0])
        shifted: R.Tensor((n, 4), "float32") = R.add(scaled, weights[1][0])
        zeros: R.Tensor((m, 4), "float32") = R.zeros(R.shape([m, 4]), dtype="float32")
        return (shifted, zeros, rows, table)


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("n", 4), dtype="float32"),
        weights_0: R.Tensor((4,), dtype="float32"),
        weights_1_0: R.Tensor((4,), dtype="float32"),
        rows_0: R.Prim("int64", value="m"),
        table: R.Tensor(("table_0", "table_1"), dtype="int32"),
    ) -> R.Tuple(
        R.Tensor(("n", 4), dtype="float32"),
        R.Tensor(("m", 4), dtype="float32"),
        R.Shape(["m"]),
        R.Tensor(dtype="int32", ndim=2),
    ):
        n = T.int64()
        m = T.int64()
        table_0 = T.int64()
        table_1 = T.int64()
        R.func_attr({"arguments": (0, (1, (2,)), (3,), 4), "tir_non_negative_var": ("m",)})
        scaled: R.Tensor((n, 4), dtype="float32") = R.multiply(x, weights_0)
        shifted: R.Tensor((n, 4), dtype="float32") = R.add(scaled, weights_1_0)
        zeros: R.Tensor((m, 4), dtype="float32") = R.zeros(R.shape([m, 4]), dtype="float32")
        return (shifted, zeros, R.shape([m]), table)
