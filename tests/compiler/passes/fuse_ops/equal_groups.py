# ruff: noqa
# Equal groups share one function, also across functions with different symbolic sizes; a size that is no axis of the
# group's tensors is passed as a shape.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def scale(x: T.handle, y: T.handle):
        T.func_attr({"op_pattern": "elementwise"})
        n = T.int64()
        a = T.match_buffer(x, (n, 8), "float32")
        b = T.match_buffer(y, (n, 8), "float32")
        T.evaluate(0)

    @T.prim_func(private=True)
    def shift(x: T.handle, y: T.handle, by: T.int64):
        T.func_attr({"op_pattern": "elementwise"})
        n = T.int64()
        a = T.match_buffer(x, (n, 8), "float32")
        b = T.match_buffer(y, (n, 8), "float32")
        T.evaluate(0)

    @R.function
    def first(x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("m",), "float32")):
        n = T.int64()
        m = T.int64()
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.scale, (x,), out_sinfo=R.Tensor((n, 8), "float32"))
            lv1 = R.call_tir(cls.scale, (lv,), out_sinfo=R.Tensor((n, 8), "float32"))
            lv2 = R.call_tir(cls.exp, (lv1,), out_sinfo=R.Tensor((n, 8), "float32"))
            lv3 = R.call_tir(cls.scale, (lv2,), out_sinfo=R.Tensor((n, 8), "float32"))
            gv = R.call_tir(cls.shift, (lv3,), out_sinfo=R.Tensor((n, 8), "float32"), tir_vars=R.shape([m + n]))
            R.output(gv)
        return gv

    @R.function
    def second(x: R.Tensor(("seq_len", 8), "float32")):
        seq_len = T.int64()
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.scale, (x,), out_sinfo=R.Tensor((seq_len, 8), "float32"))
            gv = R.call_tir(cls.scale, (lv,), out_sinfo=R.Tensor((seq_len, 8), "float32"))
            R.output(gv)
        return gv

    @T.prim_func(private=True)
    def exp(x: T.handle, y: T.handle):
        T.func_attr({"op_pattern": "opaque"})
        n = T.int64()
        a = T.match_buffer(x, (n, 8), "float32")
        b = T.match_buffer(y, (n, 8), "float32")
        T.evaluate(0)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def scale(var_a: T.handle, var_b: T.handle):
        T.func_attr({"op_pattern": "elementwise"})
        n = T.int64()
        a = T.match_buffer(var_a, (n, 8), "float32")
        b = T.match_buffer(var_b, (n, 8), "float32")
        T.evaluate(0)

    @T.prim_func(private=True)
    def shift(var_a: T.handle, var_b: T.handle, by: T.int64):
        T.func_attr({"op_pattern": "elementwise"})
        n = T.int64()
        a = T.match_buffer(var_a, (n, 8), "float32")
        b = T.match_buffer(var_b, (n, 8), "float32")
        T.evaluate(0)

    @R.function
    def first(x: R.Tensor(("n", 8), dtype="float32"), y: R.Tensor(("m",), dtype="float32")) -> R.Tensor(
        ("n", 8), dtype="float32"
    ):
        n = T.int64()
        m = T.int64()
        cls = Module
        with R.dataflow():
            lv1: R.Tensor((n, 8), dtype="float32") = cls.fused_scale_scale(x)
            lv2 = R.call_tir(cls.exp, (lv1,), out_sinfo=R.Tensor((n, 8), dtype="float32"))
            gv: R.Tensor((n, 8), dtype="float32") = cls.fused_scale_shift(lv2, R.shape([m]))
            R.output(gv)
        return gv

    @R.function
    def second(x: R.Tensor(("seq_len", 8), dtype="float32")) -> R.Tensor(("seq_len", 8), dtype="float32"):
        seq_len = T.int64()
        cls = Module
        with R.dataflow():
            gv: R.Tensor((seq_len, 8), dtype="float32") = cls.fused_scale_scale(x)
            R.output(gv)
        return gv

    @T.prim_func(private=True)
    def exp(var_a: T.handle, var_b: T.handle):
        T.func_attr({"op_pattern": "opaque"})
        n = T.int64()
        a = T.match_buffer(var_a, (n, 8), "float32")
        b = T.match_buffer(var_b, (n, 8), "float32")
        T.evaluate(0)

    @R.function(private=True)
    def fused_scale_scale(a: R.Tensor(("n", 8), dtype="float32")) -> R.Tensor(("n", 8), dtype="float32"):
        n = T.int64()
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.scale, (a,), out_sinfo=R.Tensor((n, 8), dtype="float32"))
            gv = R.call_tir(cls.scale, (lv,), out_sinfo=R.Tensor((n, 8), dtype="float32"))
            R.output(gv)
        return gv

    @R.function(private=True)
    def fused_scale_shift(a: R.Tensor(("n", 8), dtype="float32"), sizes: R.Shape(["m"])) -> R.Tensor(
        ("n", 8), dtype="float32"
    ):
        n = T.int64()
        m = T.int64()
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.scale, (a,), out_sinfo=R.Tensor((n, 8), dtype="float32"))
            gv = R.call_tir(cls.shift, (lv,), out_sinfo=R.Tensor((n, 8), dtype="float32"), tir_vars=R.shape([m + n]))
            R.output(gv)
        return gv
