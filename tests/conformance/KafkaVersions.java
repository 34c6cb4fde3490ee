// The versions of each API in the kafka-clients jar of Kafka 0.9, where each lies in a table under its key.

import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Protocol;

public class KafkaVersions {
    public static void main(String[] arguments) {
        for (ApiKeys key : ApiKeys.values()) {
            for (int version = 0; version < Protocol.REQUESTS[key.id].length; version++) {
                if (Protocol.REQUESTS[key.id][version] != null) {
                    System.out.println(key.id + " " + version);
                }
            }
        }
    }
}
