import json
import sys

import zmq

socket = zmq.Context().socket(zmq.SUB)
socket.connect(sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:5556")
socket.setsockopt(zmq.SUBSCRIBE, b"events/")
while True:
    topic, payload = socket.recv_multipart()
    event = json.loads(payload)
    if event["phase"] == "crossed":
        print(event["source"], event["rule"], event["direction"], event["label"], event["track"], flush=True)
