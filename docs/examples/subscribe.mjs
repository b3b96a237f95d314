// npm install zeromq
import { Subscriber } from "zeromq";

const socket = new Subscriber();
socket.connect(process.argv[2] ?? "tcp://127.0.0.1:5556");
socket.subscribe("detections/");
for await (const [, payload] of socket) {
  const message = JSON.parse(payload.toString());
  console.log(message.source, message.seq, message.detections.map((d) => d.label));
}
