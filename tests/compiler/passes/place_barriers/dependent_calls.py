# ruff: noqa
# One barrier before a call that depends on one since the last barrier: it reads what that wrote, or writes what that
# read or wrote, also where two values only share memory. No barrier between independent calls or readers of the same
# value. A registered function depends on all calls before it, and all after it depend on it.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def next(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in T.parallel(4):
            y[i] = x[i]

    @T.prim_func(private=True)
    def bump(x: T.Buffer((4,), "float32")):
        for i in T.parallel(4):
            x[i] = x[i] + T.float32(1)

    @R.function(pure=False)
    def main(
        x: R.Tensor((4,), "float32"),
        w: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")),
        out0: R.Tensor((4,), "float32"),
    ) -> R.Tuple:
        R.func_attr({"num_input": 1, "num_outputs": 1, "workspace_bytes": 256})
        cls = Module
        ws0: R.Tensor((4,), "float32") = R.builtin.alloc_tensor(R.shape([4]), dtype="float32", offset=0, nbytes=64)
        _ = cls.next(x, ws0)
        ws1: R.Tensor((4,), "float32") = R.builtin.alloc_tensor(R.shape([4]), dtype="float32", offset=64, nbytes=64)
        _ = cls.next(x, ws1)
        ws2: R.Tensor((4,), "float32") = R.builtin.alloc_tensor(R.shape([4]), dtype="float32", offset=128, nbytes=64)
        _ = cls.next(ws0, ws2)
        _ = cls.next(ws1, out0)
        ws3: R.Tensor((4,), "float32") = R.builtin.alloc_tensor(R.shape([4]), dtype="float32", offset=0, nbytes=128)
        _ = cls.next(x, ws3)
        _ = cls.bump(w[1])
        _ = cls.next(w[0], ws2)
        ws4: R.Tensor((4,), "float32") = R.builtin.alloc_tensor(R.shape([4]), dtype="float32", offset=192, nbytes=64)
        _ = cls.next(w[1], ws4)
        view0: R.Tensor((2, 2), "float32") = R.reshape(ws2, R.shape([2, 2]))
        _ = R.call_packed("show", view0)
        _ = R.call_packed("show", view0)
        _ = cls.bump(ws2)
        return R.tuple()


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def next(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in T.parallel(4):
            y[i] = x[i]

    @T.prim_func(private=True)
    def bump(x: T.Buffer((4,), "float32")):
        for i in T.parallel(4):
            x[i] = x[i] + T.float32(1.0)

    @R.function(pure=False)
    def main(
        x: R.Tensor((4,), dtype="float32"),
        w: R.Tuple(R.Tensor((4,), dtype="float32"), R.Tensor((4,), dtype="float32")),
        out0: R.Tensor((4,), dtype="float32"),
    ) -> R.Tuple():
        R.func_attr({"num_input": 1, "num_outputs": 1, "workspace_bytes": 256})
        cls = Module
        ws0: R.Tensor((4,), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([4]), dtype="float32", offset=0, nbytes=64
        )
        _ = cls.next(x, ws0)
        ws1: R.Tensor((4,), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([4]), dtype="float32", offset=64, nbytes=64
        )
        __1 = cls.next(x, ws1)
        ws2: R.Tensor((4,), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([4]), dtype="float32", offset=128, nbytes=64
        )
        __2 = R.builtin.barrier()
        __3 = cls.next(ws0, ws2)
        __4 = cls.next(ws1, out0)
        ws3: R.Tensor((4,), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([4]), dtype="float32", offset=0, nbytes=128
        )
        __5 = R.builtin.barrier()
        __6 = cls.next(x, ws3)
        __7 = cls.bump(w[1])
        __8 = cls.next(w[0], ws2)
        ws4: R.Tensor((4,), dtype="float32") = R.builtin.alloc_tensor(
            R.shape([4]), dtype="float32", offset=192, nbytes=64
        )
        __9 = R.builtin.barrier()
        __10 = cls.next(w[1], ws4)
        view0: R.Tensor((2, 2), dtype="float32") = R.reshape(ws2, R.shape([2, 2]))
        __11 = R.builtin.barrier()
        __12 = R.call_packed("show", view0)
        __13 = R.call_packed("show", view0)
        __14 = cls.bump(ws2)
        return ()
