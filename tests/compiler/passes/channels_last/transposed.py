# ruff: noqa
# A transposition after a convolution cancels; operators on other axes, and tensors of no convolution, stay.
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 10, 4), "float32"), w: R.Tensor((6, 4, 3), "float32"), o: R.Tensor((2, 3, 4), "float32")):
        with R.dataflow():
            first = R.permute_dims(x, axes=[0, 2, 1])
            y = R.nn.conv1d(first, w)
            g = R.nn.gelu(y)
            last = R.permute_dims(g, axes=[0, 2, 1])
            h = R.matmul(last, R.ones((6, 5), "float32"))
            c = R.concat((y, y), axis=1)
            k = R.cumsum(c, axis=2)
            e = R.nn.relu(o)
            R.output(h, k, e)
        return (h, k, e)


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((2, 10, 4), dtype="float32"),
        w: R.Tensor((6, 4, 3), dtype="float32"),
        o: R.Tensor((2, 3, 4), dtype="float32"),
    ) -> R.Tuple(
        R.Tensor((2, 8, 5), dtype="float32"),
        R.Tensor((2, 12, 8), dtype="float32"),
        R.Tensor((2, 3, 4), dtype="float32"),
    ):
        with R.dataflow():
            first: R.Tensor((2, 4, 10), dtype="float32") = R.permute_dims(x, axes=(0, 2, 1))
            y_last: R.Tensor((2, 8, 6), dtype="float32") = R.nn.conv1d(
                x, w, strides=1, padding=0, dilation=1, groups=1, data_layout="NWC"
            )
            y: R.Tensor((2, 6, 8), dtype="float32") = R.permute_dims(y_last, axes=(0, 2, 1))
            g_last: R.Tensor((2, 8, 6), dtype="float32") = R.nn.gelu(y_last)
            g: R.Tensor((2, 6, 8), dtype="float32") = R.permute_dims(g_last, axes=(0, 2, 1))
            lv: R.Tensor((6, 5), dtype="float32") = R.ones(R.shape([6, 5]), dtype="float32")
            h: R.Tensor((2, 8, 5), dtype="float32") = R.matmul(g_last, lv)
            c_last: R.Tensor((2, 8, 12), dtype="float32") = R.concat((y_last, y_last), axis=2)
            c: R.Tensor((2, 12, 8), dtype="float32") = R.permute_dims(c_last, axes=(0, 2, 1))
            k: R.Tensor((2, 12, 8), dtype="float32") = R.cumsum(c, axis=2)
            e: R.Tensor((2, 3, 4), dtype="float32") = R.nn.relu(o)
            R.output(h, k, e)
        return (h, k, e)
