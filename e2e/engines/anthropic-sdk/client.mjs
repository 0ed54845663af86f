// Runs one job with Anthropic's own SDK and prints what became of it.
//
// stdin:  {"baseURL","op","params","maxRetries","abortAfter"}; op is create, stream, abort, count or models.
// stdout: {"message"} | {"events","message"} | {"error":{"name","status","type","requestID","retryAfter"}}
import Anthropic from '@anthropic-ai/sdk';
import { readFileSync } from 'node:fs';

const job = JSON.parse(readFileSync(0, 'utf8'));
const client = new Anthropic({ baseURL: job.baseURL, apiKey: 'sk-ant-test', maxRetries: job.maxRetries ?? 0, timeout: 20000 });

async function run() {
  switch (job.op) {
    case 'create':
      return { message: await client.messages.create(job.params) };
    case 'stream': {
      const events = [];
      const stream = client.messages.stream(job.params);
      stream.on('streamEvent', (event) => events.push(event.type));
      return { message: await stream.finalMessage(), events };
    }
    case 'abort': {
      const stream = client.messages.stream(job.params);
      let text = '';
      stream.on('text', (piece) => {
        text += piece;
        stream.abort();
      });
      try {
        await stream.finalMessage();
        return { text, aborted: false };
      } catch (error) {
        return { text, aborted: error instanceof Anthropic.APIUserAbortError };
      }
    }
    case 'count':
      return { message: await client.messages.countTokens(job.params) };
    case 'models': {
      const ids = [];
      for await (const model of client.models.list()) ids.push(model.id);
      return { message: { ids } };
    }
    default:
      throw new Error(`no op ${job.op}`);
  }
}

const result = await run().catch((error) => ({
  error: {
    name: error.constructor.name,
    status: error.status ?? 0,
    type: error.error?.error?.type ?? '',
    requestID: error.requestID ?? '',
    retryAfter: error.headers?.get?.('retry-after') ?? '',
    message: String(error.message),
  },
}));
process.stdout.write(JSON.stringify(result));
