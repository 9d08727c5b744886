// Mistakes through amqplib: each gives an error with the right code, on the right level.
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

// Runs `mistake` on a channel of its own; the channel must close with `code`.
async function closesChannel(code, mistake) {
  const channel = await connection.createChannel();
  const failed = once(channel, 'error');
  try {
    await mistake(channel);
  } catch (error) {
    assert.equal(error.code, code, error.message);
  }
  const [error] = await failed;
  assert.equal(error.code, code, error.message);
}

test('a missing queue or exchange is 404', async () => {
  await closesChannel(404, (channel) => channel.checkQueue('clients.missing'));
  await closesChannel(404, (channel) => channel.checkExchange('clients.missing'));
  await closesChannel(404, (channel) => channel.consume('clients.missing', () => {}));
  await closesChannel(404, (channel) => channel.get('clients.missing'));
  await closesChannel(404, (channel) => channel.publish('clients.missing', '', Buffer.alloc(0)));
});

test('an inequivalent redeclare is 406', async () => {
  const channel = await connection.createChannel();
  const { queue } = await channel.assertQueue(fresh('differs'), { durable: true });
  const exchange = fresh('differs');
  await channel.assertExchange(exchange, 'fanout');
  await closesChannel(406, (other) => other.assertQueue(queue, { durable: false }));
  await closesChannel(406, (other) => other.assertExchange(exchange, 'direct'));
  await channel.close();
});

test('an exclusive queue of another connection is 405', async () => {
  const owner = await amqp.connect(url);
  const channel = await owner.createChannel();
  const { queue } = await channel.assertQueue('', { exclusive: true });
  await closesChannel(405, (other) => other.checkQueue(queue));
  await owner.close();
});

test('an unknown delivery tag is 406, once the broker sees it', async () => {
  await closesChannel(406, (channel) => channel.ack({ fields: { deliveryTag: 99 } }));
});

test('a reserved name is 403', async () => {
  await closesChannel(403, (channel) => channel.assertQueue('amq.reserved'));
});

test('a second consumer beside an exclusive one is 403', async () => {
  const channel = await connection.createChannel();
  const { queue } = await channel.assertQueue(fresh('single'));
  await channel.consume(queue, () => {}, { exclusive: true });
  await closesChannel(403, (other) => other.consume(queue, () => {}));
  await channel.close();
});

test('the other channels of the connection go on', async () => {
  const channel = await connection.createChannel();
  await closesChannel(404, (other) => other.checkQueue('clients.missing'));
  assert.ok((await channel.assertQueue('', { exclusive: true })).queue.startsWith('amq.gen-'));
  await channel.close();
});

test('a consumer tag used twice closes the connection with 530', async () => {
  const doomed = await amqp.connect(url);
  const failed = once(doomed, 'error');
  const channel = await doomed.createChannel();
  channel.on('error', () => {});
  const { queue } = await channel.assertQueue('', { exclusive: true });
  await channel.consume(queue, () => {}, { consumerTag: 'twice' });
  await assert.rejects(channel.consume(queue, () => {}, { consumerTag: 'twice' }));
  const [error] = await failed;
  assert.equal(error.code, 530);
});

test('bad credentials and a missing vhost are refused', async () => {
  const broker = new URL(url);
  broker.password = 'wrong';
  await assert.rejects(amqp.connect(broker.href), /403/);
  await assert.rejects(amqp.connect(new URL('/clients.missing', url).href), /ConnectionClose/);
});
