// One exactly-once loop of Kafka's own client: what is consumed in a group is produced in a transaction with its offsets.
//
// Arguments: bootstrap server, group, protocol of the group (classic, consumer), topic to read, topic to write, number of
// records. Prints what was committed, as "partition offset" lines.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Exchange {
    public static void main(String[] arguments) {
        String group = arguments[1], source = arguments[3], sink = arguments[4];
        int wanted = Integer.parseInt(arguments[5]);
        Properties shared = new Properties();
        shared.put("bootstrap.servers", arguments[0]);
        Properties consuming = new Properties(), producing = new Properties();
        consuming.putAll(shared);
        consuming.put("group.id", group);
        consuming.put("group.protocol", arguments[2]);
        consuming.put("enable.auto.commit", "false");
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("isolation.level", "read_committed");
        producing.putAll(shared);
        producing.put("transactional.id", group);
        try (KafkaProducer<String, String> producer =
                        new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
                KafkaConsumer<String, String> consumer =
                        new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            producer.initTransactions();
            for (int number = 0; number < wanted; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(source, "value " + number));
                producer.commitTransaction();
            }
            consumer.subscribe(List.of(source));
            for (int seen = 0; seen < wanted; ) {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    producer.send(new ProducerRecord<>(sink, record.value()));
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    offsets.put(place, new OffsetAndMetadata(record.offset() + 1));
                    seen++;
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
            }
            consumer.committed(consumer.assignment())
                    .forEach((place, offset) -> System.out.println(place.partition() + " " + offset.offset()));
        }
    }
}
