"""The package for programs that listen to Lookout. It needs msgspec and pyzmq, and nothing of the daemon's packages.

`client` has the subscriber, `aio` the same for asyncio, `packets` live video, `pairing` pictures with their boxes,
`messages` the types, and `testing` what tests of such a program need.
"""
