"""Tests for refused cancels: an instance continues if its workflow does not allow the cancel."""

import pytest
from mcp.server.mcpserver import MCPServer

from raincheck import Tasks
from raincheck.client import TaskClient
from raincheck.core.lifecycle import Status
from raincheck.errors import CancelRefused
from raincheck.workflows import Machine, State, Transition
from tests.support.client.callers import ON_ALL_PROTOCOLS, client_options

pytestmark = pytest.mark.anyio


def make_server() -> tuple[MCPServer, Tasks]:
    machine = Machine("letter", [State("written", [Transition("send", "sent")]), State("sent", kind="success")])
    mcp = MCPServer("calls")
    tasks = Tasks(mcp, "memory:", fallback_wait=0.1)
    tasks.add(machine.tool(), input_schema=machine.input_schema, description="A letter.")
    return mcp, tasks


@ON_ALL_PROTOCOLS
async def test_a_refused_cancel_raises_with_the_reason_and_the_task_continues(tier: str) -> None:
    mcp, tasks = make_server()
    async with tasks.running() as engine, TaskClient(**client_options(tier, mcp, None)) as client:
        handle = await client.call("letter")
        assert handle.task_id is not None
        with pytest.raises(CancelRefused) as refused:
            await handle.cancel()
        assert (refused.value.task_id, refused.value.reason) == (handle.task_id, "not-cancellable")
        assert refused.value.explanation == "workflow 'letter' has no state of kind cancel"
        update = await handle.poll()
        assert update is not None
        assert update.status is Status.WORKING
        await engine.instances.transition(handle.task_id, "send", owner=None)
        await handle.result()


@ON_ALL_PROTOCOLS
async def test_cancelling_an_ended_instance_changes_nothing_and_is_not_refused(tier: str) -> None:
    mcp, tasks = make_server()
    async with tasks.running() as engine, TaskClient(**client_options(tier, mcp, None)) as client:
        handle = await client.call("letter")
        assert handle.task_id is not None
        await engine.instances.transition(handle.task_id, "send", owner=None)
        await engine.wait(handle.task_id)
        await handle.cancel()
        assert not (await handle.result()).is_error
