import static java.util.concurrent.TimeUnit.SECONDS;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;

/**
 * Kafka Streams. Arguments: bootstrap, topic, group, steps and, optionally, the group protocol. The environment variable
 * TMPDIR names the folder for its state, which the caller removes.
 */
final class Streams {
    private static final int WORDS = 10;
    private static final int SECONDS_PER_REQUEST = 30;

    private final String bootstrap;
    private final String topic;
    private final String group;
    private final boolean ownProtocol;

    private Streams(String[] args) {
        bootstrap = args[0];
        topic = args[1];
        group = args[2];
        ownProtocol = args.length > 4;
    }

    public static void main(String[] args) {
        Streams streams = new Streams(args);
        new Steps()
                .with("produce", streams::produce)
                .with("count", () -> streams.count("count", Map.of()))
                .with("exactly-once", () -> streams.count("once", Map.of("processing.guarantee", "exactly_once_v2")))
                .with("rebalance", streams::rebalance)
                .with("groups", streams::groups)
                .run(args[3]);
    }

    private void produce() throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "delivery.timeout.ms", 30000,
                "request.timeout.ms", 25000, "max.block.ms", 30000));
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            List<Future<?>> sent = new ArrayList<>();
            for (int number = 0; number < Steps.RECORDS; number++) {
                String word = "word" + number % WORDS;
                sent.add(producer.send(new ProducerRecord<>(topic, number % Steps.PARTITIONS, null, word)));
            }
            for (Future<?> each : sent) {
                each.get(SECONDS_PER_REQUEST, SECONDS);
            }
        }
    }

    /** Counts words by a repartitioning, and reads the counts. */
    private void count(String name, Map<String, String> more) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(topic)
                .groupBy((key, word) -> name + " " + word)
                .count()
                .toStream()
                .mapValues(String::valueOf)
                .to(topic + "-out");
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "isolation.level",
                "read_committed", "auto.offset.reset", "earliest"));
        try (KafkaStreams app = started(group + "-" + name, builder.build(), more);
                KafkaConsumer<String, String> reader =
                        new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int number = 0; number < Steps.PARTITIONS; number++) {
                partitions.add(new TopicPartition(topic + "-out", number));
            }
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            Map<String, String> counts = new HashMap<>();
            Steps.until("all counts", () -> {
                reader.poll(Duration.ofMillis(100)).forEach(record -> {
                    if (record.key().startsWith(name + " ")) {
                        counts.put(record.key(), record.value());
                    }
                });
                return counts.size() == WORDS && counts.values().stream().allMatch("10"::equals);
            });
        }
    }

    private void rebalance() throws Exception {
        String name = group + "-r";
        try (KafkaStreams first = started(name, passing(), Map.of())) {
            Steps.until("the first instance has all tasks", () -> tasks(first) == Steps.PARTITIONS);
            KafkaStreams second = started(name, passing(), Map.of());
            try {
                Steps.until("the instances share the tasks",
                        () -> tasks(first) == Steps.PARTITIONS / 2 && tasks(second) == Steps.PARTITIONS / 2);
            } finally {
                second.close(Duration.ofSeconds(SECONDS_PER_REQUEST));
            }
            Steps.until("all tasks come back", () -> tasks(first) == Steps.PARTITIONS);
        }
    }

    private void groups() throws Exception {
        String name = group + "-a";
        try (KafkaStreams app = started(name, passing(), Map.of());
                Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Steps.until("the instance has all tasks", () -> tasks(app) == Steps.PARTITIONS);
            boolean listed = admin.listGroups().all().get(SECONDS_PER_REQUEST, SECONDS).stream()
                    .anyMatch(each -> each.groupId().equals(name));
            Steps.check(listed, "the group is not listed");
            int members = ownProtocol
                    ? admin.describeStreamsGroups(List.of(name)).describedGroups().get(name)
                            .get(SECONDS_PER_REQUEST, SECONDS).members().size()
                    : admin.describeConsumerGroups(List.of(name)).describedGroups().get(name)
                            .get(SECONDS_PER_REQUEST, SECONDS).members().size();
            Steps.check(members == 1, members + " members");
        }
    }

    private Topology passing() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(topic).foreach((key, value) -> { });
        return builder.build();
    }

    private static int tasks(KafkaStreams app) {
        try {
            Thread.sleep(100);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
        return app.metadataForLocalThreads().stream().mapToInt(each -> each.activeTasks().size()).sum();
    }

    private KafkaStreams started(String name, Topology topology, Map<String, String> more) throws Exception {
        Path state = Files.createTempDirectory(Path.of(System.getenv("TMPDIR")), "streams");
        Properties settings = new Properties();
        settings.put("application.id", name);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("state.dir", state.toString());
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("replication.factor", "1");
        settings.put("commit.interval.ms", "200");
        settings.put("auto.offset.reset", "earliest");
        if (ownProtocol) {
            settings.put("group.protocol", "streams");
        } else {
            // A closed instance of a classic group does not leave: its session has to expire.
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "300");
        }
        settings.putAll(more);
        KafkaStreams app = new KafkaStreams(topology, settings);
        app.start();
        return app;
    }
}
