// amqplib and streams: offsets, reading again, a prefetch that is asked for.
'use strict';

const assert = require('node:assert/strict');
const { once } = require('node:events');
const { after, before, test } = require('node:test');
const amqp = require('amqplib');
const { url, fresh, cleanUp } = require('./names');

let connection;

before(async () => {
  connection = await amqp.connect(url);
});

after(async () => {
  await connection.close();
  await cleanUp();
});

async function filled(name, count) {
  const channel = await connection.createConfirmChannel();
  const queue = fresh(name);
  await channel.assertQueue(queue, { durable: true, arguments: { 'x-queue-type': 'stream' } });
  for (let number = 0; number < count; number += 1) {
    channel.sendToQueue(queue, Buffer.from(String(number)));
  }
  await channel.waitForConfirms();
  return { channel, queue };
}

// The next `count` messages from an offset, as [offset, body].
async function read(channel, queue, offset, count) {
  const found = [];
  let done;
  const enough = new Promise((resolve) => { done = resolve; });
  const { consumerTag } = await channel.consume(queue, (message) => {
    found.push([message.properties.headers['x-stream-offset'], message.content.toString()]);
    channel.ack(message);
    if (found.length === count) done();
  }, { arguments: { 'x-stream-offset': offset } });
  await enough;
  await channel.cancel(consumerTag);
  return found;
}

test('reads a stream from the first message, and again from an offset', async () => {
  const { channel, queue } = await filled('stream', 5);
  await channel.prefetch(2);
  const all = [0, 1, 2, 3, 4].map((number) => [number, String(number)]);
  assert.deepEqual(await read(channel, queue, 'first', 5), all);
  assert.deepEqual(await read(channel, queue, 3, 2), all.slice(3));
  await channel.close();
});

test('is told that a stream wants a prefetch', async () => {
  const { channel, queue } = await filled('prefetch', 1);
  const closed = once(channel, 'error');
  await assert.rejects(channel.consume(queue, () => {}), /prefetch count is not set/);
  assert.equal((await closed)[0].code, 406);
});
