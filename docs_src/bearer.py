from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

from raincheck import TaskContext, Tasks

ISSUER = "https://login.example.com"
HERE = "http://127.0.0.1:8000/mcp"
USERS = {"token-of-ada": "ada", "token-of-bob": "bob"}  # in production: ask your identity provider, or verify a JWT


class Verifier(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        user = USERS.get(token)
        if user is None:
            return None  # rejected with 401
        return AccessToken(
            token=token,
            client_id="desktop",
            scopes=[],
            subject=user,  # without it, all users of "desktop" are one owner
            claims={"iss": ISSUER},
            resource=HERE,
        )


auth = AuthSettings(issuer_url=AnyHttpUrl(ISSUER), resource_server_url=AnyHttpUrl(HERE), validate_token_resource=True)
mcp = MCPServer("private", token_verifier=Verifier(), auth=auth)
tasks = Tasks(mcp, "private.db")


@tasks.tool
async def whose(task: TaskContext) -> str:
    """Return the owner of the task."""
    return task.owner.key


if __name__ == "__main__":
    mcp.run("streamable-http")
