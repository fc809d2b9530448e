"""NVVM intrinsics and PTX instructions that device code uses: signatures, lowest GPU and lowest PTX version.

LLVM aborts the process on an intrinsic that the GPU or the PTX version lacks, so ``check_instructions`` refuses them by
name first. Versions: PTX ISA, "PTX ISA Notes" and "Target ISA Notes" of each instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....codegen import llvm_ir as ll
from ....codegen.arithmetic import CodegenError
from ....codegen.values import F16, F32, I1, I16, I32, I64, VOID
from ....target import Target

GLOBAL, SHARED, CLUSTER = (ll.PointerType(addrspace=n) for n in (1, 3, 7))
GENERIC = ll.PointerType()
F16X2 = ll.VectorType(F16, 2)
FULL_WARP = ll.Constant(I32, -1)
"""The member mask of all 32 lanes."""


@dataclass(frozen=True)
class Instruction:
    """An LLVM intrinsic, or inline assembly where ``assembly`` is set.

    sm: the lowest target that has it, by the name that ``Target.has`` takes. ptx: the lowest PTX version, times 10.
    assembly: PTX text with LLVM's operand markers. constraints: LLVM's constraint string of the operands. ordered:
    whether the assembly is executed by all threads together and keeps its place among others.
    """

    name: str
    result: ll.Type
    arguments: tuple[ll.Type, ...] = ()
    sm: str = "sm_70"
    ptx: int = 60
    assembly: str = ""
    constraints: str = ""
    ordered: bool = False


def struct(element: ll.Type, count: int) -> ll.Type:
    """The result type of an instruction with ``count`` results."""
    return element if count == 1 else ll.LiteralStructType([element] * count)


def _warp() -> Iterator[Instruction]:
    for mode in ("bfly", "down", "up", "idx"):
        for suffix, type_ in (("f32", F32), ("i32", I32)):
            yield Instruction(f"llvm.nvvm.shfl.sync.{mode}.{suffix}", type_, (I32, type_, I32, I32))
    for kind in ("add", "min", "max", "umin", "umax", "and", "or", "xor"):
        yield Instruction(f"llvm.nvvm.redux.sync.{kind}", I32, (I32, I32), "sm_80", 70)
    yield Instruction("llvm.nvvm.vote.ballot.sync", I32, (I32, I1))
    yield Instruction("llvm.nvvm.vote.any.sync", I1, (I32, I1))
    yield Instruction("llvm.nvvm.vote.all.sync", I1, (I32, I1))
    yield Instruction("llvm.nvvm.read.ptx.sreg.laneid", I32)
    for axis in "xyz":
        for register in ("tid", "ctaid", "ntid", "nctaid"):
            yield Instruction(f"llvm.nvvm.read.ptx.sreg.{register}.{axis}", I32)


def _copies() -> Iterator[Instruction]:
    for cache, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        name = f"llvm.nvvm.cp.async.{cache}.shared.global.{size}"
        yield Instruction(name, VOID, (SHARED, GLOBAL), "sm_80", 70)
        yield Instruction(f"{name}.s", VOID, (SHARED, GLOBAL, I32), "sm_80", 70)
    yield Instruction("llvm.nvvm.cp.async.commit.group", VOID, (), "sm_80", 70)
    yield Instruction("llvm.nvvm.cp.async.wait.group", VOID, (I32,), "sm_80", 70)
    arguments = (CLUSTER, SHARED, GLOBAL, I32, I16, I64, I1, I1)
    yield Instruction("llvm.nvvm.cp.async.bulk.global.to.shared.cluster", VOID, arguments, "sm_90", 80)
    yield Instruction("llvm.nvvm.cp.async.bulk.prefetch.L2", VOID, (GLOBAL, I32, I64, I1), "sm_90", 80)
    of_matrix = (CLUSTER, SHARED, GENERIC, I32, I32, I16, I64, I1, I1, I32)
    yield Instruction("llvm.nvvm.cp.async.bulk.tensor.g2s.tile.2d", VOID, of_matrix, "sm_90", 80)


def _loads() -> Iterator[Instruction]:
    for count in (1, 2, 4):
        outputs = ", ".join(f"${i}" for i in range(count))
        name, registers = f"ld.global.v{count}.b32", f"{{{outputs}}}" if count > 1 else outputs
        text = f"ld.global{f'.v{count}' if count > 1 else ''}.b32 {registers}, [${count}];"
        yield Instruction(name, struct(I32, count), (GLOBAL,), assembly=text, constraints="=r," * count + "l")


def _matrices() -> Iterator[Instruction]:
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{trans}.b16.p3"
            yield Instruction(name, struct(I32, count), (SHARED,), "sm_75", 65)
    mma = "llvm.nvvm.mma.m16n8"
    f32, i32, f16 = struct(F32, 4), struct(I32, 4), struct(F16X2, 2)
    yield Instruction(f"{mma}k16.row.col.f32.f32", f32, (F16X2,) * 6 + (F32,) * 4, "sm_80", 70)
    yield Instruction(f"{mma}k16.row.col.f16.f16", f16, (F16X2,) * 8, "sm_80", 70)
    yield Instruction(f"{mma}k16.row.col.bf16", f32, (I32,) * 6 + (F32,) * 4, "sm_80", 70)
    yield Instruction(f"{mma}k32.row.col.s8", i32, (I32,) * 10, "sm_80", 70)
    yield Instruction(f"{mma}k32.row.col.f32.e4m3.e4m3.f32", f32, (I32,) * 6 + (F32,) * 4, "sm_89", 84)
    for name, arguments in (("fence", ()), ("commit_group", ()), ("wait_group", (I64,))):
        yield Instruction(f"llvm.nvvm.wgmma.{name}.sync.aligned", VOID, arguments, "sm_90a", 80)


def _synchronization() -> Iterator[Instruction]:
    yield Instruction("llvm.nvvm.barrier.cta.sync.aligned.all", VOID, (I32,))
    yield Instruction("llvm.nvvm.barrier.cta.sync.aligned.count", VOID, (I32, I32))
    yield Instruction("llvm.nvvm.barrier.cta.arrive.aligned.count", VOID, (I32, I32))
    yield Instruction("llvm.nvvm.bar.warp.sync", VOID, (I32,))
    yield Instruction("llvm.nvvm.mbarrier.init.shared", VOID, (SHARED, I32), "sm_80", 70)
    yield Instruction("llvm.nvvm.mbarrier.arrive.shared", I64, (SHARED,), "sm_80", 70)
    scoped = "scope.cta.space.cta"
    yield Instruction(f"llvm.nvvm.mbarrier.arrive.expect.tx.{scoped}", I64, (SHARED, I32), "sm_90", 80)
    yield Instruction(f"llvm.nvvm.mbarrier.try.wait.parity.{scoped}", I1, (SHARED, I32), "sm_90", 80)
    yield Instruction("llvm.nvvm.fence.mbarrier_init.release.cluster", VOID, (), "sm_90", 80)
    yield Instruction("llvm.nvvm.fence.proxy.async.shared_cta", VOID, (), "sm_90", 80)
    yield Instruction("llvm.nvvm.griddepcontrol.wait", VOID, (), "sm_90", 78)
    yield Instruction("llvm.nvvm.griddepcontrol.launch.dependents", VOID, (), "sm_90", 78)


def _arithmetic() -> Iterator[Instruction]:
    for first, second in ("ss", "us", "uu"):
        yield Instruction(f"llvm.nvvm.idp4a.{first}.{second}", I32, (I32, I32, I32))
    for name in ("ex2.approx.ftz.f32", "ex2.approx.ftz.f", "lg2.approx.ftz.f", "rcp.approx.ftz.f"):
        yield Instruction(f"llvm.nvvm.{name}", F32, (F32,))
    for name in ("rsqrt.approx.ftz.f", "rsqrt.approx.f"):
        yield Instruction(f"llvm.nvvm.{name}", F32, (F32,))
    yield Instruction("tanh.approx.f32", F32, (F32,), "sm_75", 70, "tanh.approx.f32 $0, $1;", "=f,f")
    yield Instruction("llvm.nvvm.ff2f16x2.rn", F16X2, (F32, F32), "sm_80", 70)
    packed = "cvt.rn.bf16x2.f32"
    yield Instruction(packed, I32, (F32, F32), "sm_80", 70, f"{packed} $0, $1, $2;", "=r,f,f")
    fma = "fma.rn.bf16x2"
    yield Instruction(fma, I32, (I32, I32, I32), "sm_80", 70, f"{fma} $0, $1, $2, $3;", "=r,r,r,r")
    yield Instruction("llvm.nvvm.prmt", I32, (I32, I32, I32))
    from_e4m3 = "cvt.rn.f16x2.e4m3x2"  # LLVM's intrinsic asks for the PTX version that sm_89 needs
    yield Instruction(from_e4m3, I32, (I16,), "sm_90", 78, f"{from_e4m3} $0, $1;", "=r,h")
    yield Instruction("llvm.nvvm.e4m3x2.to.f16x2.rn", F16X2, (I16,), "sm_89", 81)
    yield Instruction("llvm.nvvm.f16x2.to.e4m3x2.rn", I16, (F16X2,), "sm_89", 81)


_TABLES = (_warp, _copies, _loads, _matrices, _synchronization, _arithmetic)
INSTRUCTIONS: Mapping[str, Instruction] = {row.name: row for table in _TABLES for row in table()}


def emit(b: ll.IRBuilder, name: str, arguments: Sequence[ll.Value]) -> ll.Value:
    """Emit a call of the instruction ``name`` of the table. Raises CodegenError for arguments of wrong types."""
    return emit_instruction(b, INSTRUCTIONS[name], arguments)


def emit_instruction(b: ll.IRBuilder, row: Instruction, arguments: Sequence[ll.Value]) -> ll.Value:
    """Emit a call of an instruction, which need not be in the table."""
    given = tuple(a.type for a in arguments)
    if given != row.arguments:
        raise CodegenError(f"{row.name}: the arguments are {_shown(given)}; expected {_shown(row.arguments)}")
    signature = ll.FunctionType(row.result, row.arguments)
    if row.assembly:
        _record(b.module, row)
        assembly = ll.InlineAsm(signature, row.assembly, row.constraints, side_effect=row.ordered)
        return b.call(assembly, arguments, attrs=("convergent",) if row.ordered else ())
    function = b.module.get_function(row.name) or ll.Function(b.module, signature, row.name)
    return b.call(function, arguments)


def _shown(types: Sequence[ll.Type]) -> str:
    return f"({', '.join(map(str, types))})"


_ASSEMBLY = "assembly"


def _record(module: ll.Module, row: Instruction) -> None:
    """Record the requirements of inline assembly, which LLVM does not check."""
    module.attached.setdefault(_ASSEMBLY, {})[row.name] = row


def used_instructions(module: ll.Module) -> list[Instruction]:
    """The instructions that a module uses. Raises CodegenError for an NVVM intrinsic that is not in the table."""
    names = [f.name for f in module.functions if f.name.startswith("llvm.nvvm.")]
    for name in names:
        if name not in INSTRUCTIONS:
            raise CodegenError(f"the intrinsic {name!r} is not in the table of NVVM intrinsics")
    return [*(INSTRUCTIONS[name] for name in names), *module.attached.get(_ASSEMBLY, {}).values()]


def lowest_ptx(module: ll.Module) -> int:
    """The lowest PTX version, times 10, that has all instructions of a module; 60 when it uses none."""
    return max((row.ptx for row in used_instructions(module)), default=60)


def check_instructions(module: ll.Module, target: Target) -> None:
    """Raise CodegenError, with the instruction's name, when the target lacks one that the module uses."""
    for row in used_instructions(module):
        needs = next((name for name in (row.sm, f"ptx{row.ptx}") if not target.has(name)), None)
        if needs is not None:
            raise CodegenError(
                f"the target has no instruction {row.name!r}: it needs {needs}", where=[f"target {target}"]
            )
