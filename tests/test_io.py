"""Saving and loading: what comes back, what other readers see, and what a broken file says."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.harness import DEVICES, SAME_DATA, laid_out

import chainrule as cr
from chainrule import dtypes
from chainrule.errors import CheckpointError, InputError

STORED = [d for d in dtypes.ALL if d is not dtypes.complex128]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", STORED, ids=lambda d: d.name)
def test_every_dtype_comes_back_bit_for_bit(tmp_path, dtype, device):
    t = cr.tensor(np.array([[0, 1, 2], [3, 250, 7]]) % 128, device=device).to(dtype)
    if dtype.is_floating_point:
        t[0, 0] = float("nan")
        t[0, 1] = -0.0
    cr.save({"t": t}, tmp_path / "f")
    back = cr.load(tmp_path / "f", device)["t"]
    assert (back.dtype, back.shape, str(back.device)) == (dtype, (2, 3), device)
    a, b = (np.ascontiguousarray(x.cpu().numpy()).tobytes() for x in (t, back))
    assert a == b


@pytest.mark.parametrize("layout", SAME_DATA)
def test_any_layout_is_written_in_row_major_order(tmp_path, layout):
    x = np.random.default_rng(0).standard_normal((3, 4))
    for device in DEVICES:
        cr.save(laid_out(cr, x, layout, device), tmp_path / "f")
        assert cr.load(tmp_path / "f").numpy().tolist() == x.tolist()
        assert safetensors.numpy.load_file(tmp_path / "f")["tensor"].tolist() == x.tolist()


def test_a_nest_of_plain_values_comes_back_as_it_was(tmp_path):
    nest = {
        "step": 3,
        "lr": 1e-3,
        "name": "größe ☃ \ud800",
        "done": False,
        "none": None,
        "big": 2**80,
        "odd": [math.inf, -math.inf, -0.0],
        "state": {0: {"step": 1}, 7: (1, [2.5, ()], {})},
        "": {True: 1, None: 2, "True": 3},
    }
    cr.save(nest, tmp_path / "f")
    back = cr.load(tmp_path / "f")
    assert back == nest
    assert [type(k) for k in back[""]] == [bool, type(None), str]
    assert list(back) == list(nest)
    assert math.copysign(1, back["odd"][2]) == -1
    assert type(back["state"][7]) is tuple
    cr.save({"x": math.nan, "n": np.float32(0.5), "i": np.int64(3)}, tmp_path / "f")
    back = cr.load(tmp_path / "f")
    assert math.isnan(back["x"])
    assert (back["n"], type(back["i"])) == (0.5, int)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NESTS = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(nest=NESTS)
def test_any_nest_comes_back(tmp_path_factory, nest):
    path = tmp_path_factory.mktemp("nest") / "f"
    cr.save(nest, path)
    assert cr.load(path) == nest


def test_tensors_inside_a_nest_and_two_paths_of_one_spelling(tmp_path):
    one, two = cr.tensor([1.0]), cr.tensor([2.0])
    nest = {"a": {"b": one, 0: two}, "a.b": two, "l": [one, (two, {"x": one})], "0": {"": one}}
    cr.save(nest, tmp_path / "f")
    back = cr.load(tmp_path / "f")
    assert back["a"]["b"].tolist() == [1]
    assert back["a"][0].tolist() == [2]
    assert back["a.b"].tolist() == [2]
    assert back["l"][1][1]["x"].tolist() == [1]
    assert back["0"][""].tolist() == [1]
    assert "a.b" in safetensors.numpy.load_file(tmp_path / "f")


def test_a_state_dict_is_read_by_others_under_its_own_names(tmp_path):
    state = {"h.0.weight": cr.ones(2, 3).bfloat16(), "h.0.bias": cr.arange(3), "e": cr.zeros(0, 2)}
    cr.save(state, tmp_path / "f")
    theirs = safetensors.torch.load_file(tmp_path / "f")
    assert {k: tuple(v.shape) for k, v in theirs.items()} == {k: v.shape for k, v in state.items()}
    assert theirs["h.0.weight"].dtype is torch.bfloat16
    assert theirs["h.0.bias"].tolist() == [0, 1, 2]
    safetensors.torch.save_file({"w": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "g")
    assert cr.load(tmp_path / "g")["w"].dtype is cr.bfloat16


def test_what_is_loaded_is_a_leaf_of_its_own_memory(tmp_path):
    w = cr.ones(3, requires_grad=True)
    cr.save({"w": w, "tied": w, "part": w.detach()[1:], "y": w * 2}, tmp_path / "f")
    back = cr.load(tmp_path / "f")
    assert not any(t.requires_grad for t in back.values())
    back["w"][0] = 5.0
    assert back["tied"].tolist() == [1, 1, 1]  # shared memory is written twice, loaded apart
    assert back["part"].tolist() == [1, 1]
    back["part"].fill_(0.0)
    cr.load(tmp_path / "f")["y"].zero_()


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({"a": {"b": np.ones(2)}}, "'a.b' is a ndarray: .* wrap it in cr.from_numpy"),
        ({"a": [0, {1, 2}]}, "'a.1' is a set"),
        (lambda: 0, "the object itself is a function"),
        ({1.5: 0}, "a key at the object itself is a float"),
        ({"a": {(1, 2): 0}}, "a key at 'a' is a tuple"),
        ({"c": cr.zeros(1, dtype=cr.complex128)}, "'c' is complex128, which safetensors cannot"),
    ],
)
def test_what_a_file_cannot_hold_is_refused_before_anything_is_written(tmp_path, obj, message):
    path = tmp_path / "f"
    path.write_bytes(b"previous")
    with pytest.raises(InputError, match=message):
        cr.save(obj, path)
    assert path.read_bytes() == b"previous"
    assert os.listdir(tmp_path) == ["f"]


# Files that are not what they should be.


def test_a_file_that_is_missing_or_a_folder(tmp_path):
    with pytest.raises(CheckpointError, match=r"There is no file .*gone: check the path"):
        cr.load(tmp_path / "gone")
    with pytest.raises(CheckpointError, match=r"Cannot read .*: Is a directory"):
        cr.load(tmp_path)
    with pytest.raises(CheckpointError, match="it is a folder"):
        cr.save({}, tmp_path)
    with pytest.raises(CheckpointError, match="No such file or directory; nothing was written"):
        cr.save({}, tmp_path / "no" / "f")


def test_a_file_cut_off_anywhere_says_so(tmp_path):
    path = tmp_path / "f"
    cr.save({"a": cr.arange(5), "n": [1, 2]}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"empty|damaged|not a safetensors"):
            cr.load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match="damaged"):
        cr.load(path)


def test_a_bit_flipped_anywhere_is_found(tmp_path):
    path = tmp_path / "f"
    saved = {"w": cr.arange(5), "x": cr.ones(3), "step": 12, "lr": [0.5]}
    cr.save(saved, path)
    whole = path.read_bytes()
    unnoticed = []
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 1
        path.write_bytes(content)
        try:
            back = cr.load(path)
        except CheckpointError:
            continue
        # Only the name of the checksum itself: what was saved is whole.
        assert (back["step"], back["lr"]) == (12, [0.5])
        assert (back["w"].tolist(), back["x"].tolist()) == ([0, 1, 2, 3, 4], [1, 1, 1])
        unnoticed.append(place)
    name = whole.index(b"checksum")
    assert set(unnoticed) <= set(range(name, name + len("checksum:crc32:") + 2))
    content = bytearray(whole)
    content[-3] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"f is damaged: it was changed .* another copy"):
        cr.load(path)


def test_a_file_without_a_checksum_or_written_again_by_others_loads(tmp_path):
    path = tmp_path / "f"
    cr.save({"w": cr.arange(3), "b": cr.ones(2), "n": 1}, path)
    with safetensors.safe_open(path, "np") as file:
        metadata = file.metadata()
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file(tensors, path, metadata)
    assert cr.load(path)["w"].tolist() == [0, 1, 2]
    tensors["b"] += 1
    safetensors.numpy.save_file(tensors, path, metadata)
    with pytest.raises(CheckpointError, match="is damaged: it was changed"):
        cr.load(path)
    del metadata["checksum"]
    safetensors.numpy.save_file(tensors, path, metadata)
    assert cr.load(path)["b"].tolist() == [2, 2]


def test_foreign_files_are_recognised(tmp_path):
    path = tmp_path / "f"
    torch.save({"a": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match=r"is a pickle, as torch\.save writes"):
        cr.load(path)
    for content in (b"just some text, not tensors at all", b"\0" * 64, b"\x89PNG\r\n\x1a\n" * 9):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="not a safetensors file"):
            cr.load(path)
    safetensors.torch.save_file({"w": torch.ones(2).to(torch.float8_e4m3fn)}, path)
    with pytest.raises(CheckpointError, match="'w' has the dtype F8_E4M3"):
        cr.load(path)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ("{", "damaged"),
        ('{"version": 1}', "damaged"),
        ('{"version": 2, "tree": 0}', "format version 2, this chainrule reads version 1"),
        ('{"version": 1, "tree": {"tensor": "gone"}}', "damaged.*'gone'"),
        ('{"version": 1, "tree": {"what": 1}}', "damaged"),
        ('{"version": 1, "tree": [1]}', "damaged"),
        ('{"version": 1, "tree": {"list": 5}}', "damaged"),
        ("[1]", "damaged"),
    ],
)
def test_a_list_of_contents_that_does_not_fit(tmp_path, described, message):
    path = tmp_path / "f"
    safetensors.numpy.save_file({"a": np.ones(2)}, path, {"chainrule": described})
    with pytest.raises(CheckpointError, match=message):
        cr.load(path)


# The old file or the new one.


def test_a_kill_while_saving_leaves_the_previous_file(tmp_path):
    path = tmp_path / "f"
    cr.save({"a": cr.ones(3)}, path)
    code = (
        "import os, signal, sys\n"
        "import chainrule as cr, chainrule.io as io\n"
        "write = io._write\n"
        "def killed(file, *rest):\n"
        "    write(file, *rest); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "io._write = killed\n"
        "cr.save({'a': cr.zeros(3)}, sys.argv[1])\n"
    )
    root = Path(__file__).parents[1] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    assert cr.load(path)["a"].tolist() == [1, 1, 1]


def test_a_disk_that_takes_no_more_leaves_the_previous_file(tmp_path):
    path = tmp_path / "f"
    cr.save({"a": cr.ones(3)}, path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(CheckpointError, match="File too large; the previous one is untouched"):
            cr.save({"a": cr.zeros(5000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert cr.load(path)["a"].tolist() == [1, 1, 1]
    assert os.listdir(tmp_path) == ["f"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "latest").symlink_to("real")
    cr.save({"n": 1}, tmp_path / "real")
    cr.save({"n": 2}, tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink()
    assert cr.load(tmp_path / "real") == {"n": 2}


def test_the_header_is_the_formats_own(tmp_path):
    cr.save({"b": cr.zeros(3, dtype=cr.uint8), "a": cr.zeros(2, dtype=cr.float64)}, tmp_path / "f")
    content = (tmp_path / "f").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    assert size % 8 == 0  # so that wide numbers are aligned
    assert header["a"] == {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}
    assert header["b"] == {"dtype": "U8", "shape": [3], "data_offsets": [16, 19]}
    assert set(header["__metadata__"]) == {"checksum", "chainrule"}
