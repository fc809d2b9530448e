# ruff: noqa
# float32 functions become arithmetic; narrower floats are computed in float32 and rounded; float64 functions stay calls
# of the C library where it has them.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def single(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = T.sigmoid(x[i])

    @T.prim_func(private=True)
    def half(x: T.Buffer((4,), "float16"), y: T.Buffer((4,), "float16")):
        for i in range(4):
            y[i] = T.sqrt(x[i])

    @T.prim_func(private=True)
    def double(x: T.Buffer((4,), "float64"), y: T.Buffer((4,), "float64")):
        for i in range(4):
            y[i] = T.exp(x[i])
        for i in range(4):
            y[i] = T.sigmoid(y[i])


# ----

# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def single(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = T.Let(
                T.Let(
                    T.Let(
                        T.Let(
                            T.Let(
                                T.fma(quotient, lost, quotient),
                                where={
                                    lost: (total - T.float32(1.0) - e)
                                    * T.Select(v < T.float32(0.0), T.float32(1.0) - quotient, quotient)
                                },
                            ),
                            where={quotient: T.Select(v < T.float32(0.0), e, T.float32(1.0)) / total},
                        ),
                        where={total: e + T.float32(1.0)},
                    ),
                    where={
                        e: T.Let(
                            T.Let(
                                T.Let(
                                    T.Let(
                                        T.Let(
                                            T.Let(
                                                T.Let(
                                                    T.Let(
                                                        p
                                                        * T.reinterpret("float32", half + T.int32(127) << T.int32(23))
                                                        * T.reinterpret(
                                                            "float32", k - half + T.int32(127) << T.int32(23)
                                                        ),
                                                        where={half: k >> T.int32(1)},
                                                    ),
                                                    where={
                                                        p: T.fma(
                                                            T.fma(
                                                                T.fma(
                                                                    T.fma(
                                                                        T.fma(
                                                                            T.float32(0.00138220203),
                                                                            r,
                                                                            T.float32(0.00836885069),
                                                                        ),
                                                                        r,
                                                                        T.float32(0.0416682549),
                                                                    ),
                                                                    r,
                                                                    T.float32(0.166665196),
                                                                ),
                                                                r,
                                                                T.float32(0.49999994),
                                                            )
                                                            * r,
                                                            r,
                                                            T.fma(n, T.float32(0.00021219444), exact - r),
                                                        )
                                                        + r
                                                        + T.float32(1.0)
                                                    },
                                                ),
                                                where={r: T.fma(n, T.float32(0.00021219444), exact)},
                                            ),
                                            where={exact: T.fma(n, T.float32(-0.693359375), x_1)},
                                        ),
                                        where={k: T.reinterpret("int32", shifted) - T.int32(1262485504)},
                                    ),
                                    where={n: shifted - T.float32(12582912.0)},
                                ),
                                where={shifted: T.fma(x_1, T.float32(1.4426950408889634), T.float32(12582912.0))},
                            ),
                            where={x_1: T.max(T.float32(-104.0), T.min(T.float32(89.0), T.abs(v) * T.float32(-1.0)))},
                        )
                    },
                ),
                where={v: x[i]},
            )

    @T.prim_func(private=True)
    def half(x: T.Buffer((4,), "float16"), y: T.Buffer((4,), "float16")):
        for i in range(4):
            y[i] = T.Cast("float16", T.sqrt(T.Cast("float32", x[i])))

    @T.prim_func(private=True)
    def double(x: T.Buffer((4,), "float64"), y: T.Buffer((4,), "float64")):
        for i in range(4):
            y[i] = T.exp(x[i])
        for i in range(4):
            y[i] = T.float64(1.0) / (T.float64(1.0) + T.exp(y[i] * T.float64(-1.0)))
