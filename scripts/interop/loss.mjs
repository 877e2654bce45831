// A client of another make that monitors many nodes and prints every notification as it comes, one line each: the node's
// number, the value, the status. Its link may break meanwhile: it mends it by itself.
//
//   node loss.mjs --endpoint opc.tcp://127.0.0.1:4840 --pki FOLDER --publishing 500 --queue 20 NODE...
//
// It prints "ready" when all items are there, and hears on standard input: "slow MS" has it do nothing at all for so
// long, "end" has it say goodbye and end.
import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import certificateManager from "node-opcua-certificate-manager";
import opcua from "node-opcua-client";

// Both are CommonJS, whose names Node.js does not always see: they are taken from the default export.
const { AttributeIds, MessageSecurityMode, OPCUAClient, SecurityPolicy, StatusCodes, TimestampsToReturn } = opcua;

const { values: args, positionals: nodes } = parseArgs({
  allowPositionals: true,
  options: {
    endpoint: { type: "string" },
    pki: { type: "string" },
    publishing: { type: "string" },
    queue: { type: "string" },
  },
});

const client = OPCUAClient.create({
  applicationName: "loss",
  clientCertificateManager: new certificateManager.OPCUACertificateManager({
    rootFolder: args.pki,
    automaticallyAcceptUnknownCertificate: true,
  }),
  securityMode: MessageSecurityMode.None,
  securityPolicy: SecurityPolicy.None,
  endpointMustExist: false,
  keepSessionAlive: true,
  connectionStrategy: { initialDelay: 50, maxDelay: 200, maxRetry: 1000 },
  requestedSessionTimeout: 120_000,
});

const say = (line) => writeSync(1, line + "\n");

await client.connect(args.endpoint);
const session = await client.createSession();
const subscription = await session.createSubscription2({
  requestedPublishingInterval: Number(args.publishing),
  requestedLifetimeCount: 1000,
  requestedMaxKeepAliveCount: 10,
  maxNotificationsPerPublish: 0,
  publishingEnabled: true,
});
subscription.on("terminated", () => say("terminated"));
const group = await subscription.monitorItems(
  nodes.map((nodeId) => ({ nodeId, attributeId: AttributeIds.Value })),
  { samplingInterval: 0, queueSize: Number(args.queue), discardOldest: true },
  TimestampsToReturn.Both,
);
group.on("changed", (_, data, index) => {
  say(`${index} ${data.value.value ?? "-"} ${data.statusCode.value >>> 0}`);
});
for (const item of group.monitoredItems) {
  if (item.result.statusCode.value !== StatusCodes.Good.value || item.result.revisedQueueSize !== Number(args.queue)) {
    say(`refused ${item.result.statusCode.name} ${item.result.revisedQueueSize}`);
  }
}
say("ready");

for await (const line of createInterface({ input: process.stdin })) {
  const [word, time] = line.split(" ");
  if (word === "slow") Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(time));
  if (word === "end") break;
}
await subscription.terminate();
await session.close();
await client.disconnect();
say("end");
process.exit(0);
