// A client of another make that logs in as one user after the other and writes a node. Its result is one JSON object a line
// on standard output for each case: what the log-in and the write came to.
//
//   node users.mjs --endpoint opc.tcp://127.0.0.1:4840 --pki FOLDER --cases '[{"policy": "None", "mode": "None",
//     "write": "ns=2;s=d.t", "user": "anna", "password": "..."}, {..., "certificate": "FILE.pem", "key": "FILE.pem"}]'
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import certificateManager from "node-opcua-certificate-manager";
import opcua from "node-opcua-client";

// Both are CommonJS, whose names Node.js does not always see: they are taken from the default export.
const { OPCUACertificateManager } = certificateManager;
const { AttributeIds, DataType, MessageSecurityMode, OPCUAClient, SecurityPolicy, UserTokenType } = opcua;

const { values: args } = parseArgs({
  options: { endpoint: { type: "string" }, pki: { type: "string" }, cases: { type: "string" } },
});

async function identity(one) {
  if (one.user) return { type: UserTokenType.UserName, userName: one.user, password: one.password };
  if (!one.certificate) return { type: UserTokenType.Anonymous };
  return {
    type: UserTokenType.Certificate,
    certificateData: Buffer.from((await readFile(one.certificate, "utf8")).replace(/-----[^-]+-----|\s/g, ""), "base64"),
    privateKey: await readFile(one.key, "utf8"),
  };
}

async function logIn(one) {
  const client = OPCUAClient.create({
    applicationName: "interop",
    clientCertificateManager: new OPCUACertificateManager({ rootFolder: args.pki, automaticallyAcceptUnknownCertificate: true }),
    securityMode: MessageSecurityMode[one.mode],
    securityPolicy: SecurityPolicy[one.policy],
    endpointMustExist: false,
    connectionStrategy: { initialDelay: 100, maxDelay: 500, maxRetry: 3 },
  });
  const result = { login: "Good", write: "" };
  try {
    await client.connect(args.endpoint);
    const session = await client.createSession(await identity(one));
    const status = await session.write({
      nodeId: one.write,
      attributeId: AttributeIds.Value,
      value: { value: { dataType: DataType.Double, value: 1.5 } },
    });
    result.write = status.name;
    await session.close();
  } catch (error) {
    result.login = String(error.message);
  }
  await client.disconnect();
  return result;
}

for (const one of JSON.parse(args.cases)) console.log(JSON.stringify(await logIn(one)));
process.exit(0); // the library leaves a self-test running, which would keep the process for seconds
