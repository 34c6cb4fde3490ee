import static java.util.concurrent.TimeUnit.SECONDS;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java client. Arguments: bootstrap, topic, group, steps and, optionally, the group protocol. */
final class Client {
    private static final int SECONDS_PER_REQUEST = 30;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long COMMIT_NANOSECONDS = 500_000_000;

    private final String bootstrap;
    private final String topic;
    private final String group;
    private final String protocol;

    private Client(String[] args) {
        bootstrap = args[0];
        topic = args[1];
        group = args[2];
        protocol = args.length > 4 ? args[4] : "";
    }

    public static void main(String[] args) {
        Client client = new Client(args);
        new Steps()
                .with("produce", client::produce)
                .with("consume", client::consume)
                .with("rebalance", client::rebalance)
                .with("transactions", client::transactions)
                .with("admin", client::admin)
                .with("stay", client::stay)
                .run(args[3]);
    }

    private void produce() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of("enable.idempotence", "false"))) {
            List<Future<?>> sent = new ArrayList<>();
            for (int number = 0; number < Steps.RECORDS; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, number % Steps.PARTITIONS, null, "v" + number)));
            }
            for (Future<?> each : sent) {
                each.get(SECONDS_PER_REQUEST, SECONDS);
            }
        }
    }

    private void consume() {
        try (KafkaConsumer<String, String> consumer = consumer(group, Map.of())) {
            consumer.subscribe(List.of(topic));
            List<String> values = new ArrayList<>();
            Steps.until("all records", () -> {
                consumer.poll(POLL).forEach(record -> values.add(record.value()));
                return new HashSet<>(values).size() == Steps.RECORDS;
            });
            Steps.check(values.size() == Steps.RECORDS, values.size() + " records");
            consumer.commitSync();
            Steps.check(total(consumer.committed(consumer.assignment())) == Steps.RECORDS, "committed offsets");
        }
    }

    private void rebalance() {
        String shared = group + "-r";
        try (KafkaConsumer<String, String> first = consumer(shared, Map.of())) {
            first.subscribe(List.of(topic));
            Steps.until("the first member has all partitions", () -> polled(first) == Steps.PARTITIONS);
            try (KafkaConsumer<String, String> second = consumer(shared, Map.of())) {
                second.subscribe(List.of(topic));
                Steps.until("the members share the partitions",
                        () -> polled(first) == Steps.PARTITIONS / 2 & polled(second) == Steps.PARTITIONS / 2);
            }
            Steps.until("all partitions come back", () -> polled(first) == Steps.PARTITIONS);
        }
    }

    private void transactions() {
        Map<String, String> settings = Map.of("transactional.id", group + "-x");
        try (KafkaProducer<String, String> producer = producer(settings)) {
            producer.initTransactions();
            inTransaction(producer, "aborted", 9);
            producer.abortTransaction();
            inTransaction(producer, "committed", 5);
            producer.commitTransaction();
        }
        try (KafkaConsumer<String, String> reader = consumer(group + "-t", Map.of("isolation.level", "read_committed"))) {
            TopicPartition written = new TopicPartition(topic + "-t", 0);
            TopicPartition source = new TopicPartition(topic, 0);
            reader.assign(List.of(written));
            reader.seekToBeginning(List.of(written));
            List<String> values = new ArrayList<>();
            Steps.until("the committed records", () -> {
                for (ConsumerRecord<String, String> record : reader.poll(POLL)) {
                    values.add(record.value());
                }
                return values.size() >= 3;
            });
            Steps.check(values.equals(List.of("committed0", "committed1", "committed2")), "read " + values);
            OffsetAndMetadata offset = reader.committed(Set.of(source)).get(source);
            Steps.check(offset != null && offset.offset() == 5, "the offset of the transaction is " + offset);
        }
    }

    private void inTransaction(KafkaProducer<String, String> producer, String value, long offset) {
        producer.beginTransaction();
        for (int number = 0; number < 3; number++) {
            producer.send(new ProducerRecord<>(topic + "-t", 0, null, value + number));
        }
        producer.flush();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets.put(new TopicPartition(topic, 0), new OffsetAndMetadata(offset));
        producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group + "-t"));
    }

    private void admin() throws Exception {
        String described = group + "-a";
        try (KafkaConsumer<String, String> member = consumer(described, Map.of());
                Admin admin = Admin.create(settings(Map.of("default.api.timeout.ms", "30000")))) {
            member.subscribe(List.of(topic));
            Steps.until("the member has all partitions", () -> polled(member) == Steps.PARTITIONS);
            Steps.check(admin.listTopics().names().get(SECONDS_PER_REQUEST, SECONDS).contains(topic), "no topic");
            boolean listed = admin.listConsumerGroups().all().get(SECONDS_PER_REQUEST, SECONDS).stream()
                    .anyMatch(each -> each.groupId().equals(described));
            Steps.check(listed, "the group is not listed");
            ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(described))
                    .describedGroups().get(described).get(SECONDS_PER_REQUEST, SECONDS);
            Set<TopicPartition> assigned = new HashSet<>();
            found.members().forEach(each -> assigned.addAll(each.assignment().topicPartitions()));
            Steps.check(found.members().size() == 1, found.members().size() + " members");
            Steps.check(assigned.equals(member.assignment()), "the assignment is " + assigned);
            Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(group)
                    .partitionsToOffsetAndMetadata().get(SECONDS_PER_REQUEST, SECONDS);
            Steps.check(total(offsets) == Steps.RECORDS, "committed offsets: " + offsets);
        }
    }

    /** Two members of the group consume and commit until the process is killed. They report progress and errors. */
    private void stay() throws InterruptedException {
        List<Thread> members = new ArrayList<>();
        for (int number = 0; number < 2; number++) {
            int member = number;
            members.add(new Thread(() -> stayAs(member)));
        }
        members.forEach(Thread::start);
        for (Thread each : members) {
            each.join();
        }
    }

    private void stayAs(int member) {
        KafkaConsumer<String, String> consumer = consumer(group, Map.of());
        consumer.subscribe(List.of(topic));
        long committed = System.nanoTime();
        while (true) {
            try {
                Set<Integer> partitions = new HashSet<>();
                consumer.poll(POLL).forEach(record -> partitions.add(record.partition()));
                if (!partitions.isEmpty()) {
                    Steps.progress(member, partitions);
                }
                if (System.nanoTime() - committed > COMMIT_NANOSECONDS) {
                    committed = System.nanoTime();
                    consumer.commitAsync((offsets, error) -> {
                        if (error != null) {
                            Steps.trouble(member, error);
                        }
                    });
                }
            } catch (RuntimeException problem) {
                Steps.trouble(member, problem);
            }
        }
    }

    private static int polled(KafkaConsumer<String, String> consumer) {
        consumer.poll(POLL);
        return consumer.assignment().size();
    }

    private static long total(Map<TopicPartition, OffsetAndMetadata> offsets) {
        return offsets.values().stream().mapToLong(each -> each == null ? 0 : each.offset()).sum();
    }

    private KafkaProducer<String, String> producer(Map<String, String> more) {
        Map<String, Object> settings = settings(more);
        settings.put("acks", "all");
        settings.put("max.block.ms", "30000");
        settings.put("delivery.timeout.ms", "30000");
        settings.put("request.timeout.ms", "25000");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String groupId, Map<String, String> more) {
        Map<String, Object> settings = settings(more);
        settings.put("group.id", groupId);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("default.api.timeout.ms", "30000");
        if (protocol.isEmpty()) {
            settings.put("heartbeat.interval.ms", "300");
            settings.put("session.timeout.ms", "10000");
        } else {
            settings.put("group.protocol", protocol);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private Map<String, Object> settings(Map<String, String> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }
}
