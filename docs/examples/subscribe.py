import json
import sys

import zmq

socket = zmq.Context().socket(zmq.SUB)
socket.connect(sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:5556")
socket.setsockopt(zmq.SUBSCRIBE, b"detections/")
while True:
    topic, payload = socket.recv_multipart()
    message = json.loads(payload)
    print(message["source"], message["seq"], [d["label"] for d in message["detections"]], flush=True)
