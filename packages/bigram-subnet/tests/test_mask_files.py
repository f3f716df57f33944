"""Mask files: bit-exact, refused when damaged, and pickles that cannot run anything."""

from __future__ import annotations

import io
import json
import os
import pickle  # noqa: TID251 - to write what must be refused
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedModel

from bigram_subnet import BigramCounts, SubnetworkMask
from bigram_subnet.mask_files import metadata
from bigram_subnet.packing import pack, unpack

MakeModel = Callable[..., PreTrainedModel]
NAME = "transformer.h.0.mlp.c_fc.weight"


def random_like(model: PreTrainedModel) -> SubnetworkMask:
    mask = SubnetworkMask.empty(model)
    for name in mask:
        mask[name].copy_(torch.rand(mask[name].shape) < 0.3)
    return mask


@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_packing_is_bit_exact_for_any_size(values: list[bool]) -> None:
    mask = torch.tensor(values)
    packed = pack(mask)
    assert len(packed) == -(-len(values) // 8)
    assert torch.equal(unpack(packed, mask.shape), mask)


def test_packed_bytes_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="9 packed entries"):
        unpack(pack(torch.ones(8, dtype=torch.bool)), (3, 3))


@pytest.mark.parametrize("ending", [".safetensors", ".pickle"])
def test_masks_of_every_family_survive_a_round_trip(any_model: PreTrainedModel, ending: str, tmp_path: Path) -> None:
    mask = random_like(any_model)
    mask.base_model = "someone/a-model"
    mask.save(tmp_path / f"mask{ending}")
    for model in (None, any_model):
        found = SubnetworkMask.load(tmp_path / f"mask{ending}", model)
        assert found == mask
        assert found.base_model == "someone/a-model"
    assert list(SubnetworkMask.load(tmp_path / f"mask{ending}", any_model)) == list(mask)


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (7, 9)])
def test_sizes_that_do_not_divide_by_eight_are_bit_exact(shape: tuple[int, int], tmp_path: Path) -> None:
    mask = SubnetworkMask({NAME: torch.rand(shape) < 0.5})
    mask.save(tmp_path / "mask.safetensors")
    assert SubnetworkMask.load(tmp_path / "mask.safetensors") == mask


def test_a_loaded_mask_knows_the_heads(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model("gpt_neox")
    SubnetworkMask.empty(model).save(tmp_path / "mask.safetensors")
    found = SubnetworkMask.load(tmp_path / "mask.safetensors").set_attention_head(0, 1)
    assert found == SubnetworkMask.empty(model).set_attention_head(0, 1)


def test_the_metadata_say_counts_shapes_and_what_was_added(make_model: MakeModel, tmp_path: Path) -> None:
    mask = random_like(make_model("gpt2"))
    mask.save(tmp_path / "mask.safetensors", l0_lambda=10.0)
    found = metadata(tmp_path / "mask.safetensors")
    assert (found["kept"], found["total"], found["l0_lambda"]) == (mask.kept, mask.total, 10.0)
    assert found["shapes"][NAME] == [16, 64]
    assert (tmp_path / "mask.safetensors").stat().st_size < mask.total / 8 + 8192


def test_a_folder_stands_for_the_mask_in_it(make_model: MakeModel, tmp_path: Path) -> None:
    mask = random_like(make_model("gpt2"))
    mask.save(tmp_path / "subnetwork_dict_lambda1e1.pickle")
    assert SubnetworkMask.load(tmp_path) == mask
    SubnetworkMask.full(make_model("gpt2")).save(tmp_path / "mask.safetensors")
    assert SubnetworkMask.load(tmp_path).kept == mask.total


def test_wrapped_names_are_stripped(tmp_path: Path) -> None:
    array = np.eye(3, dtype=bool)
    with (tmp_path / "mask.pickle").open("wb") as file:
        pickle.dump({f"wrapped_model.{NAME}_mask_params": array, "orig_model_name": "gpt2"}, file)
    assert list(SubnetworkMask.load(tmp_path / "mask.pickle")) == [NAME]


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_numbers_that_are_zero_or_one_are_masks_too(dtype: str, tmp_path: Path) -> None:
    with (tmp_path / "mask.pickle").open("wb") as file:
        pickle.dump({NAME: np.eye(3).astype(dtype)}, file, protocol=5)
    assert torch.equal(SubnetworkMask.load(tmp_path / "mask.pickle")[NAME], torch.eye(3, dtype=torch.bool))


class Attack:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("function", [os.system, eval, exec, open, __import__, getattr, os.putenv])
def test_a_pickle_that_calls_anything_is_refused_before_it_runs(
    function: Callable[..., Any], protocol: int, tmp_path: Path
) -> None:
    trap = tmp_path / "ran"
    arguments = {os.system: f"touch {trap}", eval: f"open({str(trap)!r}, 'w')", exec: f"open({str(trap)!r}, 'w')"}
    attack = Attack(function, arguments.get(function, str(trap)), *(["w"] if function is open else []))
    (tmp_path / "mask.pickle").write_bytes(pickle.dumps({NAME: np.eye(2, dtype=bool), "x": attack}, protocol=protocol))
    with pytest.raises(pickle.UnpicklingError, match="refused"):
        SubnetworkMask.load(tmp_path / "mask.pickle")
    assert not trap.exists()


@pytest.mark.parametrize(
    "opcodes",
    [
        b"\x80\x04\x8c\x05numpy\x8c\x04load\x93.",  # a global of numpy that is not needed
        b"\x80\x04\x8c\x06codecs\x8c\x06encode\x93.",
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
        b"\x80\x02cnumpy\ndtype.name\n.",  # attributes of what is allowed
        b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__init__\x93.",
    ],
)
def test_any_other_global_is_refused(opcodes: bytes, tmp_path: Path) -> None:
    (tmp_path / "mask.pickle").write_bytes(opcodes)
    with pytest.raises(pickle.UnpicklingError, match="refused"):
        SubnetworkMask.load(tmp_path / "mask.pickle")


def test_the_encode_of_old_protocols_takes_no_other_codec(tmp_path: Path) -> None:
    (tmp_path / "mask.pickle").write_bytes(
        b"\x80\x02c_codecs\nencode\nX\x03\x00\x00\x00abcX\x05\x00\x00\x00rot13\x86R."
    )
    with pytest.raises(pickle.UnpicklingError, match="rot13"):
        SubnetworkMask.load(tmp_path / "mask.pickle")


def test_object_arrays_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mask.pickle").write_bytes(pickle.dumps({NAME: np.array([[None]], dtype=object)}))
    with pytest.raises(ValueError, match="dtype object"):
        SubnetworkMask.load(tmp_path / "mask.pickle")


def test_every_entry_that_is_no_mask_is_named(tmp_path: Path) -> None:
    other = NAME.replace("0", "1")
    data = {NAME: np.full((2, 2), 2), other: "text", "orig_model_name": 3}
    (tmp_path / "mask.pickle").write_bytes(pickle.dumps(data))
    with pytest.raises(ValueError) as caught:
        SubnetworkMask.load(tmp_path / "mask.pickle")
    assert all(word in str(caught.value) for word in (NAME, "other than 0 and 1", other, "got str", "got int"))


@pytest.mark.parametrize("data", [b"", b"not a pickle", pickle.dumps({NAME: np.eye(2, dtype=bool)})[:-9]])
def test_a_damaged_pickle_is_named(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "mask.pickle").write_bytes(data)
    with pytest.raises(pickle.UnpicklingError, match=r"mask\.pickle: "):
        SubnetworkMask.load(tmp_path / "mask.pickle")


@pytest.mark.parametrize("data", [[1], {}, {"orig_model_name": "gpt2"}])
def test_a_pickle_without_masks_is_refused(data: Any, tmp_path: Path) -> None:
    (tmp_path / "mask.pickle").write_bytes(pickle.dumps(data))
    with pytest.raises(ValueError, match=r"expected a dict|holds no mask"):
        SubnetworkMask.load(tmp_path / "mask.pickle")


@pytest.mark.parametrize("ending", [".safetensors", ".pickle"])
def test_a_file_for_another_model_lists_all_differences(ending: str, make_model: MakeModel, tmp_path: Path) -> None:
    masks = dict(SubnetworkMask.full(make_model("gpt2")))
    masks[NAME] = torch.ones(2, 3, dtype=torch.bool)
    masks["transformer.h.9.mlp.c_fc.weight"] = masks.pop("transformer.h.1.mlp.c_fc.weight")
    file = tmp_path / f"mask{ending}"
    SubnetworkMask(masks).save(file)
    with pytest.raises(ValueError) as caught:
        SubnetworkMask.load(file, make_model("gpt2"))
    words = (str(file), "transformer.h.9", "transformer.h.1.mlp.c_fc.weight", "(2, 3), must be (16, 64)")
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("cut", [4, 40, 2000, -1])
def test_a_truncated_safetensors_file_is_named(cut: int, make_model: MakeModel, tmp_path: Path) -> None:
    file = tmp_path / "mask.safetensors"
    random_like(make_model("gpt2")).save(file)
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"mask\.safetensors: truncated or damaged"):
        SubnetworkMask.load(file)


def test_a_flipped_byte_is_noticed_by_the_counts(make_model: MakeModel, tmp_path: Path) -> None:
    file = tmp_path / "mask.safetensors"
    random_like(make_model("gpt2")).save(file)
    data = bytearray(file.read_bytes())
    data[-1] ^= 0xFF if data[-1].bit_count() != 4 else 0x01
    file.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        SubnetworkMask.load(file)


def test_another_safetensors_file_is_no_mask(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({NAME: torch.ones(3)}, tmp_path / "mask.safetensors")
    with pytest.raises(ValueError, match="not a mask"):
        SubnetworkMask.load(tmp_path / "mask.safetensors")


@pytest.mark.parametrize("name", ["absent.safetensors", "absent.pickle", "/no/where", "./nothing"])
def test_a_file_that_is_not_there_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such mask file"):
        SubnetworkMask.load(name)


def test_an_unknown_hub_id_names_what_was_looked_for() -> None:
    with pytest.raises(FileNotFoundError, match=r"someone/bigram-masks.*subnetwork_dict_lambda1e2\.pickle"):
        SubnetworkMask.load("someone/bigram-masks")


def test_an_empty_folder_names_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"mask\.safetensors"):
        SubnetworkMask.load(tmp_path)


def test_other_endings_are_refused_before_anything_is_written(make_model: MakeModel, tmp_path: Path) -> None:
    mask = SubnetworkMask.full(make_model("gpt2"))
    with pytest.raises(ValueError, match=r"\.safetensors, \.pickle"):
        mask.save(tmp_path / "mask.npz")
    with pytest.raises(ValueError, match="JSON"):
        mask.save(tmp_path / "mask.safetensors", note=object())
    with pytest.raises(ValueError, match="kept"):
        mask.save(tmp_path / "mask.safetensors", kept=3)
    assert not list(tmp_path.iterdir())


def test_the_written_pickle_is_the_published_form(make_model: MakeModel, tmp_path: Path) -> None:
    mask = random_like(make_model("gpt_neox"))
    mask.base_model = "EleutherAI/pythia-70m"
    mask.save(tmp_path / "mask.pickle")
    data = pickle.load(io.BytesIO((tmp_path / "mask.pickle").read_bytes()))
    assert data.pop("orig_model_name") == "EleutherAI/pythia-70m"
    assert list(data) == sorted(mask)
    assert all(array.dtype == bool and np.array_equal(array, mask[name].numpy()) for name, array in data.items())


def refused(data: bytes, tmp_path: Path, words: str) -> None:
    (tmp_path / "mask.pickle").write_bytes(data)
    with pytest.raises(pickle.UnpicklingError, match=words):
        SubnetworkMask.load(tmp_path / "mask.pickle")


def test_a_memo_index_that_would_take_the_memory_is_refused(tmp_path: Path) -> None:
    """The unpickler would allocate as many entries as the index says."""
    for opcodes in (b"\x80\x04Nr" + struct.pack("<I", 2**32 - 1) + b".", b"Np4294967295\n."):
        refused(opcodes, tmp_path, "memo index 4294967295 .* skips others")


@pytest.mark.parametrize("opcode", [b"\x8d", b"\x8e", b"\x96"])
def test_a_declared_size_beyond_the_file_is_refused_before_it_is_allocated(opcode: bytes, tmp_path: Path) -> None:
    refused(b"\x80\x05" + opcode + struct.pack("<Q", 2**40) + b"x.", tmp_path, "damaged")


def test_a_frame_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    refused(b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"N.", tmp_path, "frame of 1099511627776 bytes")


def test_arrays_that_the_file_does_not_hold_are_refused(tmp_path: Path) -> None:
    core: Any = vars(np)["_core"]
    for call in (
        Attack(np.ndarray, (1 << 20, 1 << 12), "?", b"\0", 0, (0, 0)),  # 4 G entries in one byte
        Attack(np.ndarray, (1 << 40,), "?"),
        Attack(core.multiarray._reconstruct, np.ndarray, (1 << 40,), b"b"),
        Attack(bytearray, 1 << 40),
        Attack(core.multiarray.scalar, np.dtype("V2000000000")),
        Attack(np.dtype, ",".join(["i4"] * 100)),
    ):
        refused(pickle.dumps({NAME: call}), tmp_path, "refused|not allowed")


def test_a_pickle_cannot_change_what_it_finds(tmp_path: Path) -> None:
    """BUILD sets attributes: here the defaults of a function of numpy."""
    function = vars(np)["_core"].numeric._frombuffer
    before = function.__defaults__
    opcodes = b"\x80\x04cnumpy._core.numeric\n_frombuffer\n(N}\x8c\x0c__defaults__I1\n\x85stb."
    refused(opcodes, tmp_path, "sets '__defaults__'")
    assert function.__defaults__ == before
    refused(opcodes.replace(b"(N}", b"(}}").replace(b"stb", b"s0b"), tmp_path, "refused|damaged")


def test_tuples_that_double_are_refused(tmp_path: Path) -> None:
    """The hash of a tuple of tuples is not kept: as a key, 2^34 steps."""
    refused(b"\x80\x04}N" + b"2\x86" * 34 + b"Ns.", tmp_path, "opcode DUP .* refused")
    again = b"".join(b"\x86q" + bytes([i]) + b"0h" + bytes([i]) + b"h" + bytes([i]) for i in range(34))
    refused(b"\x80\x04}NN" + again + b"\x86Ns.", tmp_path, "refused")
    held = b"".join(b"\x86q" + bytes([i]) + b"h" + bytes([i]) for i in range(34))
    refused(b"\x80\x04}NN" + held + b"\x86Ns.", tmp_path, "a tuple that is used again")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80\x04N\x51.", "opcode BINPERSID"),
        (b"\x80\x04\x82\x01.", "opcode EXT1"),
        (b"(ios\nsystem\n.", "os.system"),
        (b"\x80\x04]N\x81.", "opcode NEWOBJ"),
    ],
)
def test_opcodes_that_arrays_do_not_need_are_refused(data: bytes, words: str, tmp_path: Path) -> None:
    refused(data, tmp_path, words)


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_of_any_order_and_byte_order_load_from_every_protocol(protocol: int, tmp_path: Path) -> None:
    read_only = np.eye(3, 4, dtype=bool)
    read_only.flags.writeable = False
    arrays = (read_only, np.asfortranarray(read_only), np.eye(6, 8, dtype=bool)[::2, ::2], np.eye(3, 4, dtype=">f4"))
    for array in arrays:
        (tmp_path / "mask.pickle").write_bytes(pickle.dumps({NAME: array}, protocol=protocol))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns of memory that must not be written
            mask = SubnetworkMask.load(tmp_path / "mask.pickle")
        assert torch.equal(mask[NAME], torch.eye(3, 4, dtype=torch.bool))
        assert mask.set_layer(0).kept == 12


@pytest.mark.parametrize("array", [np.full((2, 2), np.nan), np.array([[0.5, 1.0]]), np.array([[2]], dtype="uint8")])
def test_numbers_other_than_zero_and_one_are_no_mask(array: Any, tmp_path: Path) -> None:
    (tmp_path / "mask.pickle").write_bytes(pickle.dumps({NAME: array}))
    with pytest.raises(ValueError, match="other than 0 and 1"):
        SubnetworkMask.load(tmp_path / "mask.pickle")


def test_two_masks_of_one_weight_and_names_outside_of_blocks_are_named_with_the_file(tmp_path: Path) -> None:
    eye = np.eye(2, dtype=bool)
    for data, words in (
        ({NAME: eye, f"wrapped_model.{NAME}_mask_params": ~eye}, f"mask.pickle: .*a second mask of {NAME}"),
        ({"lm_head.weight": eye}, "mask.pickle: lm_head.weight: not the name of a weight inside a block"),
        ({NAME: eye, NAME.replace("0", "1"): eye, NAME.replace("0", "2"): eye}, ""),
    ):
        (tmp_path / "mask.pickle").write_bytes(pickle.dumps(data, protocol=5))
        if words:
            with pytest.raises(ValueError, match=words):
                SubnetworkMask.load(tmp_path / "mask.pickle")
        else:  # one array under three names: the masks are apart
            assert SubnetworkMask.load(tmp_path / "mask.pickle").set_layer(1, keep=False).kept == 4


@pytest.mark.parametrize("shape", [[-2, -4], "ab", 8, [2.0, 4.0], [True, 8], [2**62, 4]])
def test_a_shape_in_the_metadata_that_is_none_is_named(shape: Any, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    header = {"format": "bigram-subnet/mask", "format_version": 1, "kept": 8, "total": 8, "shapes": {NAME: shape}}
    file = tmp_path / "mask.safetensors"
    save_file({NAME: pack(torch.ones(8, dtype=torch.bool))}, file, {"mask": json.dumps(header)})
    with pytest.raises(ValueError, match=rf"mask\.safetensors: damaged: {NAME}"):
        SubnetworkMask.load(file)


@pytest.mark.parametrize("ending", [".safetensors", ".pickle"])
def test_weights_without_entries_survive_a_round_trip(ending: str, tmp_path: Path) -> None:
    masks = {NAME: torch.zeros(3, 0, dtype=torch.bool), NAME.replace("c_fc", "c_proj"): torch.ones(1, 9).bool()}
    SubnetworkMask(masks).save(tmp_path / f"mask{ending}")
    assert SubnetworkMask.load(tmp_path / f"mask{ending}") == SubnetworkMask(masks)


def test_files_may_be_read_by_whom_new_files_may_be_read(tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    SubnetworkMask({"h.0.mlp.c_fc.weight": torch.ones(3, 5, dtype=torch.bool)}).save(tmp_path / "mask.safetensors")
    BigramCounts.from_sequences([[0, 1, 2]], vocab_size=3).save(tmp_path / "counts.safetensors")
    wanted = (tmp_path / "new").stat().st_mode
    assert [(tmp_path / name).stat().st_mode for name in ("mask.safetensors", "counts.safetensors")] == [wanted] * 2
