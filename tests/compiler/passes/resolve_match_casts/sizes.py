# ruff: noqa
# A size that ``match_cast`` defines is replaced by the value's size; others that are not provably equal are listed in
# ``size_checks``.
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("m",), "float32")):
        n = T.int64()
        m = T.int64()
        k = T.int64()
        flat: R.Tensor((n * 4,), "float32") = R.reshape(x, R.shape([n * 4]))
        named: R.Tensor((k,), "float32") = R.match_cast(flat, R.Tensor((k,), "float32"))
        equal: R.Tensor((k,), "float32") = R.match_cast(y, R.Tensor((k,), "float32"))
        same: R.Tensor((n * 4,), "float32") = R.match_cast(named, R.Tensor((n * 4,), "float32"))
        total: R.Tensor((k,), "float32") = R.add(equal, same)
        return total


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), dtype="float32"), y: R.Tensor(("m",), dtype="float32")) -> R.Tensor(
        ("n * 4",), dtype="float32"
    ):
        n = T.int64()
        m = T.int64()
        R.func_attr({"size_checks": (("equal on axis 0", m, n * 4),)})
        flat: R.Tensor((n * 4,), dtype="float32") = R.reshape(x, R.shape([n * 4]))
        named: R.Tensor((n * 4,), dtype="float32") = flat
        equal: R.Tensor((n * 4,), dtype="float32") = y
        same: R.Tensor((n * 4,), dtype="float32") = named
        total: R.Tensor((n * 4,), dtype="float32") = R.add(equal, same)
        return total
