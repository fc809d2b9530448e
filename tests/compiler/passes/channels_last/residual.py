# ruff: noqa
# Two convolutions with norms and a sum in between: transpositions remain before the first and after the last operator.
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("n", 8, 9, 9), "float32"),
        w: R.Tensor((8, 8, 3, 3), "float32"),
        v: R.Tensor((8, 1, 3, 3), "float32"),
        bias: R.Tensor((8,), "float32"),
    ):
        with R.dataflow():
            y = R.nn.conv2d(x, w, padding=1)
            b = R.reshape(bias, (8, 1, 1))
            z = R.nn.relu(R.add(y, b))
            d = R.nn.conv2d(z, v, strides=2, groups=8)
            p = R.nn.max_pool2d(d, pool_size=2)
            s = R.add(p, R.const(1.0, "float32"))
            m = R.mean(s, axis=[2, 3])
            R.output(z, m)
        return (z, m)


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("n", 8, 9, 9), dtype="float32"),
        w: R.Tensor((8, 8, 3, 3), dtype="float32"),
        v: R.Tensor((8, 1, 3, 3), dtype="float32"),
        bias: R.Tensor((8,), dtype="float32"),
    ) -> R.Tuple(R.Tensor(("n", 8, 9, 9), dtype="float32"), R.Tensor(("n", 8), dtype="float32")):
        n = T.int64()
        with R.dataflow():
            x_last: R.Tensor((n, 9, 9, 8), dtype="float32") = R.permute_dims(x, axes=(0, 2, 3, 1))
            padded_last: R.Tensor((n, 11, 11, 8), dtype="float32") = R.nn.pad(
                x_last, pad_width=(0, 0, 1, 1, 1, 1, 0, 0), pad_mode="constant", pad_value=0.0
            )
            y_last: R.Tensor((n, 9, 9, 8), dtype="float32") = R.nn.conv2d(
                padded_last, w, strides=1, padding=0, dilation=1, groups=1, data_layout="NHWC"
            )
            y: R.Tensor((n, 8, 9, 9), dtype="float32") = R.permute_dims(y_last, axes=(0, 3, 1, 2))
            b: R.Tensor((8, 1, 1), dtype="float32") = R.reshape(bias, R.shape([8, 1, 1]))
            lv_last: R.Tensor((n, 9, 9, 8), dtype="float32") = R.add(y_last, bias)
            lv: R.Tensor((n, 8, 9, 9), dtype="float32") = R.permute_dims(lv_last, axes=(0, 3, 1, 2))
            z_last: R.Tensor((n, 9, 9, 8), dtype="float32") = R.nn.relu(lv_last)
            z: R.Tensor((n, 8, 9, 9), dtype="float32") = R.permute_dims(z_last, axes=(0, 3, 1, 2))
            d_last: R.Tensor((n, 4, 4, 8), dtype="float32") = R.nn.conv2d(
                z_last, v, strides=2, padding=0, dilation=1, groups=8, data_layout="NHWC"
            )
            d: R.Tensor((n, 8, 4, 4), dtype="float32") = R.permute_dims(d_last, axes=(0, 3, 1, 2))
            p_last: R.Tensor((n, 3, 3, 8), dtype="float32") = R.nn.max_pool2d(
                d_last, pool_size=2, strides=1, padding=0, dilation=1, ceil_mode=False, layout="NHWC"
            )
            p: R.Tensor((n, 8, 3, 3), dtype="float32") = R.permute_dims(p_last, axes=(0, 3, 1, 2))
            s_last: R.Tensor((n, 3, 3, 8), dtype="float32") = R.add(p_last, R.const(1.0, "float32"))
            s: R.Tensor((n, 8, 3, 3), dtype="float32") = R.permute_dims(s_last, axes=(0, 3, 1, 2))
            m: R.Tensor((n, 8), dtype="float32") = R.mean(s_last, axis=(1, 2), keepdims=False)
            R.output(z, m)
        return (z, m)
