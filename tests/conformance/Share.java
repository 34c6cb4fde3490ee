// A share consumer of Kafka's own client (KIP-932).
//
// Arguments: bootstrap server, share group, topic, number of records. Produces the records, and consumes and acknowledges
// them in the share group. Prints the values in order.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Share {
    public static void main(String[] arguments) throws Exception {
        String group = arguments[1], topic = arguments[2];
        int wanted = Integer.parseInt(arguments[3]);
        Properties shared = new Properties();
        shared.put("bootstrap.servers", arguments[0]);
        Properties consuming = new Properties();
        consuming.putAll(shared);
        consuming.put("group.id", group);
        try (Admin admin = Admin.create(shared);
                KafkaProducer<String, String> producer =
                        new KafkaProducer<>(shared, new StringSerializer(), new StringSerializer());
                KafkaShareConsumer<String, String> consumer =
                        new KafkaShareConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            AlterConfigOp earliest =
                    new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
            for (int number = 0; number < wanted; number++) {
                producer.send(new ProducerRecord<>(topic, "value " + number)).get();
            }
            consumer.subscribe(List.of(topic));
            TreeSet<String> seen = new TreeSet<>();
            while (seen.size() < wanted) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    seen.add(record.value());
                }
                consumer.commitSync().values().forEach(failed -> failed.ifPresent(error -> {
                    throw error;
                }));
            }
            seen.forEach(System.out::println);
        }
    }
}
