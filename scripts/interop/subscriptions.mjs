// A client of another make that uses the Subscription and MonitoredItem services one by one: subscribe, modify, deadband,
// trigger, republish, transfer, and the methods ResendData and GetMonitoredItems. It prints {"passed": [...]}, the names of
// the steps that went as the standard says, and ends with 1 at the first that did not.
//
//   node subscriptions.mjs --endpoint opc.tcp://127.0.0.1:4840 --pki FOLDER
import assert from "node:assert/strict";
import { parseArgs } from "node:util";
import certificateManager from "node-opcua-certificate-manager";
import opcua from "node-opcua-client";

// Both are CommonJS, whose names Node.js does not always see: they are taken from the default export.
const {
  AttributeIds,
  DataChangeFilter,
  DataChangeTrigger,
  DataType,
  DeadbandType,
  MessageSecurityMode,
  MonitoringMode,
  OPCUAClient,
  SecurityPolicy,
  StatusCodes,
  TimestampsToReturn,
} = opcua;

const { values: args } = parseArgs({ options: { endpoint: { type: "string" }, pki: { type: "string" } } });
const patience = 20_000; // milliseconds that an answer may take

// connect opens a connection of its own with a session.
async function connect() {
  const client = OPCUAClient.create({
    applicationName: "subscriptions",
    clientCertificateManager: new certificateManager.OPCUACertificateManager({
      rootFolder: args.pki,
      automaticallyAcceptUnknownCertificate: true,
    }),
    securityMode: MessageSecurityMode.SignAndEncrypt,
    securityPolicy: SecurityPolicy.Basic256Sha256,
    endpointMustExist: false,
    connectionStrategy: { initialDelay: 100, maxDelay: 500, maxRetry: 5 },
  });
  await client.connect(args.endpoint);
  return { client, session: await client.createSession() };
}

// ask calls a service that has a callback.
function ask(session, service, request) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${service} is not answered`)), patience);
    session[service](request, (error, response) => {
      clearTimeout(timer);
      if (error) reject(new Error(`${service}: ${error.message}`));
      else resolve(response);
    });
  });
}

const passed = [];
const status = (code) => code?.name ?? String(code);
let unacknowledged = [];

// publish sends one Publish request, which acknowledges what came before.
async function publish(session) {
  const subscriptionAcknowledgements = unacknowledged;
  unacknowledged = [];
  const response = await ask(session, "publish", { subscriptionAcknowledgements, requestHeader: { timeoutHint: patience } });
  for (const code of response.results ?? []) assert.equal(status(code), "Good", "acknowledgement");
  const { subscriptionId, notificationMessage } = response;
  if (notificationMessage.notificationData?.length) {
    unacknowledged.push({ subscriptionId, sequenceNumber: notificationMessage.sequenceNumber });
  }
  return response;
}

// changes are the notifications of a message, by client handle.
function changes(message) {
  const found = {};
  for (const data of message.notificationData ?? []) {
    for (const item of data?.monitoredItems ?? []) (found[item.clientHandle] ??= []).push(item.value.value.value);
  }
  return found;
}

// until publishes until each of the handles has reported, and returns all that was reported meanwhile.
async function until(session, ...handles) {
  const all = {};
  const end = Date.now() + patience;
  while (!handles.every((h) => all[h])) {
    if (Date.now() > end) throw new Error(`waited in vain for ${handles}: ${JSON.stringify(all)}`);
    const response = await publish(session);
    for (const [handle, list] of Object.entries(changes(response.notificationMessage))) (all[handle] ??= []).push(...list);
  }
  return all;
}

const write = async (session, name, value) => {
  const code = await session.write({
    nodeId: `ns=2;s=${name}`,
    attributeId: AttributeIds.Value,
    value: { value: { dataType: DataType.Double, value } },
  });
  assert.equal(status(code), "Good", `write ${name}`);
};

const item = (name, clientHandle, more = {}) => ({
  itemToMonitor: { nodeId: `ns=2;s=${name}`, attributeId: AttributeIds.Value },
  monitoringMode: more.mode ?? MonitoringMode.Reporting,
  requestedParameters: { clientHandle, samplingInterval: 0, queueSize: 10, discardOldest: true, filter: more.filter ?? null },
});

const deadband = (deadbandType, deadbandValue) =>
  new DataChangeFilter({ trigger: DataChangeTrigger.StatusValue, deadbandType, deadbandValue });

async function subscribe(session, request, ...items) {
  const response = await ask(session, "createMonitoredItems", {
    subscriptionId: request,
    timestampsToReturn: TimestampsToReturn.Both,
    itemsToCreate: items,
  });
  return response.results;
}

const first = await connect();
const second = await connect();
try {
  const a = first.session;
  const b = second.session;
  for (const name of ["scratch.m1", "scratch.m2", "scratch.m3"]) await write(a, name, 0);

  const { subscriptionId } = await ask(a, "createSubscription", {
    requestedPublishingInterval: 50,
    requestedLifetimeCount: 1000,
    requestedMaxKeepAliveCount: 10,
    maxNotificationsPerPublish: 0,
    publishingEnabled: true,
    priority: 0,
  });
  const [one, two] = await subscribe(a, subscriptionId, item("scratch.m1", 1), item("scratch.m2", 2, { mode: MonitoringMode.Sampling }));
  assert.equal(status(one.statusCode), "Good");
  assert.deepEqual((await until(a, 1))[1], [0]);
  passed.push("subscribe");

  const modified = await ask(a, "modifyMonitoredItems", {
    subscriptionId,
    timestampsToReturn: TimestampsToReturn.Both,
    itemsToModify: [
      { monitoredItemId: one.monitoredItemId, requestedParameters: { clientHandle: 11, samplingInterval: 0, queueSize: 5, discardOldest: true } },
      { monitoredItemId: 4_000_000, requestedParameters: { clientHandle: 12, samplingInterval: 0, queueSize: 5, discardOldest: true } },
    ],
  });
  assert.equal(modified.results[0].revisedQueueSize, 5);
  assert.equal(status(modified.results[1].statusCode), "BadMonitoredItemIdInvalid");
  const slower = await ask(a, "modifySubscription", {
    subscriptionId,
    requestedPublishingInterval: 100,
    requestedLifetimeCount: 1000,
    requestedMaxKeepAliveCount: 5,
    maxNotificationsPerPublish: 0,
    priority: 1,
  });
  assert.equal(slower.revisedPublishingInterval, 100);
  await write(a, "scratch.m1", 1);
  assert.deepEqual(await until(a, 11), { 11: [1] });
  passed.push("modify");

  const banded = await subscribe(
    a,
    subscriptionId,
    item("scratch.m3", 3, { filter: deadband(DeadbandType.Absolute, 5) }),
    item("boiler.temperature", 4, { filter: deadband(DeadbandType.Percent, 100), mode: MonitoringMode.Disabled }),
    item("scratch.m3", 5, { filter: deadband(DeadbandType.Percent, 10) }),
    item("boiler.temperature", 6, { filter: deadband(DeadbandType.Percent, 101) }),
  );
  assert.deepEqual(
    banded.map((r) => status(r.statusCode)),
    ["Good", "Good", "BadDeadbandFilterInvalid", "BadDeadbandFilterInvalid"],
  );
  assert.deepEqual(await until(a, 3), { 3: [0] });
  for (const value of [3, 5, 6, 10, 12]) await write(a, "scratch.m3", value);
  await write(a, "scratch.m1", 2);
  const beyond = await until(a, 11, 3);
  while (beyond[3].length < 2) beyond[3].push(...((await until(a, 3))[3] ?? []));
  assert.deepEqual(beyond, { 3: [6, 12], 11: [2] });
  passed.push("deadband");

  const links = await ask(a, "setTriggering", {
    subscriptionId,
    triggeringItemId: one.monitoredItemId,
    linksToAdd: [two.monitoredItemId, 4_000_000],
    linksToRemove: [],
  });
  assert.deepEqual(links.addResults.map(status), ["Good", "BadMonitoredItemIdInvalid"]);
  for (const value of [7, 8]) await write(a, "scratch.m2", value);
  await write(a, "scratch.m1", 3);
  assert.deepEqual(await until(a, 11, 2), { 2: [0, 7, 8], 11: [3] });
  passed.push("trigger");

  await write(a, "scratch.m1", 4);
  let sent;
  do sent = await publish(a);
  while (!changes(sent.notificationMessage)[11]);
  const { sequenceNumber } = sent.notificationMessage;
  assert.ok(sent.availableSequenceNumbers.includes(sequenceNumber));
  const again = await ask(a, "republish", { subscriptionId, retransmitSequenceNumber: sequenceNumber });
  assert.deepEqual(changes(again.notificationMessage), { 11: [4] });
  await assert.rejects(ask(a, "republish", { subscriptionId, retransmitSequenceNumber: sequenceNumber + 10 }), /BadMessageNotAvailable/);
  passed.push("republish");

  unacknowledged = [];
  const waiting = ask(a, "publish", { subscriptionAcknowledgements: [] });
  const moved = await ask(b, "transferSubscriptions", { subscriptionIds: [subscriptionId, 1], sendInitialValues: true });
  assert.deepEqual(
    moved.results.map((r) => status(r.statusCode)),
    ["Good", "BadSubscriptionIdInvalid"],
  );
  assert.ok([...moved.results[0].availableSequenceNumbers].includes(sequenceNumber));
  const told = await waiting;
  if (told.notificationMessage.notificationData?.length) {
    assert.equal(status(told.notificationMessage.notificationData[0].status), "GoodSubscriptionTransferred");
  }
  unacknowledged = [{ subscriptionId, sequenceNumber }];
  assert.deepEqual(await until(b, 11, 3), { 3: [12], 11: [4] });
  await write(b, "scratch.m1", 5);
  assert.deepEqual(await until(b, 11), { 11: [5] });
  passed.push("transfer");

  const call = (methodId, id) =>
    b.call({ objectId: "i=2253", methodId, inputArguments: [{ dataType: DataType.UInt32, value: id }] });
  const items = await call("i=11492", subscriptionId); // GetMonitoredItems
  assert.equal(status(items.statusCode), "Good");
  assert.deepEqual([...items.outputArguments[1].value], [11, 2, 3, 4]);
  assert.equal(status((await call("i=12873", subscriptionId)).statusCode), "Good"); // ResendData
  assert.deepEqual(await until(b, 11, 3), { 3: [12], 11: [5] });
  assert.equal(status((await call("i=12873", 1)).statusCode), "BadSubscriptionIdInvalid");
  assert.equal(status((await b.call({ objectId: "i=2253", methodId: "i=12873", inputArguments: [] })).statusCode), "BadArgumentsMissing");
  passed.push("methods");

  const gone = await ask(b, "deleteSubscriptions", { subscriptionIds: [subscriptionId] });
  assert.equal(status(gone.results[0]), StatusCodes.Good.name);
  passed.push("delete");
} catch (error) {
  console.error(`after ${passed.join(", ") || "nothing"}: ${error.stack}`);
  process.exitCode = 1;
} finally {
  for (const { client, session } of [first, second]) {
    await session.close();
    await client.disconnect();
  }
}
console.log(JSON.stringify({ passed }));
process.exit();
