// Confluent's client for JavaScript, the successor of node-rdkafka. Arguments: bootstrap, topic, group, steps.
"use strict";

const { Kafka, logLevel } = require("@confluentinc/kafka-javascript").KafkaJS;

const { main } = require("./client");

main({
  kafka: (bootstrap) => new Kafka({ kafkaJS: { brokers: [bootstrap], logLevel: logLevel.NOTHING } }),
  producer: (kafka, settings) => kafka.producer({ kafkaJS: { acks: -1, ...settings } }),
  consumer: (kafka, groupId) =>
    kafka.consumer({
      kafkaJS: { groupId, fromBeginning: true, autoCommit: false, heartbeatInterval: 300, sessionTimeout: 10000 },
    }),
  subscribe: (consumer, topic) => consumer.subscribe({ topic }),
  eachMessage: (consumer, eachMessage) => consumer.run({ eachMessage }),
  send: (producer, batch) => producer.send(batch),
  // This client takes the group from a connected consumer.
  sendOffsets: async (transaction, kafka, groupId, topics) => {
    const consumer = kafka.consumer({ kafkaJS: { groupId } });
    await consumer.connect();
    await transaction.sendOffsets({ consumer, topics });
    await consumer.disconnect();
  },
  offsets: async (admin, groupId, topic) => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions,
  held: (consumer) => () => {
    try {
      return consumer.assignment().length;
    } catch {
      return 0; // The consumer is not connected yet.
    }
  },
  assigned: (member, topic) =>
    member.assignment.topicPartitions.filter((each) => each.topic === topic).length,
});
