// amqplib's callback API: the same broker through nested callbacks.
'use strict';

const assert = require('node:assert/strict');
const { after, test } = require('node:test');
const amqp = require('amqplib/callback_api');
const { url, fresh, cleanUp } = require('./names');

after(cleanUp);

test('publishes, consumes and closes', (t, done) => {
  amqp.connect(url, (error, connection) => {
    assert.ifError(error);
    connection.createChannel((error, channel) => {
      assert.ifError(error);
      channel.assertQueue(fresh('callback'), { durable: false }, (error, { queue }) => {
        assert.ifError(error);
        channel.consume(queue, (message) => {
          assert.equal(message.content.toString(), 'hello');
          channel.ack(message);
          connection.close(done);
        }, {}, (error) => {
          assert.ifError(error);
          channel.sendToQueue(queue, Buffer.from('hello'));
        });
      });
    });
  });
});

test('confirms each publish to its own callback', (t, done) => {
  amqp.connect(url, (error, connection) => {
    assert.ifError(error);
    connection.createConfirmChannel((error, channel) => {
      assert.ifError(error);
      const queue = fresh('confirmed');
      let confirmed = 0;
      channel.assertQueue(queue);
      for (let n = 0; n < 100; n++) {
        channel.sendToQueue(queue, Buffer.from(String(n)), {}, (error) => {
          assert.ifError(error);
          confirmed += 1;
        });
      }
      channel.waitForConfirms((error) => {
        assert.ifError(error);
        assert.equal(confirmed, 100);
        connection.close(done);
      });
    });
  });
});

test('gives errors to the callback', (t, done) => {
  amqp.connect(url, (error, connection) => {
    assert.ifError(error);
    connection.createChannel((error, channel) => {
      assert.ifError(error);
      const codes = [];
      channel.on('error', (error) => codes.push(error.code));
      channel.on('close', () => {
        assert.deepEqual(codes, [404, 404]);
        connection.close(done);
      });
      channel.checkExchange('clients.missing', (error) => codes.push(error.code));
    });
  });
});
