"""The text: the same bytes everywhere, split by file, and one clear sentence for bad input."""

import hashlib
import os
import random
import sysconfig
from pathlib import Path

import pytest

from chainrule.errors import InputError
from chainrule.train.corpus import load_corpus


def write_files(root: Path, n: int, size: int = 100) -> dict[str, bytes]:
    files = {f"part{i % 3}/file{i:02d}.txt": f"{i:02d} ".encode() * size for i in range(n)}
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return files


@pytest.fixture(scope="module")
def standard():
    return load_corpus()


def test_the_default_is_the_standard_librarys_own_source(standard):
    root = Path(sysconfig.get_path("stdlib"))
    whole = standard.train + standard.held_out
    assert (root / "argparse.py").read_bytes() in whole
    assert (root / "json" / "decoder.py").read_bytes() in whole
    assert len(whole) > 5_000_000
    assert standard.notes == ()


def test_the_default_leaves_out_packages_and_tests(standard):
    whole = standard.train + standard.held_out
    import numpy

    assert Path(numpy.__file__).read_bytes() not in whole
    for folder in ("test", "unittest/test", "idlelib/idle_test"):
        path = Path(sysconfig.get_path("stdlib")) / folder / "__init__.py"
        if path.is_file() and len(path.read_bytes()) > 50:
            assert path.read_bytes() not in whole


def test_the_default_holds_out_about_a_tenth(standard):
    share = len(standard.held_out) / (len(standard.train) + len(standard.held_out))
    assert 0.05 < share < 0.2


def test_every_tenth_file_by_hash_is_held_out(tmp_path):
    files = write_files(tmp_path, 25)
    corpus = load_corpus(str(tmp_path))
    by_hash = sorted(files, key=lambda name: hashlib.sha256(name.encode()).digest())
    held_out = sorted(by_hash[::10])
    assert corpus.held_out == b"".join(files[name] for name in held_out)
    assert corpus.train == b"".join(files[name] for name in sorted(set(files) - set(held_out)))
    assert corpus.files == 25


def test_the_order_in_which_files_were_made_does_not_matter(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    files = write_files(first, 14)
    names = list(files)
    random.Random(1).shuffle(names)
    for name in names:
        (second / name).parent.mkdir(parents=True, exist_ok=True)
        (second / name).write_bytes(files[name])
    assert load_corpus(str(first)).digest == load_corpus(str(second)).digest


def test_of_one_file_the_last_tenth_is_held_out(tmp_path):
    path = tmp_path / "one.txt"
    path.write_bytes(b"0123456789" * 10)
    corpus = load_corpus(str(path))
    assert (corpus.train, corpus.held_out) == (b"0123456789" * 9, b"0123456789")


def test_of_few_files_the_end_of_each_is_held_out(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a" * 20)
    (tmp_path / "b.txt").write_bytes(b"b" * 30)
    corpus = load_corpus(str(tmp_path))
    assert corpus.train == b"a" * 18 + b"b" * 27
    assert corpus.held_out == b"aabbb"


def test_a_glob_takes_what_matches(tmp_path):
    write_files(tmp_path, 6)
    (tmp_path / "part0" / "other.md").write_text("no")
    corpus = load_corpus(str(tmp_path / "**" / "*.txt"))
    assert corpus.files == 6


def test_a_name_with_brackets_is_a_file_before_it_is_a_glob(tmp_path):
    path = tmp_path / "notes[1].txt"
    path.write_bytes(b"x" * 100)
    assert load_corpus(str(path)).files == 1


def test_hidden_files_are_not_read(tmp_path):
    write_files(tmp_path, 3)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "objects").write_bytes(b"\0" * 10)
    corpus = load_corpus(str(tmp_path))
    assert corpus.files == 3
    assert corpus.notes == ()


def test_the_cap_is_kept_and_said(tmp_path):
    write_files(tmp_path, 12, size=100)
    corpus = load_corpus(str(tmp_path), max_bytes=1000)
    assert len(corpus.train) + len(corpus.held_out) == 1000
    assert corpus.notes == (
        "Read 1,000 of 3,600 bytes, from 4 of 12 files: a run takes no more text than that.",
    )


def test_latin_1_is_used_byte_by_byte_and_said(tmp_path):
    path = tmp_path / "old.txt"
    data = ("Fast täglich ein neuer Text. " * 20).encode("latin-1")
    path.write_bytes(data)
    corpus = load_corpus(str(path))
    assert corpus.train + corpus.held_out == data
    assert "is not UTF-8 (20 of 580 bytes; byte 6 is 0xe4)" in corpus.notes[0]


def test_files_that_are_no_text_are_left_out_of_a_folder_and_said(tmp_path):
    write_files(tmp_path, 3)
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    corpus = load_corpus(str(tmp_path))
    assert corpus.files == 3
    (note,) = corpus.notes
    assert note == (
        "Left out 1 of 4 files. logo.png is not text: byte 8 is zero. Give a text file (UTF-16 "
        "has to be converted to UTF-8 first)."
    )


BAD = {
    "missing": (None, r"There is no file or folder .*text: check the path given to --text\."),
    "empty": (b"", r"is empty: there is nothing to learn from\."),
    "zero byte": (b"abc\0def", r"is not text: byte 3 is zero\."),
    "utf-16": ("text".encode("utf-16"), r"is not text: byte 3 is zero\. .*UTF-16 has to be"),
    "binary": (
        bytes(range(128, 256)) * 4,
        r"is not text: 512 of 512 bytes are not UTF-8 \(byte 0 is 0x80\)",
    ),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_one_clear_sentence(tmp_path, content, message):
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_corpus(str(path))


def test_an_empty_folder_and_a_glob_without_matches_are_said(tmp_path):
    with pytest.raises(InputError, match=r"holds no files"):
        load_corpus(str(tmp_path))
    with pytest.raises(InputError, match=r"No file matches .*\*\.txt: check the glob"):
        load_corpus(str(tmp_path / "*.txt"))


def test_a_folder_of_images_is_said(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\0")
    with pytest.raises(InputError, match=r"None of the 1 files .* is text"):
        load_corpus(str(tmp_path))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        load_corpus(str(tmp_path / "pipe"))


def test_an_unreadable_file_is_said(tmp_path, monkeypatch):
    path = tmp_path / "locked.txt"
    path.write_text("x" * 100)

    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match=r"Cannot read .*locked\.txt: Permission denied"):
        load_corpus(str(path))


def test_too_short_for_the_context_names_both_numbers(tmp_path):
    path = tmp_path / "short.txt"
    path.write_bytes(b"x" * 1000)
    corpus = load_corpus(str(path))
    corpus.require(99)
    with pytest.raises(InputError, match=r"held-out text .* has 100 bytes.*context \+ 1 = 101"):
        corpus.require(100)
