"""Runs PTX on the CPU under hopper_grid.hpp, instruction by instruction: what a compiler made of a kernel.

An entry point becomes a C++ function of the same registers and labels. The model knows the instructions of a kernel of
TMA, mbarrier and wgmma (ptx_words.hpp), and refuses every other.
"""

import re
from collections.abc import Callable

SPECIAL = {
    "%tid.x": "threadIdx.x",
    "%ctaid.x": "blockIdx.x",
    "%nctaid.x": "gridDim.x",
    "%cluster_ctarank": "unsigned(cluster_rank())",
}

INFIX = {
    **{"add.s32": "+", "sub.s32": "-", "mul.lo.s32": "*", "and.b32": "&", "or.b32": "|", "xor.b32": "^"},
    **{"shl.b32": "<<", "shr.u32": ">>", "or.b64": "|", "and.pred": "&&"},
}
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "gt": ">", "ge": ">=", "le": "<="}
COPIED = ("mov.", "cvta.", "cvt.u64.u32", "cvt.u32.u64")
NOTHING = ("setmaxnreg", "fence.mbarrier_init", "barrier.cluster.arrive")
CALLS = {
    "barrier.cluster.wait": "cluster_sync()",
    "bar.warp.sync": "__syncwarp()",
    "fence.proxy.async.shared::cta": "shared_fence()",
    "wgmma.fence.sync.aligned": "wgmma_fence()",
    "wgmma.commit_group.sync.aligned": "wgmma_commit()",
    "cp.async.bulk.commit_group": "tma_store_commit()",
    "ret": "return",
}


def operand(text: str) -> str:
    """A register, a number or a special register as C++; ``[%r1+8]`` as the sum."""
    text = text.strip().strip("[]")
    if "+" in text:
        return " + ".join(map(operand, text.split("+")))
    if text in SPECIAL:
        return SPECIAL[text]
    if found := re.fullmatch(r"%(rd|rs|r|p)(\d+)", text):
        return f"{found[1]}[{found[2]}]"
    if found := re.fullmatch(r"\w+_param_(\d+)", text):
        return f"{found[1]}u"
    if text == "__dynamic_shmem__0":
        return "0u"
    assert re.fullmatch(r"-?\d+", text), f"an operand that the model does not know: {text}"
    return f"{int(text)}{'ll' if abs(int(text)) >= 1 << 31 else ''}"


def operands(text: str) -> list[str]:
    """Operands between commas, those in braces as one."""
    return [part.strip() for part in re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,])+", text)]


def _set(match: re.Match[str]) -> str:
    _, comparison, kind, rest = match.groups()
    to, one, other = map(operand, operands(rest))
    cast = "int" if kind.startswith("s") else "unsigned"
    return f"{to} = {cast}({one}) {COMPARED[comparison]} {cast}({other})"


def _load(match: re.Match[str]) -> str:
    multicast, to, source, column, row, barrier, rest = match.groups()
    found = operands(rest)
    mask = operand(found[0]) if multicast else "1 << cluster_rank()"
    return (
        f"policy({operand(found[-1])}), tma_load_multicast(place({operand(to)}), *maps[{operand(source)}], "
        f"barrier_at({operand(barrier)}), {operand(column)}, {operand(row)}, {mask})"
    )


def _wgmma(match: re.Match[str]) -> str:
    sums = [int(number) for number in re.findall(r"%r(\d+)", match[2])]
    assert sums == list(range(sums[0], sums[0] + 128)), "sums in registers that do not follow one another"
    a, b = (operand(text) for text in operands(match[3])[:2])
    return (
        f"hopper_grid::issue_wgmma<256, bf16>(reinterpret_cast<float*>(&r[{sums[0]}]), described({a}), described({b}), "
        f"{operand(match[1])} != 0)"
    )


Rule = tuple[str, Callable[[re.Match[str]], str]]
TENSOR = r"cp\.async\.bulk\.tensor\.2d\."
WITH_RULES: tuple[Rule, ...] = (
    (r"(setp)\.(\w+)\.(\w+) (.*)", _set),
    (
        TENSOR + r"shared::\w+\.global\.tile\.mbarrier::complete_tx::bytes(\.multicast::cluster)?\.L2::cache_hint "
        r"(\[[^\]]*\]), \[(\S+), \{(\S+), (\S+)\}\], (\[[^\]]*\]), (.*)",
        _load,
    ),
    (
        TENSOR + r"global\.shared::cta\.tile\.bulk_group\.L2::cache_hint \[(\S+), \{(\S+), (\S+)\}\], (\S+), (\S+)",
        lambda m: (
            f"policy({operand(m[5])}), tma_store(*maps[{operand(m[1])}], place({operand(m[4])}), "
            f"{operand(m[2])}, {operand(m[3])})"
        ),
    ),
    (r"cp\.async\.bulk\.wait_group\.read (\d+)", lambda m: f"tma_store_wait_read<{m[1]}>()"),
    (r"wgmma\.wait_group\.sync\.aligned (\d+)", lambda m: f"wgmma_wait<{m[1]}>()"),
    (
        r"stmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16 (\S+), \{(.*)\}",
        lambda m: f"stmatrix({operand(m[1])}, {', '.join(map(operand, m[2].split(',')))})",
    ),
    (r"elect\.sync %r(\d+)\|%p(\d+), -1", lambda m: f"p[{m[2]}] = elected()"),
    (
        r"shfl\.sync\.idx\.b32 (\S+), (\S+), 0, 31, -1",
        lambda m: f"{operand(m[1])} = __shfl_sync(~0u, {operand(m[2])}, 0)",
    ),
    (
        r"mapa\.shared::cluster\.u32 (\S+), (\S+), (\S+)",
        lambda m: f"{operand(m[1])} = {operand(m[2])} | {operand(m[3])} << 24",
    ),
    (
        r"mbarrier\.init\.shared\.b64 (\S+), (\S+)",
        lambda m: f"barrier_init(barrier_at({operand(m[1])}), {operand(m[2])})",
    ),
    (
        r"mbarrier\.arrive\.expect_tx\.shared\.b64 \S+, (\S+), (\S+)",
        lambda m: f"barrier_expect(barrier_at({operand(m[1])}), {operand(m[2])})",
    ),
    (
        r"mbarrier\.arrive\.shared::cluster\.b64 _, (\S+), (\S+)",
        lambda m: (
            f"one_arrival({operand(m[2])}), "
            f"barrier_arrive_at(barrier_at({operand(m[1])} & 0xFFFFFF), {operand(m[1])} >> 24)"
        ),
    ),
    (
        r"mov\.b64 \{(\S+), (\S+)\}, (\S+)",
        lambda m: f"{operand(m[1])} = {operand(m[3])}, {operand(m[2])} = {operand(m[3])} >> 32",
    ),
    (
        r"mov\.b64 (\S+), \{(\S+), (\S+)\}",
        lambda m: f"{operand(m[1])} = {operand(m[2])} | (unsigned long long)({operand(m[3])}) << 32",
    ),
    (r"ld\.param\.b32 (\S+), \[\w+_param_(\d+)\]", lambda m: f"{operand(m[1])} = numbers[{m[2]}]"),
    (r"cvt\.rn\.bf16x2\.f32 (\S+), (\S+), (\S+)", lambda m: "{} = pair({}, {})".format(*map(operand, m.groups()))),
    (r"selp\.b32 (\S+), (\S+), (\S+), (\S+)", lambda m: "{0} = {3} ? {1} : {2}".format(*map(operand, m.groups()))),
    (r"(?:div)\.s32 (\S+), (\S+), (\S+)", lambda m: "{} = int({}) / int({})".format(*map(operand, m.groups()))),
    (r"(?:shr)\.s32 (\S+), (\S+), (\S+)", lambda m: "{} = int({}) >> {}".format(*map(operand, m.groups()))),
    (r"(?:min)\.s32 (\S+), (\S+), (\S+)", lambda m: "{} = min<int>({}, {})".format(*map(operand, m.groups()))),
    (r"neg\.s32 (\S+), (\S+)", lambda m: "{} = -{}".format(*map(operand, m.groups()))),
    (r"not\.pred (\S+), (\S+)", lambda m: "{} = !{}".format(*map(operand, m.groups()))),
    (r"bra(?:\.uni)? (\S+)", lambda m: f"goto {label(m[1])}"),
)


def label(name: str) -> str:
    return name.replace("$", "L")


def statement(line: str) -> str:
    """One instruction as a C++ statement without its semicolon. Raises AssertionError for one that it does not know."""
    name, _, rest = line.partition(" ")
    if name in CALLS:
        return CALLS[name]
    if name.startswith(NOTHING):
        return ""
    if name in INFIX:
        to, one, other = map(operand, operands(rest))
        return f"{to} = {one} {INFIX[name]} {other}"
    for pattern, made in WITH_RULES:
        if found := re.fullmatch(pattern, line):
            return made(found)
    assert name.startswith(COPIED), f"an instruction that the model does not know: {line}"
    return "{} = {}".format(*map(operand, operands(rest)))


WAIT = re.compile(
    r"\{\s*\.reg \.pred\s+P1;\s*LAB_WAIT:\s*mbarrier\.try_wait\.parity\.shared\.b64 P1, (\[\S+\]), (\S+), \d+;\s*"
    r"@P1 bra\.uni DONE;\s*bra\.uni\s+LAB_WAIT;\s*DONE:\s*\}"
)
PRODUCT = re.compile(
    r"\{\s*\.reg \.pred p;\s*setp\.ne\.b32 p, (\S+), 0;\s*"
    r"wgmma\.mma_async\.sync\.aligned\.m64n256k16\.f32\.bf16\.bf16 \{([^}]*)\}, ([^;]*), p, 1,\s*1, 0, 0;\s*\}"
)


def translated(ptx: str, entry: str) -> str:
    """A C++ function `entry` of three tensor maps and m, n, k.

    Raises AssertionError for an instruction that the model does not know.
    """
    body = ptx[ptx.index(f".entry {entry}(") :]
    body = body[body.index("\n{") + 2 : body.rindex("}")]
    body = re.sub(r"//.*", "", body)
    body = WAIT.sub(lambda m: f"=barrier_wait(barrier_at({operand(m[1])}), {operand(m[2])});", body)
    body = PRODUCT.sub(lambda m: f"={_wgmma(m)};", body)
    lines = []
    for piece in re.split(r"[;\n]", body):
        text = " ".join(piece.split())
        if not text or text.startswith(".reg"):
            continue
        if text.startswith("="):
            lines.append(f"{text[1:]};")
        elif text.endswith(":"):
            lines.append(f"{label(text[:-1])}:;")
        elif found := re.fullmatch(r"@(!?)%p(\d+) (.*)", text):
            lines.append(f"if ({found[1]}p[{found[2]}]) {{ {statement(found[3])}; }}")
        else:
            lines.append(f"{statement(text)};")
    counts = {kind: int(count) for kind, count in re.findall(r"\.reg \.\w+\s+%(\w+?)<(\d+)>", body)}
    declared = {"p": "bool", "rs": "unsigned short", "r": "unsigned", "rd": "unsigned long long"}
    registers = "\n".join(f"{kind} {name}[{counts.get(name, 1)}] = {{}};" for name, kind in declared.items())
    return f"""
void {entry}(const TensorMap& a, const TensorMap& b, const TensorMap& c, int m, int n, int k) {{
const TensorMap* const maps[] = {{&a, &b, &c}};
const int numbers[] = {{0, 0, 0, m, n, k}};
{registers}
{chr(10).join(lines)}
}}
"""
