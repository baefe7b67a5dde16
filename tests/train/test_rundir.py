"""A run folder survives kills, full disks and second processes, and says what is wrong with it."""

import errno
import json
import math
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chainrule.errors import CheckpointError
from chainrule.train.atomic import replacing, write_bytes
from chainrule.train.rundir import RunDir, latest, next_free


def in_another_process(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2] / "src"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def run(tmp_path):
    with RunDir.create(tmp_path / "run", {"steps": 5}) as made:
        yield made


# --- replacing a file -------------------------------------------------------------------------


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    write_bytes(path, b"old")
    write_bytes(path, b"new and longer")
    assert path.read_bytes() == b"new and longer"
    assert os.listdir(tmp_path) == ["file"]


def test_the_order_is_write_fsync_rename_fsync_folder(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor):
        calls.append("fsync folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "fsync")
        fsync(descriptor)

    def recorded_replace(source, target):
        calls.append(f"rename {Path(source).stat().st_size} bytes")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    write_bytes(tmp_path / "file", b"12345")
    assert calls == ["fsync", "rename 5 bytes", "fsync folder"]


def test_a_kill_in_the_middle_of_writing_keeps_the_previous_file(tmp_path):
    path = tmp_path / "run" / "checkpoint.safetensors"
    RunDir.create(tmp_path / "run", {}).close()
    path.write_bytes(b"previous")
    killed = in_another_process(
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from chainrule.train.atomic import replacing\n"
        "with replacing(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_bytes(b'half of the n')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n",
        path,
    )
    assert killed.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"previous"
    assert len(list(path.parent.glob("*.partial"))) == 1
    # The next process that holds the run clears away what the kill left.
    with RunDir.open(path.parent):
        assert not list(path.parent.glob("*.partial"))


def test_a_disk_that_takes_no_more_keeps_the_previous_file(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(b"previous")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(CheckpointError, match="File too large; the previous one is untouched"):
            write_bytes(path, b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_bytes() == b"previous"
    assert os.listdir(tmp_path) == ["checkpoint.safetensors"]


def test_a_full_disk_says_so(tmp_path):
    def fill(path):
        with replacing(path) as temporary, open("/dev/full", "wb") as full:
            temporary.write_bytes(b"as far as it went")
            full.write(b"x" * 100_000)

    with pytest.raises(CheckpointError) as caught:
        fill(tmp_path / "checkpoint.safetensors")
    assert os.strerror(errno.ENOSPC) in str(caught.value)
    assert "nothing was written" in str(caught.value)
    assert "--resume" in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_while_writing_passes_through_and_leaves_nothing(tmp_path, error):
    def fail():
        with replacing(tmp_path / "file") as temporary:
            temporary.write_bytes(b"part")
            raise error

    with pytest.raises(error):
        fail()
    assert os.listdir(tmp_path) == []


# --- the folder -------------------------------------------------------------------------------


def test_the_config_comes_back(run):
    assert run.config() == {"steps": 5}
    stored = json.loads(run.config_path.read_text())
    assert (stored["format"], stored["version"]) == ("chainrule-run", 1)


def test_a_second_run_in_the_folder_is_refused(tmp_path):
    RunDir.create(tmp_path / "run", {}).close()
    with pytest.raises(CheckpointError, match="already holds a run: add --resume"):
        RunDir.create(tmp_path / "run", {})


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match="has files in it that are not a run's"):
        RunDir.create(tmp_path, {})
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_an_empty_folder_is_taken(tmp_path):
    RunDir.create(tmp_path, {}).close()
    assert (tmp_path / "config.json").exists()


def test_a_file_in_the_place_of_the_folder_is_said(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(CheckpointError, match="is a file: choose another --out"):
        RunDir.create(tmp_path / "out", {})
    with pytest.raises(CheckpointError, match=r"Cannot make the run folder .*Not a directory"):
        RunDir.create(tmp_path / "out" / "run", {})


NOT_A_RUN = {
    "no folder": (None, "There is no run folder"),
    "no config": ({}, "is not a run folder: it has no config.json"),
    "broken": ({"config.json": '{"format": "chain'}, "cannot be read as JSON"),
    "not an object": ({"config.json": "[1]"}, "was not written by chainrule"),
    "foreign": ({"config.json": '{"model_type": "gpt2"}'}, "was not written by chainrule"),
    "binary": ({"config.json": "\x00\x01"}, "cannot be read as JSON"),
    "newer": (
        {"config.json": '{"format": "chainrule-run", "version": 99}'},
        "has format version 99, .* reads version 1",
    ),
}


@pytest.mark.parametrize(("files", "message"), NOT_A_RUN.values(), ids=NOT_A_RUN)
def test_what_is_not_a_run_is_said_and_left_alone(tmp_path, files, message):
    path = tmp_path / "run"
    if files is not None:
        path.mkdir()
        for name, content in files.items():
            (path / name).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        RunDir.open(path)
    for name, content in (files or {}).items():
        assert (path / name).read_text() == content


def test_two_processes_do_not_share_a_folder(run):
    second = in_another_process(
        "import sys\n"
        "from pathlib import Path\n"
        "from chainrule.train.rundir import RunDir\n"
        "RunDir.open(Path(sys.argv[1]))\n",
        run.path,
    )
    assert second.returncode == 1
    assert f"is in use by process {os.getpid()}: wait for it to end" in second.stderr


def test_the_lock_of_a_killed_process_does_not_stay(tmp_path):
    killed = in_another_process(
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from chainrule.train.rundir import RunDir\n"
        "run = RunDir.create(Path(sys.argv[1]), {})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n",
        tmp_path / "run",
    )
    assert killed.returncode == -signal.SIGKILL
    RunDir.open(tmp_path / "run").close()


# --- metrics ----------------------------------------------------------------------------------


def test_metrics_come_back_to_the_last_bit(run):
    losses = [0.1 + 0.2, 1e-310, math.pi, -0.0, math.inf, -math.inf, math.nan]
    for step, loss in enumerate(losses):
        run.append({"step": step, "loss": loss, "layers": {"h.0": {"norm": loss}}})
    back = run.metrics()
    assert [r["loss"].hex() for r in back] == [loss.hex() for loss in losses]
    assert back[5]["layers"]["h.0"]["norm"] == -math.inf
    # Strict JSON: other programs can read it.
    for line in run.metrics_path.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_a_line_is_with_the_system_as_soon_as_it_is_appended(run):
    run.append({"step": 1})
    assert run.metrics_path.read_text() == '{"step": 1}\n'


def test_a_last_line_cut_short_is_left_out(run):
    run.append({"step": 1})
    with open(run.metrics_path, "a") as file:
        file.write('{"step": 2, "lo')
    assert run.metrics() == [{"step": 1}]


def test_a_damaged_line_in_the_middle_is_said(run):
    run.metrics_path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl, line 2, is not a JSON object"):
        run.metrics()


def test_resuming_forgets_what_came_after_the_checkpoint(run):
    for step in range(1, 6):
        run.append({"step": step, "loss": step / 3})
    with open(run.metrics_path, "a") as file:
        file.write('{"step": 6, "lo')
    run.truncate_metrics(3)
    run.append({"step": 4, "loss": 0.5})
    assert [r["step"] for r in run.metrics()] == [1, 2, 3, 4]
    assert run.metrics()[2]["loss"] == 1.0


def test_metrics_on_a_full_disk_say_so(run, monkeypatch):
    run.metrics_path.symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match="No space left on device; the last checkpoint is"):
        run.append({"step": 1})
    run.close()


# --- numbered folders -------------------------------------------------------------------------


def test_runs_are_numbered(tmp_path):
    root = tmp_path / "runs"
    assert next_free(root) == root / "001"
    with pytest.raises(CheckpointError, match="There is no run in"):
        latest(root)
    for name in ("001", "009", "notes"):
        (root / name).mkdir(parents=True)
    assert next_free(root) == root / "010"
    assert latest(root) == root / "009"
