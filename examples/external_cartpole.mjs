// An application in another language: it speaks the protocol of the policy server, docs/external-protocol.md.
//
// In one terminal `python examples/external_cartpole.py server`, in another `node examples/external_cartpole.mjs`.
// It needs Node.js 18 or later, and no package.

import { randomUUID } from "node:crypto";

const [address = "http://127.0.0.1:9900", episodes = "1000000"] = process.argv.slice(2);

// MessagePack, as much of it as this application sends and gets.

function encode(value) {
  const head = (byte, size, number, write) => {
    const bytes = Buffer.alloc(1 + size);
    bytes[0] = byte;
    bytes[write](number, 1);
    return bytes;
  };
  if (value === null) return Buffer.from([0xc0]);
  if (typeof value === "boolean") return Buffer.from([value ? 0xc3 : 0xc2]);
  if (Number.isInteger(value) && Math.abs(value) < 2 ** 31) return head(0xd2, 4, value, "writeInt32BE");
  if (typeof value === "number") return head(0xcb, 8, value, "writeDoubleBE");
  if (typeof value === "string") {
    const text = Buffer.from(value);
    return Buffer.concat([head(0xdb, 4, text.length, "writeUInt32BE"), text]);
  }
  if (Array.isArray(value)) {
    return Buffer.concat([head(0xdd, 4, value.length, "writeUInt32BE"), ...value.map(encode)]);
  }
  const fields = Object.entries(value);
  return Buffer.concat([head(0xdf, 4, fields.length, "writeUInt32BE"), ...fields.flat().map(encode)]);
}

function decode(bytes) {
  let at = 0;
  const number = (read, size) => bytes[read]((at += size) - size);
  const length = (short) => [() => number("readUInt8", 1), () => number("readUInt16BE", 2), () => number("readUInt32BE", 4)][short]();
  const text = (size) => bytes.toString("utf8", at, (at += size));
  const list = (size) => Array.from({ length: size }, value);
  const map = (size) => Object.fromEntries(Array.from({ length: size }, () => [value(), value()]));
  function value() {
    const first = bytes[at++];
    if (first < 0x80) return first;
    if (first < 0x90) return map(first - 0x80);
    if (first < 0xa0) return list(first - 0x90);
    if (first < 0xc0) return text(first - 0xa0);
    if (first >= 0xe0) return first - 0x100;
    if (first === 0xc0) return null;
    if (first === 0xc2 || first === 0xc3) return first === 0xc3;
    if (first >= 0xc4 && first <= 0xc6) return bytes.subarray(at, (at += length(first - 0xc4)));
    if (first === 0xca) return number("readFloatBE", 4);
    if (first === 0xcb) return number("readDoubleBE", 8);
    if (first >= 0xcc && first <= 0xce) return length(first - 0xcc);
    if (first === 0xcf) return Number(number("readBigUInt64BE", 8));
    if (first === 0xd0) return number("readInt8", 1);
    if (first === 0xd1) return number("readInt16BE", 2);
    if (first === 0xd2) return number("readInt32BE", 4);
    if (first === 0xd3) return Number(number("readBigInt64BE", 8));
    if (first >= 0xd9 && first <= 0xdb) return text(length(first - 0xd9));
    if (first === 0xdc || first === 0xdd) return list(length(first - 0xdb));
    if (first === 0xde || first === 0xdf) return map(length(first - 0xdd));
    throw new Error(`a value of an unknown kind: ${first}`);
  }
  return value();
}

// The client.

const client = randomUUID();
const token = process.env.REEF_POLICY_TOKEN;
let requests = 0;

async function post(path, message) {
  const headers = { "Content-Type": "application/msgpack", "Reef-Request": `${client}/${++requests}` };
  if (token) headers.Authorization = `Bearer ${token}`;
  for (;;) {
    let wait = 1;
    try {
      const answer = await fetch(`${address}/v1/${path}`, { method: "POST", headers, body: encode(message) });
      const body = Buffer.from(await answer.arrayBuffer());
      if (answer.status === 200) return decode(body);
      if (answer.status !== 429 && answer.status !== 503) throw new Refused(`${answer.status}: ${body}`);
      wait = Number(answer.headers.get("Retry-After") ?? 1);
    } catch (error) {
      if (error instanceof Refused) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000 * wait)); // busy, or not there: ask again
  }
}

class Refused extends Error {}

// The application: a pole on a cart (Barto, Sutton and Anderson, 1983), which falls after 500 steps at the latest.

function moved([x, speed, angle, turning], action) {
  const gravity = 9.8, mass = 1.1, poleMass = 0.1, half = 0.5, force = action === 1 ? 10 : -10, seconds = 0.02;
  const pushed = (force + poleMass * half * turning ** 2 * Math.sin(angle)) / mass;
  const lever = half * (4 / 3 - (poleMass * Math.cos(angle) ** 2) / mass);
  const turn = (gravity * Math.sin(angle) - Math.cos(angle) * pushed) / lever;
  const push = pushed - (poleMass * half * turn * Math.cos(angle)) / mass;
  return [x + seconds * speed, speed + seconds * push, angle + seconds * turning, turning + seconds * turn];
}

for (let number = 0; number < Number(episodes); number++) {
  const { episode_id } = await post("episodes", {});
  let state = Array.from({ length: 4 }, () => 0.1 * Math.random() - 0.05);
  let steps = 0, reward = 0, fallen = false;
  while (!fallen && steps < 500) {
    const { actions } = await post("steps", { steps: [{ episode_id, obs: state, reward }] });
    state = moved(state, actions[0]);
    [steps, reward] = [steps + 1, 1];
    fallen = Math.abs(state[0]) > 2.4 || Math.abs(state[2]) > 0.2095;
  }
  await post("episodes/end", { episode_id, steps: [{ obs: state, reward }], truncated: !fallen });
  console.log(`episode ${number}: ${steps} steps`);
}
