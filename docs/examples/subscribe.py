import json
import sys

import zmq

socket = zmq.Context().socket(zmq.SUB)
for endpoint in sys.argv[1:] or ["tcp://127.0.0.1:5556"]:
    socket.connect(endpoint)
socket.setsockopt(zmq.SUBSCRIBE, b"detections/")
highest = {}  # epoch by fleet and source, where several daemons share sources
while True:
    topic, payload = socket.recv_multipart()
    message = json.loads(payload)
    if owner := message["owner"]:
        key = owner["fleet"], message["source"]
        if owner["epoch"] < highest.get(key, 0):
            continue  # of an earlier owner, late
        highest[key] = owner["epoch"]
    print(message["source"], message["seq"], [d["label"] for d in message["detections"]], flush=True)
