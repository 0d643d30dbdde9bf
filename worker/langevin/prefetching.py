"""Prefetch instruction, which numba does not provide: request memory before it is needed."""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _prefetching(typing: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        rows = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, rows, [arguments[1]], wraparound=False)  # type: ignore[no-untyped-call]
        place = builder.bitcast(place, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], shape)
        # Read access, high locality, data cache.
        builder.call(function, [place, *(ir.Constant(number, choice) for choice in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch: Any = intrinsic(_prefetching)
"""prefetch(array, index) requests a cache line. It ignores an index past the end of the array."""
