# ruff: noqa
# Sizes passed as a shape: one that is an axis of the result is dropped, the other becomes a scalar parameter. The two
# groups differ only in names and become one function.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def iota(var_y: T.handle, start: T.int64):
        T.func_attr({"op_pattern": "elementwise"})
        n = T.int64()
        y = T.match_buffer(var_y, (n,), "int64")
        for i in range(n):
            with T.block("y"):
                vi = T.axis.spatial(n, i)
                y[vi] = vi + start

    @T.prim_func(private=True)
    def negate(var_x: T.handle, var_y: T.handle):
        T.func_attr({"op_pattern": "elementwise"})
        n = T.int64()
        x = T.match_buffer(var_x, (n,), "int64")
        y = T.match_buffer(var_y, (n,), "int64")
        for i in range(n):
            with T.block("y"):
                vi = T.axis.spatial(n, i)
                y[vi] = T.int64(0) - x[vi]

    @R.function(private=True)
    def fused_iota_negate(sizes: R.Shape(["n", "m"])):
        R.func_attr({"Primitive": 1})
        n = T.int64()
        m = T.int64()
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.iota, R.tuple(), out_sinfo=R.Tensor((n,), "int64"), tir_vars=R.shape([m * 2]))
            gv = R.call_tir(cls.negate, (lv,), out_sinfo=R.Tensor((n,), "int64"))
            R.output(gv)
        return gv

    @R.function(private=True)
    def fused_iota_negate1(sizes: R.Shape(["p", "k"])):
        R.func_attr({"Primitive": 1})
        p = T.int64()
        k = T.int64()
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.iota, R.tuple(), out_sinfo=R.Tensor((k,), "int64"), tir_vars=R.shape([p * 2]))
            gv = R.call_tir(cls.negate, (lv,), out_sinfo=R.Tensor((k,), "int64"))
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor(("a", "b"), "float32")):
        a = T.int64()
        b = T.int64()
        cls = Module
        with R.dataflow():
            gv: R.Tensor((a,), "int64") = cls.fused_iota_negate(R.shape([a, b]))
            gv1: R.Tensor((a,), "int64") = cls.fused_iota_negate1(R.shape([b, a]))
            R.output(gv, gv1)
        return (gv, gv1)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def iota(var_y: T.handle, start: T.int64):
        T.func_attr({"op_pattern": "elementwise"})
        n = T.int64()
        y = T.match_buffer(var_y, (n,), "int64")
        # with T.block("root"):
        for i in range(n):
            with T.block("y"):
                vi = T.axis.spatial(n, i)
                T.reads()
                T.writes(y[vi])
                y[vi] = vi + start

    @T.prim_func(private=True)
    def negate(var_x: T.handle, var_y: T.handle):
        T.func_attr({"op_pattern": "elementwise"})
        n = T.int64()
        x = T.match_buffer(var_x, (n,), "int64")
        y = T.match_buffer(var_y, (n,), "int64")
        # with T.block("root"):
        for i in range(n):
            with T.block("y"):
                vi = T.axis.spatial(n, i)
                T.reads(x[vi])
                T.writes(y[vi])
                y[vi] = 0 - x[vi]

    @T.prim_func(private=True)
    def fused_iota_negate(var_y_1: T.handle, m: T.int64):
        T.func_attr({"tir.noalias": True, "op_pattern": "elementwise", "num_outputs": 1})
        n = T.int64()
        y_1 = T.match_buffer(var_y_1, (n,), "int64")
        # with T.block("root"):
        y = T.alloc_buffer((n,), "int64")
        for i in range(n):
            with T.block("y"):
                vi = T.axis.spatial(n, i)
                T.reads()
                T.writes(y[vi])
                y[vi] = vi + m * 2
        for i in range(n):
            with T.block("y_1"):
                vi = T.axis.spatial(n, i)
                T.reads(y[vi])
                T.writes(y_1[vi])
                y_1[vi] = 0 - y[vi]

    @R.function
    def main(x: R.Tensor(("a", "b"), dtype="float32")) -> R.Tuple(
        R.Tensor(("a",), dtype="int64"), R.Tensor(("a",), dtype="int64")
    ):
        a = T.int64()
        b = T.int64()
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.fused_iota_negate, (), out_sinfo=R.Tensor((a,), dtype="int64"), tir_vars=R.shape([b]))
            gv1 = R.call_tir(cls.fused_iota_negate, (), out_sinfo=R.Tensor((a,), dtype="int64"), tir_vars=R.shape([b]))
            R.output(gv, gv1)
        return (gv, gv1)
