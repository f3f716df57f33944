"""Reading pickles of numpy arrays without trusting them.

A pickle may call anything when it is read. Here its opcodes are checked first: only those that arrays need, no size and
no memo index beyond what the file holds. Then an unpickler reads it that finds stand-ins for the constructors of
numpy's own arrays and refuses any other global before it runs. numpy 1 wrote them under other module names than
numpy 2, both are understood.
"""

from __future__ import annotations

import mmap
import pickle  # noqa: TID251 - the published format; no global is found but numpy's array constructors
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_CORE: Any = vars(np)["_core"]  # where numpy 2 keeps what its pickles name
_OPCODES = frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "INT", "LONG", "LONG1", "BININT", "BININT1",
    "BININT2", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
    "BYTEARRAY8", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET",
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
))  # fmt: skip
_TUPLES = ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3")
_LONGEST_DTYPE = 8  # characters, of "float64" and the like
_DAMAGED = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError,
    RecursionError,
)  # fmt: skip


class RefusedPickleError(pickle.UnpicklingError, ValueError):
    """A pickle that is damaged, or asks for more than arrays; a ValueError too, as other bad files raise."""


class _StandIn:
    """What a pickle gets for a global: it can be called, if there is a function, and not be changed.

    A pickle may set attributes of whatever it finds, so that numpy's own functions are not given out.
    """

    __slots__ = ("_function",)
    _function: Callable[..., Any] | None

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        object.__setattr__(self, "_function", function)

    def __setattr__(self, name: str, value: object) -> None:
        raise RefusedPickleError(f"the file sets {name!r} of a constructor, which may run code and is refused")

    def __call__(self, *arguments: Any) -> Any:
        if self._function is None:
            raise RefusedPickleError("the file calls numpy.ndarray itself, which a mask never does; it is refused")
        return self._function(*arguments)


_NDARRAY = _StandIn()


def _reconstruct(kind: object, shape: object, code: object) -> Any:
    if kind is not _NDARRAY or shape != (0,):
        raise RefusedPickleError(f"the file makes an array of shape {shape!r} without its data; it is refused")
    return np.empty(0, dtype=np.int8)  # the state that follows in the file gives it shape, dtype and data


def _from_buffer(buffer: object, dtype: object, *shape_and_order: object) -> Any:
    if not isinstance(buffer, (bytes, bytearray)) or not isinstance(dtype, np.dtype):
        raise RefusedPickleError("an array must have bytes and a dtype")
    return _CORE.numeric._frombuffer(buffer, dtype, *shape_and_order)


def _dtype(name: object, *flags: object) -> np.dtype[Any]:
    if not isinstance(name, str) or len(name) > _LONGEST_DTYPE:
        raise RefusedPickleError(f"an array of dtype {str(name)[:20]!r} is refused")
    return np.dtype(name, align=False, copy=True)  # a copy, as a pickle may change what it made


def _scalar(dtype: object, data: object) -> Any:
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf" or not isinstance(data, bytes):
        raise RefusedPickleError("a scalar that is no number is refused")
    return _CORE.multiarray.scalar(dtype, data)


def _encode(text: object, encoding: object = "latin1") -> bytes:
    """What old protocols call to write bytes; the real `codecs.encode` would find any registered codec."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise RefusedPickleError(f"_codecs.encode of {type(text).__name__} to {encoding!r} is not allowed")
    return text.encode("latin1")


def _bytearray(data: object = b"", encoding: object = "latin1") -> bytearray:
    return bytearray(data if isinstance(data, bytes) else _encode(data, encoding))


_ALLOWED: dict[tuple[str, str], _StandIn] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _StandIn(_dtype),
    ("numpy.dtypes", "BoolDType"): _StandIn(lambda: np.dtype(np.bool_)),
    ("builtins", "bytearray"): _StandIn(_bytearray),
    ("_codecs", "encode"): _StandIn(_encode),
}
for _module in ("numpy.core", "numpy._core"):
    _ALLOWED[_module + ".numeric", "_frombuffer"] = _StandIn(_from_buffer)
    _ALLOWED[_module + ".multiarray", "_reconstruct"] = _StandIn(_reconstruct)
    _ALLOWED[_module + ".multiarray", "scalar"] = _StandIn(_scalar)


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler that finds numpy's array constructors and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for an allowed object.

        Raises:
            RefusedPickleError: any other name; nothing has been run.
        """
        return _allowed(module, name)


def _allowed(module: str, name: str) -> _StandIn:
    if (module, name) not in _ALLOWED:
        raise RefusedPickleError(
            f"the file asks for {module}.{name}, which a mask of numpy bool arrays never needs; "
            "it may run code and is refused"
        )
    return _ALLOWED[module, name]


def _check_opcodes(file: Any, size: int) -> None:
    """Refuses what no pickled array holds, before anything is built.

    A memo index makes the unpickler allocate as many entries, a tuple that is used again can double with every step,
    and a declared size is allocated before it is read: the first two are looked at here, the last is an error of
    `pickletools`, which finds less data than declared.
    """
    made_by: dict[int, str] = {}
    before = ""
    for opcode, argument, position in pickletools.genops(file):
        name = opcode.name
        if name in ("GLOBAL", "INST"):
            _allowed(*str(argument).split(" ", 1))
        if name not in _OPCODES:
            raise RefusedPickleError(f"opcode {name} at byte {position} has no place in a mask and is refused")
        number = argument if isinstance(argument, int) else 0
        if name == "FRAME" and number > size:
            raise RefusedPickleError(f"a frame of {number} bytes at byte {position} is longer than the file")
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            index = len(made_by) if name == "MEMOIZE" else number
            if not 0 <= index <= len(made_by):
                raise RefusedPickleError(f"memo index {index} at byte {position} skips others and is refused")
            made_by[index] = before
        elif name in ("GET", "BINGET", "LONG_BINGET") and made_by.get(number, "") in _TUPLES:
            raise RefusedPickleError(f"a tuple that is used again, at byte {position}, is refused")
        before = name


def read_arrays(path: str | Path) -> Any:
    """The object in a pickle that holds arrays, text, numbers and containers of them.

    Args:
        path: the file.

    Raises:
        RefusedPickleError: the file asks for anything but numpy arrays, is damaged, or is no pickle; nothing of it has
            been run.
        FileNotFoundError: there is no such file.
    """
    with Path(path).open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                _check_opcodes(mapped, len(mapped))
                mapped.seek(0)
                return ArrayUnpickler(mapped).load()
        except RefusedPickleError as error:
            raise RefusedPickleError(f"{path}: {error}") from None
        except MemoryError:
            raise RefusedPickleError(f"{path}: does not fit into memory, or is damaged") from None
        except _DAMAGED as error:
            what = str(error).partition("\n")[0][:200]
            raise RefusedPickleError(f"{path}: damaged, or no pickle ({what})") from None
