# ruff: noqa
# A call with two results inside of a group: both become buffers.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def split(x: T.Buffer((4, 8), "float32"), a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
        T.func_attr({"op_pattern": "injective"})
        for i, j in T.grid(4, 4):
            with T.block("a"):
                vi, vj = T.axis.remap("SS", [i, j])
                a[vi, vj] = x[vi, vj]
        for i, j in T.grid(4, 4):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = x[vi, vj + 4]

    @T.prim_func(private=True)
    def add(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32"), c: T.Buffer((4, 4), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        for i, j in T.grid(4, 4):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = a[vi, vj] + b[vi, vj]

    @R.function(private=True)
    def fused_split_add(x: R.Tensor((4, 8), "float32")):
        R.func_attr({"Primitive": 1})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.split, (x,), out_sinfo=[R.Tensor((4, 4), "float32"), R.Tensor((4, 4), "float32")])
            left = lv[0]
            right = lv[1]
            gv = R.call_tir(cls.add, (left, right), out_sinfo=R.Tensor((4, 4), "float32"))
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        cls = Module
        with R.dataflow():
            gv: R.Tensor((4, 4), "float32") = cls.fused_split_add(x)
            R.output(gv)
        return gv


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def split(x: T.Buffer((4, 8), "float32"), a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
        T.func_attr({"op_pattern": "injective"})
        # with T.block("root"):
        for i, j in T.grid(4, 4):
            with T.block("a"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(x[vi, vj])
                T.writes(a[vi, vj])
                a[vi, vj] = x[vi, vj]
        for i, j in T.grid(4, 4):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(x[vi, vj + 4])
                T.writes(b[vi, vj])
                b[vi, vj] = x[vi, vj + 4]

    @T.prim_func(private=True)
    def add(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32"), c: T.Buffer((4, 4), "float32")):
        T.func_attr({"op_pattern": "elementwise"})
        # with T.block("root"):
        for i, j in T.grid(4, 4):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj], b[vi, vj])
                T.writes(c[vi, vj])
                c[vi, vj] = a[vi, vj] + b[vi, vj]

    @T.prim_func(private=True)
    def fused_split_add(x: T.Buffer((4, 8), "float32"), c: T.Buffer((4, 4), "float32")):
        T.func_attr({"tir.noalias": True, "op_pattern": "injective", "num_outputs": 1})
        # with T.block("root"):
        a = T.alloc_buffer((4, 4), "float32")
        b = T.alloc_buffer((4, 4), "float32")
        for i, j in T.grid(4, 4):
            with T.block("a"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(x[vi, vj])
                T.writes(a[vi, vj])
                a[vi, vj] = x[vi, vj]
        for i, j in T.grid(4, 4):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(x[vi, vj + 4])
                T.writes(b[vi, vj])
                b[vi, vj] = x[vi, vj + 4]
        for i, j in T.grid(4, 4):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj], b[vi, vj])
                T.writes(c[vi, vj])
                c[vi, vj] = a[vi, vj] + b[vi, vj]

    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32")) -> R.Tensor((4, 4), dtype="float32"):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.fused_split_add, (x,), out_sinfo=R.Tensor((4, 4), dtype="float32"))
            R.output(gv)
        return gv
