# ruff: noqa
# A weight is stored in the tiles that a product reads: every function's type changes, and a pack function is exported;
# the lookup of rows reads the tiles too; a value that is no weight is packed before its use.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(var_x: T.handle, w: T.Buffer((2, 4, 16), "float32"), var_y: T.handle):
        T.func_attr({"layouts": {"1": T.index_map(lambda i0, i1: (i0 // 16, i1, i0 % 16))}, "tir.is_scheduled": True})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 4), "float32")
        y = T.match_buffer(var_y, (n, 20), "float32")
        for j_0 in T.parallel(2):
            for i, j_1, k in T.grid(n, 16, 4):
                with T.block("y"):
                    vi = T.axis.spatial(n, i)
                    vj = T.axis.spatial(20, j_0 * 16 + j_1)
                    vk = T.axis.reduce(4, k)
                    T.where(j_0 * 16 + j_1 < 20)
                    with T.init():
                        y[vi, vj] = T.float32(0)
                    y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vj // 16, vk, vj % 16]

    @T.prim_func(private=True)
    def take(table: T.Buffer((20, 4), "float32"), var_ids: T.handle, var_y: T.handle):
        n = T.int64()
        ids = T.match_buffer(var_ids, (n,), "int64")
        y = T.match_buffer(var_y, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = table[ids[vi], vj]

    @R.function
    def embed(
        ids: R.Tensor(("n",), "int64"), weights: R.Tuple(R.Tensor((3,), "float32"), R.Tensor((20, 4), "float32"))
    ):
        n = T.int64()
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            table = weights[1]
            y = R.call_tir(cls.take, (table, ids), out_sinfo=R.Tensor((n, 4), "float32"))
            R.output(y)
        return y

    @R.function
    def logits(
        x: R.Tensor(("n", 4), "float32"),
        other: R.Tensor((20, 4), "float32"),
        weights: R.Tuple(R.Tensor((3,), "float32"), R.Tensor((20, 4), "float32")),
    ):
        n = T.int64()
        R.func_attr({"num_input": 2})
        cls = Module
        with R.dataflow():
            table = weights[1]
            y = R.call_tir(cls.product, (x, table), out_sinfo=R.Tensor((n, 20), "float32"))
            z = R.call_tir(cls.product, (x, other), out_sinfo=R.Tensor((n, 20), "float32"))
            R.output(y, z)
        return (y, z)


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    I.module_attrs({"packed": {"1": "pack_0"}})

    @T.prim_func(private=True)
    def product(var_x: T.handle, w: T.Buffer((2, 4, 16), "float32"), var_y: T.handle):
        T.func_attr({"layouts": {"1": T.index_map(lambda i0, i1: (i0 // 16, i1, i0 % 16))}, "tir.is_scheduled": True})
        n = T.int64()
        x = T.match_buffer(var_x, (n, 4), "float32")
        y = T.match_buffer(var_y, (n, 20), "float32")
        # with T.block("root"):
        for j_0 in T.parallel(2):
            for i, j_1, k in T.grid(n, 16, 4):
                with T.block("y"):
                    vi = T.axis.spatial(n, i)
                    vj = T.axis.spatial(20, j_0 * 16 + j_1)
                    vk = T.axis.reduce(4, k)
                    T.where(j_0 * 16 + j_1 < 20)
                    T.reads(x[vi, vk], w[vj // 16, vk, vj % 16])
                    T.writes(y[vi, vj])
                    with T.init():
                        y[vi, vj] = T.float32(0.0)
                    y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vj // 16, vk, vj % 16]

    @T.prim_func(private=True)
    def take(table: T.Buffer((20, 4), "float32"), var_ids: T.handle, var_y: T.handle):
        n = T.int64()
        ids = T.match_buffer(var_ids, (n,), "int64")
        y = T.match_buffer(var_y, (n, 4), "float32")
        # with T.block("root"):
        for i, j in T.grid(n, 4):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(table[0:20, vj], ids[vi])
                T.writes(y[vi, vj])
                y[vi, vj] = table[ids[vi], vj]

    @R.function
    def embed(
        ids: R.Tensor(("n",), dtype="int64"),
        weights: R.Tuple(R.Tensor((3,), dtype="float32"), R.Tensor((2, 4, 16), dtype="float32")),
    ) -> R.Tensor(("n", 4), dtype="float32"):
        n = T.int64()
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            table: R.Tensor((2, 4, 16), dtype="float32") = weights[1]
            y = R.call_tir(cls.take_stored0, (table, ids), out_sinfo=R.Tensor((n, 4), dtype="float32"))
            R.output(y)
        return y

    @R.function
    def logits(
        x: R.Tensor(("n", 4), dtype="float32"),
        other: R.Tensor((20, 4), dtype="float32"),
        weights: R.Tuple(R.Tensor((3,), dtype="float32"), R.Tensor((2, 4, 16), dtype="float32")),
    ) -> R.Tuple(R.Tensor(("n", 20), dtype="float32"), R.Tensor(("n", 20), dtype="float32")):
        n = T.int64()
        R.func_attr({"num_input": 2})
        cls = Module
        with R.dataflow():
            table: R.Tensor((2, 4, 16), dtype="float32") = weights[1]
            y = R.call_tir(cls.product, (x, table), out_sinfo=R.Tensor((n, 20), dtype="float32"))
            packed2 = R.call_tir(cls.layout_pack0, (other,), out_sinfo=R.Tensor((2, 4, 16), dtype="float32"))
            z = R.call_tir(cls.product, (x, packed2), out_sinfo=R.Tensor((n, 20), dtype="float32"))
            R.output(y, z)
        return (y, z)

    @T.prim_func(private=True)
    def take_stored0(table: T.Buffer((2, 4, 16), "float32"), var_ids: T.handle, var_y: T.handle):
        T.func_attr({"layouts": {"0": T.index_map(lambda i0, i1: (i0 // 16, i1, i0 % 16))}})
        n = T.int64()
        ids = T.match_buffer(var_ids, (n,), "int64")
        y = T.match_buffer(var_y, (n, 4), "float32")
        # with T.block("root"):
        for i, j in T.grid(n, 4):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(table[0:2, vj, 0:16], ids[vi])
                T.writes(y[vi, vj])
                y[vi, vj] = table[ids[vi] // 16, vj, ids[vi] % 16]

    @T.prim_func(private=True)
    def layout_pack0(source: T.Buffer((20, 4), "float32"), packed: T.Buffer((2, 4, 16), "float32")):
        T.func_attr({"tir.noalias": True, "num_outputs": 1})
        # with T.block("root"):
        for i0, i1, i2 in T.grid(2, 4, 16):
            with T.block("packed"):
                v_i0, v_i1, v_i2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(source[v_i0 * 16 + v_i2, v_i1])
                T.writes(packed[v_i0, v_i1, v_i2])
                packed[v_i0, v_i1, v_i2] = T.if_then_else(
                    v_i0 * 16 + v_i2 < 20, source[v_i0 * 16 + v_i2, v_i1], T.float32(0.0)
                )

    @R.function
    def pack_0(source: R.Tensor((20, 4), dtype="float32")) -> R.Tensor((2, 4, 16), dtype="float32"):
        cls = Module
        with R.dataflow():
            packed = R.call_tir(cls.layout_pack0, (source,), out_sinfo=R.Tensor((2, 4, 16), dtype="float32"))
            R.output(packed)
        return packed
