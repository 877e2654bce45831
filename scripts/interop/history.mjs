// A client of another make that reads the history of one node, raw and then at the times of those values, and prints each
// value as it is, one line each: "raw" or "at", the time, the value, the status.
//
//   node history.mjs --endpoint opc.tcp://127.0.0.1:4840 --pki FOLDER --from ISO-TIME --number 7 NODE
import { parseArgs } from "node:util";
import certificateManager from "node-opcua-certificate-manager";
import opcua from "node-opcua-client";

const { HistoryReadRequest, MessageSecurityMode, OPCUAClient, ReadAtTimeDetails, ReadRawModifiedDetails, SecurityPolicy, TimestampsToReturn } = opcua;

const { values: args, positionals } = parseArgs({
  allowPositionals: true,
  options: { endpoint: { type: "string" }, pki: { type: "string" }, from: { type: "string" }, number: { type: "string" } },
});
const nodeId = positionals[0];

const client = OPCUAClient.create({
  applicationName: "history",
  clientCertificateManager: new certificateManager.OPCUACertificateManager({
    rootFolder: args.pki,
    automaticallyAcceptUnknownCertificate: true,
  }),
  securityMode: MessageSecurityMode.None,
  securityPolicy: SecurityPolicy.None,
  endpointMustExist: false,
  connectionStrategy: { maxRetry: 3 },
});

await client.connect(args.endpoint);
const session = await client.createSession();

// all reads as often as there is a continuation point.
async function all(historyReadDetails) {
  const out = [];
  let continuationPoint;
  do {
    const answer = await session.historyRead(
      new HistoryReadRequest({
        historyReadDetails,
        nodesToRead: [{ nodeId, continuationPoint }],
        releaseContinuationPoints: false,
        timestampsToReturn: TimestampsToReturn.Both,
      }),
    );
    const result = answer.results[0];
    if (result.statusCode.isBad()) {
      throw new Error(result.statusCode.toString());
    }
    out.push(...(result.historyData?.dataValues ?? []));
    continuationPoint = result.continuationPoint;
  } while (continuationPoint && continuationPoint.length > 0);
  return out;
}

const print = (kind, v) =>
  console.log(`${kind} ${v.sourceTimestamp.toISOString()} ${v.value?.value ?? "-"} ${v.statusCode.value >>> 0}`);

const raw = await all(
  new ReadRawModifiedDetails({
    isReadModified: false,
    startTime: new Date(args.from),
    endTime: new Date(),
    numValuesPerNode: Number(args.number),
    returnBounds: false,
  }),
);
raw.forEach((v) => print("raw", v));
const at = await all(new ReadAtTimeDetails({ reqTimes: raw.map((v) => new Date(v.sourceTimestamp.getTime() + 1)), useSimpleBounds: true }));
at.forEach((v) => print("at", v));
await session.close();
await client.disconnect();
