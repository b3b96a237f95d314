"""Pictures with their boxes, for a person at this machine: a window, and files. `lookout run SOURCE` asks for them."""
