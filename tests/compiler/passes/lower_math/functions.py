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
            y[i] = T.Cast(
                "float32",
                T.float64(1.0)
                / (
                    T.float64(1.0)
                    + T.Let(
                        T.Let(
                            T.Let(
                                T.Let(
                                    T.Let(
                                        T.reinterpret(
                                            "float64",
                                            T.reinterpret(
                                                "int64",
                                                (
                                                    (
                                                        (
                                                            (
                                                                (
                                                                    (
                                                                        T.float64(1.5201900323490596e-05) * r
                                                                        + T.float64(0.00015469290967462174)
                                                                    )
                                                                    * r
                                                                    + T.float64(0.0013333922655874055)
                                                                )
                                                                * r
                                                                + T.float64(0.009618027254318115)
                                                            )
                                                            * r
                                                            + T.float64(0.05550410353333933)
                                                        )
                                                        * r
                                                        + T.float64(0.24022651198151557)
                                                    )
                                                    * r
                                                    + T.float64(0.693147180728482)
                                                )
                                                * r
                                                + T.float64(0.9999999999616828),
                                            )
                                            + (k << 52),
                                        ),
                                        where={r: y_1 - n},
                                    ),
                                    where={k: T.reinterpret("int64", shifted) - 4843621399236968448},
                                ),
                                where={n: shifted - T.float64(6755399441055744.0)},
                            ),
                            where={shifted: y_1 + T.float64(6755399441055744.0)},
                        ),
                        where={
                            y_1: T.max(
                                T.float64(-200.0),
                                T.min(T.float64(200.0), T.Cast("float64", x[i]) * T.float64(-1.4426950408889634)),
                            )
                        },
                    )
                ),
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
