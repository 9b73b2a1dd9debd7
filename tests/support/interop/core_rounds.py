"""The tools and the prompt of `core_server.py` that return input requests, and are called again with the answers."""

from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)

Answer = str | InputRequiredResult


def ask_user(message: str, field: str, kind: str = "string") -> ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def ask_model(prompt: str) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=100))


def answer_of_user(ctx: Context, key: str) -> dict[str, object] | None:
    """Return what the user entered, or None."""
    answer = (ctx.input_responses or {}).get(key)
    return dict(answer.content or {}) if isinstance(answer, ElicitResult) and answer.action == "accept" else None


def test_input_required_result_elicitation(ctx: Context) -> Answer:
    """Asks for a name."""
    answer = answer_of_user(ctx, "user_name")
    if answer is None:
        return InputRequiredResult(input_requests={"user_name": ask_user("What is your name?", "name")})
    return f"Hello, {answer['name']}!"


def test_input_required_result_sampling(ctx: Context) -> Answer:
    """Asks the caller's model."""
    answer = (ctx.input_responses or {}).get("capital_question")
    if not isinstance(answer, CreateMessageResult):
        return InputRequiredResult(input_requests={"capital_question": ask_model("What is the capital of France?")})
    return answer.content.text if isinstance(answer.content, TextContent) else "It was not a text."


def test_input_required_result_list_roots(ctx: Context) -> Answer:
    """Asks for the caller's roots."""
    answer = (ctx.input_responses or {}).get("client_roots")
    if not isinstance(answer, ListRootsResult):
        return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})
    return ", ".join(str(root.uri) for root in answer.roots)


def test_input_required_result_request_state(ctx: Context) -> Answer:
    """Asks, with a request state that the caller returns."""
    if answer_of_user(ctx, "confirm") is None:
        question = ask_user("Please confirm", "ok", "boolean")
        return InputRequiredResult(input_requests={"confirm": question}, request_state="asked")
    return f"state-{'ok' if ctx.request_state == 'asked' else 'lost'}"


def test_input_required_result_tampered_state(ctx: Context) -> Answer:
    """Asks, and rejects a changed request state. The SDK signs it."""
    if ctx.request_state is None:
        question = ask_user("Please confirm", "ok", "boolean")
        return InputRequiredResult(input_requests={"confirm": question}, request_state="asked")
    if ctx.request_state != "asked":
        raise MCPError(code=INVALID_PARAMS, message="unknown request state")
    return "The state is unchanged."


def test_input_required_result_multiple_inputs(ctx: Context) -> Answer:
    """Asks three things at once."""
    questions: dict[str, InputRequest] = {
        "user_name": ask_user("What is your name?", "name"),
        "greeting": ask_model("Generate a greeting"),
        "client_roots": ListRootsRequest(),
    }
    if not questions.keys() <= (ctx.input_responses or {}).keys():
        return InputRequiredResult(input_requests=questions, request_state="asked")
    return f"All {len(questions)} were answered."


def test_input_required_result_multi_round(ctx: Context) -> Answer:
    """Asks one thing, then another."""
    name, color = answer_of_user(ctx, "step1"), answer_of_user(ctx, "step2")
    if ctx.request_state == "second" and color is not None:
        return f"The favorite color is {color['color']}."
    if ctx.request_state == "first" and name is not None:
        question = ask_user("Step 2: What is your favorite color?", "color")
        return InputRequiredResult(input_requests={"step2": question}, request_state="second")
    question = ask_user("Step 1: What is your name?", "name")
    return InputRequiredResult(input_requests={"step1": question}, request_state="first")


def test_input_required_result_capabilities(ctx: Context) -> Answer:
    """Asks only what the caller can answer."""
    can = ctx.client_capabilities
    questions: dict[str, InputRequest] = {}
    if can is not None and can.elicitation is not None:
        questions["user"] = ask_user("What is your name?", "name")
    if can is not None and can.sampling is not None:
        questions["model"] = ask_model("What is the capital of France?")
    if not questions or questions.keys() <= (ctx.input_responses or {}).keys():
        return "There is nothing to ask."
    return InputRequiredResult(input_requests=questions)


def test_input_required_result_prompt(ctx: Context) -> Answer:
    """A prompt that asks first."""
    answer = answer_of_user(ctx, "user_context")
    if answer is None:
        question = ask_user("What context should the prompt use?", "context")
        return InputRequiredResult(input_requests={"user_context": question})
    return f"The context is {answer['context']}."


TOOLS = (
    test_input_required_result_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_request_state,
    test_input_required_result_tampered_state,
    test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round,
    test_input_required_result_capabilities,
)
