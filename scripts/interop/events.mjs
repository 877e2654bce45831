// A client of another make that watches events and calls methods: select and where clauses, what is wrong with them, audit
// events as an admin and their absence as an observer, methods with right and wrong arguments. It prints
// {"passed": [...]}, the names of the steps that went as the standard says, and ends with 1 at the first that did not.
//
//   node events.mjs --endpoint opc.tcp://127.0.0.1:4840 --pki FOLDER --password TEXT
import assert from "node:assert/strict";
import { parseArgs } from "node:util";
import certificateManager from "node-opcua-certificate-manager";
import opcua from "node-opcua-client";

// Both are CommonJS, whose names Node.js does not always see: they are taken from the default export.
const {
  AttributeIds,
  ClientMonitoredItem,
  ClientSubscription,
  ContentFilter,
  DataType,
  FilterOperator,
  LiteralOperand,
  MessageSecurityMode,
  OPCUAClient,
  SecurityPolicy,
  SimpleAttributeOperand,
  TimestampsToReturn,
  UserTokenType,
  Variant,
  constructEventFilter,
} = opcua;

const { values: args } = parseArgs({ options: { endpoint: { type: "string" }, pki: { type: "string" }, password: { type: "string" } } });
const patience = 20_000; // milliseconds that an event may take
const server = "i=2253";
const passed = [];

async function connect(userName) {
  const client = OPCUAClient.create({
    applicationName: "events",
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
  const session = await client.createSession({ type: UserTokenType.UserName, userName, password: args.password });
  const subscription = ClientSubscription.create(session, {
    requestedPublishingInterval: 50,
    requestedLifetimeCount: 1000,
    requestedMaxKeepAliveCount: 20,
    publishingEnabled: true,
  });
  return { client, session, subscription };
}

// watch watches the Server object's events with those fields, and returns the list that they are put into.
async function watch(subscription, fields, where) {
  const filter = constructEventFilter(fields);
  if (where) filter.whereClause = new ContentFilter({ elements: where });
  const got = [];
  const item = ClientMonitoredItem.create(
    subscription,
    { nodeId: server, attributeId: AttributeIds.EventNotifier },
    { queueSize: 1000, discardOldest: true, filter },
    TimestampsToReturn.Both,
  );
  await new Promise((resolve, reject) => {
    item.once("initialized", resolve);
    item.once("err", (message) => reject(new Error(message)));
    setTimeout(() => reject(new Error("the item is not answered")), patience).unref();
  });
  item.on("changed", (values) => got.push(Object.fromEntries(fields.map((name, i) => [name, values[i].value]))));
  return got;
}

async function until(what, ok) {
  for (const end = Date.now() + patience; !ok(); ) {
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const call = async (session, objectId, methodId, ...inputArguments) => (await session.call({ objectId, methodId, inputArguments })).statusCode.name;
const raise = (session, count, severity) =>
  call(session, "ns=1;s=gateway", "ns=1;s=gateway.$RaiseEvent", new Variant({ dataType: DataType.UInt32, value: count }), new Variant({ dataType: DataType.UInt16, value: severity }));

const boss = await connect("boss");
const eve = await connect("eve");
try {
  const fields = ["EventType", "SourceName", "Severity", "Message", "ClientUserId", "NewValue", "OldValue"];
  const severity = new SimpleAttributeOperand({ typeDefinitionId: "i=2041", browsePath: ["Severity"], attributeId: AttributeIds.Value });
  const above = (n) => [
    { filterOperator: FilterOperator.GreaterThan, filterOperands: [severity, new LiteralOperand({ value: { dataType: DataType.UInt16, value: n } })] },
  ];
  const all = await watch(boss.subscription, fields);
  const high = await watch(eve.subscription, fields, above(500));
  const seen = await watch(eve.subscription, fields);
  passed.push("watch");

  await assert.rejects(watch(eve.subscription, ["Message"], [{ filterOperator: FilterOperator.Not, filterOperands: [] }]));
  passed.push("refused");

  assert.equal(await raise(boss.session, 3, 400), "Good");
  assert.equal(await raise(boss.session, 2, 600), "Good");
  await until("five events", () => seen.filter((e) => e.Message?.text === "raised by RaiseEvent").length === 5);
  await until("two events", () => high.length >= 2);
  assert.deepEqual(high.map((e) => e.Severity), [600, 600]);
  assert.equal(seen[0].SourceName, "Server");
  passed.push("where");

  const code = await boss.session.write({
    nodeId: "ns=2;s=d.free", attributeId: AttributeIds.Value, value: { value: { dataType: DataType.Double, value: 7.5 } },
  });
  assert.equal(code.name, "Good");
  await until("an audit event", () => all.some((e) => e.NewValue === 7.5 && e.OldValue === 0 && e.ClientUserId === "boss"));
  assert.equal(await raise(boss.session, 1, 1), "Good");
  await until("the last event", () => seen.some((e) => e.Severity === 1));
  assert.ok(!seen.some((e) => e.ClientUserId), "an observer sees audit events");
  passed.push("audit");

  assert.equal(await call(boss.session, "ns=2;s=d", "ns=2;s=d.$Poll"), "Good");
  assert.equal(await call(boss.session, "ns=2;s=d", "ns=2;s=d.$ResetCounters"), "Good");
  assert.equal(await call(boss.session, "ns=2;s=d", "ns=1;s=gateway.$Reload"), "BadMethodInvalid");
  assert.equal(await call(boss.session, "ns=1;s=gateway", "ns=1;s=gateway.$RaiseEvent"), "BadArgumentsMissing");
  assert.equal(await raise(boss.session, 1, 0), "BadInvalidArgument");
  assert.equal(await call(eve.session, "ns=2;s=d", "ns=2;s=d.$Poll"), "BadUserAccessDenied");
  passed.push("methods");

  console.log(JSON.stringify({ passed }));
} catch (error) {
  console.error(error);
  console.log(JSON.stringify({ passed }));
  process.exitCode = 1;
} finally {
  for (const one of [boss, eve]) {
    await one.session.close();
    await one.client.disconnect();
  }
}
