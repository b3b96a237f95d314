"""Traces of chosen frames, for a collector of OpenTelemetry.

They are made after the fact, from times that the daemon has anyway: nothing is measured for them. The publisher says of
each frame whether it is chosen, the monitor gives those that were dropped, and one thread sends both.
"""
