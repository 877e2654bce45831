// A client of another make: it subscribes to a node over a policy and mode until it has seen enough different values,
// writes another node and reads it back. Its result is one JSON object on standard output.
//
//   node client.mjs --endpoint opc.tcp://127.0.0.1:4840 --watch 'ns=2;s=boiler.temperature' \
//     [--policy Basic256Sha256] [--mode SignAndEncrypt] [--values 3] [--seconds 20] [--write 'ns=2;s=boiler.setpoint' --value 70.5 --type Double] [--pki FOLDER]
//
// Its certificate is made in FOLDER and found there the next time; without one it lives as long as the client.
//
// With --reverse opc.tcp://127.0.0.1:4843 it listens there for the server, instead of connecting to it, and needs the
// server's certificate: --server FILE, as DER.
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import certificateManager from "node-opcua-certificate-manager";
import opcua from "node-opcua-client";

// Both are CommonJS, whose names Node.js does not always see: they are taken from the default export.
const { OPCUACertificateManager } = certificateManager;
const {
  AttributeIds,
  ClientMonitoredItem,
  ClientReverseConnect,
  DataType,
  MessageSecurityMode,
  OPCUAClient,
  SecurityPolicy,
  TimestampsToReturn,
} = opcua;

const { values: args } = parseArgs({
  options: {
    endpoint: { type: "string" },
    policy: { type: "string", default: "Basic256Sha256" },
    mode: { type: "string", default: "SignAndEncrypt" },
    watch: { type: "string" },
    values: { type: "string", default: "3" },
    seconds: { type: "string", default: "20" },
    write: { type: "string" },
    value: { type: "string" },
    type: { type: "string", default: "Double" },
    pki: { type: "string" },
    reverse: { type: "string" },
    server: { type: "string" },
  },
});
if (!args.endpoint || !args.watch || (args.write && args.value === undefined)) {
  console.error("usage: node client.mjs --endpoint URL --watch NODE [--write NODE --value NUMBER --type TYPE]");
  process.exit(2);
}
if (!(args.policy in SecurityPolicy) || !(args.mode in MessageSecurityMode)) {
  console.error(`client.mjs: node-opcua knows no policy ${args.policy} with mode ${args.mode}`);
  process.exit(2);
}

const temporary = args.pki ? undefined : await mkdtemp(join(tmpdir(), "edged-interop-"));
const certificates = new OPCUACertificateManager({
  rootFolder: args.pki ?? temporary,
  automaticallyAcceptUnknownCertificate: true,
});
const client = OPCUAClient.create({
  applicationName: "interop",
  clientCertificateManager: certificates,
  securityMode: MessageSecurityMode[args.mode],
  securityPolicy: SecurityPolicy[args.policy],
  endpointMustExist: false,
  connectionStrategy: { initialDelay: 100, maxDelay: 500, maxRetry: 20 },
  requestedSessionTimeout: 60_000,
  serverCertificate: args.server ? await readFile(args.server) : undefined,
});
const listener = args.reverse ? new ClientReverseConnect(args.reverse) : undefined;

// watch resolves with the samples once enough different good values have come, or when the time is over.
function watch(subscription) {
  return new Promise((resolve, reject) => {
    const samples = [];
    const different = new Set();
    const timer = setTimeout(() => resolve(samples), Number(args.seconds) * 1000);
    const item = ClientMonitoredItem.create(
      subscription,
      { nodeId: args.watch, attributeId: AttributeIds.Value },
      { samplingInterval: 100, queueSize: 50, discardOldest: true },
      TimestampsToReturn.Both,
    );
    item.on("err", (message) => {
      clearTimeout(timer);
      reject(new Error(`monitoring ${args.watch}: ${message}`));
    });
    item.on("changed", (data) => {
      samples.push({ value: data.value.value, status: data.statusCode.name, at: data.sourceTimestamp });
      if (data.statusCode.isGood()) different.add(data.value.value);
      if (different.size >= Number(args.values)) {
        clearTimeout(timer);
        resolve(samples);
      }
    });
  });
}

// typed turns the text of --value into what the client sends.
function typed(text) {
  return args.type === "Boolean" ? text === "true" : Number(text);
}

async function converse() {
  const result = { endpoint: args.endpoint };
  if (listener) {
    await listener.start();
    await client.connectReverse(listener);
  } else {
    await client.connect(args.endpoint);
  }
  const session = await client.createSession();
  try {
    result.policy = client.securityPolicy;
    result.mode = MessageSecurityMode[client.securityMode];
    const subscription = await session.createSubscription2({
      requestedPublishingInterval: 200,
      requestedLifetimeCount: 600,
      requestedMaxKeepAliveCount: 10,
      maxNotificationsPerPublish: 1000,
      publishingEnabled: true,
    });
    result.samples = await watch(subscription);
    result.different = new Set(result.samples.filter((s) => s.status === "Good").map((s) => s.value)).size;
    if (args.write) {
      const value = { value: { dataType: DataType[args.type], value: typed(args.value) } };
      const status = await session.write({ nodeId: args.write, attributeId: AttributeIds.Value, value });
      result.write = { node: args.write, value: typed(args.value), status: status.name };
      const back = await session.read({ nodeId: args.write, attributeId: AttributeIds.Value });
      result.read = { value: back.value.value, status: back.statusCode.name };
    }
    await subscription.terminate();
  } finally {
    await session.close();
  }
  return result;
}

let exit = 0;
try {
  await certificates.initialize();
  console.log(JSON.stringify(await converse()));
} catch (error) {
  console.error(`client.mjs: ${args.endpoint}: ${error.message}`);
  exit = 1;
} finally {
  await client.disconnect();
  await listener?.stop();
  if (temporary) await rm(temporary, { recursive: true, force: true });
}
process.exit(exit); // the library leaves a self-test running, which would keep the process for seconds
