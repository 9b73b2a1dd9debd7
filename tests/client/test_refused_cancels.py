"""Cancels that are refused: a process goes on where its workflow does not let it be cancelled."""

import pytest
from mcp.server.mcpserver import MCPServer

from raincheck import Tasks
from raincheck.client import TaskClient
from raincheck.core.lifecycle import Status
from raincheck.errors import CancelRefused
from raincheck.workflows import Machine, State, Transition
from tests.support.client.callers import ON_ALL, options_of

pytestmark = pytest.mark.anyio


def make_server() -> tuple[MCPServer, Tasks]:
    machine = Machine("letter", [State("written", [Transition("send", "sent")]), State("sent", kind="success")])
    mcp = MCPServer("calls")
    tasks = Tasks(mcp, "memory:", fallback_wait=0.1)
    tasks.add(machine.tool(), input_schema=machine.input_schema, description="A letter.")
    return mcp, tasks


@ON_ALL
async def test_a_cancel_that_is_refused_is_an_error_with_the_reason_and_the_work_goes_on(tier: str) -> None:
    mcp, tasks = make_server()
    async with tasks.running() as engine, TaskClient(**options_of(tier, mcp, None)) as client:
        handle = await client.call("letter")
        assert handle.task_id is not None
        with pytest.raises(CancelRefused) as refused:
            await handle.cancel()
        assert (refused.value.task_id, refused.value.reason) == (handle.task_id, "not-cancellable")
        assert refused.value.why == "workflow 'letter' has no state for that"
        update = await handle.poll()
        assert update is not None
        assert update.status is Status.WORKING
        await engine.instances.transition(handle.task_id, "send", owner=None)
        await handle.result()


@ON_ALL
async def test_a_process_that_has_ended_stays_as_it_is_and_nobody_is_refused(tier: str) -> None:
    mcp, tasks = make_server()
    async with tasks.running() as engine, TaskClient(**options_of(tier, mcp, None)) as client:
        handle = await client.call("letter")
        assert handle.task_id is not None
        await engine.instances.transition(handle.task_id, "send", owner=None)
        await engine.wait(handle.task_id)
        await handle.cancel()
        assert not (await handle.result()).is_error
