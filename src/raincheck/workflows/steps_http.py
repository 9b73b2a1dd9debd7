"""Steps that ask a server over HTTP."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from raincheck.core.payload import Json, encode
from raincheck.workflows.action import ActionFailed, Occasion
from raincheck.workflows.action_model import HttpModel
from raincheck.workflows.bounded_http import Answer, Request, fetch
from raincheck.workflows.expressions import ExpressionFailed, Template
from raincheck.workflows.sandbox import text_of
from raincheck.workflows.surroundings import Surroundings

CHARSETS = re.compile(r"utf-?(?:8|16|32)(?:-?[lb]e)?|latin-?1|iso-?8859-?\d{1,2}|(?:cp|windows-?)125\d|(?:us-)?ascii")
"""What a server may say that its text is written in. Others can take very long, or are no charsets at all."""


class Http:
    """A request. Its result is `{status, headers, body}`, where the body of JSON is JSON."""

    waits = False

    def __init__(self, model: HttpModel, surroundings: Surroundings) -> None:
        self._model = model
        self._surroundings = surroundings
        self._sent = Template.parse(
            {"url": model.url, "headers": model.headers, "json": model.body_json, "body": model.body}
        )
        self.words = f"{model.method} {re.sub(r'{{.*?}}', '…', model.url).split('?')[0]}"

    async def perform(self, occasion: Occasion) -> Json:
        sent = cast("Mapping[str, Json]", self._sent.render(occasion.within(self._surroundings.variables())))
        headers = _headers(sent["headers"])
        body = None if sent["body"] is None else str(sent["body"]).encode()
        if "body_json" in self._model.model_fields_set:
            body = encode(sent["json"], what="the body")
            headers.setdefault("content-type", "application/json")
        request = Request(self._model.method, str(sent["url"]), headers, body, self._model.max_body)
        return self._result(await fetch(request, self._surroundings))

    def _result(self, answer: Answer) -> Json:
        expected = range(200, 300) if self._model.expect is None else self._model.expect
        if answer.status not in expected:
            raise ActionFailed("http", f"it answered with status {answer.status}")
        return {"status": answer.status, "headers": answer.headers, "body": read_body(answer)}


def read_body(answer: Answer) -> Json:
    """The body of an answer: JSON if it says so, else text.

    Raises:
        ActionFailed: it is neither.
    """
    try:
        text = _text(answer)
        if "json" not in answer.headers.get("content-type", "") or not text:
            return text
        value: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ActionFailed("http", "the answer is neither text nor JSON") from error
    return value


def _text(answer: Answer) -> str:
    charset = answer.charset.strip().lower().replace("_", "-")
    if CHARSETS.fullmatch(charset):
        with suppress(LookupError):
            return answer.body.decode(charset)
    return answer.body.decode(errors="replace")


def _headers(rendered: Json) -> dict[str, str]:
    try:
        return {name.lower(): text_of(value) for name, value in cast("Mapping[str, Json]", rendered).items()}
    except TypeError as error:
        raise ExpressionFailed(f"a header: {error}") from error
