"""Tests for commands that a signal ends while they run in this process."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
import typer

from raincheck.cli.exit_codes import run_with_signals

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def default_dispositions() -> Iterator[None]:
    """Those of a program that is started in the foreground."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_decides_the_exit_code_even_if_the_cancelled_command_fails(number: signal.Signals) -> None:
    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("the server is gone")

    with pytest.raises(typer.Exit) as exited:
        run_with_signals(work())
    assert exited.value.exit_code == 128 + number


def test_a_second_ctrl_c_ends_the_command_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    async def background() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)

    async def work() -> None:
        helper = asyncio.create_task(background())
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)
        await helper

    with pytest.raises(typer.Exit) as exited:
        run_with_signals(work())
    assert exited.value.exit_code == 130
    assert not capsys.readouterr().err


def test_ctrl_c_decides_the_exit_code_even_if_a_child_fails_first() -> None:
    async def fail() -> None:
        raise RuntimeError("the server is gone")

    async def work() -> None:
        async with asyncio.TaskGroup() as children:
            children.create_task(fail())
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(typer.Exit) as exited:
        run_with_signals(work())
    assert exited.value.exit_code == 130


def test_an_exit_code_that_the_command_chose_when_it_was_cancelled_is_kept() -> None:
    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise typer.Exit(4) from error

    with pytest.raises(typer.Exit) as exited:
        run_with_signals(work())
    assert exited.value.exit_code == 4


def test_an_error_without_a_signal_is_raised() -> None:
    async def work() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        run_with_signals(work())
