// Receives webhooks of Lookout, and believes those that are signed. It needs nothing beside Node.js.
//
//     LOOKOUT_SECRET=whsec_... node webhook.mjs 8000
//
// The package standardwebhooks of npm does the same check: new Webhook(secret).verify(body, headers).

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const TOLERANCE_S = 300; // a request that is older may be a copy
const seen = new Set(); // ids; a service keeps them in its database

/** Whether one of the signatures is of this secret, and the request is of now. */
function isSigned(secret, headers, body) {
  const { "webhook-id": id, "webhook-timestamp": at, "webhook-signature": given = "" } = headers;
  if (!/^\d+$/.test(at ?? "") || Math.abs(Date.now() / 1000 - Number(at)) > TOLERANCE_S) return false;
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const wanted = Buffer.from("v1," + createHmac("sha256", key).update(`${id}.${at}.`).update(body).digest("base64"));
  return given.split(" ").map((text) => Buffer.from(text))
    .some((text) => text.length === wanted.length && timingSafeEqual(text, wanted));
}

createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts);
  const valid = isSigned(process.env.LOOKOUT_SECRET, request.headers, body);
  response.writeHead(valid ? 204 : 400).end();
  const id = request.headers["webhook-id"];
  if (!valid || seen.has(id)) return; // the same one may come again
  seen.add(id);
  const message = JSON.parse(body);
  console.log(message.schema, message.source, message.label);
}).listen(Number(process.argv[2]));
