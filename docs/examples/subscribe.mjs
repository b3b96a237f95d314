// npm install zeromq
import { Subscriber } from "zeromq";

const socket = new Subscriber();
const endpoints = process.argv.slice(2);
for (const endpoint of endpoints.length ? endpoints : ["tcp://127.0.0.1:5556"]) socket.connect(endpoint);
socket.subscribe("detections/");
const highest = new Map(); // epoch by fleet and source, where several daemons share sources
for await (const [, payload] of socket) {
  const message = JSON.parse(payload.toString());
  if (message.owner) {
    const key = JSON.stringify([message.owner.fleet, message.source]);
    if (message.owner.epoch < (highest.get(key) ?? 0)) continue; // of an earlier owner, late
    highest.set(key, message.owner.epoch);
  }
  console.log(message.source, message.seq, message.detections.map((d) => d.label));
}
