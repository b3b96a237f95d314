"""MQTT: the connection to a broker, what it retains, and Home Assistant behind it."""
