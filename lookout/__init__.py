"""The package for programs that listen to Lookout: `client`, `messages`, and `testing` for their tests.

Nothing here needs the packages of the daemon, but `Subscriber(fleet=...)`, which asks the fleet's coordinator.
"""
