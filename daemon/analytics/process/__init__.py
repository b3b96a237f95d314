"""Rules in a process of their own: `remote` in the daemon, `main` in the process, and a pipe each way between them.

Nothing in a frame's message waits for rules, and lanes would share Python's lock with them. Pictures of events need
the frame in a lane's hand, so rules stay in the lanes where pictures are made.
"""
