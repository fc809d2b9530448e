# ruff: noqa
# Operands of an instruction are boxes: a buffer is compacted around them with their order in memory kept.
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def unpack(word: T.Buffer((3, 2, 16), "uint32"), out: T.Buffer((3, 32, 4), "int32")):
        codes = T.alloc_buffer((3, 32, 4), "uint8", scope="local")
        for g in T.parallel(3):
            for half in range(2):
                with T.block("codes"):
                    vg, vh = T.axis.remap("SS", [g, half])
                    T.reads(word[vg, vh, 0:16])
                    T.writes(codes[vg, vh * 16 : vh * 16 + 16, 0:4])
                    T.evaluate(
                        T.call_intrin(
                            "handle",
                            "intrinsic.avx512.nibbles",
                            T.call_intrin(
                                "handle", "address_of", codes[vg, vh * 16, 0], T.int64(1), T.int64(16), T.int64(4)
                            ),
                            T.call_intrin("handle", "address_of", word[vg, vh, 0], T.int64(1), T.int64(1), T.int64(16)),
                            0,
                        )
                    )
                for j, b in T.grid(16, 4):
                    with T.block("out"):
                        vg = T.axis.spatial(3, g)
                        vj = T.axis.spatial(32, half * 16 + j)
                        vb = T.axis.spatial(4, b)
                        out[vg, vj, vb] = T.Cast("int32", codes[vg, vj, vb])


# ----
# from mlc_compiler.script import I, R, T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def unpack(word: T.Buffer((3, 2, 16), "uint32"), out: T.Buffer((3, 32, 4), "int32")):
        for g in T.parallel(3):
            for half in range(2):
                codes = T.decl_buffer((1, 16, 4), "uint8", scope="local")
                T.evaluate(
                    T.call_intrin(
                        "handle",
                        "intrinsic.avx512.nibbles",
                        T.call_intrin("handle", "address_of", codes[0, 0, 0], T.int64(1), T.int64(16), T.int64(4)),
                        T.call_intrin("handle", "address_of", word[g, half, 0], T.int64(1), T.int64(1), T.int64(16)),
                        0,
                    )
                )
                for j, b in T.grid(16, 4):
                    out[g, half * 16 + j, b] = T.Cast("int32", codes[0, j, b])
