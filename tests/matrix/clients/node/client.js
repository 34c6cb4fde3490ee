// The steps of KafkaJS and of Confluent's client, whose interface is that of KafkaJS. Only their settings differ.
"use strict";

const { BOOTSTRAP, TOPIC, GROUP, RECORDS, PARTITIONS, check, until, run } = require("./steps");

const HALF = PARTITIONS / 2;

/**
 * Runs the steps with a library, which has the functions kafka(bootstrap), producer(kafka, settings), consumer(kafka,
 * group), subscribe(consumer, topic), eachMessage(consumer, callback), send(producer, batch), sendOffsets(transaction,
 * kafka, group, topics), offsets(admin, group, topic), held(consumer) and assigned(member, topic). If `repeats` is true,
 * the library may deliver a record twice to the same member.
 */
function main(library) {
  const kafka = library.kafka(BOOTSTRAP);

  async function produce() {
    const producer = library.producer(kafka, {});
    await producer.connect();
    const messages = [];
    for (let number = 0; number < RECORDS; number++) {
      messages.push({ partition: number % PARTITIONS, value: `v${number}` });
    }
    await library.send(producer, { topic: TOPIC, messages });
    await producer.disconnect();
  }

  async function member(group, topic, callback) {
    const consumer = library.consumer(kafka, group);
    const joined = { consumer, held: library.held(consumer) };
    await consumer.connect();
    await library.subscribe(consumer, topic);
    await library.eachMessage(consumer, callback || (async () => {}));
    return joined;
  }

  async function committed(group) {
    const admin = kafka.admin();
    await admin.connect();
    const places = await library.offsets(admin, group, TOPIC);
    await admin.disconnect();
    return places.reduce((sum, each) => sum + Math.max(Number(each.offset), 0), 0);
  }

  async function consume() {
    const values = [];
    const next = {};
    const { consumer } = await member(GROUP, TOPIC, async ({ partition, message }) => {
      values.push(message.value.toString());
      next[partition] = String(Number(message.offset) + 1);
    });
    await until("all records", () => new Set(values).size === RECORDS);
    check(library.repeats || values.length === RECORDS, `${values.length} records`);
    const offsets = Object.entries(next).map(([partition, offset]) => ({ topic: TOPIC, partition: Number(partition), offset }));
    await consumer.commitOffsets(offsets);
    await consumer.disconnect();
    const total = await committed(GROUP);
    check(total === RECORDS, `committed offsets: ${total}`);
  }

  async function rebalance() {
    const first = await member(`${GROUP}-r`, TOPIC);
    await until("the first member has all partitions", () => first.held() === PARTITIONS);
    const second = await member(`${GROUP}-r`, TOPIC);
    await until("the members share the partitions", () => first.held() === HALF && second.held() === HALF);
    await second.consumer.disconnect();
    await until("all partitions come back", () => first.held() === PARTITIONS);
    await first.consumer.disconnect();
  }

  async function transactions() {
    const producer = library.producer(kafka, { transactionalId: `${GROUP}-x`, idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    const aborted = await inTransaction(producer, "aborted", 9);
    await aborted.abort();
    const done = await inTransaction(producer, "committed", 5);
    await done.commit();
    await producer.disconnect();
    const values = [];
    const { consumer } = await member(`${GROUP}-y`, `${TOPIC}-t`, async ({ message }) => {
      values.push(message.value.toString());
    });
    await until("the committed records", () => values.length >= 3);
    await consumer.disconnect();
    check(values.join() === "committed0,committed1,committed2", `read ${values}`);
    const total = await committed(`${GROUP}-t`);
    check(total === 5, `the offset of the transaction is ${total}`);
  }

  async function inTransaction(producer, value, offset) {
    const transaction = await producer.transaction();
    const messages = [0, 1, 2].map((number) => ({ partition: 0, value: `${value}${number}` }));
    await library.send(transaction, { topic: `${TOPIC}-t`, messages });
    const topics = [{ topic: TOPIC, partitions: [{ partition: 0, offset: String(offset) }] }];
    await library.sendOffsets(transaction, kafka, `${GROUP}-t`, topics);
    return transaction;
  }

  async function admin() {
    const described = `${GROUP}-a`;
    const { consumer, held } = await member(described, TOPIC);
    await until("the member has all partitions", () => held() === PARTITIONS);
    const asking = kafka.admin();
    await asking.connect();
    check((await asking.listTopics()).includes(TOPIC), "no topic");
    const { groups } = await asking.listGroups();
    check(groups.some((each) => each.groupId === described), "the group is not listed");
    const [group] = (await asking.describeGroups([described])).groups;
    check(group.members.length === 1, `${group.members.length} members`);
    const count = library.assigned(group.members[0], TOPIC);
    check(count === PARTITIONS, `${count} partitions are assigned`);
    await asking.disconnect();
    await consumer.disconnect();
    const total = await committed(GROUP);
    check(total === RECORDS, `committed offsets: ${total}`);
  }

  run({ produce, consume, rebalance, transactions, admin });
}

module.exports = { main };
