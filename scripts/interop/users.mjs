// A client of another make that logs in as a user and writes a node. Its result is one JSON object on standard output:
// what the log-in and the write came to.
//
//   node users.mjs --endpoint opc.tcp://127.0.0.1:4840 --policy None --mode None --pki FOLDER --write 'ns=2;s=d.t' \
//     (--user anna --password SECRET | --certificate FILE.pem --key FILE.pem)
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import certificateManager from "node-opcua-certificate-manager";
import opcua from "node-opcua-client";

// Both are CommonJS, whose names Node.js does not always see: they are taken from the default export.
const { OPCUACertificateManager } = certificateManager;
const { AttributeIds, DataType, MessageSecurityMode, OPCUAClient, SecurityPolicy, UserTokenType } = opcua;

const { values: args } = parseArgs({
  options: {
    endpoint: { type: "string" },
    policy: { type: "string" },
    mode: { type: "string" },
    pki: { type: "string" },
    user: { type: "string" },
    password: { type: "string" },
    certificate: { type: "string" },
    key: { type: "string" },
    write: { type: "string" },
  },
});

async function identity() {
  if (args.user) return { type: UserTokenType.UserName, userName: args.user, password: args.password };
  if (!args.certificate) return { type: UserTokenType.Anonymous };
  return {
    type: UserTokenType.Certificate,
    certificateData: Buffer.from((await readFile(args.certificate, "utf8")).replace(/-----[^-]+-----|\s/g, ""), "base64"),
    privateKey: await readFile(args.key, "utf8"),
  };
}

const client = OPCUAClient.create({
  applicationName: "interop",
  clientCertificateManager: new OPCUACertificateManager({ rootFolder: args.pki, automaticallyAcceptUnknownCertificate: true }),
  securityMode: MessageSecurityMode[args.mode],
  securityPolicy: SecurityPolicy[args.policy],
  endpointMustExist: false,
  connectionStrategy: { initialDelay: 100, maxDelay: 500, maxRetry: 20 },
});
const result = { login: "Good", write: "" };
await client.connect(args.endpoint);
try {
  const session = await client.createSession(await identity());
  const status = await session.write({
    nodeId: args.write,
    attributeId: AttributeIds.Value,
    value: { value: { dataType: DataType.Double, value: 1.5 } },
  });
  result.write = status.name;
  await session.close();
} catch (error) {
  result.login = String(error.message);
}
await client.disconnect();
console.log(JSON.stringify(result));
