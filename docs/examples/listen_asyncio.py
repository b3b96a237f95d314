"""Prints boxes and events of a running Lookout, in an event loop that does other things as well.

    pip install ./client   # in a checkout; lookout-client, once an index has it
    python listen_asyncio.py tcp://127.0.0.1:5556

Ctrl-C ends it.
"""

from __future__ import annotations

import asyncio
import sys

try:
    from lookout.aio import AsyncSubscriber
    from lookout.errors import LookoutError
    from lookout.messages import Detections, Event
except ImportError as error:
    sys.exit(f"{error.name} is not installed: pip install lookout-client; in a checkout: ./client")


async def listen(endpoint: str) -> None:
    async with AsyncSubscriber(endpoint, kinds=("detections", "events")) as subscriber:
        async for message in subscriber:
            if isinstance(message, Detections):
                print(message.source, message.seq, [box.label for box in message.detections], flush=True)
            elif isinstance(message, Event):
                print(message.source, message.kind, message.phase, message.label, flush=True)


async def main() -> None:
    listening = asyncio.create_task(listen(sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:5556"))
    while not listening.done():  # in place of what else a program does
        await asyncio.wait([listening], timeout=5)
    await listening


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("ended", file=sys.stderr)
    except (LookoutError, ValueError) as error:
        sys.exit(f"{error}")
