// npm install zeromq
import { Subscriber } from "zeromq";

const socket = new Subscriber();
socket.connect(process.argv[2] ?? "tcp://127.0.0.1:5556");
socket.subscribe("events/");
for await (const [, payload] of socket) {
  const event = JSON.parse(payload.toString());
  if (event.phase === "crossed") {
    console.log(event.source, event.rule, event.direction, event.label, event.track);
  }
}
