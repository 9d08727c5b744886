// amqplib's promise API: topology, confirms, consuming, RPC, alternate exchange, cancel.
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

// The next `count` messages of a queue, acknowledged.
async function take(channel, queue, count) {
  const messages = [];
  let done;
  const enough = new Promise((resolve) => { done = resolve; });
  const { consumerTag } = await channel.consume(queue, (message) => {
    messages.push(message);
    channel.ack(message);
    if (messages.length === count) done();
  });
  await enough;
  await channel.cancel(consumerTag);
  return messages;
}

test('declares, publishes and consumes with every property', async () => {
  const channel = await connection.createChannel();
  const queue = fresh('properties');
  assert.deepEqual(await channel.assertQueue(queue), { queue, messageCount: 0, consumerCount: 0 });
  const options = {
    contentType: 'application/json', contentEncoding: 'utf-8', persistent: true, priority: 3,
    correlationId: 'c', replyTo: 'r', expiration: '60000', messageId: 'm', timestamp: 1700000000,
    type: 't', userId: 'guest', appId: 'a', headers: { n: 1, deep: { list: [1, 'two', false] } },
  };
  channel.sendToQueue(queue, Buffer.from('{}'), options);
  const [message] = await take(channel, queue, 1);
  assert.equal(message.content.toString(), '{}');
  assert.equal(message.fields.routingKey, queue);
  const { persistent, ...sent } = options;
  for (const [name, value] of Object.entries(sent)) {
    assert.deepEqual(message.properties[name], value, name);
  }
  assert.equal(message.properties.deliveryMode, 2);
  await channel.close();
});

test('confirms a thousand publishes', async () => {
  const channel = await connection.createConfirmChannel();
  const { queue } = await channel.assertQueue(fresh('confirms'));
  for (let n = 0; n < 1000; n++) channel.sendToQueue(queue, Buffer.from(String(n)));
  await channel.waitForConfirms();
  assert.equal((await channel.checkQueue(queue)).messageCount, 1000);
  assert.equal((await channel.purgeQueue(queue)).messageCount, 1000);
  await channel.close();
});

test('nacks a publish to a full queue', async () => {
  const channel = await connection.createConfirmChannel();
  const args = { maxLength: 1, arguments: { 'x-overflow': 'reject-publish' } };
  const { queue } = await channel.assertQueue(fresh('full'), args);
  channel.sendToQueue(queue, Buffer.from('fits'));
  await channel.waitForConfirms();
  channel.sendToQueue(queue, Buffer.from('does not'));
  await assert.rejects(channel.waitForConfirms(), /nacked/);
  await channel.close();
});

test('returns a mandatory message that has no queue, then confirms it', async () => {
  const channel = await connection.createConfirmChannel();
  const events = [];
  channel.on('return', (message) => events.push(message.fields.replyText));
  channel.publish('amq.direct', 'nobody', Buffer.from('x'), { mandatory: true }, (error) => {
    events.push(error === null ? 'ack' : 'nack');
  });
  await channel.waitForConfirms();
  assert.deepEqual(events, ['NO_ROUTE', 'ack']);
  await channel.close();
});

test('answers calls over direct reply-to', async () => {
  const server = await connection.createChannel();
  const { queue } = await server.assertQueue(fresh('rpc'));
  await server.consume(queue, (message) => {
    const { replyTo, correlationId } = message.properties;
    const answer = String(Number(message.content) ** 2);
    server.sendToQueue(replyTo, Buffer.from(answer), { correlationId });
    server.ack(message);
  });
  const client = await connection.createChannel();
  const answers = new Map();
  let done;
  const enough = new Promise((resolve) => { done = resolve; });
  await client.consume('amq.rabbitmq.reply-to', (message) => {
    answers.set(message.properties.correlationId, message.content.toString());
    if (answers.size === 10) done();
  }, { noAck: true });
  for (let n = 0; n < 10; n++) {
    const options = { replyTo: 'amq.rabbitmq.reply-to', correlationId: `c${n}` };
    client.sendToQueue(queue, Buffer.from(String(n)), options);
  }
  await enough;
  assert.equal(answers.get('c7'), '49');
  await client.close();
  await server.close();
});

test('sends what has no route to the alternate exchange', async () => {
  const channel = await connection.createConfirmChannel();
  const [main, spare, queue] = [fresh('main'), fresh('spare'), fresh('unrouted')];
  await channel.assertExchange(spare, 'fanout');
  await channel.assertExchange(main, 'direct', { alternateExchange: spare });
  await channel.assertQueue(queue);
  await channel.bindQueue(queue, spare, '');
  channel.publish(main, 'nobody', Buffer.from('saved'));
  await channel.waitForConfirms();
  const message = await channel.get(queue, { noAck: true });
  assert.equal(message.content.toString(), 'saved');
  assert.equal(await channel.get(queue), false);
  await channel.close();
});

test('binds exchanges to exchanges', async () => {
  const channel = await connection.createConfirmChannel();
  const [source, destination, queue] = [fresh('source'), fresh('destination'), fresh('bound')];
  await channel.assertExchange(source, 'topic');
  await channel.assertExchange(destination, 'fanout', { internal: true });
  await channel.assertQueue(queue);
  await channel.bindExchange(destination, source, '*.b');
  await channel.bindQueue(queue, destination, '');
  channel.publish(source, 'a.b', Buffer.from('1'));
  await channel.waitForConfirms();
  await channel.unbindExchange(destination, source, '*.b');
  channel.publish(source, 'a.b', Buffer.from('2'));
  await channel.waitForConfirms();
  assert.equal((await channel.checkQueue(queue)).messageCount, 1);
  await channel.close();
});

test('tells a consumer that its queue was deleted', async () => {
  const channel = await connection.createChannel();
  const { queue } = await channel.assertQueue(fresh('doomed'));
  const cancelled = new Promise((resolve, reject) => {
    channel.consume(queue, (message) => {
      if (message === null) resolve();
    }).then(() => channel.deleteQueue(queue)).catch(reject);
  });
  await cancelled;
  await channel.close();
});

test('limits deliveries by prefetch and redelivers what is nacked', async () => {
  const channel = await connection.createChannel();
  const { queue } = await channel.assertQueue(fresh('prefetch'));
  await channel.prefetch(1);
  for (const body of ['a', 'b', 'c']) channel.sendToQueue(queue, Buffer.from(body));
  const seen = [];
  await new Promise((resolve) => {
    channel.consume(queue, (message) => {
      seen.push(message.content.toString() + (message.fields.redelivered ? '!' : ''));
      if (seen.length === 1) channel.nack(message, false, true);
      else channel.ack(message);
      if (seen.length === 4) resolve();
    });
  });
  assert.deepEqual(seen, ['a', 'a!', 'b', 'c']);
  await channel.close();
});

test('carries bodies larger than a frame', async () => {
  const channel = await connection.createConfirmChannel();
  const { queue } = await channel.assertQueue(fresh('large'));
  const body = Buffer.alloc(1 << 20, 'leveret');
  channel.sendToQueue(queue, body);
  await channel.waitForConfirms();
  const message = await channel.get(queue, { noAck: true });
  assert.equal(Buffer.compare(message.content, body), 0);
  await channel.close();
});

test('serves priorities and dead-letters expired messages', async () => {
  const channel = await connection.createConfirmChannel();
  const dead = fresh('dead');
  await channel.assertQueue(dead);
  const { queue } = await channel.assertQueue(fresh('priority'), {
    maxPriority: 5, messageTtl: 300, deadLetterExchange: '', deadLetterRoutingKey: dead,
  });
  for (const priority of [1, 5, 3]) {
    channel.sendToQueue(queue, Buffer.from(String(priority)), { priority });
  }
  await channel.waitForConfirms();
  const first = await channel.get(queue, { noAck: true });
  assert.equal(first.content.toString(), '5');
  const buried = await take(channel, dead, 2);
  assert.deepEqual(buried.map((m) => m.properties.headers['x-death'][0].reason),
    ['expired', 'expired']);
  await channel.close();
});

test('closes a connection before its own publishes have left', async () => {
  // The client sends connection.close ahead of what its channels have buffered.
  const hasty = await amqp.connect(url);
  const channel = await hasty.createChannel();
  const { queue } = await channel.assertQueue('', { exclusive: true });
  while (channel.sendToQueue(queue, Buffer.from('buffered'))) { /* until the buffer is full */ }
  await hasty.close();
});

test('updates its secret and keeps heartbeats', async () => {
  const beating = await amqp.connect(`${url}?heartbeat=1`);
  await beating.updateSecret(Buffer.from('guest'), 'rotation');
  const silence = new Promise((resolve) => { setTimeout(() => resolve('alive'), 3500); });
  const outcome = await Promise.race([silence, once(beating, 'close'), once(beating, 'error')]);
  assert.equal(outcome, 'alive');
  await beating.close();
});
