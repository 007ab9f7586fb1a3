"""`tailrace convert`, run as a user runs it: in pipes, on files, interrupted."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.convert import source_names, target_names
from tests.convert.streams import as_sse, converted, read, source_of
from tests.convert.test_pieces import ANTHROPIC, CHAT
from tests.forked import Forked, run

ROOT = Path(__file__).parents[2]
COMMAND = ("-m", "tailrace", "convert")
PIECE = '{"choices":[{"index":0,"delta":{"content":"%s"}}]}'


def convert(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run(*COMMAND, *arguments, stdin=stdin, text=False)


@contextmanager
def converting(*arguments: str) -> Iterator[Forked]:
    pipe = subprocess.PIPE
    process = Forked(*COMMAND, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=False)
    try:
        yield process
    finally:
        process.close()


def read_until(process: Forked, word: bytes) -> bytes:
    """What the command writes up to a word, waited for with a deadline."""
    assert process.stdout is not None
    found = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while word not in found:
            assert selector.select(30), f"nothing more after {found!r}"
            piece = process.stdout.read(65536)
            assert piece, f"it ended after {found!r}"
            found += piece
    return found


def send(process: Forked, text: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(text)


def waits(process: Forked) -> None:
    """Return when the command sleeps, which it does only while it waits for more."""
    deadline = time.monotonic() + 30
    stat = Path(f"/proc/{process.pid}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < deadline
        os.sched_yield()


def test_a_pipe_and_a_file_give_the_same() -> None:
    source = source_of(CHAT)
    whole = converted(source, "openai-chat", "vercel-ui")
    piped = convert("--from", "openai-chat", "--to", "vercel-ui", stdin=source)
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, whole, b"")
    dashed = convert("--from", "openai-chat", "--to", "vercel-ui", "-", stdin=source)
    assert (dashed.returncode, dashed.stdout) == (0, whole)
    of_file = convert("--from", "openai-chat", "--to", "vercel-ui", str(CHAT))
    assert (of_file.returncode, of_file.stdout, of_file.stderr) == (0, whole, b"")
    announced = convert("--from", "openai-chat", "--to", "vercel-ui", "--jsonl", str(CHAT))
    assert (announced.returncode, announced.stdout) == (0, whole)


def test_the_example_in_the_docs_runs() -> None:
    page = (ROOT / "docs" / "convert.md").read_text(encoding="utf-8")
    [(source, arguments)] = re.findall(r"\n\$ echo '(.*)' \| tailrace convert (.*)\n", page)
    done = convert(*arguments.split(), stdin=source.encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Hello!" in done.stdout


def test_the_run_is_named_on_request() -> None:
    done = convert("--from=anthropic-messages", "--to=json", "--run-id=run_9", str(ANTHROPIC))
    assert read("json", done.stdout)["task_id"] == "run_9"


def test_help_lists_every_format_and_says_what_cannot_be_read() -> None:
    shown = " ".join(convert("--help").stdout.decode().split())
    before, _, after = shown.partition("Formats to convert to:")
    for name in source_names():
        assert name in before.partition("Formats to convert from:")[2]
    for name in target_names():
        assert name in after
    assert "only be written" in after


def test_mistakes_are_one_clear_sentence_and_exit_2(tmp_path: Path) -> None:
    for arguments, words in (
        (["--from", "morse", "--to", "task"], "'morse' cannot be read"),
        (["--from", "task", "--to", "morse"], "'morse' cannot be written"),
        (["--from", "json", "--to", "task"], "only be written"),
        (["--from", "task", "--to", "json", str(tmp_path / "none")], "No such file"),
        (["--from", "task", "--to", "json", str(tmp_path)], "directory"),
        (["--from", "task"], "--to"),
    ):
        done = convert(*arguments)
        assert done.returncode == 2, done
        assert words in done.stderr.decode()
        assert b"Traceback" not in done.stderr
        assert not done.stdout


@pytest.mark.parametrize("to", target_names())
def test_a_cut_or_broken_stream_is_ended_and_exits_1(to: str) -> None:
    for source, words in (
        (as_sse([PIECE % "Hi"]), b"ended before the answer did"),
        (as_sse([PIECE % "Hi"]), b"(after event 1 of the stream)"),
        (as_sse([PIECE % "Hi", "{never"]), b"not a JSON object"),
        (as_sse([PIECE % "Hi", "{never", PIECE % "Hi"]), b"(in event 2 of the stream)"),
        (b"Hello.\n", b"(the stream has no events)"),
    ):
        done = convert("--from", "openai-chat", "--to", to, stdin=source)
        assert done.returncode == 1
        assert words in done.stderr
        assert done.stderr.count(b"\n") == 1
        read(to, done.stdout)


def test_frames_are_written_as_they_come() -> None:
    with converting("--from", "openai-chat", "--to", "openai-responses") as process:
        for word in (b"first", b"second"):
            send(process, as_sse([PIECE % word.decode()]))
            read_until(process, word)
        send(process, b"data: [DONE]\n\n")
        # The end is known, so the command does not wait for the pipe to be closed.
        assert b"response.completed" in read_until(process, b"response.completed")
        assert process.wait() == 0


def test_ctrl_c_ends_the_target_and_the_command() -> None:
    with converting("--from", "openai-chat", "--to", "vercel-ui") as process:
        send(process, as_sse([PIECE % "Hi"]))
        before = read_until(process, b'"Hi"')
        waits(process)
        process.send_signal(signal.SIGINT)
        after = read_until(process, b"[DONE]")
        assert process.wait() == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""
        read("vercel-ui", before + after)


def test_a_reader_that_leaves_ends_the_command_quietly() -> None:
    with converting("--from", "openai-chat", "--to", "task") as process:
        send(process, as_sse([PIECE % "Hi"]))
        read_until(process, b'"Hi"')
        assert process.stdout is not None
        process.stdout.close()
        send(process, as_sse([PIECE % "there"]))
        assert process.wait() == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stdout = None


def test_an_output_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("wb") as full:
        pipe = subprocess.PIPE
        arguments = (*COMMAND, "--from", "openai-chat", "--to", "task")
        process = Forked(*arguments, stdin=pipe, stdout=full, stderr=pipe, text=False)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"{}\n")
    process.stdin.close()
    assert process.wait() == 2
    read_until = process.stderr.read()
    full_disk = b"(No space left on device). Check the disk and the path.\n"
    assert read_until == b"tailrace: The output cannot be written " + full_disk
    process.close()


def test_what_was_written_as_lines_is_read_under_the_same_name() -> None:
    lines = convert("--from", "openai-chat", "--to", "jsonl", str(CHAT)).stdout
    again = convert("--from", "jsonl", "--to", "jsonl", stdin=lines)
    assert (again.returncode, again.stdout) == (0, lines)


def test_an_answer_larger_than_any_pipe_passes_whole() -> None:
    source = as_sse([PIECE % ("x" * 400_000) for _ in range(5)])
    done = convert("--from", "openai-chat", "--to", "jsonl", stdin=source)
    assert done.stdout == converted(source, "openai-chat", "jsonl")
