// Unique names for queues and exchanges, and their removal.
// A test takes every name from `fresh`; `cleanUp` deletes them over a connection of its own.
'use strict';

const { randomUUID } = require('node:crypto');
const amqp = require('amqplib');

const url = process.env.LEVERET_APP_BROKER;
const names = [];

function fresh(name) {
  names.push(`clients.node.${name}.${randomUUID().slice(0, 8)}`);
  return names[names.length - 1];
}

async function cleanUp() {
  const connection = await amqp.connect(url);
  const channel = await connection.createChannel();
  for (const name of names) {
    await channel.deleteQueue(name);
    await channel.deleteExchange(name);
  }
  await connection.close();
}

module.exports = { url, fresh, cleanUp };
