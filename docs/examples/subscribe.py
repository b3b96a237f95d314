import json
import sys

import zmq

socket = zmq.Context().socket(zmq.SUB)
for endpoint in sys.argv[1:] or ["tcp://127.0.0.1:5556"]:
    socket.connect(endpoint)
socket.setsockopt(zmq.SUBSCRIBE, b"detections/")
highest = {}  # epoch by source, where several daemons share sources
while True:
    topic, payload = socket.recv_multipart()
    message = json.loads(payload)
    epoch = (message["owner"] or {}).get("epoch", 0)
    if epoch < highest.get(message["source"], 0):
        continue  # of an earlier owner, late
    highest[message["source"]] = epoch
    print(message["source"], message["seq"], [d["label"] for d in message["detections"]], flush=True)
