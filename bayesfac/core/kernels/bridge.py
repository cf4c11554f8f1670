"""Numba kernels as custom calls of XLA, so that a compiled JAX program runs them without Python.

XLA hands a custom call one pointer, the call frame (`xla/ffi/api/c_api.h`, which jaxlib ships). The
functions here read arrays from that frame. A kernel is a function `part(frame, T, problem, block, blocks)`
that does one share of the work on one problem; T is the type of the real numbers. A problem is one entry of
the leading axes that `jax.vmap` adds. `runner` gives the shares to the threads that XLA has for such work.
"""

import ctypes
import os
import re
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

from bayesfac.core import programs

HEADER = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()
GRAIN = 100_000  # multiplications in the smallest share of the work: some 25 us
SHARES = 4  # shares for each thread, so that no thread waits long for the last one
KERNELS = (
    "dots", "spread", "differences", "ratio_step", "solve_rows", "ordinal_loss", "proximal_loss",
    "split_counts", "product_dots", "product_spread", "solve_product_rows", "gammas", "tilted_rows",
    "descend", "descend_divergence", "lasso_pass", "positive_rows", "positive_product_rows",
    "polya_gammas", "polya_gamma_sums",
)  # fmt: skip

SOURCES = (
    "bridge", "tiles", "numba_loops", "random_loops", "splitting_loops", "product_loops", "simplex_loops",
    "nonnegative_loops", "lasso_loops",
)  # fmt: skip
_SOURCES = [Path(__file__).with_name(f"{name}.py") for name in SOURCES]


def digest(header: str) -> str:
    """The version of the kernels: their sources, and the interface of XLA for which they are compiled."""
    sources = b"".join(source.read_bytes() for source in _SOURCES)
    return sha256(header.encode() + sources).hexdigest()[:12]


CONTENT = digest(HEADER)


def compiled(function: Any) -> Any:
    """The function, compiled by Numba at its first use and kept on disk."""
    with programs.numba_folder(CONTENT):
        keep = programs.folder() is not None
        return njit(cache=keep, fastmath=True, nogil=True, error_model="numpy")(function)


def _number(name: str) -> int:
    return int(re.search(rf"#define {name} (\d+)", HEADER)[1])  # type: ignore[index]


def _place(function: str) -> int:
    """The byte of a function in the struct XLA_FFI_Api: 16 of the header, 24 of the version, 8 each."""
    fields = re.findall(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\);", HEADER)
    return 16 + 24 + 8 + 8 * fields.index(function)


MAJOR, MINOR = _number("XLA_FFI_API_MAJOR"), _number("XLA_FFI_API_MINOR")
SCHEDULE, THREADS = (
    np.uint64(_place(f"XLA_FFI_ThreadPool_{what}")) for what in ("Schedule", "NumThreads")
)
VERSION, LOW = np.uint64(MINOR << 32 | MAJOR), np.uint64(2**32 - 1)  # two numbers of 32 bits
SIGNATURE = types.uintp(types.uintp)
# the addresses of the compiled handlers, which a handler reads to schedule itself on other threads
ADDRESSES = (ctypes.c_uint64 * (2 * len(KERNELS)))()
llvm.add_symbol("bayesfac_handlers", ctypes.addressof(ADDRESSES))


# Access to the words of a frame is written in LLVM directly: Numba takes 30 ms to compile the smallest
# function, and compiles it again for each constant among its arguments.
def _read(builder: Any, address: Any, byte: int = 0) -> Any:
    """The word at that byte behind the address."""
    place = builder.add(address, ir.Constant(address.type, byte))
    return builder.load(builder.inttoptr(place, address.type.as_pointer()))


def _items(byte: int, kind: Any = types.uintp) -> Any:
    """The function of an address and a number that reads this word of a list; the address of the list is at
    that byte behind the address."""

    @intrinsic
    def item(typing: Any, address: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            behind = builder.mul(args[1], ir.Constant(args[1].type, 8))
            return _read(builder, builder.add(_read(builder, args[0], byte), behind))

        return kind(types.uintp, types.uintp), generate

    return item


argument, result = _items(72), _items(112)  # of a frame: the buffer of an argument, of a result
_size = _items(40, types.int64)  # of a buffer: the length of an axis


@intrinsic
def _word(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _read(builder, args[0])

    return types.uintp(types.uintp), generate


@intrinsic
def _put(typing: Any, address: Any, value: Any) -> Any:
    """Write a word to this address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], args[1].type.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp), generate


@intrinsic
def _numbers(typing: Any, buffer: Any, start: Any, T: Any) -> Any:
    """A pointer to number `start` of a buffer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        return builder.gep(builder.inttoptr(_read(builder, args[0], 24), kind), [args[1]])

    return types.CPointer(T.dtype)(types.uintp, types.int64, T), generate


@intrinsic
def _handlers(typing: Any) -> Any:
    """The address of ADDRESSES: an external symbol, so that a compiled handler can be kept on disk."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name, byte = "bayesfac_handlers", ir.IntType(8)
        known = builder.module.globals.get(name)
        table = known or ir.GlobalVariable(builder.module, byte, name)
        return builder.ptrtoint(table, context.get_value_type(types.uintp))

    return types.uintp(), generate


@intrinsic
def _call(typing: Any, function: Any, argument: Any) -> Any:
    """Call the C function at this address with one pointer; return its result, a pointer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = context.get_value_type(types.uintp)
        function = builder.inttoptr(args[0], ir.FunctionType(word, [word]).as_pointer())
        return builder.call(function, [args[1]])

    return types.uintp(types.uintp, types.uintp), generate


@intrinsic
def _fetch_add(typing: Any, address: Any, value: Any) -> Any:
    """Add to the word at this address as one step that no thread can interrupt; return the old value."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = context.get_value_type(types.int64)
        place = builder.inttoptr(args[0], word.as_pointer())
        return builder.atomic_rmw("add", place, args[1], "seq_cst")

    return types.int64(types.uintp, types.int64), generate


_malloc = types.ExternalFunction("malloc", types.uintp(types.uintp))
_free = types.ExternalFunction("free", types.void(types.uintp))
if os.name == "posix":
    _yield = types.ExternalFunction("sched_yield", types.int32())
else:
    _yield = types.ExternalFunction("SwitchToThread", types.int32())


@compiled
def _asked_for_version(frame):
    """Answer the call at registration: an extension of type 1 wants the version of the interface."""
    extension = _word(frame + np.uint64(8))
    while extension != 0:
        if _word(extension + np.uint64(8)) & LOW == 1:
            metadata = _word(extension + np.uint64(24))
            _put(metadata + np.uint64(24), VERSION)
            traits = metadata + np.uint64(32)
            _put(traits, _word(traits) & ~LOW)  # none
            return True
        extension = _word(extension + np.uint64(16))
    return False


@compiled
def _rank(buffer):
    return np.int64(_word(buffer + np.uint64(32)))


@compiled
def _first(frame, buffer, lead, problem):
    """Which number of a buffer is the first of a problem; the buffer has `lead` leading axes.

    The leading axes are those of the first result; a leading axis of length 1 serves all problems.
    """
    like, stride, place = result(frame, 0), 1, 0
    for axis in range(lead, _rank(buffer)):
        stride *= _size(buffer, axis)
    for axis in range(lead - 1, -1, -1):
        if _size(buffer, axis) > 1:
            place += problem % _size(like, axis) * stride
        problem //= _size(like, axis)
        stride *= _size(buffer, axis)
    return place


@compiled
def vector(frame, buffer, T, problem):
    """One problem's part of a buffer, as a vector."""
    lead = _rank(buffer) - 1
    start = _first(frame, buffer, lead, problem)
    return carray(_numbers(buffer, start, T), (_size(buffer, lead),))


@compiled
def matrix(frame, buffer, T, problem):
    """One problem's part of a buffer, as a matrix."""
    lead = _rank(buffer) - 2
    start = _first(frame, buffer, lead, problem)
    return carray(_numbers(buffer, start, T), (_size(buffer, lead), _size(buffer, lead + 1)))


@compiled
def _ordered(frame, function, order, size, first, second):
    """Call a function of XLA's interface with an order of that many bytes; whether it failed."""
    _put(order, size)
    _put(order + np.uint64(8), np.uint64(0))
    _put(order + np.uint64(16), _word(frame + np.uint64(24)))
    _put(order + np.uint64(24), first)
    _put(order + np.uint64(32), second)
    return _call(_word(_word(frame + np.uint64(16)) + function), order) != 0


# The state of one call that several threads share: seven words, behind which is the order to a thread. A call
# frame begins with the size of its struct, which is never MAGIC, so that one compiled function serves as
# handler and as task.
MAGIC = np.uint64(0x6261796573666163)
NEXT, DONE, HOLDERS, FRAME, PROBLEMS, BLOCKS, ORDER = (np.uint64(8 * k) for k in range(1, 8))


@compiled
def _problems(frame, axes):
    """How many problems the first result holds; each of them has `axes` axes."""
    like, n = result(frame, 0), 1
    for axis in range(_rank(like) - axes):
        n *= _size(like, axis)
    return n


@compiled
def _joined(frame, axes, slot):
    """The state of the call: a new one, or that of a thread which asks for help; 0 if there is no work."""
    if _word(frame) == MAGIC:
        return frame
    if _asked_for_version(frame):
        return np.uint64(0)
    return _shared(frame, axes, slot)


@compiled
def _left(state, first):
    """Leave a call without shares to do; the first thread waits until all shares are done."""
    shares = np.int64(_word(state + PROBLEMS)) * np.int64(_word(state + BLOCKS))
    while first and _fetch_add(state + DONE, 0) < shares:
        _yield()
    if _fetch_add(state + HOLDERS, -1) == 1:
        _free(state)


@compiled
def _shared(frame, axes, slot):
    """The state of a new call; other threads are asked to help if the work is worth their while."""
    last = _word(frame + np.uint64(56)) - np.uint64(1)
    plan, problems = _numbers(argument(frame, last), 0, np.float32), _problems(frame, axes)
    grains, blocks, threads = np.int64(problems * plan[0]), np.int64(plan[1]), 1
    state = _malloc(ORDER + np.uint64(40))
    order, answer = state + ORDER, state + NEXT
    if grains > 1:
        _put(answer, np.uint64(1))
        if not _ordered(frame, THREADS, order, np.uint64(32), answer, np.uint64(0)):
            threads = min(np.int64(_word(answer)), grains)
    if blocks == 0:
        wanted = -(-SHARES * threads // max(problems, 1)) if threads > 1 else 1
        blocks = max(1, min(wanted, np.int64(plan[0])))
    helpers = max(0, min(threads, problems * blocks) - 1)
    _put(state, MAGIC)
    _put(state + NEXT, np.uint64(0))
    _put(state + DONE, np.uint64(0))
    _put(state + HOLDERS, np.uint64(helpers + 1))
    _put(state + FRAME, frame)
    _put(state + PROBLEMS, np.uint64(problems))
    _put(state + BLOCKS, np.uint64(blocks))
    handler = _word(_handlers() + np.uint64(8 * slot))
    for _ in range(helpers):
        if _ordered(frame, SCHEDULE, order, np.uint64(40), handler, state):
            _fetch_add(state + HOLDERS, -1)  # XLA refused: the threads at work do the share
    return state


def runner(part: Any, axes: int) -> Any:
    """The function that does the work of one call of a kernel: run(frame, type of real numbers, slot).

    `axes` is the number of axes of the kernel's first result, without those of `jax.vmap`.
    """

    @njit
    def run(frame, T, slot):
        state = _joined(frame, np.int64(axes), np.int64(slot))  # else compiled for each constant
        if state == 0:
            return state
        call, blocks = _word(state + FRAME), np.int64(_word(state + BLOCKS))
        share = _fetch_add(state + NEXT, 1)
        while share < np.int64(_word(state + PROBLEMS)) * blocks:
            part(call, T, share // blocks, share % blocks, blocks)
            _fetch_add(state + DONE, 1)
            share = _fetch_add(state + NEXT, 1)
        _left(state, state != frame)
        return np.uint64(0)

    return run


def call(kernel: Any, T: Any, results: Any, *args: Any, cost: float, blocks: int = 0) -> Any:
    """The results of a kernel, in a program that JAX compiles.

    `kernel` makes the handler of a type T and a slot; `results` are the shapes of the results; `cost` is how
    many multiplications the work takes; `blocks` is the number of shares where the kernel needs a fixed one.
    """
    plan = np.array([cost / GRAIN, blocks], np.float32)
    shapes = [jax.ShapeDtypeStruct(shape, T) for shape in results]
    name = registered(kernel, np.dtype(T).type)
    # the handlers read no attributes: this one tells `inference.work` what the call costs
    many = jax.ffi.ffi_call(name, shapes, vmap_method="expand_dims")
    return many(*args, plan, cost=np.float32(cost))


def kernels() -> dict[str, Any]:
    """Every kernel by its name."""
    homes = [import_module(f"{__package__}.{name}") for name in SOURCES]
    return {name: next(vars(one)[name] for one in homes if name in vars(one)) for name in KERNELS}


@cache
def refusal(dots: Any) -> str:
    """The reason why XLA cannot run the kernels, by a test with one small product; empty if it can."""
    one, ptr = np.ones((1, 1), np.float32), np.array([0, 1], np.int32)
    try:
        with jax.ensure_compile_time_eval():  # a caller may be tracing
            found = call(dots, one.dtype, [(1,)], ptr, ptr[:1], one, one, cost=1.0)
            right = float(found[0][0]) == 1
    except (jax.errors.JaxRuntimeError, NotImplementedError) as error:
        return f"XLA refuses the Numba kernels ({str(error).splitlines()[0]})"
    return "" if right else "the Numba kernels give wrong results"


@cache
def registered(kernel: Any, T: Any) -> str:
    """The name under which XLA knows the handler; compile it at the first call, or read it from disk."""
    slot = 2 * KERNELS.index(kernel.__name__) + (
        T is np.float64
    )  # fixed, as Numba keeps it on disk
    with programs.numba_folder(CONTENT):
        keep = programs.folder() is not None
        handler = cfunc(SIGNATURE, cache=keep)(kernel(T, slot))
    ADDRESSES[slot] = handler.address or 0
    _KEPT.append(handler)
    name = f"bayesfac_{kernel.__name__}_{np.dtype(T).name}_{CONTENT}"
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype = ctypes.py_object
    capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    target = capsule(handler.address, None, None)
    jax.ffi.register_ffi_target(name, target, platform="cpu", api_version=1)
    return name


_KEPT: list[Any] = []  # handlers must outlive the programs that call them
