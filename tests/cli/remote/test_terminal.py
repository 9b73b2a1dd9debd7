"""Tests for calls at a real terminal, with typed lines and Ctrl-C."""

import contextlib
import json
import sys
from pathlib import Path

import pytest

from tests.support.cli.terminal import COMMAND, OLDER_COMMAND, at_terminal, list_saved_calls, run, serving

pytestmark = pytest.mark.usefixtures("workshop")

COMMANDS = pytest.mark.parametrize("command", [COMMAND, OLDER_COMMAND], ids=["2026-07-28", "2025-11-25"])


def test_progress_is_shown_as_a_bar_and_leaves_nothing_behind(url: str) -> None:
    with at_terminal("call", url, "hold") as screen:
        screen.expect("hold: holding").expect("1 of 4")
        Path("go").touch()
        screen.expect("let go")
        assert screen.end() == 0


@COMMANDS
def test_a_form_is_asked_field_by_field(command: str) -> None:
    with at_terminal("call", command, "publish", "name=it") as screen:
        screen.expect("publish asks: Publish it?").expect("/decline to decline, /cancel to dismiss the question")
        screen.expect("Are you sure (y or n):").type("perhaps")
        screen.expect("'perhaps' is not of type 'boolean'").expect("Are you sure").type("y")
        screen.expect("  1) small").expect("  2) large").expect("size (a number from 1 to 2; Enter: small):").type("2")
        screen.expect("How many to print.").expect("copies (integer; Enter: none):").type("0")
        screen.expect("0 is less than the minimum of 1").expect("copies").type("3")
        screen.expect("  3) radio").expect("to (numbers from 1 to 3, separated by commas; Enter: none):").type(
            "1, radio"
        )
        screen.expect("accept: {'sure': True, 'size': 'large', 'copies': 3, 'to': ['web', 'radio']}")
        assert screen.end() == 0
    assert list_saved_calls() == []


def test_enter_takes_the_default_or_omits_an_optional_field(url: str) -> None:
    with at_terminal("call", url, "publish", "name=it") as screen:
        screen.expect("Are you sure (y or n):").type("").expect("'' is not of type 'boolean'").type("n")
        screen.expect("size").type("").expect("copies").type("").expect("to (").type("")
        screen.expect("accept: {'sure': False, 'size': 'small'}")
        assert screen.end() == 0


def test_an_empty_default_is_visible(url: str) -> None:
    with at_terminal("call", url, "sign") as screen:
        screen.expect('name (string; Enter: ""):').type("").expect("{'name': ''}")
        assert screen.end() == 0


@pytest.mark.parametrize(("word", "action"), [("/decline", "decline"), ("/cancel", "cancel")])
def test_the_user_can_decline_at_any_field(url: str, word: str, action: str) -> None:
    with at_terminal("call", url, "publish", "name=it") as screen:
        screen.expect("Are you sure").type("y").expect("size").type(word).expect(f"{action}: None")
        assert screen.end() == 0


@pytest.mark.parametrize(("word", "action"), [("y", "accept"), ("no", "decline"), ("/cancel", "cancel")])
def test_a_form_without_fields_is_a_yes_or_no(url: str, word: str, action: str) -> None:
    with at_terminal("call", url, "confirm") as screen:
        screen.expect("confirm asks: Really?").expect("yes or no [y/n]:").type("what").expect("yes or no").type(word)
        screen.expect(action)
        assert screen.end() == 0


def test_a_page_is_opened_only_after_consent(url: str) -> None:
    Path("browser").write_text(f"#!{sys.executable}\nimport sys\nopen('opened', 'w').write(sys.argv[1])\n")
    Path("browser").chmod(0o755)
    browser = {"BROWSER": str(Path("browser").absolute())}
    with at_terminal("call", url, "visit", env=browser) as screen:
        screen.expect("a page on pay.example.com:").expect("  https://pay.example.com/order?id=7")
        screen.expect("[d]ecline").type("d").expect("decline")
        assert screen.end() == 0
    assert not Path("opened").exists()
    with at_terminal("call", url, "visit", env=browser) as screen:
        screen.expect("[o]pen it here").type("o").expect("accept")
        assert screen.end() == 0
    assert Path("opened").read_text() == "https://pay.example.com/order?id=7"


def test_questions_of_calls_without_a_task_are_asked_too() -> None:
    with at_terminal("call", OLDER_COMMAND, "choose") as screen:
        screen.expect("choose asks: Which one?").expect("Word (string):").type("this").expect("it is this")
        assert screen.end() == 0


def test_ctrl_c_offers_to_keep_waiting(url: str) -> None:
    with at_terminal("call", url, "hold") as screen:
        screen.expect("holding").press("c").expect("[d]etach and come back later").type("what")
        screen.expect("[d]etach").type("").expect("holding")
        Path("go").touch()
        screen.expect("let go")
        assert screen.end() == 0


def test_a_task_that_ends_while_the_menu_is_open_has_ended(url: str) -> None:
    with at_terminal("call", url, "hold") as screen:
        screen.expect("holding").press("c").expect("keep waiting:")
        Path("go").touch()
        screen.expect("let go")
        assert screen.end() == 0
    assert list_saved_calls() == []


def test_ctrl_c_offers_to_detach(url: str) -> None:
    with at_terminal("call", url, "hold") as screen:
        screen.expect("holding").press("c").expect("[d]etach").type("d").expect("hold keeps running as task")
        assert screen.end() == 4
    (task_ref,) = list_saved_calls()
    assert json.loads(run("get", task_ref["task_id"], "--json").stdout)["status"] == "working"


def test_a_task_whose_server_ends_with_the_command_is_reported_as_stored() -> None:
    with at_terminal("call", COMMAND, "hold") as screen:
        screen.expect("holding").press("c").expect("[d]etach").type("d").expect("hold is stored as task")
        assert screen.end() == 4
        assert "keeps running" not in screen.text
        assert "still be running" not in screen.text


def test_ctrl_c_offers_to_cancel(url: str) -> None:
    with at_terminal("call", url, "hold") as screen:
        screen.expect("holding").press("c").expect("[c]ancel the task").type("c").expect("is cancelled")
        assert screen.end() == 130
    assert list_saved_calls() == []


def test_cancelling_on_an_unavailable_server_can_be_interrupted() -> None:
    with contextlib.ExitStack() as server:
        url = server.enter_context(serving("--http", "127.0.0.1:0"))
        with at_terminal("call", url, "hold") as screen:
            screen.expect("holding").press("c").expect("keep waiting:")
            server.close()
            screen.type("c").expect("cancelling the task").press("c")
            screen.expect("not cancelled. hold keeps running as task")
            assert screen.end() == 4
    assert len(list_saved_calls()) == 1


@pytest.mark.parametrize("key", ["c", "d"])
def test_a_second_ctrl_c_or_the_end_of_the_input_detaches_at_once(url: str, key: str) -> None:
    with at_terminal("call", url, "hold") as screen:
        screen.expect("holding").press("c").expect("[d]etach").expect("keep waiting:").press(key).expect(
            "hold keeps running as task"
        )
        assert screen.end() == 4


def test_ctrl_c_at_a_question_leaves_it_open_and_it_is_asked_again(url: str) -> None:
    with at_terminal("call", url, "confirm") as screen:
        screen.expect("yes or no").press("c").expect("[d]etach").type("")
        screen.expect("confirm asks: Really?").expect("yes or no").press("c").expect("[d]etach").type("d")
        screen.expect("confirm keeps running as task")
        assert screen.end() == 4
    (task_ref,) = list_saved_calls()
    with at_terminal("wait", task_ref["task_id"][:20]) as screen:
        screen.expect("confirm asks: Really?").expect("yes or no").type("y").expect("accept")
        assert screen.end() == 0


def test_the_end_of_the_input_at_a_question_leaves_it_open(url: str) -> None:
    with at_terminal("call", url, "confirm") as screen:
        screen.expect("yes or no").press("d").expect("answer with: raincheck answer")
        assert screen.end() == 3


def test_ctrl_c_cancels_a_call_that_is_not_a_task_yet(url: str) -> None:
    with at_terminal("call", url, "linger") as screen:
        screen.expect("linger").expect("0:00:01").press("c").expect("linger was interrupted. It was not a task yet")
        assert screen.end() == 130


def test_ctrl_c_while_connecting_ends_the_command() -> None:
    with at_terminal("call", "sleep 100", "hold") as screen:
        screen.expect("connecting").press("c").expect("interrupted before the tool was called")
        assert screen.end() == 130


def test_escape_sequences_of_a_server_do_not_reach_the_terminal(url: str) -> None:
    with at_terminal("call", url, "mischief") as screen:
        screen.expect("mischief asks: \\x1b]0;mine\\x07 ok?").expect("yes or no").type("y").expect("\\x1b[2Jdone")
        assert screen.end() == 0
        assert "\x1b]0;" not in screen.raw
        assert "\x1b[2J" not in screen.raw
