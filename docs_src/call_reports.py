import asyncio

from raincheck.client import TaskClient


async def main(url: str = "http://127.0.0.1:8000/mcp") -> None:
    async with TaskClient(url) as client:
        result = await client.call_tool("build_report", {"year": 2026, "months": 3})  # waits as long as the task takes
        print(result.structured_content)


if __name__ == "__main__":
    asyncio.run(main())
